"""A unit's own past: which nights it is made of, the baseline, its noise, and the date of a slowdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.builders import STARTED_AT, make_cpu_result, make_result
from trainbench.judging.noise import Noise
from trainbench.judging.past import NodeRecord, Past, join_records, night_noise, past_of, records_of, slowdown


def tonight(node: str = "node-1", rate: float = 10.0, **fields: Any) -> NodeRecord:
    (record,) = records_of([make_result(node, rate, **fields)], STARTED_AT)
    return record


def nights(of: NodeRecord, *rates: float, **fields: Any) -> list[NodeRecord]:
    """The nights before, the last one yesterday."""
    return [
        replace(of, campaign_id=f"n{i}", samples_per_second=rate, at=of.at - timedelta(days=len(rates) - i), **fields)
        for i, rate in enumerate(rates)
    ]


def baseline(of: NodeRecord, earlier: Sequence[NodeRecord], limit_pct: float = 1.5) -> float | None:
    past = past_of(of, earlier, limit_pct)
    return past.samples_per_second if past else None


def test_the_rounds_of_a_night_are_one_record_of_their_medians_with_the_last_setup() -> None:
    """9.0, 9.6 and 10.5 samples/s, mean 9.7; 60, 61 and 65 degrees, mean 62."""
    rounds = [(1, 9.0, 60.0, "driver-1"), (2, 9.6, 61.0, "driver-1"), (3, 10.5, 65.0, "driver-2")]
    results = [make_result("node-1", rate, round=r, temperature_c=c, driver=driver) for r, rate, c, driver in rounds]
    points = [point for result in results for point in records_of([result], STARTED_AT)]
    (point,) = join_records([replace(point, at=STARTED_AT + timedelta(minutes=i)) for i, point in enumerate(points)])

    assert (point.samples_per_second, point.temperature_c, point.memory_gb) == (9.6, 61.0, 7.1)
    assert (point.at, point.setup.driver) == (STARTED_AT, "driver-2")


def test_a_run_on_a_shared_gpu_makes_the_night_count_for_nothing() -> None:
    runs = [make_result("node-1", 10.0), make_result("node-1", 8.0, round=2, num_other_processes=1)]
    (record,) = records_of(runs, STARTED_AT)
    assert not record.counts
    assert baseline(tonight(), nights(tonight(), 10.0, counts=False)) is None


def test_a_past_follows_the_gpus_and_not_the_name_driver_or_image() -> None:
    """Names were swapped: node-1 has the GPUs that were node-2's, at 8 samples/s and with another driver."""
    mine, other = tonight("node-1"), tonight("node-2", driver="other")
    swapped = replace(mine, setup=other.setup)
    earlier = [*nights(mine, 10.0, 10.0), *nights(other, 8.0, 8.0)]
    assert baseline(swapped, earlier) == 8.0
    assert baseline(replace(mine, fingerprint="other work"), earlier) is None
    new_gpu = mine.setup.model_copy(update={"gpu_uuids": frozenset({"GPU-new"})})
    assert past_of(replace(mine, setup=new_gpu), earlier, 1.5) is None


def test_without_gpus_the_name_is_the_unit() -> None:
    (cpu,) = records_of([make_cpu_result("node-1")], STARTED_AT)
    assert cpu.gpu_name is None
    assert baseline(cpu, [*nights(cpu, 5.0), *nights(replace(cpu, node="node-2"), 7.0)]) == 5.0


def test_the_baseline_is_the_median_of_the_first_ten_nights_and_does_not_follow_a_drift() -> None:
    """10.0, 9.9, 9.8, ... 9.1 (median 9.55), then on to 8.0, which changes nothing."""
    falling = [10.0 - 0.1 * night for night in range(21)]
    assert baseline(tonight(), nights(tonight(), *falling)) == pytest.approx(9.55)


@pytest.mark.parametrize(
    ("last", "level"),
    [((10.2, 10.2, 10.2), 10.2), ((10.2, 10.2, 10.1), 10.0), ((10.2, 10.2), 10.0), ((10.2, 10.0, 10.2, 10.2), 10.0)],
)
def test_three_nights_in_a_row_above_the_limit_raise_it(last: Sequence[float], level: float) -> None:
    """The limit is 1.5 % of 10.0: 10.15."""
    assert baseline(tonight(), nights(tonight(), *[10.0] * 4, *last)) == level


def test_slow_nights_are_no_baseline_but_date_the_slowdown() -> None:
    """Four good nights, two slow ones with driver-2; tonight is slow too, so the row began the day before yesterday."""
    mine = tonight(rate=9.0, driver="driver-2")
    good = nights(tonight(driver="driver-1"), *[10.0] * 4)
    good = [replace(night, at=night.at - timedelta(days=2)) for night in good]
    past = past_of(mine, [*good, *nights(mine, 9.1, 9.0, counts=False)], 1.5)
    assert past
    assert past.samples_per_second == 10.0
    assert slowdown(past, mine) == "since 19 Nov 2026, when the driver went from driver-1 to driver-2"


def test_a_slowdown_of_tonight_begins_tonight() -> None:
    mine = tonight(rate=9.0)
    past = past_of(mine, nights(mine, 10.0, 9.0, 10.0), 1.5)
    assert past
    assert slowdown(past, mine) == "since 21 Nov 2026"


def pasts(*of: Sequence[float]) -> list[Past]:
    return [
        past for i, rates in enumerate(of) if (past := past_of(tonight(f"n{i}"), nights(tonight(f"n{i}"), *rates), 50))
    ]


def test_the_noise_of_nights_by_hand() -> None:
    """One unit, logs +-0.01: variance 0.0002, 1 degree of freedom; prior 0.5 %, 2 degrees: (2 * 25e-6 + 2e-4) / 3."""
    noise = night_noise(pasts((9.9005, 10.1005)), None)
    assert noise.degrees_of_freedom == 3
    assert noise.sd == pytest.approx((2.5e-4 / 3) ** 0.5, rel=1e-3)


def test_a_past_of_one_night_is_as_wide_as_the_prior_or_the_runs() -> None:
    assert night_noise(pasts((10.0,)), None) == Noise(0.005, 2)
    assert night_noise(pasts((10.0,)), Noise(0.02, 9)) == Noise(0.02, 2)
    assert night_noise(pasts((10.0,)), Noise(0.001, 9)) == Noise(0.005, 2)


def test_what_a_night_did_to_all_units_is_no_noise_of_one() -> None:
    """Logs +-0.010 and +-0.012, two of each: the nights' common +-0.011 leaves +-0.001. A quarter of the variance went
    with it, so it is 2e-6 * 4/3, and one degree of freedom of four; the prior is 0.5 % with two: (2 * 25e-6 +
    3 * 2e-6 * 4/3) / 5.
    """
    of = pasts(*([10 * math.exp(sign * log) for sign in (1, -1)] for log in (0.010, 0.012) * 2))
    assert night_noise(of, None, without_common=True).sd == pytest.approx((58e-6 / 5) ** 0.5)


@pytest.mark.parametrize("num_together", [1, 3])
def test_what_a_night_of_fewer_than_four_units_did_is_their_own_noise(num_together: int) -> None:
    """Campaigns of one node each: what such a night has in common is that node's own change, and not 0."""
    of = [
        past._replace(
            nights=tuple(
                replace(night, campaign_id=f"{night.campaign_id}-{i // num_together}") for night in past.nights
            )
        )
        for i, past in enumerate(pasts(*([10 * math.exp(sign * log) for sign in (1, -1)] for log in (0.01,) * 6)))
    ]
    assert night_noise(of, None, without_common=True) == night_noise(of, None)
