"""The step and the window: what is counted, when a window ends, what a drill costs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench_image.contract.options import Recipe
from bench_image.contract.preset_switches import STEPS_BEFORE_CAPTURE
from bench_image.contract.result_sections import Clock
from bench_image.contract.spec import Drill, RunSpec
from bench_image.contract.step_stats import half_width_pct
from bench_image.contract.work import Device
from bench_image.data.batches import POOL_STEPS, TokenPool
from bench_image.model.build import build
from bench_image.parallel.process_group import ProcessGroup
from bench_image.training.loop import Timing, measure_window, settled_step_s, steps_to_do, warm_up
from bench_image.training.stopwatch import Stopwatch, clock_seconds
from bench_image.training.train_step import TrainStep, drill_delay_s, wait_on_clock
from tests.builders.image_processes import make_spec

CPU = torch.device("cpu")


def train_step(spec) -> TrainStep:  # type: ignore[no-untyped-def]
    return TrainStep(spec, build(spec, CPU), ProcessGroup(CPU))


def looks(step_s: float, spec: RunSpec, *, lag: int = 0, expected_step_s: float | None = None) -> list[int]:
    """The numbers of steps at which a window of equal steps is looked at; the last one ends it.

    `lag`: so many steps the host is ahead of the GPU at most; it launches them in no time.
    """
    seen = [1]
    while True:
        passed = max(0, seen[-1] - lag)
        to_do = steps_to_do(seen[-1], [step_s] * passed, passed * step_s, expected_step_s, spec)
        if to_do == 0:
            return seen
        seen.append(seen[-1] + to_do)


NOISY = [1.0, 1.2] * 10  # mean 1.1, sd 0.1026, t(19) 2.093: half-width 4.37 % of the mean
UNSURE, TIMED = {"measured_steps": 20, "max_measured_steps": 45, "max_window_s": 3600}, {"measured_steps": 50}


@pytest.mark.parametrize(
    ("changes", "done", "passed", "elapsed_s", "expected"),
    [
        (UNSURE | {"target_half_width_pct": 4.4}, 20, NOISY, 22.0, 0),
        (UNSURE | {"target_half_width_pct": half_width_pct(NOISY)}, 20, NOISY, 22.0, 0),
        (UNSURE | {"target_half_width_pct": 4.3}, 20, NOISY, 22.0, 10),  # until the next look
        (UNSURE | {"target_half_width_pct": 4.4}, 20, NOISY[:1], 1.0, 10),  # the GPU has finished too few to tell
        (UNSURE | {"target_half_width_pct": 4.3}, 40, NOISY, 22.0, 5),  # not beyond the maximum
        (UNSURE | {"target_half_width_pct": 4.4}, 45, NOISY[:1], 1.0, 0),
        (UNSURE | {"target_half_width_pct": 4.4}, 19, NOISY[:19], 20.8, 1),  # not before the minimum
        (UNSURE, 30, [1.0] * 30, 30.0, 0),  # equal steps are known exactly: 30 is 10 past the minimum
        (UNSURE, 25, [1.0] * 25, 25.0, 5),  # not a look
        # 0.25 s on average: 11 fill 2.75 s, so three more. By their median, 0.1 s, it would be eight more.
        (TIMED | {"max_window_s": 2.75}, 8, [0.1] * 6 + [0.7] * 2, 2.0, 3),
        (TIMED | {"max_window_s": 5}, 8, [0.1] * 3, 6.3, 0),  # the fourth has not come back after 6 s: it hangs
        (TIMED | {"max_window_s": 3}, 4, [], 0.01, 4),  # none has passed, and they may be short
        (TIMED | {"max_window_s": 3}, 2, [], 0.0, 2),  # the clock has not moved yet: as many as were done
    ],
)
def test_how_many_steps_a_window_goes_on(
    changes: dict[str, Any], done: int, passed: list[float], elapsed_s: float, expected: int
) -> None:
    spec = make_spec(**{"max_measured_steps": 200} | changes)
    assert steps_to_do(done, passed, elapsed_s, None, spec) == expected


@pytest.mark.parametrize(
    ("step_s", "lag", "expected_step_s", "seen"),
    [
        (0.54, 0, None, [1, 2, 4, 8, 10]),  # 9 steps are 4.86 s of 5, and nobody looks there; 50 were asked for
        (60.0, 0, 60.0, [1, 2]),  # two, however long they are
        (0.001, 0, None, [1, 2, 4, 8, 16, 32, 50]),  # short ones are known at the minimum: no more looks than needed
    ],
)
def test_when_a_window_is_looked_at(step_s: float, lag: int, expected_step_s: float | None, seen: list[int]) -> None:
    spec = make_spec(measured_steps=50, max_measured_steps=200, max_window_s=5)
    assert looks(step_s, spec, lag=lag, expected_step_s=expected_step_s) == seen


@pytest.mark.parametrize("lag", [3, 1000])
def test_a_host_that_runs_ahead_of_the_gpu_launches_no_more_than_fits(lag: int) -> None:
    """The GPU has finished few steps or none when the host looks: the warm-up says how long they take."""
    spec = make_spec(measured_steps=50, max_measured_steps=200, max_window_s=5, target_half_width_pct=0.001)

    assert looks(0.5, spec, lag=lag, expected_step_s=0.5)[-1] == 10
    assert looks(0.5, spec, lag=lag, expected_step_s=0.45)[-1] <= 12


def test_the_first_warm_up_steps_say_nothing_about_the_step_time() -> None:
    """They hold compilation: the median of the later half counts, which one odd step does not move: its mean is 0.5."""
    assert settled_step_s([20.0, 1.0, 0.9, 0.2, 0.4, 0.9]) == pytest.approx(0.4)
    assert settled_step_s([20.0]) is None


def test_neighbours_meet_after_the_first_steps_and_warm_up_together() -> None:
    happened: list[str] = []
    alone = ProcessGroup(CPU)
    alone.wait_for_neighbours = lambda: happened.append("meet")  # type: ignore[method-assign]
    warm_up(lambda: happened.append("step"), 5, alone, lambda *_: None)
    assert happened == ["step"] * 3 + ["meet"] + ["step"] * 2

    happened.clear()
    warm_up(lambda: happened.append("step"), 1, alone, lambda *_: None)
    assert happened == ["step", "meet"]


def test_a_window_of_real_steps_is_as_long_as_its_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step moves a clock of its own by 0.5 s: 2 s hold 4 steps of the 50 asked for."""
    now = 100.0
    monkeypatch.setattr("bench_image.training.loop.time.perf_counter", lambda: now)
    monkeypatch.setattr("bench_image.training.loop.time.process_time", lambda: now)
    spec = make_spec(recipe=Recipe.FULL, measured_steps=50, max_measured_steps=200, max_window_s=2)
    work = train_step(spec)
    honest = work._launch_step

    def launched(*arguments: Any) -> Any:
        nonlocal now
        now += 0.5
        return honest(*arguments)

    monkeypatch.setattr(work, "_launch_step", launched)
    timing = measure_window(work, work.group, spec, 0.5)

    assert timing.own_step_times_s == pytest.approx([0.5] * 4)
    assert timing.wall_s == pytest.approx(2.0)


def test_a_drill_takes_its_share_of_the_throughput() -> None:
    """Half the throughput is twice the time; 20 % less is 10 s in place of 8 s."""
    assert drill_delay_s(3.0, 50) == pytest.approx(3.0)
    assert drill_delay_s(8.0, 20) == pytest.approx(2.0)


def test_only_a_drill_loses_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[float] = []
    monkeypatch.setattr("bench_image.training.train_step.wait_on_clock", lambda _device, lost_s: lost.append(lost_s))
    well = train_step(make_spec(recipe=Recipe.FULL))
    well(), well()
    assert lost == []

    drilled = train_step(make_spec(recipe=Recipe.FULL, drill=Drill(slowdown_pct=20)))
    drilled()
    assert lost == []  # the first step compiles: a drill of 75 % slept three times as long
    drilled()
    assert len(lost) == 1
    assert lost[0] > 0


class FakeClocks:
    """Wall time runs on by 10 s at each look, for other processes take turns; CPU time by 0.25 s."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cpu_s, self.wall_s = 0.0, 0.0
        self.slept: list[float] = []
        for module in ("loop", "stopwatch", "train_step"):
            monkeypatch.setattr(f"bench_image.training.{module}.time", self)

    def process_time(self) -> float:
        self.cpu_s += 0.25
        return self.cpu_s

    def perf_counter(self) -> float:
        self.wall_s += 10
        return self.wall_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def test_on_the_cpu_a_step_does_not_count_other_processes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three marks, one look at the clock each: two steps of 0.25 s, however long they took by the wall's clock."""
    clocks = FakeClocks(monkeypatch)
    watch = Stopwatch(CPU)
    for _ in range(3):
        watch.mark()
    assert watch.intervals() == [0.25, 0.25]
    assert warm_up(lambda: clocks.perf_counter(), 2, ProcessGroup(CPU), lambda *_: None) == [0.25, 0.25]
    assert clock_seconds(torch.device("cuda", 1)) == clocks.wall_s  # a GPU is timed by it
    assert [Clock.of(device) for device in (Device.CUDA, Device.CPU)] == [Clock.WALL, Clock.PROCESS_CPU]


def test_the_gpu_s_own_times_are_seconds_between_borders_that_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events count milliseconds: borders at 0, 1,500 and 2,250 ms are steps of 1.5 and 0.75 s. The GPU has not reached
    the fourth one, so what follows it is not looked at.
    """
    at_ms = iter((0.0, 1500.0, 2250.0, 9000.0, 9500.0))

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at_ms = next(at_ms)

        def query(self) -> bool:
            return self.at_ms != 9000.0

        def elapsed_time(self, end: Event) -> float:
            return end.at_ms - self.at_ms

    monkeypatch.setattr("bench_image.training.loop.torch.cuda.Event", Event)
    watch = Stopwatch(torch.device("cuda"))
    for _ in range(5):
        watch.mark()

    assert watch.intervals() == [1.5, 0.75]


@pytest.mark.parametrize(("device", "burnt_s", "slept"), [("cpu", 1.25, []), ("cuda", 0.0, [1.0])])
def test_a_drill_burns_on_the_cpu_and_sleeps_on_a_gpu(
    device: str, burnt_s: float, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 s of CPU time from the first look on, in looks of 0.25 s: asleep, the process would not have got slower."""
    clocks = FakeClocks(monkeypatch)
    wait_on_clock(torch.device(device), 1.0)

    assert (clocks.cpu_s, clocks.slept) == (burnt_s, slept)


@pytest.mark.parametrize(
    ("preset", "model", "times"),
    [("as_users_run", "tiny", 1), ("as_users_run", "encoder-decoder", 0), ("tuned", "tiny", 0)],
)
def test_users_pay_for_what_the_trainer_does_around_a_step(
    preset: str, model: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two micro-steps: it looks at the loss, counts parameters and switches to training in each, and forgets gradients
    once.
    """
    step = train_step(make_spec(recipe=Recipe.FULL, preset=preset, model=model, gradient_accumulation_steps=2))
    done: list[str] = []
    for chore in ("num_parameters", "train", "zero_grad"):
        monkeypatch.setattr(step.base, chore, lambda *_, chore=chore, **__: done.append(chore), raising=False)
    monkeypatch.setattr("torch.isnan", lambda _: done.append("isnan") or torch.tensor(False))
    step()

    assert done == ["train", "isnan", "num_parameters"] * 2 * times + ["zero_grad"] * times


def test_every_token_of_a_window_went_through_the_model() -> None:
    """An independent count, at the model's own door: 4 steps x 3 micro-steps x 2 samples x 16 tokens."""
    spec = make_spec(
        recipe=Recipe.FULL, gradient_accumulation_steps=3, seq_length=16, measured_steps=4, max_measured_steps=4
    )
    step = train_step(spec)
    seen: list[int] = []
    step.model.register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    timing = measure_window(step, step.group, spec)

    assert sum(seen) == 4 * 3 * 2 * 16
    assert len(timing.step_times_s) == len(timing.losses) == 4
    assert min(timing.step_times_s) > 0
    assert timing.wall_s > 0


class TwoRanks(ProcessGroup):
    """This rank, and a slower one whose losses are 2 higher."""

    def __init__(self, done: list[str]) -> None:
        super().__init__(CPU)
        self.done = done

    def barrier(self) -> None:
        self.done.append("barrier")

    def max_over_ranks(self, values: Sequence[float]) -> list[float]:
        return [value + 100.0 for value in values]

    def mean_over_ranks(self, values: Sequence[float]) -> list[float]:
        return [value + 1.0 for value in values]


def timed_window(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Timing]:
    """Three steps, and what was called around them; losses 5, 5, 5; 0.25 s pass between each two looks at the clock."""
    done: list[str] = []
    clock = itertools.count()
    monkeypatch.setattr("bench_image.training.loop.time.perf_counter", lambda: 0.25 * next(clock))
    monkeypatch.setattr("bench_image.training.loop.time.process_time", lambda: 0.25 * next(clock))
    monkeypatch.setattr("bench_image.training.loop.synchronize", lambda _: done.append("synchronize"))
    group = TwoRanks(done)

    class Step:
        loader_wait_s = 40.0  # of the warm-up: no window's

        def __call__(self) -> torch.Tensor:
            done.append("step")
            self.loader_wait_s += 0.5
            return torch.tensor(5.0)

    spec = make_spec(recipe=Recipe.FULL, measured_steps=3, max_measured_steps=3)
    return done, measure_window(Step(), group, spec)  # type: ignore[arg-type]


def test_a_window_begins_and_ends_on_idle_gpus_and_is_as_long_as_the_slowest_rank_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the first wait the warm-up's last step is in it, without the last one its own last step is not. The
    slower rank takes 100 s more for each figure; the mean of 5 and 7 is 6.
    """
    done, timing = timed_window(monkeypatch)

    assert done == ["barrier", "synchronize", "step", "step", "step", "synchronize"]
    assert len(timing.own_step_times_s) == 3
    assert timing.step_times_s == tuple(own + 100 for own in timing.own_step_times_s)
    assert timing.wall_s > 100
    assert timing.loader_wait_s == pytest.approx(101.5)
    assert (timing.losses, timing.own_losses) == ((6.0, 6.0, 6.0), (5.0, 5.0, 5.0))


def test_accumulated_micro_steps_train_like_one_large_batch() -> None:
    """Mean gradients over equally long samples are the gradients of the mean: the losses after updates agree."""
    small = make_spec(recipe=Recipe.FULL, precision="fp32", micro_batch_size=2, gradient_accumulation_steps=2)
    large = make_spec(recipe=Recipe.FULL, precision="fp32", micro_batch_size=4)
    accumulating, whole = train_step(small), train_step(large)
    for index in range(POOL_STEPS):
        pair = [accumulating.batches.batch(index, micro_step) for micro_step in range(2)]
        whole.batches.batch(index, 0).copy_(torch.cat(pair))

    ours = [float(accumulating()) for _ in range(3)]
    assert ours == pytest.approx([float(whole()) for _ in range(3)], abs=1e-4)


def test_batches_depend_on_seed_and_place_only() -> None:
    """Rank 1 of 2 draws what one rank draws in its second micro-step."""
    alone = TokenPool(make_spec(gradient_accumulation_steps=2), 0, 1024, pinned=False)
    peer = TokenPool(make_spec(strategy="ddp"), 1, 1024, pinned=False)
    other_seed = TokenPool(make_spec(gradient_accumulation_steps=2, seed=1), 0, 1024, pinned=False)

    assert torch.equal(alone.batch(3, 1), peer.batch(3, 0))
    assert torch.equal(alone.batch(0, 0), alone.batch(POOL_STEPS, 0))
    assert not torch.equal(alone.batch(0, 0), alone.batch(0, 1))
    assert not torch.equal(alone.batch(0, 0), other_seed.batch(0, 0))
    assert alone.batch(0, 0).shape == (2, 32)


def test_only_the_last_micro_step_of_a_step_is_its_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients travel between ranks in the last one only: in each they would take three times as long."""
    step = train_step(make_spec(recipe=Recipe.FULL, gradient_accumulation_steps=3))
    were_last: list[bool] = []
    honest = step.optimizer_step.micro_step

    def micro_step(ids: torch.Tensor, *, last: bool) -> torch.Tensor:
        were_last.append(last)
        return honest(ids, last=last)

    monkeypatch.setattr(step.optimizer_step, "micro_step", micro_step)
    step()

    assert were_last == [False, False, True]


def test_a_batch_is_copied_without_waiting_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    step = train_step(make_spec(recipe=Recipe.FULL))
    calls: list[dict[str, Any]] = []

    class Batch:
        def to(self, device: torch.device, **how: Any) -> str:
            calls.append({"device": device, **how})
            return "ids"

    monkeypatch.setattr(
        step.optimizer_step, "micro_step", lambda ids, *, last: torch.tensor(float(ids == "ids" and last))
    )

    assert float(step._micro_step(Batch(), last=True)) == 1.0  # type: ignore[arg-type]
    assert calls == [{"device": CPU, "non_blocking": True}]


def test_steps_are_replayed_once_enough_of_them_were_launched_by_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured once, and replayed with each step's batches, of which there are three."""
    done: list[object] = []

    class Recorded:
        def __init__(self, _launch_step: Any, batches: list[torch.Tensor], *_where: Any) -> None:
            done.append(f"captured with {len(batches)}")

        def __call__(self, batches: list[torch.Tensor]) -> torch.Tensor:
            done.append("replayed")
            return torch.tensor(float(len(batches)))

    monkeypatch.setattr("bench_image.training.train_step.uses_cuda_graph", lambda _: True)
    monkeypatch.setattr("bench_image.training.train_step.CudaGraphStep", Recorded)
    step = train_step(make_spec(recipe=Recipe.FULL, gradient_accumulation_steps=3))
    monkeypatch.setattr(step, "_launch_step", lambda _: done.append("launched") or torch.tensor(1.0))
    losses = [float(step()) for _ in range(STEPS_BEFORE_CAPTURE + 2)]

    assert losses[STEPS_BEFORE_CAPTURE:] == [3.0, 3.0]
    assert done == ["launched"] * STEPS_BEFORE_CAPTURE + ["captured with 3", "replayed", "replayed"]


@pytest.mark.parametrize("keeps", [True, False])
def test_layers_that_share_their_input_keep_weights_unpacked_where_memory_allows(
    monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    monkeypatch.setattr("bench_image.training.train_step.keeps_unpacked", lambda *_: keeps)
    spec = make_spec(recipe=Recipe.FULL)
    siblings = [SimpleNamespace(keep_unpacked=None), SimpleNamespace(keep_unpacked=None)]
    TrainStep(spec, build(spec, CPU)._replace(fused=siblings), ProcessGroup(CPU))

    assert [one.keep_unpacked for one in siblings] == [keeps, keeps]
