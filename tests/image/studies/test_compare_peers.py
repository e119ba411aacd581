"""Turns of the comparison with other programs: `tuned` as a process on the CPU, the others as scripts that say what
the real ones would report."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import compare_peers
from bench_image.contract.model_shapes import shape_of
from peer_programs import time_steps
from peer_turns import Job, Turns


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(
        recipe="lora", model="tiny", dimensions=shape_of("tiny").model_dump(mode="json"),
        weights=str(tmp_path / "weights"), micro_batch_size=2, seq_length=32, first_turn=3, turn=4, num_turns=3,
    )  # fmt: skip


def test_a_turn_ends_after_the_first_steps_and_then_after_each_further_turn(job: Job) -> None:
    """3 steps, then twice 4."""
    assert job.num_steps == 11
    assert [steps for steps in range(12) if job.ends_turn(steps)] == [0, 3, 7, 11]


def test_the_rate_is_that_of_the_median_step_without_the_first_two(job: Job) -> None:
    """2 x 32 tokens in 0.5 s."""
    assert compare_peers.rate(job, {"step_s": [9.0, 9.0, 0.4, 0.5, 3.0]}) == 128.0


class Trainer:
    """As much of transformers' Trainer as `time_steps` uses."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []

    def training_step(self, _model: Any, _inputs: Any) -> torch.Tensor:
        return torch.tensor(1.5)

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)


def test_a_batch_of_other_size_is_refused(job: Job) -> None:
    """2 x 32 tokens are the job; a trainer that packs or splits its samples does other work."""
    trainer, turns = Trainer(), Turns(job)
    time_steps(trainer, turns)
    trainer.training_step(None, {"input_ids": torch.zeros(1, 64)})
    assert [loss.item() for loss in turns.losses] == [1.5]
    with pytest.raises(ValueError, match="a batch of 32 tokens where the job has 64"):
        trainer.training_step(None, {"input_ids": torch.zeros(1, 32)})


def test_accumulated_gradients_are_refused(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps of two micro-batches each, as Unsloth makes them unless it is told not to."""
    monkeypatch.setattr("sys.stdin", io.StringIO("go\n"))
    turns = Turns(job)
    turns.step_begins(0)
    turns.losses += [torch.tensor(1.5)] * 6
    turns.step_ended(1)
    turns.step_ended(2)
    with pytest.raises(ValueError, match="6 micro-batches in 3 steps"):
        turns.step_ended(3)


SCRIPT = """
import json, sys
job = json.load(open(sys.argv[2]))
if sys.argv[1] == "trl":
    print('@@ {"error": "OutOfMemoryError: CUDA out of memory"}')
    raise SystemExit
print('@@ {"ready_s": 1.5}', flush=True)
for turn in range(job["num_turns"]):
    sys.stdin.readline()
    print("a line of a library")
    print("@@ " + json.dumps({"step_s": [0.5, 0.25], "losses": [11.0 - turn], "profiled": job["profiled"]}), flush=True)
"""


def program(name: str, job: Job, folder: Path, *, restarts: bool = False) -> compare_peers.Program:
    return compare_peers.Program(name, job, folder, site=None, restarts=restarts, limit_s=1200)


def test_a_failing_program_leaves_the_others_their_turns_and_each_is_saved(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the one that restarts, every turn is the second of a new process, and only the last is recorded."""
    (tmp_path / "peer_programs.py").write_text(SCRIPT)
    monkeypatch.setattr(compare_peers, "HERE", tmp_path)
    job = job._replace(profiled=True)
    programs = [program(name, job, tmp_path) for name in ("tuned", "trl")]
    programs.append(program("unsloth", job, tmp_path, restarts=True))
    output, num_saved = tmp_path / "result.json", []

    def save() -> None:
        compare_peers.save_results(output, job, programs)
        written = json.loads(output.read_text())["programs"].values()
        num_saved.append(sum(len(of["first_turns"]) + len(of["turns"]) for of in written))

    compare_peers.compared(programs, 2, save)
    resident, failing, restarting = (json.loads(output.read_text())["programs"][one.name] for one in programs)
    assert num_saved == [1, 1, 2, 2, 4, 5, 5, 7]
    assert [turn["losses"] for turn in resident["turns"]] == [[10.0], [9.0]]
    assert [turn["losses"] for turn in restarting["turns"]] == [[10.0], [10.0]]
    assert [turn["profiled"] for turn in restarting["turns"]] == [False, True]
    assert (resident["error"], failing["error"]) == (None, "OutOfMemoryError: CUDA out of memory")
    assert str(tmp_path) not in output.read_text()


def test_tuned_trains_by_turns(job: Job, tmp_path: Path) -> None:
    """3 steps, then 4, in a process of its own, from a checkpoint that the study writes."""
    compare_peers.save_checkpoint(job)
    tuned = program("tuned", job, tmp_path)
    compare_peers.compared([tuned], 1, lambda: None)
    assert tuned.error is None
    assert [len(turn["losses"]) for turn in (*tuned.first_turns, *tuned.turns)] == [3, 4]
    assert all(6.5 < loss < 7.5 for turn in tuned.turns for loss in turn["losses"])  # log(1024) = 6.93


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--programs tuned unsloth", "--unsloth-site None: Unsloth needs a folder"),
        ("--programs unsloth --unsloth-site /nowhere", "--unsloth-site /nowhere: Unsloth needs a folder"),
        ("--programs tuned --output /dev/null/result.json", "cannot be written: Not a directory"),
    ],
)
def test_what_could_not_be_compared_or_kept_is_refused_at_once(
    words: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        compare_peers.parsed(["--weights", "W", "--output", str(tmp_path / "result.json"), *words.split()])
    assert sentence in capsys.readouterr().err


def test_a_new_folder_for_the_output_is_made(tmp_path: Path) -> None:
    output = tmp_path / "new" / "result.json"
    arguments = compare_peers.parsed(["--weights", "W", "--output", str(output), "--programs", "tuned"])
    assert (arguments.output, compare_peers.logs_of(output).is_dir()) == (output, True)
