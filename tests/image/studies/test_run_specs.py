"""Runs of spec files on one machine: the pods of a run on two nodes, each with GPUs of its own, and sweeps in parts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import run_specs
from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.parse import parse_result
from bench_image.contract.result import Status
from tests.builders.image_processes import environment, make_spec
from tests.builders.warm_processes import WarmProcess

TWO_PODS: dict[str, Any] = {
    "recipe": Recipe.FULL, "strategy": Strategy.DDP, "nodes": 2, "gpus_per_node": 2, "peers": ("node-2",),
}  # fmt: skip


def test_two_pods_on_one_machine_train_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setattr(subprocess, "Popen", lambda command, env, **_: WarmProcess(command[2:], env))
    spec = tmp_path / "two-pods.json"
    spec.write_text(
        make_spec(repeats=1, campaign_id="campaign-tcp", **TWO_PODS | {"gpus_per_node": 1}).model_dump_json()
    )

    assert run_specs.run(spec, tmp_path / "out") == 0
    result = parse_result((tmp_path / "out/result.json").read_bytes())
    assert (result.status, result.spec.placement.world_size) == (Status.OK, 2)
    assert result.communication.total_pct is not None


@pytest.mark.parametrize(("campaign", "by_tcp"), [("campaign", False), ("campaign-tcp", True)])
def test_each_pod_has_gpus_of_its_own_and_knows_where_they_meet(campaign: str, by_tcp: bool) -> None:
    spec = make_spec(campaign_id=campaign, **TWO_PODS)
    first, second = run_specs.environments(spec.model_dump(mode="json"))

    assert (first["NODE_RANK"], first["CUDA_VISIBLE_DEVICES"]) == ("0", "0,1")
    assert (second["NODE_RANK"], second["CUDA_VISIBLE_DEVICES"]) == ("1", "2,3")
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    assert (first.items() >= run_specs.TCP_ONLY.items()) is by_tcp


def test_a_run_on_one_node_gets_the_machine_as_it_is() -> None:
    assert run_specs.environments(make_spec(recipe=Recipe.FULL).model_dump(mode="json")) == [{}]


def test_a_sweep_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = make_spec(recipe=Recipe.FULL).model_dump_json()
    specs = [tmp_path / name for name in ("0.json", "1.json", "2/result.json")]
    for path in specs:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'{{"spec": {spec}}}' if path.stem == "result" else spec)
    made = tmp_path / "campaign" / "0"
    made.mkdir(parents=True)
    (made / "result.json").write_text("{}")
    begun: list[str] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: begun.append(command[4]) or Mock(wait=lambda: 0))
    command = ["run_specs.py", str(tmp_path), *map(str, specs)]
    monkeypatch.setattr(sys, "argv", [*command, "--begin-within-s", "0"])

    assert run_specs.main() == 0
    assert begun == []
    assert "3 of 3 runs are left, from 0 on" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", command)
    assert run_specs.main() == 0
    assert begun == [str(tmp_path / "campaign" / name / "spec.json") for name in "12"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "Expecting property name"),
        ('{"a": 1}', "the run spec"),
    ],
)
def test_a_file_that_cannot_be_run_stops_the_sweep_before_the_first_run(
    text: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    if text:
        bad.write_text(text)
    monkeypatch.setattr(sys, "argv", ["run_specs.py", str(tmp_path), str(bad)])

    with pytest.raises(SystemExit):
        run_specs.main()
    assert f"argument FILE.json: {bad}" in (error := capsys.readouterr().err)
    assert words in error
