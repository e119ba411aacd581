"""The step and the window: what is counted, when a window ends, what a drill costs."""

from __future__ import annotations

import pytest
import torch

from bench_image.build import build
from bench_image.contract import Drill, Preset, Recipe
from bench_image.data import POOL_STEPS, TokenPool
from bench_image.loop import Stepper, decides_after, drill_sleep_s, measure_window, wants_more
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
    assert drill_sleep_s(3.0, 50) == pytest.approx(3.0)
    assert drill_sleep_s(8.0, 20) == pytest.approx(2.0)


def test_only_a_drill_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("bench_image.loop.time.sleep", slept.append)
    stepper(make_spec(recipe=Recipe.FULL))()
    assert slept == []

    stepper(make_spec(recipe=Recipe.FULL, drill=Drill(slowdown_pct=20)))()
    assert len(slept) == 1
    assert slept[0] > 0


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
    assert sum(timing.step_times_s) <= timing.wall_s


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
