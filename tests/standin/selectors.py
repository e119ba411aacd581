"""Label and field selectors of list and watch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.standin.status import failure

Match = Callable[[Mapping[str, Any]], bool]

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^=!]*)$")
_EXISTS = re.compile(r"^(?P<not>!?)\s*(?P<key>[A-Za-z0-9][\w./-]*)$")


def label_selector(text: str) -> Match:
    """`k=v,k!=v,k in (a,b),k notin (a,b),k,!k` -> a test on an object."""
    tests = [_label_test(part.strip()) for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    return lambda item: all(test(item["metadata"].get("labels") or {}) for test in tests)


def field_selector(text: str) -> Match:
    """`a.b=v,c!=v`"""
    tests = []
    for part in filter(None, text.split(",")):
        path, _, value = part.partition("=")
        tests.append((path.removesuffix("!").split("."), value.removeprefix("="), path.endswith("!")))
    return lambda item: all((_field(item, path) == value) != negated for path, value, negated in tests)


def _label_test(part: str) -> Callable[[Mapping[str, str]], bool]:
    if match := _SET.match(part):
        key, values = match["key"], {value.strip() for value in match["values"].split(",")}
        if match["op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.match(part):
        key, value, negated = match["key"], match["value"], match["op"] == "!="
        return lambda labels: (labels.get(key) == value) != negated
    if match := _EXISTS.match(part):
        key, absent = match["key"], bool(match["not"])
        return lambda labels: (key in labels) != absent
    raise failure(400, f"unable to parse requirement: found '{part}', expected: identifier")


def _field(item: Mapping[str, Any], path: list[str]) -> str:
    value: Any = item
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return {None: "", True: "true", False: "false"}.get(value, value) if not isinstance(value, dict) else ""
