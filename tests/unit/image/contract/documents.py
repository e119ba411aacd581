"""Documents of the contract as JSON, and paths into them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench_image.contract import parse as contract_parse
from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunResult
from tests.builders import PARTS, make_result, make_spec

SCHEMA_DIR = Path(contract_parse.__file__).parent / "schemas"
Document = dict[str, Any]


def spec_document(**changes: Any) -> Document:
    document = make_spec().model_dump(mode="json")
    for name, value in changes.items():
        part = next((part for part, model in PARTS.items() if name in model.model_fields), None)
        (document[part] if part else document)[name] = value
    return document


# The only nulls of `result_document`.
NULL_HERE = {
    "cost": "no price", "probes.allreduce_bus_gb_per_s": "one rank has no peer",
    "ranks.0.performance": "one rank has one pace", "ranks.0.probes": "one rank has one pace",
}  # fmt: skip


def result_document() -> Document:
    return make_result(exposed_communication_pct=4.0).model_dump(mode="json")


def parse(document: Document) -> RunResult:
    return parse_result(json.dumps(document))


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where each value of a JSON document lies, containers included."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, item in items for deeper in paths_of(item, (*path, key)))]


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def refusal(document: Document) -> str:
    """Why it is refused; empty where it is not."""
    try:
        parse(document)
    except ContractError as error:
        return str(error)
    return ""


def put(document: Document, path: tuple[Any, ...], value: Any) -> Document:
    *parents, last = path
    at(document, tuple(parents))[last] = value
    return document
