from __future__ import annotations

from datetime import date

import pytest

from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunResult
from tests.builders import make_cpu_result, make_failed, make_result
from trainbench.core.number_checks import QuantityError
from trainbench.prices.price_tables import Price, given_price, price_for
from trainbench.prices.quote import savings_pct, usd_per_1m_tokens, usd_per_1000_samples, work_hours
from trainbench.prices.run_cost import cost_of, gpu_hours, priced, run_usd

H200 = Price(
    provider="OCI",
    instance="BM.GPU.H200.8",
    gpu="H200",
    gpus_per_instance=8,
    region="any",
    on_demand_usd_per_hour=80.0,
    as_of=date(2026, 11, 21),
    source="list",
)


class TestFormulas:
    def test_the_reference_configurations(self) -> None:
        """0.60 / (0.69 * 3600) * 1000 = 0.6 / 2.484 = 0.24155; 0.6 / (1.46 * 3.6) = 0.6 / 5.256 = 0.11416."""
        assert usd_per_1000_samples(0.60, 1, 0.69) == pytest.approx(0.2415, abs=1e-4)
        assert usd_per_1000_samples(0.60, 1, 1.46) == pytest.approx(0.1142, abs=1e-4)

    def test_usd_per_million_tokens(self) -> None:
        """A100 40GB at $1.99, 2987 tokens/s: 1.99 / 10.7532 = $0.18506."""
        assert usd_per_1m_tokens(1.99, 1, 2987) == pytest.approx(0.18506, abs=1e-5)

    def test_every_epoch_reads_all_samples(self) -> None:
        """3 epochs of 10,000 at 5.5 samples/s: 30,000 / 19,800 = 1.51515 h."""
        assert work_hours(30_000, 5.5) == pytest.approx(1.51515, abs=1e-5)

    def test_savings_against_the_baseline(self) -> None:
        """10K samples: $2.4155 before, $1.1416 after: 1.2739 / 2.4155 = 52.74 % less; the guide rounds to 53.

        The other way round it costs 1.2739 / 1.1416 = 111.6 % more.
        """
        before, after = (usd_per_1000_samples(0.60, 1, rate) * 10 for rate in (0.69, 1.46))
        assert savings_pct(before, after) == pytest.approx(52.74, abs=0.01)
        assert savings_pct(after, before) == pytest.approx(-111.6, abs=0.1)

    @pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf"), float("-inf")])
    def test_what_is_no_rate_or_price_is_refused(self, wrong: float) -> None:
        for formula in (usd_per_1000_samples, usd_per_1m_tokens):
            with pytest.raises(QuantityError, match=rf"s is {wrong:g}: it must be a number above 0"):
                formula(1.0, 1, wrong)
            with pytest.raises(QuantityError, match=rf"USD per GPU-hour is {wrong:g}: it must be"):
                formula(wrong, 1, 1.0)
        with pytest.raises(QuantityError, match="number of samples is"):
            work_hours(wrong, 1.0)
        with pytest.raises(QuantityError, match="baseline in USD is"):
            savings_pct(wrong, 1.0)


class TestPricedRun:
    def test_by_hand(self) -> None:
        """360 s at $80 / 8 = $1.00; 10 / (10 * 3.6) = $0.27778; 5120 tokens/s: 10 / 18.432 = $0.54253."""
        run = priced(make_result(samples_per_s=10.0, total_s=360.0), H200)
        cost = cost_of(run)
        assert (cost["usd_per_gpu_hour"], cost["gpu_hours"], cost["run_usd"]) == (10.0, 0.1, 1.0)
        assert cost["usd_per_1000_samples"] == pytest.approx(0.27778, abs=1e-5)
        assert cost["usd_per_1m_tokens"] == pytest.approx(0.54253, abs=1e-5)
        assert (cost["price_as_of"], cost["reason"]) == ("2026-11-21", None)
        assert not [path for path in run.missing if path.startswith("cost")]
        assert parse_result(run.model_dump_json()) == run

    def test_a_price_given_for_a_cpu_trial_counts_per_process_and_hour(self) -> None:
        """36 s of one process at $10 per hour are $0.10, and no GPU-hours."""
        run = priced(make_cpu_result(total_s=36.0), given_price(10.0, None))
        assert (gpu_hours(run), run_usd(run), cost_of(run)["reason"]) == (None, 0.1, None)

    def test_every_node_of_the_gang_counts(self) -> None:
        """360 s on 2 nodes x 4 GPUs = 0.8 GPU-hours = $8.00; 80 / (10 * 3.6) = $2.2222; 5120 tokens/s: $4.3403."""
        gang = {"strategy": "ddp", "nodes": 2, "gpus_per_node": 4, "peers": ("node-2",)}
        cost = cost_of(priced(make_result(samples_per_s=10.0, total_s=360.0, **gang), H200))
        assert (cost["gpu_hours"], cost["run_usd"]) == (0.8, 8.0)
        assert cost["usd_per_1000_samples"] == pytest.approx(2.2222, abs=1e-4)
        assert cost["usd_per_1m_tokens"] == pytest.approx(4.3403, abs=1e-4)

    @pytest.mark.parametrize(
        ("result", "reason"),
        [
            (make_result(gpu_name="NVIDIA T4"), "no price for NVIDIA T4: add it to the price table"),
            (make_cpu_result(), "CPU trial: not priced"),
            (make_failed(), "the run did not report its GPU"),
        ],
    )
    def test_without_a_price_nothing_is_zero(self, result: RunResult, reason: str) -> None:
        run = priced(result, None)
        cost = cost_of(run)
        assert (cost["run_usd"], cost["usd_per_1000_samples"]) == (None, None)
        assert str(cost["reason"]).startswith(reason)
        assert parse_result(run.model_dump_json()) == run

    @pytest.mark.parametrize(("result", "why"), [(make_failed(), "the run ended as oom"), (make_cpu_result(), None)])
    def test_each_null_has_its_own_reason(self, result: RunResult, why: str | None) -> None:
        """The price was given, so it has no date; that the run failed is why there is no price of a sample."""
        run = priced(result, price_for(None, (), 0.05))
        assert run.missing["cost.price_as_of"] == "the price was given for this run and has no date"
        assert (run.missing.get("cost.cost_per_1000_samples_usd"), cost_of(run)["reason"]) == (why, why)
        assert parse_result(run.model_dump_json()) == run

    def test_a_run_of_unknown_length_has_the_price_of_a_sample_only(self) -> None:
        run = make_result()
        endless = run.model_copy(update={"startup": run.startup.model_copy(update={"total_s": None})})
        cost = cost_of(priced(endless, H200))
        assert (cost["run_usd"], cost["reason"]) == (None, "the run's duration is not known")
        assert cost["usd_per_1000_samples"] is not None
