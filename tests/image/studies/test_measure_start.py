"""The study of start-ups: no run of before counts as one with caches of now."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import measure_start
from tests.builders import make_spec


def test_a_folder_with_results_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cold-1").mkdir()
    (tmp_path / "cold-1" / "result.json").write_text("{}")
    spec = tmp_path / "spec.json"
    spec.write_text(make_spec().model_dump_json())
    monkeypatch.setattr(sys, "argv", ["measure_start.py", str(spec), "--output", str(tmp_path)])

    with pytest.raises(SystemExit):
        measure_start.main()
    assert "choose a new folder" in capsys.readouterr().err


def test_a_line_has_the_seconds_of_each_phase_that_was_measured() -> None:
    performance = {
        "windows": [{"started_s": 20.04}],
        "tokens_per_second": 18_000.0,
        "first_loss": 11.0,
        "last_loss": 9.5,
    }
    startup = dict.fromkeys(measure_start.PHASES) | {"import_s": 5.26, "warmup_s": 8.0}

    assert measure_start.line({"error": None, "performance": performance, "startup": startup}) == (
        "  first measured step after 20.0 s (import 5.3, warmup 8.0); 18,000 tokens/s, losses 11.000000 to 9.500000"
    )
