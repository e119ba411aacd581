"""The step and the window: what is counted, when a window ends, what a drill costs."""

from __future__ import annotations

import pytest
import torch

from bench_image.build import build
from bench_image.contract import Clock, Device, Drill, Preset, Recipe
from bench_image.data import POOL_STEPS, TokenPool
from bench_image.loop import (
    CpuStopwatch,
    Stepper,
    decides_after,
    drill_loss_s,
    lose,
    measure_window,
    seconds,
    wants_more,
    warm_up,
)
from bench_image.ranks import Single
from tests.image.processes import make_spec

CPU = torch.device("cpu")


def stepper(spec) -> Stepper:  # type: ignore[no-untyped-def]
    return Stepper(spec, build(spec, CPU), Single(CPU))


def test_a_window_is_asked_for_its_length_at_the_same_steps_on_every_rank() -> None:
    spec = make_spec(measured_steps=20, max_measured_steps=45)

    assert [n for n in range(1, 50) if decides_after(n, spec)] == [20, 30, 40, 45, 46, 47, 48, 49]


def test_a_window_goes_on_until_the_mean_is_known_well_enough() -> None:
    """1.0 and 1.2 in turn, 20 of them: mean 1.1, sd 0.1026, t(19) 2.093: half-width 4.37 % of the mean."""
    spec = make_spec(measured_steps=20, max_measured_steps=45, target_half_width_pct=4.4)
    noisy = [1.0, 1.2] * 10

    assert not wants_more(20, noisy, spec)
    assert wants_more(20, noisy, spec.model_copy(update={"target_half_width_pct": 4.3}))
    assert wants_more(20, noisy[:1], spec)  # the GPU has finished too few to tell
    assert not wants_more(45, noisy[:1], spec)


def test_a_drill_takes_its_share_of_the_throughput() -> None:
    """Half the throughput is twice the time; 20 % less is 10 s in place of 8 s."""
    assert drill_loss_s(3.0, 50) == pytest.approx(3.0)
    assert drill_loss_s(8.0, 20) == pytest.approx(2.0)


def test_only_a_drill_loses_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[float] = []
    monkeypatch.setattr("bench_image.loop.lose", lambda _device, lost_s: lost.append(lost_s))
    stepper(make_spec(recipe=Recipe.FULL))()
    assert lost == []

    stepper(make_spec(recipe=Recipe.FULL, drill=Drill(slowdown_pct=20)))()
    assert len(lost) == 1
    assert lost[0] > 0


class FakeClocks:
    """Wall time runs on by 10 s at each look, for other processes take turns; CPU time by 0.25 s."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cpu_s, self.wall_s = 0.0, 0.0
        self.slept: list[float] = []
        monkeypatch.setattr("bench_image.loop.time", self)

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
    watch = CpuStopwatch()
    for _ in range(3):
        watch.mark()
    assert watch.intervals() == [0.25, 0.25]
    assert warm_up(lambda: clocks.perf_counter(), 2, CPU, lambda *_: None) == [0.25, 0.25]


def test_a_gpu_is_timed_by_the_wall_s_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeClocks(monkeypatch)

    assert [seconds(torch.device("cuda", 1)), seconds(CPU)] == [10, 0.25]
    assert [Clock.of(device) for device in (Device.CUDA, Device.CPU)] == [Clock.WALL, Clock.PROCESS_CPU]


def test_a_drill_on_the_cpu_burns_what_it_takes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 s of CPU time from the first look on, in looks of 0.25 s: asleep, the process would not have got slower."""
    clocks = FakeClocks(monkeypatch)
    lose(CPU, 1.0)

    assert clocks.cpu_s == pytest.approx(0.25 + 1.0)
    assert clocks.slept == []


def test_a_drill_on_a_gpu_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = FakeClocks(monkeypatch)
    lose(torch.device("cuda"), 1.0)

    assert (clocks.slept, clocks.cpu_s) == ([1.0], 0.0)


@pytest.mark.parametrize(("preset", "times"), [(Preset.AS_USERS_RUN, 1), (Preset.TUNED, 0)])
def test_users_pay_for_what_the_trainer_does_around_a_step(
    preset: Preset, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two micro-steps: it counts parameters and switches to training in each, and forgets gradients once."""
    step = stepper(make_spec(recipe=Recipe.FULL, preset=preset, gradient_accumulation_steps=2))
    done: list[str] = []
    for chore in ("num_parameters", "train", "zero_grad"):
        monkeypatch.setattr(step.base, chore, lambda *_, chore=chore, **__: done.append(chore))
    step()

    assert done == ["train", "num_parameters", "train", "num_parameters", "zero_grad"] * times


def test_every_token_of_a_window_went_through_the_model() -> None:
    """An independent count, at the model's own door: 4 steps x 3 micro-steps x 2 samples x 16 tokens."""
    spec = make_spec(
        recipe=Recipe.FULL, gradient_accumulation_steps=3, seq_length=16, measured_steps=4, max_measured_steps=4
    )
    step = stepper(spec)
    seen: list[int] = []
    step.model.register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    timing = measure_window(step, step.strategy, spec)

    assert sum(seen) == 4 * 3 * 2 * 16
    assert len(timing.step_times_s) == len(timing.losses) == 4
    assert min(timing.step_times_s) > 0
    assert timing.wall_s > 0


def test_accumulated_micro_steps_train_like_one_large_batch() -> None:
    """Mean gradients over equally long samples are the gradients of the mean: the losses after updates agree."""
    small = make_spec(recipe=Recipe.FULL, precision="fp32", micro_batch_size=2, gradient_accumulation_steps=2)
    large = make_spec(recipe=Recipe.FULL, precision="fp32", micro_batch_size=4)
    accumulating, whole = stepper(small), stepper(large)
    for index in range(POOL_STEPS):
        pair = [accumulating.pool.batch(index, micro_step) for micro_step in range(2)]
        whole.pool.batch(index, 0).copy_(torch.cat(pair))

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


@pytest.mark.parametrize(
    ("preset", "model", "looks"),
    [("as_users_run", "tiny", True), ("as_users_run", "encoder-decoder", False), ("tuned", "tiny", False)],
)
def test_only_what_stands_for_the_hf_trainer_looks_at_its_loss(
    monkeypatch: pytest.MonkeyPatch, preset: str, model: str, looks: bool
) -> None:
    asked: list[torch.Tensor] = []
    monkeypatch.setattr("bench_image.loop.torch.isnan", lambda loss: asked.append(loss) or torch.tensor(False))
    step = stepper(make_spec(recipe=Recipe.FULL, preset=preset, model=model, gradient_accumulation_steps=2))
    step()

    assert len(asked) == (2 if looks else 0)
