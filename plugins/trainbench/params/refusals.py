"""Messages for refused parameters: the wrong value, the allowed values and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from bench_image.contract.spec import NODE_NAME
from bench_image.contract.work import MODEL_REFERENCE
from trainbench.core.close_matches import did_you_mean
from trainbench.core.user_error import UserError
from trainbench.params.form_fields import FormField, airflow_schema

PATTERNS = {
    NODE_NAME: "a Kubernetes node name (lower-case letters, digits, '-' and '.')",
    MODEL_REFERENCE: "a name, the path of a config.json, or a hub id with its revision, as name@commit",
}


class ParamsError(UserError, ValueError):
    """A parameter is invalid; the message has the wrong value, the allowed values and the remedy. `name`: the first
    parameter that is wrong by itself.
    """

    def __init__(self, message: str, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


def refusal(error: ValidationError, fields: Mapping[str, FormField]) -> ParamsError:
    """The message for pydantic's errors, with five values at most."""
    names = {field.path: name for name, field in fields.items()}
    problems = error.errors(include_url=False)
    # A field that takes a number or "auto" is reported once, not for each of the two.
    shown = [p for p in problems if not (p["type"] == "literal_error" and p["loc"] not in names)]
    # A list whose only value is wrong is not reported as too short as well.
    shown = [p for p in shown if p["type"] != "too_short" or not p["input"]]
    shown = (shown or problems)[:5]
    named = (names[path] for problem in shown if (path := _path(problem["loc"], names)))
    return ParamsError("; ".join(_explain(problem, names, fields) for problem in shown), next(named, None))


def _path(loc: tuple[Any, ...], names: Mapping[tuple[str, ...], str]) -> tuple[str, ...] | None:
    """The field's own path: inside a field, the location goes on with the member of a union or list."""
    return next((loc[:length] for length in range(1, len(loc) + 1) if loc[:length] in names), None)


def _explain(problem: Any, names: Mapping[tuple[str, ...], str], fields: Mapping[str, FormField]) -> str:
    loc, message = problem["loc"], str(problem["msg"]).removeprefix("Value error, ")
    path = _path(loc, names)
    if path is None:
        return message
    name = names[path]
    if name == "dimensions":
        where = ".".join(str(part) for part in (name, *loc[len(path) :]))
        shown = "" if isinstance(problem["input"], dict) else f" is {problem['input']!r:.120}"
        return f"{where}{shown}: {message}"
    allowed = _allowed(fields[name])
    advice = f"; allowed: {allowed}" if allowed and problem["type"] != "value_error" else ""
    close = did_you_mean(str(problem["input"]), map(str, _schema(fields[name]).get("enum", ())))
    if problem["type"] == "tuple_type":
        message, close = "give a list", ""
    return f"{name} is {problem['input']!r:.120}{close}: {message}{advice}"


def _schema(field: FormField) -> dict[str, Any]:
    """The JSON Schema of the field's value; of a list that of its items."""
    schema = airflow_schema(field)
    return {**schema, **schema.get("items", {})}


def _allowed(field: FormField) -> str:
    schema = _schema(field)
    if "enum" in schema:
        return ", ".join("empty" if choice is None else str(choice) for choice in schema["enum"])
    pattern = schema.get("pattern", "")
    if pattern in PATTERNS:
        return PATTERNS[pattern]
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    word = ", or auto" if pattern.startswith("^(auto|") else ""
    return f"{low} to {high}{word}" if low is not None and high is not None else ""
