"""Finds nulls of a result that have no reason. Reasons name dotted paths; `*` stands for any index of a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bench_image.contract.frozen import Frozen, Slotted, fields_of

Node = dict[str, Any]  # step of a path -> Node; END where a reason covers everything below
END = ""


def unexplained_nulls(sections: Mapping[str, object], reasons: Iterable[str]) -> Iterator[str]:
    """Yields the paths of all nulls within `sections` that no reason covers.

    Linear in the size of both: the reasons become a tree, which is walked together with the sections. A part that a
    reason covers is skipped. At each index at most two branches are followed, that of the index and that of `*`.
    """
    tree: Node = {}
    for reason in reasons:
        node = tree
        for step in reason.split("."):
            node = node.setdefault(step, {})
        node[END] = None
    for name, value in sections.items():
        yield from _within(value, name, _deeper([tree], name))


def _within(value: object, path: str, nodes: list[Node]) -> Iterator[str]:
    if any(END in node for node in nodes):
        return
    if value is None:
        yield path
    elif isinstance(value, Frozen | Slotted):
        for name in fields_of(type(value)):
            if _may_hold_null(item := getattr(value, name)):
                yield from _within(item, f"{path}.{name}", _deeper(nodes, name))
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if _may_hold_null(item):
                yield from _within(item, f"{path}.{index}", _deeper(nodes, str(index), "*"))


def _may_hold_null(item: object) -> bool:
    """Saves a call for the many numbers and texts; a list that begins with a number holds only numbers."""
    if isinstance(item, tuple):
        return not isinstance(next(iter(item), None), float)
    return item is None or isinstance(item, Frozen | Slotted)


def _deeper(nodes: list[Node], *steps: str) -> list[Node]:
    return [node[step] for node in nodes for step in steps if step in node]
