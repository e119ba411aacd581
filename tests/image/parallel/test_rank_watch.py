"""Which rank a gang waits for, from what the ranks tell; and a rank that really hangs."""

from __future__ import annotations

from pathlib import Path

from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.result import HANG, Phase, Status
from bench_image.parallel.rank_watch import Hang, Progress, find_hang
from tests.builders import error_of
from tests.builders.image_processes import ENDLESS, make_spec
from tests.image.process.test_rank_failures import run_ranks

NAMES = ("rank 0 (a)", "rank 1 (b)", "rank 2 (c)")
WAITS = Progress(beat=90, steps=14, collectives=120, stood_s=90.0, where="gloo:all_reduce < train_step.py:110 update")
BEHIND = WAITS._replace(collectives=119, stood_s=91.0, where="batches.py:20 read")


def hang_of(*ranks: Progress, silent: int | None = None) -> Hang | None:
    """Of two readings, between which each rank has told something once more, but for the silent one."""
    now = [each._replace(beat=each.beat + (rank != silent)) for rank, each in enumerate(ranks)]
    return find_hang(ranks, now, 90.0, NAMES)


def test_who_came_least_far_is_named_with_its_place_and_that_of_a_waiting_rank() -> None:
    assert hang_of(WAITS, BEHIND, WAITS) == Hang(
        1,
        "rank 1 (b) hung for 91 s in step 14 after 119 collectives, at batches.py:20 read; rank 0 (a) waited at "
        "gloo:all_reduce < train_step.py:110 update: the log has its stack",
    )


def test_who_tells_nothing_more_is_named_before_one_that_came_less_far() -> None:
    hang = hang_of(WAITS, BEHIND, WAITS, silent=2)

    assert hang
    assert hang.rank == 2
    assert hang.message.startswith(
        "rank 2 (c) did not answer: it was last seen in step 14 after 120 collectives, at gloo"
    )


def test_nobody_is_named_where_none_is_at_fault() -> None:
    """The exchange itself is slow; or one computes for long, and still comes further."""
    assert hang_of(WAITS, WAITS, WAITS) is None
    assert hang_of(WAITS, BEHIND._replace(stood_s=44.0), WAITS) is None


HANGING = """
import os, time
from bench_image.parallel import rank_watch
from bench_image.optimizer.step import OptimizerStep
rank_watch.HANG_SHARE = rank_watch.SILENT_SHARE = 0.04  # of 120 s
honest = OptimizerStep.update
def waits_for_data():
    while True:
        time.sleep(1)
def update(self):
    self.done = getattr(self, "done", 0) + 1
    if os.environ["RANK"] == "1" and self.done == 2:
        waits_for_data()
    honest(self)
OptimizerStep.update = update
"""


def test_a_rank_that_hangs_ends_the_gang_with_its_stack(tmp_path: Path) -> None:
    spec = make_spec(recipe=Recipe.FULL, strategy=Strategy.DDP, **ENDLESS, warmup_steps=4)  # for all that wait too
    result = run_ranks(spec, tmp_path, HANGING)

    assert result.status is Status.ERROR
    assert (error_of(result).kind, error_of(result).rank, error_of(result).phase) == (HANG, 1, Phase.WARMUP)
    assert "rank 1 (node-1) hung" in error_of(result).message
    assert "in step 2" in error_of(result).message
    assert "waits_for_data" in error_of(result).message
    assert "rank 0 (node-1) waited at gloo:all_reduce" in error_of(result).message


UNWATCHED = """
import os
from bench_image.parallel import rank_watch
honest = rank_watch.TCPStore
def store(*arguments, **settings):
    if os.environ["RANK"] == "1":
        raise RuntimeError("the store is full")
    return honest(*arguments, **settings)
rank_watch.TCPStore = store
"""


def test_a_watch_that_fails_fails_no_run(tmp_path: Path) -> None:
    result = run_ranks(make_spec(recipe=Recipe.FULL, strategy=Strategy.DDP), tmp_path, UNWATCHED)

    assert (result.status, result.error) == (Status.OK, None)
    assert result.chosen
    assert result.chosen.execution["a rank that hangs"] == "would not be named: another rank has no watch"
