"""Reads a YAML file that a person wrote: one document, no key twice, few values, and each with its line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from trainbench.core.formats import one_line
from trainbench.core.outside_text import outside_text

MAX_VALUES, MAX_DEPTH = 10_000, 50
Place = tuple[str | int, ...]  # keys and positions from the top of the document


class Document(NamedTuple):
    """What the file says, and the line of each value: of a mapping's that of its key."""

    value: Any
    lines: Mapping[Place, int]

    def line(self, place: Place) -> int:
        """The line of the value, or of the nearest one around it."""
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]


class YamlError(ValueError):
    """The file is no YAML that counts here. `line`: where, if one line is at fault."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def read_yaml(path: Path, max_bytes: int) -> Document:
    """Raises OSError and YamlError."""
    try:
        text = outside_text(path, max_bytes)
    except UnicodeDecodeError:
        raise YamlError("it is no text in UTF-8") from None
    except ValueError as error:
        raise YamlError(str(error)) from None
    try:
        # Counted before anything is made of it: an alias or `<<` of a kilobyte can stand for billions of values.
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return Document(None, {(): 1})
        lines = _lines(root)
        return Document(loader.construct_document(root), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = one_line(": ".join(filter(None, (error.context, error.problem))), most=500)
        raise YamlError(reason, mark.line + 1 if mark else None) from None
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # a character that YAML refuses; a date that does not exist
        raise YamlError(one_line(str(error), most=500)) from None
    except RecursionError:
        raise YamlError(f"its values lie more than {MAX_DEPTH} levels deep") from None


def _lines(root: yaml.Node) -> dict[Place, int]:
    """Place -> line. Values of aliases count as often as they are named. Raises YamlError."""
    waiting: list[tuple[Place, yaml.Node, int]] = [((), root, root.start_mark.line)]
    lines: dict[Place, int] = {}
    number = 0
    while waiting:
        place, node, line = waiting.pop()
        number += 1
        if number + len(waiting) > MAX_VALUES:
            raise YamlError(f"it has more than {MAX_VALUES:,} values")
        if len(place) > MAX_DEPTH:
            raise YamlError(f"its values lie more than {MAX_DEPTH} levels deep", line + 1)
        lines[place] = line + 1
        if isinstance(node, yaml.MappingNode):
            keys = [key.value if isinstance(key, yaml.ScalarNode) else "" for key, _ in node.value]
            for (key, value), name in zip(node.value, keys, strict=True):
                waiting.append(((*place, name), value, key.start_mark.line))
            twice = [name for name, count in Counter(keys).items() if name and count > 1]
            if twice:
                again = [key for key, _ in node.value if key.value == twice[0]][1]
                raise YamlError(f"the key '{one_line(twice[0], most=100)}' stands twice", again.start_mark.line + 1)
        elif isinstance(node, yaml.SequenceNode):
            waiting += [((*place, index), value, value.start_mark.line) for index, value in enumerate(node.value)]
    return lines
