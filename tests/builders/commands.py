"""Commands as a script sees them, and the files that they read."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from typer.testing import CliRunner, Result

from bench_image.contract.result import RunResult
from trainbench.cli.app import app
from trainbench.cli.documents import DOCUMENTS, SCHEMAS, schema_file

ROOT = Path(__file__).parents[2]


def trainbench(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def write(folder: Path, *results: RunResult) -> None:
    for number, result in enumerate(results):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "result.json").write_text(result.model_dump_json())


def document(result: Result) -> dict[str, Any]:
    """The `data` of the document on standard output, which is checked against the published schema."""
    data: dict[str, Any] = whole_document(result)["data"]
    return data


def whole_document(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["exit_code"] == result.exit_code
    if document["command"] in DOCUMENTS:
        _validator(document["command"]).validate(document)
    return document


@cache  # it takes longer to check the schema than to check a document
def _validator(command: str) -> Draft202012Validator:
    schema = json.loads((ROOT / SCHEMAS / schema_file(command)).read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
