"""A training job's rates and memory, from what was measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trainbench.cost.job_estimates import EstimateError, EstimateRequest, _measured_memory, rated


def row(samples_per_s: float, **fields: Any) -> Any:
    known = {"num_gpus": 1, "num_ranks": 1, "num_runs": 1, "apart_pct": None, "name": "a run", "figure": lambda _: None}
    return SimpleNamespace(samples_per_s=samples_per_s, **known | fields)


def rates(params: EstimateRequest, *rows: Any) -> list[tuple[float, int]]:
    return [(rate.samples_per_s, rate.num_gpus) for _, rate in rated(params, rows)]


def test_what_was_measured_on_as_many_gpus_counts_as_it_is() -> None:
    """A file that does not say its GPUs ran one on each rank."""
    on_four = row(36.0, num_gpus=None, num_ranks=4)
    params = EstimateRequest(num_samples=1, changes={}, num_gpus=4)
    assert rates(params, row(10.0), on_four) == [(36.0, 4)]
    assert rates(EstimateRequest(num_samples=1, changes={}), row(10.0), on_four) == [(10.0, 1), (36.0, 4)]


def test_another_number_of_gpus_is_not_guessed() -> None:
    with pytest.raises(EstimateError, match="nothing was measured on 4 GPUs, only on 1 and 2: "):
        rated(EstimateRequest(num_samples=1, changes={}, num_gpus=4), [row(10.0), row(18.0, num_gpus=2)])


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
