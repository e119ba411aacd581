"""`kubectl logs POD | trainbench result`: the result out of a log, or what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench_image.contract.result_lines import result_lines
from tests.builders import make_result
from trainbench.cli.app import app

TEXT = make_result("node-1").model_dump_json()
LOG = "\n".join(["phase=measure", *result_lines(TEXT), "Traceback of a thread that ended late", ""])


def test_the_json_of_a_piped_log_is_printed_and_nothing_else() -> None:
    done = CliRunner().invoke(app, ["result"], input=LOG)
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{TEXT}\n", "")


def test_a_file_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "pod.log").write_text(LOG)
    assert CliRunner().invoke(app, ["result", str(tmp_path / "pod.log")]).stdout == f"{TEXT}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], "standard input: no result in the log"), (["/no/such.log"], "/no/such.log cannot be read: No such file")],
)
def test_without_a_result_it_says_so_and_exits_with_2(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["result", *arguments], input="phase=measure\n")
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
