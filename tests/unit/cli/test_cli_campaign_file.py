"""`trainbench plan` and `run` of a campaign file: options come before what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.builders.commands import ROOT, document, trainbench
from trainbench.cli.app import ExitCode
from trainbench.results.artefacts import open_store

EXAMPLES = ROOT / "docs" / "examples" / "campaigns"
TRAIN = "for n in range(60): print('trainbench: step=%d seconds=0.01 samples=8 loss=1.5' % n)"


@pytest.fixture
def file(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (home / "night.yaml").write_text(
        "suite: node_consistency\nnodes: [a, b, c]\nparameters: {quick: true, rounds: 2}\n"
    )
    return str(home / "night.yaml")


def test_a_plan_of_a_file_is_changed_by_options(file: str) -> None:
    of_file, changed = (
        document(trainbench("plan", file, "--json", *more)) for more in ((), ("--nodes", "d", "--set", "rounds=1"))
    )
    assert (of_file["nodes"], of_file["params"]["rounds"], of_file["params"]["quick"]) == (["a", "b", "c"], 2, True)
    assert (changed["nodes"], changed["params"]["rounds"], changed["params"]["quick"]) == (["d"], 1, True)
    twice = trainbench("plan", file, "--nodes", "d", "--set", "nodes=e")
    assert (twice.exit_code, "give two values" in twice.stderr) == (ExitCode.USAGE, True)


def test_nodes_by_label_are_named_on_a_machine_without_labels() -> None:
    example = str(EXAMPLES / "h100-by-night.yaml")
    refused = trainbench("plan", example)
    assert refused.exit_code == ExitCode.USAGE
    assert "node_labels is 'nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3'" in refused.stderr
    planned = document(
        trainbench("plan", example, "--json", "--gpu", "H100 SXM5", "--gpus", "8", "--nodes", "n1,n2,n3")
    )
    assert (planned["nodes"], planned["params"]["device"]) == (["n1", "n2", "n3"], "cuda")


@pytest.mark.usefixtures("with_plots", "file")
def test_a_run_of_a_file_is_named_after_it(home: Path) -> None:
    options = ("--device", "cpu", "--nodes", "n1,n2", "--quick", "--model", "tiny", "--set", "recipe=full")
    result = trainbench("run", str(EXAMPLES / "a100-at-weekends.yaml"), *options)
    assert result.exit_code == ExitCode.OK, result.stderr
    (campaign_id,) = open_store().campaign_ids()
    campaign = open_store().read_campaign(campaign_id)
    assert campaign_id.startswith("a100-at-weekends-2")
    assert (campaign.params["model"], campaign.params["past_tolerance_pct"]) == ("tiny", 2)


def test_a_job_of_a_file_runs_here_and_a_command_after_it_replaces_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version is the checksum of the script, as that of a command on the command line; its environment stays."""
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHON", sys.executable)
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (home / "train.py").write_text(TRAIN)
    (home / "other.py").write_text(TRAIN)
    job = {"command": f"{sys.executable} train.py", "environment": {"A": 1, "B": 2}}
    (home / "job.yaml").write_text(f"suite: node_consistency\njob: {job}\n")
    jobs = []
    for more in ((), ("--env", "B=3", "--", sys.executable, "other.py")):
        before = set(open_store().campaign_ids())
        result = trainbench("run", "job.yaml", *more)
        assert result.exit_code == ExitCode.NOT_JUDGED, result.stderr
        (campaign_id,) = set(open_store().campaign_ids()) - before
        (run,) = open_store().read_campaign(campaign_id).results
        assert run.spec.work.own_job is not None
        jobs.append(run.spec.work.own_job)
    assert [job.environment for job in jobs] == [("A=1", "B=2"), ("A=1", "B=3")]
    assert [str(job.version)[12:] for job in jobs] == [" of train.py", " of other.py"]
    assert [job.folder for job in jobs] == [str(home)] * 2
