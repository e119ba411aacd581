"""Messages for refused parameters and settings: the wrong value, pydantic's sentence on it, and a close name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bench_image.contract.spec import NODE_NAME
from bench_image.contract.work import MODEL_REFERENCE
from trainbench.core.close_matches import did_you_mean
from trainbench.core.grouping import grouped
from trainbench.core.user_error import UserError
from trainbench.params.form_fields import FormField

MONTH = r"^20[0-9]{2}-(0[1-9]|1[0-2])$"
PATTERNS = {
    MONTH: "write it as 2026-11",
    NODE_NAME: "give a Kubernetes node name (lower-case letters, digits, '-' and '.')",
    MODEL_REFERENCE: "give a name, the path of a config.json, or a hub id with its revision, as name@commit",
}
# pydantic's words, by the type of the problem or by their beginning.
OF_TYPE = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "give a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "give a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "give true or false"),
    "string_type": "give text",
    "tuple_type": "give a list",
}
BEGINNINGS = {"less than or equal to": "at most", "greater than or equal to": "at least", "greater than": "more than"}


class ParamsError(UserError, ValueError):
    """Parameters are invalid; the message has each wrong value, the allowed values and the remedy. `faults`: the same
    one by one, each with the parameter, and of a list the position; nothing where several are wrong together.
    """

    def __init__(self, message: str, faults: Sequence[tuple[str, tuple[str | int, ...]]] = ()) -> None:
        super().__init__(message)
        self.faults = faults or ((message, ()),)


def refusal(error: ValidationError, fields: Mapping[str, FormField]) -> ParamsError:
    """The message for pydantic's errors, with five values at most."""
    names = {field.path: name for name, field in fields.items()}

    def place_of(loc: tuple[Any, ...]) -> tuple[str | int, ...]:
        """The field's own name, and the position in a list: inside a field, the location goes on with the member of a
        union or list.
        """
        length = next((length for length in range(1, len(loc) + 1) if loc[:length] in names), None)
        return () if length is None else (names[loc[:length]], *(part for part in loc[length:] if type(part) is int))

    problems = error.errors(include_url=False)
    # A list whose only value is wrong is not reported as too short as well.
    problems = [each for each in problems if each["type"] != "too_short" or not each["input"]] or problems
    # A field that takes a number or "auto" is reported once.
    by_place = grouped((place_of(each["loc"]), each) for each in problems)
    faults = [(_explain(of_place, place), place) for place, of_place in list(by_place.items())[:5]]
    return ParamsError("; ".join(text for text, _ in faults), faults)


def reason(problem: ErrorDetails, fields: Collection[str] = ()) -> str:
    """What pydantic says of a value, in plain words; of an unknown field those that are `fields`."""
    if problem["type"] == "extra_forbidden":
        return f"no such field{did_you_mean(str(problem['loc'][-1]), fields)}: choose from {', '.join(fields)}"
    pattern = problem.get("ctx", {}).get("pattern", "")
    if plain := PATTERNS.get(pattern) or OF_TYPE.get(problem["type"]):
        return plain
    said = problem["msg"].removeprefix("Value error, ").replace("Input should be ", "give ")
    for begin, shorter in BEGINNINGS.items():
        said = said.replace(f"give {begin} ", f"give {shorter} ")
    return said


def close_choice(problem: ErrorDetails) -> str:
    """ " (did you mean 'fsdp'?)" where a value is close to one of the choices."""
    return did_you_mean(str(problem["input"]), re.findall(r"'([^']+)'", problem.get("ctx", {}).get("expected", "")))


def _explain(problems: list[ErrorDetails], place: tuple[str | int, ...]) -> str:
    first, reasons = problems[0], " or ".join(dict.fromkeys(map(reason, problems)))
    if not place:
        return reasons
    if (name := place[0]) == "dimensions":
        shown = "" if isinstance(first["input"], dict) else f" is {first['input']!r:.120}"
        return f"{'.'.join(map(str, first['loc'][1:]))}{shown}: {reasons}"
    return f"{name} is {first['input']!r:.120}{close_choice(first)}: {reasons}"
