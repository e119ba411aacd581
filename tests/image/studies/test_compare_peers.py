"""Turns of the comparison with other programs; two real processes on the CPU, of which one lacks its library."""

from __future__ import annotations

from pathlib import Path

import pytest

import compare_peers
from bench_image.contract.model_shapes import shape_of
from peer_turns import Job


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
