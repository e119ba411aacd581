"""The program's choices where the spec says 'auto'. The trials here are made up; tests/gpu has real ones."""

from __future__ import annotations

import pytest
import torch

from bench_image.contract import memory_estimate
from bench_image.contract.memory_estimate import USABLE_SHARE, Candidate, memory_need_bytes
from bench_image.contract.options import Recipe
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import AUTO
from bench_image.model.build import build, checkpoint_activations
from bench_image.parallel.process_group import ProcessGroup
from bench_image.training.autotune import Choice, Trial, autotune, by_formula, by_trial, clearly_fits, tried
from tests.builders.image_processes import make_spec

CPU = torch.device("cpu")


def spec(**changes: object) -> RunSpec:
    """LoRA on Mistral-7B at 2,048 tokens, all left to the program."""
    given = {"micro_batch_size": "auto", "gradient_checkpointing": "auto", "seq_length": 2048, "model": "mistral-7b"}
    return make_spec(recipe=Recipe.LORA, **given | changes)


def need_of(micro_batch: int, checkpointing: bool) -> int:
    need = spec(micro_batch_size=micro_batch, gradient_checkpointing=checkpointing)
    return memory_need_bytes(need).total


class Gpu:
    """Trains micro-batches up to a size, at made rates; remembers what it was asked to try."""

    def __init__(self, fits: dict[bool, int], samples_per_s: dict[int, float]) -> None:
        self.fits, self.samples_per_s = fits, samples_per_s
        self.tried: list[tuple[int, bool]] = []

    def __call__(self, candidate: Candidate) -> Trial:
        work = candidate.spec.work
        size, checkpoints = work.samples_per_micro_step, work.gradient_checkpointing is True
        self.tried.append((size, checkpoints))
        fits = size <= self.fits[checkpoints]
        return Trial(size, size / self.samples_per_s.get(size, 1.0) if fits else None)


def test_a_fixed_choice_is_kept() -> None:
    given = make_spec(recipe=Recipe.FULL, micro_batch_size=3, gradient_checkpointing=True)

    assert autotune(given, build(given, CPU), ProcessGroup(CPU)) == (given, "as the spec sets it", 0)


def test_the_formula_takes_the_largest_that_fits() -> None:
    memory = int(need_of(4, False) / USABLE_SHARE) + 1
    chosen, why, _ = by_formula(spec(), memory)

    assert (chosen.work.micro_batch_size, chosen.work.gradient_checkpointing) == (4, False)
    assert why.startswith("micro-batch 4, checkpointing off: predicted")


def test_the_formula_checkpoints_only_if_it_must() -> None:
    memory = int(need_of(1, False) / USABLE_SHARE) - 10**6
    chosen, *_ = by_formula(spec(), memory)

    assert chosen.work.gradient_checkpointing is True
    size = chosen.work.samples_per_micro_step
    assert need_of(size, True) <= memory * USABLE_SHARE < need_of(2 * size, True)


def test_room_by_far_needs_no_trial() -> None:
    """1.25 x the predicted need within 0.9 of the memory: 10 GB of need are clear from 13.9 GB of memory on."""
    given = spec(micro_batch_size=4)
    enough = int(1.25 * need_of(4, False) / USABLE_SHARE) + 1

    assert clearly_fits(given, enough)
    assert not clearly_fits(given, enough - 10**6)
    assert not clearly_fits(spec(), 100 * enough)  # the micro-batch is open: the fastest is found by trial


def test_a_fixed_choice_is_not_tuned_again() -> None:
    memory = int(need_of(8, False) / USABLE_SHARE) + 1

    assert by_formula(spec(micro_batch_size=2), memory)[0].work.micro_batch_size == 2
    assert by_formula(spec(gradient_checkpointing=True), memory)[0].work.gradient_checkpointing is True
    least, why, _ = by_formula(spec(), 10**9)
    assert (least.work.micro_batch_size, least.work.gradient_checkpointing) == (1, True)
    assert "nothing fits by prediction" in why


def of_a_gpu(memory_gib: int, **changes: object) -> Choice:
    """Mistral-7B, LoRA 8 x 2048, under `tuned` on a GPU of so much memory."""
    given = spec(micro_batch_size=8, preset="tuned", optimizer="adamw_torch", device="cuda", **changes)
    return by_formula(given, memory_gib * 2**30)


def test_a_given_micro_batch_checkpoints_as_few_layers_as_fit() -> None:
    """74.8 GB without checkpointing, 1.7 less for each layer; 90 % of 80 GiB are 77.3, and of 72 69.6; 85 % 65.7."""
    assert [of_a_gpu(gib).checkpointed_layers for gib in (141, 80, 72, 48, 24)] == [0, 0, 4, 17, 31]
    assert of_a_gpu(72, strategy="ddp", gpus_per_node=2).checkpointed_layers == 6  # whose segments do not grow
    assert "checkpointing in 4 of 32 layers" in of_a_gpu(72).why
    assert of_a_gpu(72).spec.work.gradient_checkpointing is True


def test_users_programs_checkpoint_all_layers_or_none() -> None:
    given = spec(micro_batch_size=8, preset="as_users_run", device="cuda")

    assert by_formula(given, 48 * 2**30).checkpointed_layers == 0


def test_some_layers_are_tried_between_none_and_all() -> None:
    tried: list[int | bool] = []

    def out_of_memory(candidate: Candidate) -> Trial:
        tried.append(candidate.checkpointed_layers or candidate.spec.work.gradient_checkpointing is True)
        return Trial(8, None)

    given = spec(micro_batch_size=8, preset="tuned", optimizer="adamw_torch", device="cuda")
    by_trial(given, 72 * 2**30, out_of_memory)

    assert tried == [False, 4, 8, True]


def test_checkpointed_layers_are_the_first_ones_and_change_no_gradient() -> None:
    def trained(num_layers: int | None) -> list[torch.Tensor]:
        given = make_spec(recipe=Recipe.FULL, gradient_checkpointing=False)
        built = build(given, CPU)
        if num_layers is not None:
            checkpoint_activations(built.base, num_layers)
            assert [layer.gradient_checkpointing for layer in built.base.model.layers] == [True, False]
        ids = torch.arange(16).view(2, 8)
        built.model(input_ids=ids, labels=ids).loss.backward()
        return [parameter.grad for parameter in built.trainable if parameter.grad is not None]

    for mine, other in zip(trained(1), trained(None), strict=True):
        assert torch.equal(mine, other)


def test_trials_take_the_fastest_of_the_three_largest_that_fit() -> None:
    gpu = Gpu(fits={False: 8, True: 64}, samples_per_s={8: 10.0, 4: 11.0, 2: 9.0, 1: 99.0})
    chosen, why, _ = by_trial(spec(), need_of(16, False), gpu)

    assert (chosen.work.micro_batch_size, chosen.work.gradient_checkpointing) == (4, False)
    assert gpu.tried == [(16, False), (8, False), (4, False), (2, False)]
    assert "8: 10.00 samples/s, 4: 11.00 samples/s, 2: 9.00 samples/s" in why


@pytest.mark.parametrize("recipe", [Recipe.FULL, Recipe.LORA])
def test_after_trials_the_run_begins_as_one_without(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials train, and draw random numbers for dropout."""
    monkeypatch.setattr(memory_estimate, "SIZES", (1, 2))
    given = make_spec(recipe=recipe, micro_batch_size="auto", gradient_checkpointing=False)
    tuned, untouched = build(given, CPU), build(given, CPU)
    before = torch.get_rng_state()
    choice = tried(given, tuned, ProcessGroup(CPU))
    states = zip(tuned.model.state_dict().items(), untouched.model.state_dict().values(), strict=True)

    assert "of those tried" in choice.why
    assert [name for (name, mine), other in states if not torch.equal(mine, other)] == []
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("room_for", "fits", "rates", "chosen", "first_tried", "why"),
    [
        # checkpointing only if nothing fits without
        (1, {False: 0, True: 2}, {2: 5.0, 1: 4.0}, (2, True), (1, False), "the fastest of those tried"),
        # hopeless sizes are not tried
        (2, {False: 1024, True: 1024}, {}, (2, False), (2, False), "the fastest of those tried"),
        (1, {False: 0, True: 0}, {}, (1, True), (1, False), "every trial ran out of memory, this is the least"),
    ],
)
def test_trials_of_little_memory(
    room_for: int, fits: dict[bool, int], rates: dict[int, float], chosen: tuple[int, bool],
    first_tried: tuple[int, bool], why: str,
) -> None:  # fmt: skip
    gpu = Gpu(fits, rates)
    choice = by_trial(spec(), need_of(room_for, False), gpu)

    assert (choice.spec.work.micro_batch_size, choice.spec.work.gradient_checkpointing) == chosen
    assert gpu.tried[0] == first_tried
    assert why in choice.why


def test_the_memory_of_the_cpu_is_what_is_free() -> None:
    assert 0 < ProcessGroup(CPU).memory_bytes() < 10**15


@pytest.mark.parametrize("given", [{"micro_batch_size": "auto"}, {"gradient_checkpointing": "auto"}])
def test_a_cpu_run_decides_by_formula(given: dict[str, object]) -> None:
    auto = make_spec(recipe=Recipe.FULL, **given)
    chosen, why, _ = autotune(auto, build(auto, CPU), ProcessGroup(CPU))

    assert "predicted" in why
    assert AUTO not in (chosen.work.micro_batch_size, chosen.work.gradient_checkpointing)
