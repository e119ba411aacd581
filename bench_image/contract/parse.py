"""Read specs and results from outside: every field is checked, and each error names the field."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, NoReturn

from pydantic import ConfigDict, TypeAdapter, ValidationError

from bench_image.contract.frozen import ContractError, Frozen, Slotted, fields_of
from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result import RunResult
from bench_image.contract.spec import SCHEMA_VERSION, RunSpec


def parse_spec(text: str | bytes) -> RunSpec:
    """Raises ContractError, which names each wrong field."""
    try:
        return RunSpec.model_validate_json(text)
    except ValidationError as error:
        raise ContractError(f"the run spec is not valid: {explain(error)}") from None


# Hostile values of two bytes each would cost a hundred times their size; ours have 15 bytes and more.
SMALL_BYTES, LEAST_BYTES_PER_VALUE = 100_000, 10
MAX_EXPLAINED = 1000  # faults: pydantic makes a dictionary of each
_THIS_VERSION = re.compile(rb'\s*\{\s*"schema_version"\s*:\s*%d\s*,' % SCHEMA_VERSION)


def parse_result(text: str | bytes) -> RunResult:
    """A result from outside, checked: size, JSON, schema version, every field. Raises ContractError."""
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    if len(raw) > MAX_RESULT_BYTES:
        raise ContractError(f"result of {len(raw)} bytes is larger than the {MAX_RESULT_BYTES} allowed")
    if len(raw) > SMALL_BYTES and (values := sum(map(raw.count, b"[{,"))) * LEAST_BYTES_PER_VALUE > len(raw):
        raise ContractError(f"result has {values} values in {len(raw)} bytes: no run has so many in so few")
    if _THIS_VERSION.match(raw):  # nearly all of them: read once; the errors of the others are reported below
        with suppress(RecursionError):
            try:
                return RunResult.model_validate_json(text)
            except ValidationError as error:
                if error.error_count() > MAX_EXPLAINED:  # not parsed again, which would take its memory twice
                    raise ContractError(f"result breaks the contract: {explain(error)}") from None
    try:
        data = strict_json(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"result is not JSON (truncated?): {error}") from None
    if not isinstance(data, dict) or "schema_version" not in data:
        raise ContractError("result has no schema_version: not written by trainbench")
    version = data["schema_version"]
    if type(version) is not int or version != SCHEMA_VERSION:  # True == 1 and 1.0 == 1
        raise ContractError(f"result has schema_version {version!r:.80}; this version reads {SCHEMA_VERSION}")
    try:
        return RunResult.model_validate_json(text)
    except (ValidationError, RecursionError) as error:
        problem = explain(error) if isinstance(error, ValidationError) else "nested too deeply"
        raise ContractError(f"result breaks the contract: {problem}") from None


def strict_json(text: str | bytes, **hooks: Any) -> Any:
    """JSON as the standard defines it: without NaN and Infinity, which Python's parser takes. `hooks`: those of
    json.loads. Raises ValueError and RecursionError.
    """

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a JSON number")

    return json.loads(text, parse_constant=refuse, **hooks)


def explain(error: ValidationError) -> str:
    """One line: which field, which value, what is wrong; at most five fields."""
    if error.error_count() > MAX_EXPLAINED:
        return f"{error.error_count()} of its fields are wrong or unknown"
    problems = error.errors(include_url=False)
    parts = []
    for problem in problems[:5]:
        where = ".".join(str(part) for part in problem["loc"])[:300] or error.title
        value = problem["input"]
        shown = "" if isinstance(value, dict) or problem["type"] == "missing" else f" (got {_shown(value)})"
        parts.append(f"{where}: {problem['msg'].removeprefix('Value error, '):.1000}{shown}")
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return "; ".join(parts) + more


def implausible_reason(model: type[Frozen] | type[Slotted], name: str, value: object) -> str | None:
    """Why this field takes no such value: "4294967.0: Input should be less than ..."; None when it does."""
    try:
        _adapter(model, name).validate_python(value)  # type: ignore[arg-type]
    except ValidationError as error:
        return f"{_shown(value)}: {error.errors(include_url=False)[0]['msg']}"
    return None


@lru_cache
def _adapter(model: type[Frozen] | type[Slotted], name: str) -> TypeAdapter[Any]:
    field = fields_of(model)[name]
    annotated: Any = Annotated[field.annotation, field]
    return TypeAdapter(annotated, config=ConfigDict(allow_inf_nan=False))


def _shown(value: object) -> str:
    """At most 80 characters. Python itself refuses to write an integer of thousands of digits."""
    try:
        return f"{value!r:.80}"
    except (ValueError, RecursionError):
        return f"{type(value).__name__}, too long or too deep to be shown"


def json_schemas() -> dict[str, dict[str, Any]]:
    """File name -> JSON Schema of the two documents, as committed under bench_image/contract/schemas/."""
    return {
        "run-spec.v1.json": RunSpec.model_json_schema(mode="validation"),
        "run-result.v1.json": RunResult.model_json_schema(mode="serialization"),
    }
