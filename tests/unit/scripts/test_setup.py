"""The progress and the failures of `make setup`."""

from __future__ import annotations

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
    pip = tmp_path / ".venv" / "bin" / "python"
    pip.parent.mkdir(parents=True)
    pip.write_text("#!/bin/sh\nseq -f 'line %g' 0 99; echo ERROR: no matching distribution >&2; exit 1\n")
    pip.chmod(0o755)
    with pytest.raises(SystemExit, match=r"pip failed with exit code 1; the lines above and .*install\.log say why"):
        setup.run_pip(".venv", ["torch==0"])
    shown = capsys.readouterr().err
    assert "ERROR: no matching distribution" in shown
    assert "line 99" in shown
    assert "line 79\n" not in shown


def test_tests_join_what_the_demo_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One environment after the other, and none is made twice."""
    monkeypatch.setattr(setup, "ROOT", str(tmp_path))
    monkeypatch.setattr(setup, "check_disk", lambda: None)
    monkeypatch.setattr(setup, "compile_imports", lambda name: None)
    (tmp_path / "requirements").mkdir()
    for name in ("control", "dev"):
        (tmp_path / "requirements" / f"{name}.txt").write_text(f"{name}==1\n")
    ran: list[str] = []
    monkeypatch.setattr(setup, "run", lambda command: (ran.append("new"), (tmp_path / ".venv").mkdir()))
    monkeypatch.setattr(setup, "run_pip", lambda name, arguments: ran.append(Path(arguments[-1]).name))
    for for_demo in (True, True, False, False, True):
        setup.make(".venv", for_demo)

    assert ran == ["new", "control.txt", "dev.txt"]
