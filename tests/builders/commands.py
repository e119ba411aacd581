"""Commands as a script sees them, and the files that they read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from bench_image.contract.result import RunResult
from trainbench.cli.app import app

ROOT = Path(__file__).parents[2]


def trainbench(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def write(folder: Path, *results: RunResult) -> None:
    for number, result in enumerate(results):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "result.json").write_text(result.model_dump_json())


def document(result: Result) -> dict[str, Any]:
    """The `data` of the document on standard output."""
    data: dict[str, Any] = whole_document(result)["data"]
    return data


def whole_document(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["exit_code"] == result.exit_code
    return document
