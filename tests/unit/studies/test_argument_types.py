"""Paths given to the studies: a wrong one is one sentence before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import make_spec

ROOT = Path(__file__).resolve().parents[3]


def error_of(*command: str) -> str:
    """The last line that a study writes on standard error."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "cannot be read: No such file or directory"), ("{", "the run spec is not valid: no JSON")],
)
def test_a_spec_that_cannot_be_run_stops_the_sweep_before_the_first_run(
    text: str | None, words: str, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(make_spec().model_dump_json())
    if text:
        bad.write_text(text)

    assert f"argument SPEC.json: {bad}" in (
        error := error_of("studies/run_specs.py", str(tmp_path), str(good), str(bad))
    )
    assert words in error
