"""Read specs and results from outside: every field is checked, and each error names the field."""

from __future__ import annotations

import codecs
from functools import lru_cache
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json

from bench_image.contract.frozen import ContractError, Frozen, Slotted, fields_of
from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result import RunResult
from bench_image.contract.result_bounds import MAX_REASONS
from bench_image.contract.spec import SCHEMA_VERSION, RunSpec


def parse_spec(text: str | bytes) -> RunSpec:
    """Raises ContractError, which names each wrong field."""
    try:
        return RunSpec.model_validate(strict_json(text.encode(errors="replace") if isinstance(text, str) else text))
    except ValueError as error:
        problem = explain(error) if isinstance(error, ValidationError) else f"no JSON (truncated?): {error}"
        raise ContractError(f"the run spec is not valid: {problem}") from None


def parse_result(text: str | bytes) -> RunResult:
    """A result from outside, checked: size, JSON, schema version, every field. Raises ContractError."""
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    if len(raw) > MAX_RESULT_BYTES:
        raise ContractError(f"result of {len(raw)} bytes is larger than the {MAX_RESULT_BYTES} allowed")
    try:
        data = strict_json(raw)
    except ContractError as error:
        raise ContractError(f"result has {error}") from None
    except ValueError as error:
        raise ContractError(f"result is not JSON (truncated?): {error}") from None
    if not isinstance(data, dict) or "schema_version" not in data:
        raise ContractError("result has no schema_version: not written by trainbench")
    version = data["schema_version"]
    if type(version) is not int or version != SCHEMA_VERSION:  # True == 1 and 1.0 == 1
        raise ContractError(f"result has schema_version {version!r:.80}; this version reads {SCHEMA_VERSION}")
    try:
        return RunResult.model_validate(data)
    except ValidationError as error:
        raise ContractError(f"result breaks the contract: {explain(error)}") from None


# Bytes of memory for each mark of a JSON text, at most: of an object, of a list, of a value and of a name; null is no
# object of its own.
MARK_BYTES = {b"{": 200, b"[": 90, b",": 75, b":": 90, b":null": -40}
WIDE, WIDE_BYTES = bytes(range(0xC2, 0xF5)), 60  # begin characters beyond ASCII, each in a text larger by this
MAX_MEMORY = 9.7  # times the bytes of the text; the result of 1,000 nodes of 8 GPUs counts 9.3
SMALL_BYTES = 1_000_000  # of memory: a small text may need more than its share
MAX_NAMES, MAX_NAMES_BEYOND = 100, MAX_REASONS  # of an object; of all objects beyond that, such as lists of libraries
MAX_NAME = 4_000  # characters


def refuse_dense(raw: bytes) -> None:
    """Raises ContractError for a JSON text whose values may take more than MAX_MEMORY times its bytes."""
    counted = len(raw) + sum(raw.count(mark) * num_bytes for mark, num_bytes in MARK_BYTES.items())
    if not raw.isascii():
        counted += (len(raw) - len(raw.translate(None, WIDE))) * WIDE_BYTES
    if counted > MAX_MEMORY * len(raw) + SMALL_BYTES:
        raise ContractError(f"too many values for its {len(raw)} bytes: no program of ours writes so many in so few")


def strict_json(raw: bytes) -> Any:
    """The values of a JSON text of others: without NaN and Infinity, which are no JSON. Raises ValueError; for
    more values than its bytes allow, or names than its models know, ContractError.

    They take at most ten times the memory of the text. pydantic's own JSON takes 90 times that for `[],[],[],`, and
    700 bytes for each name that a model does not know.
    """
    refuse_dense(raw)
    data = from_json(raw.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
    beyond, waiting = 0, [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            beyond += max(0, len(value) - MAX_NAMES)
            if (longest := max(map(len, value), default=0)) > MAX_NAME:
                raise ContractError(f"a name of {longest} characters: {MAX_NAME} are allowed")
            value = value.values()
        elif not isinstance(value, list):
            continue
        waiting += (each for each in value if isinstance(each, dict | list))
    if beyond > MAX_NAMES_BEYOND:
        raise ContractError(f"{beyond} names beyond {MAX_NAMES} in an object: {MAX_NAMES_BEYOND} are allowed in all")
    return data


MAX_EXPLAINED = 1000  # faults: pydantic makes a dictionary of each


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
    # The bounds alone: of a whole field pydantic says that what it has beside them means nothing here.
    annotated: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return TypeAdapter(annotated, config=ConfigDict(allow_inf_nan=False))


def _shown(value: object) -> str:
    """At most 80 characters. Python itself refuses to write an integer of thousands of digits."""
    try:
        return f"{value[:100] if isinstance(value, str) else value!r:.80}"
    except (ValueError, RecursionError):
        return f"{type(value).__name__}, too long or too deep to be shown"


def json_schemas() -> dict[str, dict[str, Any]]:
    """File name -> JSON Schema of the two documents, as committed under bench_image/contract/schemas/."""
    return {
        "run-spec.v1.json": RunSpec.model_json_schema(mode="validation"),
        "run-result.v1.json": RunResult.model_json_schema(mode="serialization"),
    }
