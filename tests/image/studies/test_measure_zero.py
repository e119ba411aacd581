"""The study of ZeRO-3 by layers: a case in a process of its own, on the CPU."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import measure_zero
from tests.builders.warm_processes import run_warm


def test_a_case_trains_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setattr(subprocess, "run", lambda command, env, **_: run_warm(command[1:], env))
    row = measure_zero.in_a_process(argparse.Namespace(layers=1, device="cpu"), "lora", "by layers")

    assert row.get("error") is None
    assert len(row["losses"]) == measure_zero.FIRST_STEPS


def test_every_turn_measures_every_recipe_in_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def row(_arguments: argparse.Namespace, recipe: str, way: str) -> dict[str, Any]:
        return {"recipe": recipe, "way": way}

    monkeypatch.setattr(measure_zero, "in_a_process", row)
    monkeypatch.setattr(sys, "argv", ["measure_zero.py", str(tmp_path)])
    measure_zero.main()

    rows = json.loads((tmp_path / "steps.json").read_text())
    assert len(rows) == 2 * 2 * len(measure_zero.WAYS)
    assert [row["way"] for row in rows[:4]] == list(measure_zero.WAYS)
