"""The answer above each table of the page Strategies, and what is new on the page Fleet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.builders.notices import make_notice
from trainbench.core.verdicts import Why
from trainbench.figure_catalogue.run_figures import SAMPLES_PER_SECOND, STORED, TOKENS_PER_SECOND, USD_PER_GPU_HOUR
from trainbench.pages.reads.rows import StrategyRow
from trainbench.pages.render.listings import answer, changes, strategies_table


def row(
    strategy: str,
    world_size: int,
    tokens_per_s: float | None,
    usd_per_gpu_hour: float | None = None,
    noise: float = 0.001,
) -> StrategyRow:
    figures: dict[str, float | None] = dict.fromkeys((figure.name for figure in STORED), None)
    figures |= {
        TOKENS_PER_SECOND.name: tokens_per_s,
        SAMPLES_PER_SECOND.name: tokens_per_s and tokens_per_s / 2048,
        USD_PER_GPU_HOUR.name: usd_per_gpu_hour,
    }
    return StrategyRow(
        work_key="a", gpu_name="NVIDIA H200", model="tier-a", recipe="full", preset="tuned", micro_batch_size=1,
        seq_length=2048, strategy=strategy, world_size=world_size, num_campaigns=1, num_runs=1,
        num_failed=0, is_imported=False, noise=noise, **figures,
    )  # fmt: skip


def test_the_best_are_those_that_a_report_would_choose() -> None:
    """At $10 per GPU-hour: 10 / (74,945 x 3600) x 1e6 = $0.0371, and 40 / (280,000 x 3600) x 1e6 = $0.0397."""
    rows = [row("single", 1, 74_945.0, 10.0), row("ddp", 4, 280_000.0, 10.0)]
    assert answer(rows) == (
        "Best measured: single on 1 GPU for the least cost ($0.0371 per 1M tokens) or ddp on 4 GPUs for the least time "
        "($0.0397 per 1M tokens)."
    )


def test_a_difference_within_the_noise_of_both_is_no_rank() -> None:
    """1 % apart with 0.8 % of noise each: sqrt(0.8^2 + 0.8^2) = 1.13 %. fsdp is 10 % behind. 2 GPUs x 1e6 / (100 x
    3600) = 5.56 GPU-hours.
    """
    rows = [row("ddp", 2, 100.0, None, 0.008), row("zero2", 2, 99.0, None, 0.008), row("fsdp", 2, 90.0, None, 0.008)]
    assert answer(rows) == (
        "Best measured: ddp on 2 GPUs: 5.56 GPU-hours per 1M tokens. Too noisy to rank: zero2 on 2 GPUs is within the "
        "noise."
    )
    table = strategies_table(rows)
    at = table.names.index("place")
    assert [each.texts[at] for each in table.rows] == ["too noisy", "too noisy", "3 of 3"]


def test_what_others_measured_has_no_place() -> None:
    one, imported = row("ddp", 2, 80.0), row("zero3", 2, 70.0)
    imported.is_imported = True
    table = strategies_table((one, imported))
    assert [each.texts[table.names.index("place")] for each in table.rows] == ["alone", ""]


def test_one_measured_row_compares_nothing() -> None:
    assert answer([row("ddp", 2, 10.0, 10.0), row("fsdp", 2, None)]) is None
    assert answer([]) is None


def test_without_a_gpu_processes_are_named_and_no_cost_is_shown() -> None:
    rows = [row("single", 1, 640.0), row("ddp", 2, 1152.0)]
    for each in rows:
        each.gpu_name = None
    assert answer(rows) == "Best measured: ddp on 2 processes: 1,152 tokens/s of CPU time."
    names = [column.name for column in strategies_table(rows).columns]
    assert "processes" in names
    assert not any("GPU" in name or "1M tokens" in name for name in names)
    of_gpus = [column.name for column in strategies_table([row("ddp", 2, 10.0)]).columns]
    assert {"GPUs", "per 1M tokens"} <= set(of_gpus)


def test_what_is_new_is_what_opened_or_ended_within_a_day_without_drills() -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    old, young = now - timedelta(hours=30), now - timedelta(hours=10)
    opened = [
        make_notice("node-1", Why.SLOW, opened_at=young),
        make_notice("node-2", Why.SLOW, opened_at=old),
        make_notice("node-3", Why.SLOW, opened_at=young, is_drill=True),
    ]
    ended = [make_notice(f"node-{n}", Why.SLOW, opened_at=old, closed_at=at) for n, at in ((4, young), (5, old))]
    assert changes(opened, ended, now) == "Since yesterday: new: node-1 (red: slow); ended: node-4."
    assert changes(opened[1:], ended[1:], now) == "Since yesterday: no change."
