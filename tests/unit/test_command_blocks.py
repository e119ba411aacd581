"""Command blocks of README and docs: each is run by a test, or says why it is not; each `trainbench` line is one that
the command takes, and each file that a line names exists.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

from tests.builders import make_result
from tests.builders.commands import trainbench, write
from trainbench.cli.app import app
from trainbench.cli.base import ExitCode
from trainbench.results.artefacts import open_store

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"(?:^<!-- (?P<marker>[^\n]+) -->\n)?^```(?:console|bash|sh)\n(?P<text>.*?)^```$", re.M | re.S)
MARKER = re.compile(r"not run: \w.{10,}|run by: tests/\S+.*")
TEST_PATH = re.compile(r"\b(?:tests|scripts)/[\w./]*\w")
OURS = re.compile(r"(?:^(?:\$ )?(?:\.venv/bin/)?|-- |scheduler )trainbench ((?:--)?[a-z].*)")
SOURCE = re.compile(r"(?:^|[\s=])((?:docs|docker|scripts|studies|tests|requirements)/[\w./-]+)(?![\w./*-])")
MADE = {"docker/.env"}  # by the reader, in the same block
HERE = "h200-aa-2026-11-21"  # a published campaign of one machine
CARRIED_OUT = {ExitCode.OK, ExitCode.RED, ExitCode.NOT_JUDGED}
# Commands that these blocks show and that need minutes, a cluster or a terminal: who runs them.
ELSEWHERE = {
    "run": "tests/unit/cli/test_cli_run.py",
    "watch": "tests/kube/test_watch.py",
    "doctor": "tests/kube/test_doctor.py",
    "nodes": "tests/kube/test_mark_nodes.py",
    "housekeeping": "tests/kube/test_housekeeping.py",
    "collect": "tests/kube/test_collect.py",
    "result": "tests/unit/cli/test_cli_result.py",
}
MEANT = {
    "DIR": HERE,
    "OTHER": "other",
    "A.json": "a.json",
    "B.json": "b.json",
    "RESULTS": HERE,
    "RESULT": "a.json",
    "NODE": "node-1",
    "CAMPAIGN": "night-1",
    "...": "because",
}


class Block(NamedTuple):
    page: str
    marker: str | None
    lines: tuple[str, ...]


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            text = block["text"].replace("\\\n", " ")
            yield Block(str(page.relative_to(ROOT)), block["marker"], tuple(filter(None, text.splitlines())))


BLOCKS = tuple(blocks())
OPEN = tuple(dict.fromkeys(line for block in BLOCKS if block.marker is None for line in block.lines))


def arguments(line: str) -> list[str]:
    """Those of a `trainbench` line, without its comment, pipe or redirection; none: it is another command."""
    match = OURS.search(line.partition(" #")[0])
    return shlex.split(re.split(r" [|>;] ", match[1])[0]) if match else []


COMMANDS = tuple(dict.fromkeys(line for block in BLOCKS for line in block.lines if arguments(line)))


def test_each_block_is_run_or_says_why_not() -> None:
    """An unmarked block holds `trainbench` commands only: this module runs them, or names who does."""
    assert len(BLOCKS) > 30
    for page, marker, lines in BLOCKS:
        if marker is None:
            assert [line for line in lines if not arguments(line)] == [], page
        else:
            assert MARKER.fullmatch(marker), f"{page}: {marker}"
            assert [path for path in TEST_PATH.findall(marker) if not (ROOT / path).exists()] == [], page
    assert [path for path in ELSEWHERE.values() if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("line", COMMANDS)
def test_each_line_is_one_that_the_command_takes(line: str) -> None:
    """Command, options and number of arguments, by the parser itself; nothing is run."""
    name, *rest = arguments(line)
    command = typer.main.get_command(app)
    with typer.Context(command, info_name="trainbench") as context:
        while name and not name.startswith("-") and hasattr(command, "commands"):
            known = command.commands
            assert name in known, f"no command {name}"
            command = known[name]
            name, *rest = rest if hasattr(command, "commands") else ["", *rest]
        command.make_context("trainbench", [word for word in (name, *rest) if word], parent=context).close()


def test_each_file_that_a_line_names_is_there() -> None:
    named = {path for block in BLOCKS for line in block.lines for path in SOURCE.findall(line)}
    assert len(named) > 10
    assert {path for path in named - MADE if not (ROOT / path.rstrip("./")).exists()} == set()


@pytest.fixture
def prepared(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the pages' examples name, and a store with a night."""
    shutil.copytree(ROOT / "docs/results/campaigns" / HERE, own_folder / HERE)
    (own_folder / "docs").symlink_to(ROOT / "docs")
    a, b = make_result("node-a", 10.0), make_result("node-b", 8.0, gpu_name="NVIDIA H100 80GB HBM3")
    (own_folder / "a.json").write_text(a.model_dump_json())
    (own_folder / "b.json").write_text(b.model_dump_json())
    write(own_folder / "h200", a)
    write(own_folder / "h100", b)
    write(own_folder / "results", a, b, make_result("node-c", 4.0, gpu_name="NVIDIA A100-SXM4-80GB"))
    for night in ("night-1", "night-2"):
        for node in ("node-1", "node-2", "node-3"):
            result = make_result(node, 10.0)
            spec = result.spec.changed(identity={"campaign_id": night, "run_id": f"{night}-{node}"})
            open_store().write_result(result.model_copy(update={"spec": spec}))
        assert trainbench("report", night).exit_code == ExitCode.OK
    assert trainbench("reindex").exit_code == ExitCode.OK
    return own_folder


def test_what_the_pages_show_runs(prepared: Path) -> None:
    """A night may be red, and of a single machine nobody is judged."""
    ran = 0
    for line in OPEN:
        given = [MEANT.get(word, word) for word in arguments(line)]
        if given[0] in ELSEWHERE:
            continue
        done = trainbench(*given)
        if ".parquet" in line and find_spec("pyarrow") is None:
            assert "trainbench[parquet]" in done.stderr
            continue
        assert done.exit_code in CARRIED_OUT, f"{line}: {done.stderr or done.exception!r}"
        ran += 1
    assert ran >= 10
