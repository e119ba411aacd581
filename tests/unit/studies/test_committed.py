"""Packed result files: what is packed is read and unpacked as it was, and can be judged again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import committed
from bench_image.contract.parse import parse_result
from tests.builders.commands import trainbench
from trainbench.cli.base import ExitCode


def unpacked(pattern: str, folder: Path) -> None:
    command = [sys.executable, committed.__file__, "unpack", pattern, str(folder)]
    subprocess.run(command, check=True)


def test_packed_files_are_unpacked_as_they_were(tmp_path: Path) -> None:
    documents = {"a.json": {"x": [0.1, None, "é"]}, "runs/b/result.json": {"y": "{}"}}
    for name, document in documents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(document, indent=1))

    committed.pack(tmp_path)

    (packed,) = tmp_path.rglob("*.*")
    lines = [json.loads(line) for line in packed.read_text().splitlines()]
    assert {line["path"]: line["document"] for line in lines} == documents
    assert all(committed.LINE.fullmatch(line) for line in packed.read_text().splitlines())


def results_in(document: Any) -> Iterator[Any]:
    if isinstance(document, dict) and {"schema_version", "ranks", "performance"} <= document.keys():
        yield document
    elif isinstance(document, dict | list):
        for part in document.values() if isinstance(document, dict) else document:
            yield from results_in(part)


def test_every_measured_result_keeps_within_the_bounds_and_agrees_with_itself() -> None:
    """A bound that refuses what a real GPU did is too tight."""
    results = [result for text in committed.committed("*.json").values() for result in results_in(json.loads(text))]

    assert len(results) > 100
    for result in results:
        parse_result(json.dumps(result))


def test_an_unpacked_campaign_is_a_store_that_can_be_judged_again(tmp_path: Path) -> None:
    unpacked("campaigns/h200-strategies-2026-11-21/*", tmp_path / "STORE")

    done = trainbench("check", "h200-strategies-2026-11-21", "--store", str(tmp_path / "STORE"))

    assert done.exit_code in {ExitCode.OK, ExitCode.RED, ExitCode.NOT_JUDGED}, done.stderr
