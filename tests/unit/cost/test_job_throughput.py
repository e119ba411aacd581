from __future__ import annotations

from datetime import date
from functools import partial

import pytest

from tests.builders import make_result, make_spec
from trainbench.core.number_checks import QuantityError
from trainbench.cost.job_estimates import (
    EstimateRequest,
    by_formula,
    of_measured,
    rate_by_mfu,
)
from trainbench.exchange.result_files import row_of_runs
from trainbench.prices.quote import Pricing


def test_a_rate_by_mfu_by_hand() -> None:
    """Tier A in full: 16 layers of 4 x 1024^2 + 3 x 1024 x 2816 = 12,845,056 weights and a head of 32,000 x 1024 are
    238,288,896; x 6 = 1,429,733,376; attention 3 x 4 x 1024 x 2048 x 16 = 402,653,184 more: 1,832,386,560 FLOPs a
    token, x 2048 = 3.752728e12 a sample. 40 % of 125 TFLOP/s on two A10: 1e14 / 3.752728e12 = 26.647 samples/s.
    """
    spec = make_spec(
        model="tier-a", recipe="full", strategy="ddp", gpus_per_node=2, seq_length=2048, optimizer="adamw_torch"
    )
    rate = rate_by_mfu(spec, "NVIDIA A10", 40.0)
    assert rate[0] == pytest.approx(26.647, abs=0.001)
    assert rate[1] == (
        "by formula, not measured: the given MFU of 40.0 % of 125 TFLOP/s (bf16, dense) and 3.75 TFLOP per sample"
    )


@pytest.mark.parametrize("mfu_pct", [0.0, -1.0, 100.1, float("nan"), float("inf")])
def test_an_mfu_that_cannot_be(mfu_pct: float) -> None:
    with pytest.raises(QuantityError, match="MFU / 100 is"):
        rate_by_mfu(make_spec(), "NVIDIA A10", mfu_pct)


def test_a_gpu_without_a_known_peak_is_not_guessed() -> None:
    with pytest.raises(QuantityError, match="the peak of 'H100' in bf16 is not known: name the GPU as NVML does"):
        rate_by_mfu(make_spec(), "H100", 40.0)


def test_a_given_rate_must_be_one() -> None:
    given = partial(EstimateRequest, num_samples=1, changes={}, gpu="NVIDIA A10")
    assert by_formula(given(samples_per_s=5.5), (), Pricing(), date(2026, 11, 21)).samples_per_s == 5.5
    with pytest.raises(QuantityError, match="samples/s is 0"):
        by_formula(given(samples_per_s=0.0), (), Pricing(), date(2026, 11, 21))


@pytest.mark.parametrize(
    ("rates", "expected", "told"),
    [
        ((9.0, 10.0, 12.0), 10.0, "the median of 3 runs of results, ± 15.0 % (half of the range of 3 runs)"),
        ((9.0,), 9.0, "one run of results"),
    ],
)
def test_a_measured_rate_is_the_median_of_its_runs(rates: tuple[float, ...], expected: float, told: str) -> None:
    runs = [(f"node-{i}", make_result(f"node-{i}", samples_per_s=rate)) for i, rate in enumerate(rates)]
    request = EstimateRequest(num_samples=1, changes={})
    (made,) = of_measured(request, [row_of_runs("results", runs)], (), Pricing(), date(2026, 11, 21))
    assert (made.samples_per_s, made.num_gpus) == (expected, 1)
    assert (made.rate_from or "").startswith(f"measured: {told}")
