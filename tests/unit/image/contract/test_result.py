"""Results: round trips, values, and the work that the program chose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest
from pydantic import ValidationError

from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import Gpt2Shape
from bench_image.contract.parse import parse_result, parse_spec
from bench_image.contract.result import Chosen, Phase, RunResult, Status, failed_result
from bench_image.contract.result_bounds import finite
from bench_image.contract.spec import Drill
from bench_image.contract.work import Device, Lora
from tests.builders import STARTED_AT, make_cpu_result, make_failed, make_result, make_spec


@pytest.mark.parametrize("make", [make_result, make_cpu_result, make_failed])
def test_a_result_survives_its_own_json(make: Callable[[], RunResult]) -> None:
    result = make()

    assert parse_result(result.model_dump_json()) == result


def test_a_spec_survives_its_own_json() -> None:
    spec = make_spec(drill=Drill(slowdown_pct=20), lora=Lora(rank=8, targets=("q_proj",)))

    assert parse_spec(spec.model_dump_json()) == spec


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_run_that_measured_nothing_still_has_a_valid_result(status: Status) -> None:
    result = failed_result(
        make_spec(), status=status, kind="SIGTERM", message="x" * 5000, phase=Phase.BUILD, at=STARTED_AT, rank=1
    )

    assert result.performance.samples_per_second is None
    assert result.error is not None
    assert len(result.error.message) == 4000
    assert parse_result(result.model_dump_json()) == result


def test_the_work_of_a_result_is_the_spec_with_what_was_chosen() -> None:
    settings = {"micro_batch_size": "auto", "gradient_checkpointing": "auto"}
    chosen = Chosen(micro_batch_size=12, gradient_checkpointing=True, why="the largest that fits", execution={})
    work = make_result(chosen=chosen, **settings).effective_spec

    assert (work.work.micro_batch_size, work.work.gradient_checkpointing, work.samples_per_step) == (12, True, 12)
    fixed = make_spec(micro_batch_size=12, gradient_checkpointing=True)
    assert work.fingerprint == fixed.fingerprint != make_spec(**settings).fingerprint


def test_a_run_that_ended_before_autotuning_has_the_requested_work() -> None:
    assert make_failed(micro_batch_size="auto").effective_spec.work.micro_batch_size == "auto"


def test_the_global_batch_of_auto_is_not_known_before_the_run() -> None:
    with pytest.raises(ContractError, match="only the run's result knows it"):
        _ = make_spec(micro_batch_size="auto").samples_per_step


def test_dimensions_of_ones_own_need_no_known_model() -> None:
    mine = Gpt2Shape(family="gpt2", hidden_size=64, num_layers=2, num_heads=4)

    assert make_spec(model="mine", dimensions=mine, recipe="full").work.shape == mine
    with pytest.raises(ContractError, match="model 'mine' is not known"):
        _ = make_spec(model="mine").work.shape


@pytest.mark.parametrize(("value", "kept"), [(1.5, 1.5), (None, None), (float("nan"), None), (float("inf"), None)])
def test_only_finite_numbers_enter_a_result(value: float | None, kept: float | None) -> None:
    assert finite(value) == kept


def test_the_global_batch_counts_all_ranks_and_micro_steps() -> None:
    """2 nodes * 4 GPUs * 8 samples * 3 micro-steps."""
    spec = make_spec(
        strategy="ddp", nodes=2, gpus_per_node=4, micro_batch_size=8, gradient_accumulation_steps=3, device=Device.CUDA
    )

    assert spec.placement.world_size == 8
    assert spec.samples_per_step == 192


def test_specs_and_results_cannot_be_changed() -> None:
    for value in (make_spec(), make_result(), make_result().memory):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(value, next(iter(type(value).model_fields)), 1)
    with pytest.raises(FrozenInstanceError):
        make_result().performance.mean_loss = 1.0  # type: ignore[misc]
