"""When more GPUs pay: hand-computed, with the reference's four A10 nodes."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.options import Strategy
from bench_image.contract.result import Status
from tests.builders import campaigns, make_failed, make_result
from trainbench.comparison.entries import Entry, work_groups
from trainbench.comparison.scaling import (
    ScalingPoint,
    comparable_points,
    crossover_cost_samples,
    crossover_time_samples,
    scaling_step,
    worth_choosing,
)
from trainbench.reporting.cost_report import cost_report
from trainbench.reporting.recommendations import advice, points_of_work, tables

NODES = ("node-1", "node-2", "node-3", "node-4")


def gang(samples_per_s: float, nodes: int, strategy: str = "ddp", **fields: Any) -> Any:
    """One GPU on each node."""
    kind = "single" if nodes == 1 else strategy
    return campaigns.a10(
        "node-1", samples_per_s, strategy=kind, nodes=nodes, gpus_per_node=1, peers=NODES[1:nodes], **fields
    )


def made(samples_per_s: float, gpus: int, startup_s: float | None = None, usd: float | None = 0.60) -> ScalingPoint:
    kind = Strategy.SINGLE if gpus == 1 else Strategy.DDP
    run = make_result("node-1", samples_per_s, strategy=kind, gpus_per_node=gpus)
    entry = Entry(strategy=kind, world_size=gpus, results=(run, run))
    return ScalingPoint(entry=entry, usd_per_gpu_hour=usd, startup_s=startup_s)


def test_ten_thousand_samples_cost_all_gpus() -> None:
    """The reference: 114, 60 and 30 min at $0.60 per GPU-hour are $1.14, $1.20 and $1.20. Per 1K samples that is
    $0.114, $0.120 and $0.120; the $0.060 and $0.030 printed there are divided by the nodes.
    """
    actual = [made(10_000 / (minutes * 60), gpus) for minutes, gpus in ((114, 1), (60, 2), (30, 4))]

    assert [p.usd(10_000) for p in actual] == pytest.approx([1.14, 1.20, 1.20])
    assert [p.usd(1_000) for p in actual] == pytest.approx([0.114, 0.120, 0.120])
    assert [p.gpu_hours(10_000) for p in actual] == pytest.approx([1.9, 2.0, 2.0])


def test_what_a_larger_size_saves_and_costs() -> None:
    """60 instead of 114 min for $1.20 instead of $1.14: $0.06 or 5.3 % more, $0.06 / 0.9 h = $0.067 per hour saved."""
    actual = scaling_step(made(10_000 / 6840, 1), made(10_000 / 3600, 2), 10_000)

    assert (actual.base_hours, actual.hours) == pytest.approx((1.9, 1.0))
    assert actual.extra_usd == pytest.approx(0.06)
    assert actual.extra_pct == pytest.approx(5.263, abs=1e-3)
    assert actual.usd_per_hour_saved == pytest.approx(0.0667, abs=1e-4)


def test_the_study_as_text() -> None:
    """1.46, 2.80 and 5.50 samples/s: 6,849, 3,571 and 1,818 s; $1.142, $1.190 and $1.212."""
    sizes = ((1.46, 1), (2.80, 2), (5.50, 4))
    (table,) = tables(campaigns.make_campaign([gang(*size, round=round_) for size in sizes for round_ in (1, 2)]))

    assert [row.texts[0] for row in table.rows] == ["1", "2", "4"]
    assert [row.texts[-4:-1] for row in table.rows] == [
        ("1 h 54 min", "$1.14", "$0.114"),
        ("59 min 31 s", "$1.19", "$0.119"),
        ("30 min 18 s", "$1.21", "$0.121"),
    ]
    assert [row.texts[4] for row in table.rows] == ["100 % (base)", "95.9 %", "94.2 %"]
    assert table.rows[1].texts[-1] == "54 min 38 s sooner, +4.3 % cost"
    assert table.notes[:2] == (
        "By cost: single on 1 GPU, $1.14 for 10,000 samples in 1 h 54 min.",
        "ddp on 2 GPUs of 2 nodes finishes 10,000 samples in 59 min 31 s instead of 1 h 54 min (single on 1 GPU) for "
        "$0.0489 more (+4.3 %): $0.0537 for each hour saved.",
    )
    assert "from 59 min 31 s on ddp on 2 GPUs of 2 nodes ($1.19); from 1 h 54 min on single" in table.notes[3]
    assert "Nothing measured is faster than 30 min 18 s." in table.notes[3]


def test_a_size_that_is_beaten_in_time_and_cost_is_not_advised() -> None:
    """2 GPUs at 9 samples/s are slower and dearer than one at 10; 4 at 44 are 10 % cheaper and the fastest."""
    one, two, four = made(10.0, 1), made(9.0, 2), made(44.0, 4)

    assert worth_choosing([one, two, four], 10_000) == (four,)
    assert list(advice([one, two, four]))[1].startswith("It is also the fastest")
    assert worth_choosing([one, two], 10_000) == (one,)


def test_from_how_many_samples_a_larger_size_is_sooner_or_cheaper() -> None:
    """10 s + n / 10 against 30 s + n / 18: equal at 20 / (0.1 - 0.05556) = 450 samples."""
    small, large = made(10.0, 1, startup_s=10.0), made(18.0, 2, startup_s=30.0)

    assert crossover_time_samples(small, large) == pytest.approx(450.0)
    assert crossover_cost_samples(small, large) is None  # 2 / 18 s per sample is more than 1 / 10
    assert crossover_time_samples(small, made(18.0, 2, startup_s=5.0)) == 0.0
    assert crossover_time_samples(small, made(9.0, 2, startup_s=5.0)) is None
    assert crossover_time_samples(made(10.0, 1), large) is None
    # 25 samples/s on two GPUs are 125 % per GPU: 0.6 x (10 + n / 10) = 1.2 x (30 + n / 25) at 30 / (0.06 - 0.048)
    assert crossover_cost_samples(small, made(25.0, 2, startup_s=30.0)) == pytest.approx(2_500.0)


def test_a_larger_size_that_starts_cheaper_is_not_called_never_cheaper() -> None:
    """0.6 x (60 + n / 10) against 1.2 x (25 + n / 18): $36 and $30 at the start, equal at 6 / 0.006667 = 900 (per
    3,600 s, which cancels).
    """
    small, large = made(10.0, 1, startup_s=60.0), made(18.0, 2, startup_s=25.0)
    (lines,) = [line for line in advice([small, large]) if line.startswith("Start-up counted")]
    assert lines.endswith(": always sooner, cheaper up to 900 samples only.")


def test_without_prices_cost_is_stated_in_gpu_hours() -> None:
    """95.9 % efficiency: the same work takes 1 / 0.959 = 4.3 % more GPU-hours."""
    runs = [gang(*size, round=round_) for size in ((1.46, 1), (2.80, 2)) for round_ in (1, 2)]
    (table,) = tables(campaigns.make_campaign(runs, usd_per_gpu_hour=None))

    assert [row.texts[-3:-1] for row in table.rows] == [("1.90 GPU-hours", "n/a"), ("1.98 GPU-hours", "n/a")]
    assert "for +4.3 % GPU-hours." in table.notes[1]
    assert table.notes[-1].startswith("No price is known")
    assert "$" not in " ".join(table.notes)


def test_one_price_among_none_is_not_added_to_gpu_hours() -> None:
    assert {p.usd_per_gpu_hour for p in comparable_points([made(10.0, 1), made(18.0, 2, usd=None)])} == {None}


def test_a_tie_names_the_other_strategy() -> None:
    """Windows of 19 to 21: half the range is 5 % of 20, of two 7.1 %; 19.5 lies 2.5 % below."""
    noisy: dict[str, Any] = {"windows": (19.0, 20.0, 21.0), "strategy": "ddp", "gpus_per_node": 2}
    of: tuple[tuple[float, dict[str, Any]], ...] = ((12.0, {}), (20.0, noisy), (19.5, noisy | {"strategy": "zero2"}))
    runs = [make_result("node-1", rate, round=round_, **fields) for rate, fields in of for round_ in (1, 2)]
    campaign = campaigns.make_campaign(runs)
    lines = list(advice(points_of_work(work_groups(campaign.results)[0])))

    assert "zero2 would do as well as ddp on 2 GPUs: the difference lies within the noise." in lines


def test_no_advice_compares_machines() -> None:
    """The gang is 17.7 % cheaper than one GPU of another machine: shown and marked, and no reason for advice."""
    runs = [make_result("node-7", 10.0), make_result("node-1", 23.54, strategy="ddp", gpus_per_node=2)]
    (table,) = tables(campaigns.make_campaign(runs))

    assert table.rows[1].texts[4] == "117.7 % (base elsewhere)"
    assert table.notes[0] == (
        "No advice on ddp on 2 GPUs: the base ran on another machine, whose own speed is part of the difference."
    )
    assert not any(note.startswith("By cost") for note in table.notes)


def test_one_size_or_nothing_measured_is_no_study() -> None:
    assert tables(campaigns.make_campaign([make_result("node-1"), make_result("node-2")])) == ()
    assert tables(campaigns.make_campaign([make_failed("node-1", status=Status.OOM)])) == ()


def test_the_cost_report_of_a_study_says_it_too() -> None:
    text = cost_report(campaigns.scaling())
    assert "## When more GPUs pay" in text
    assert "By deadline: " in text
    assert "## When more GPUs pay" not in cost_report(campaigns.healthy())
