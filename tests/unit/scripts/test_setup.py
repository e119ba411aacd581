"""The progress and the failures of `make setup`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import setup


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("", "looking for packages"),
        ("Collecting a2wsgi==1.10.10 (from -r x)\n  Downloading a.whl\n", "downloading package 1, a2wsgi==1.10.10"),
        ("Collecting a==1\nCollecting torch==2.13.0\n  Downloading", "downloading package 2, torch==2.13.0"),
        ("Collecting a==1\nCollecting b==2\nInstalling collected packages: a, b\n", "unpacking what was downloaded"),
    ],
)
def test_what_pip_is_at_is_told_by_its_output(output: str, said: str) -> None:
    assert setup.stage(output) == said


def test_a_failure_shows_pips_last_lines_and_where_all_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "ROOT", str(tmp_path))
    (tmp_path / ".venv").mkdir()
    program = "print('\\n'.join(f'line {n}' for n in range(100))); raise SystemExit('ERROR: no matching distribution')"
    with pytest.raises(SystemExit, match=r"pip failed with exit code 1; the lines above and .*install\.log say why"):
        setup.run_pip(".venv", [sys.executable, "-c", program])
    shown = capsys.readouterr().err
    assert "ERROR: no matching distribution" in shown
    assert "line 99" in shown
    assert "line 79\n" not in shown
