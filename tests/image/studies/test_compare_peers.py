"""Turns of the comparison with other programs; two real processes on the CPU, of which one lacks its library."""

from __future__ import annotations

import io
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


def test_a_program_that_fails_leaves_the_others_their_turns(job: Job, tmp_path: Path) -> None:
    """TRL is not installed here. `tuned`, in one process or in one for each turn, trains on the same numbers."""
    compare_peers.save_checkpoint(job)
    resident, restarted, failing = (
        compare_peers.Program(name, job, tmp_path / folder, site=None, restarts=folder == "b", limit_s=120)
        for folder, name in [("a", "tuned"), ("b", "tuned"), ("c", "trl")]
        if not (tmp_path / folder).mkdir()
    )
    compare_peers.compared([resident, failing, restarted], num_turns=1)
    assert (resident.error, restarted.error) == (None, None)
    assert failing.error
    assert failing.error.startswith("ModuleNotFoundError")
    assert [len(turn["step_s"]) for turn in (*resident.first_turns, *resident.turns)] == [3, 4]
    assert restarted.turns[0]["losses"] == resident.turns[0]["losses"] != resident.first_turns[0]["losses"]
