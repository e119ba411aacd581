"""Finds nulls of a result that have no reason. Reasons name dotted paths; `*` stands for any index of a list."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from bench_image.contract.frozen import Frozen, Slotted, fields_of


def unexplained_nulls(sections: Mapping[str, object], reasons: Container[str]) -> Iterator[str]:
    """Yields the paths of all nulls within `sections` that no reason covers: neither for it nor for what holds it.

    Nothing is made of the reasons, so a hostile one costs no more than its text.
    """
    for name, value in sections.items():
        for path in _nulls(value, name):
            if not _is_covered(path, reasons):
                yield path


def _nulls(value: object, path: str) -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, Frozen | Slotted):
        for name in fields_of(type(value)):
            if _may_hold_null(item := getattr(value, name)):
                yield from _nulls(item, f"{path}.{name}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if _may_hold_null(item):
                yield from _nulls(item, f"{path}.{index}")


def _may_hold_null(item: object) -> bool:
    """Saves a call for the many numbers and texts; a list that begins with a number holds only numbers."""
    if isinstance(item, tuple):
        return not isinstance(next(iter(item), None), float)
    return item is None or isinstance(item, Frozen | Slotted)


def _is_covered(path: str, reasons: Container[str]) -> bool:
    covering = [""]  # the ways to name what holds the null: no path has more than two indices, so at most four
    for step in path.split("."):
        names = (step, "*") if step.isdecimal() else (step,)
        covering = [f"{before}.{name}" if before else name for before in covering for name in names]
        if any(name in reasons for name in covering):
            return True
    return False
