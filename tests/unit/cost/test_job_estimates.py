"""A training job's rates and memory, from what was measured; what its gradients take on a network."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.contract.options import Strategy
from trainbench.cost.job_estimates import EstimateError, EstimateRequest, _measured_memory, by_formula, of_measured
from trainbench.prices.quote import Pricing


def row(samples_per_s: float, **fields: Any) -> Any:
    known = {"num_gpus": 1, "num_ranks": 1, "num_runs": 1, "apart_pct": None, "name": "a run", "figure": lambda _: None}
    known |= {"label": "a job", "batch_per_rank": None, "strategy": None, "hardware": "NVIDIA A10"}
    return SimpleNamespace(samples_per_s=samples_per_s, **known | fields)


def rates(params: EstimateRequest, *rows: Any) -> list[tuple[float, int]]:
    made = of_measured(params, rows, (), Pricing(), date(2026, 11, 21))
    return [(one.samples_per_s or 0.0, one.num_gpus) for one in made]


def test_what_was_measured_on_as_many_gpus_counts_as_it_is() -> None:
    """A file that does not say its GPUs ran one on each rank."""
    on_four = row(36.0, num_gpus=None, num_ranks=4)
    params = EstimateRequest(num_samples=1, changes={}, num_gpus=4)
    assert rates(params, row(10.0), on_four) == [(36.0, 4)]
    assert rates(EstimateRequest(num_samples=1, changes={}), row(10.0), on_four) == [(10.0, 1), (36.0, 4)]


def test_another_number_of_gpus_is_not_guessed() -> None:
    with pytest.raises(EstimateError, match="nothing was measured on 4 GPUs, only on 1 and 2: "):
        rates(EstimateRequest(num_samples=1, changes={}, num_gpus=4), row(10.0), row(18.0, num_gpus=2))


def test_memory_is_that_which_was_measured_beside_that_of_the_gpu() -> None:
    """An A10 has 24 GiB: 24 x 1.0737 = 25.77 GB."""
    fit = _measured_memory(row(10.0, figure=lambda _: 12.5, hardware="NVIDIA A10"))
    assert fit is not None
    assert (fit.need_gb, fit.fits) == (12.5, True)
    assert fit.gpu_gb == pytest.approx(25.77, abs=0.01)
    unknown = _measured_memory(row(10.0, figure=lambda _: 12.5, hardware="Mystery 9000"))
    assert unknown is not None
    assert unknown.gpu_gb is None
    assert _measured_memory(row(10.0)) is None


def test_what_gradients_take_on_a_network_is_told_of_ddp_on_several_gpus() -> None:
    """LoRA of rank 16 on attention trains 13,631,488 parameters in fp32: 2 x 3/4 x 54.53 MB = 81.8 MB, 65.4 ms."""
    four = EstimateRequest(num_samples=1, changes={"model": "mistral-7b", "recipe": "lora"}, num_gpus=4)

    def notes(request: EstimateRequest) -> str:
        return " ".join(by_formula(request, (), Pricing(), date(2026, 11, 28)).assumptions)

    said = "Network: 81.8 MB of gradients leave each GPU in a step, which take 65.4 ms at 10 Gbit/s, 6.54 ms at 100 "
    assert said in notes(four)
    assert "Network" not in notes(replace(four, num_gpus=1))
    assert "Network" not in notes(replace(four, strategy=Strategy.FSDP))
