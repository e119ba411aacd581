"""The answer above each table of the page Strategies, and what is new on the page Fleet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.builders.notices import make_notice
from trainbench.core.verdicts import Why
from trainbench.figure_catalogue.run_figures import STORED, TOKENS_PER_SECOND, USD_PER_1M_TOKENS
from trainbench.pages.reads.rows import StrategyRow
from trainbench.pages.render.listings import answer, changes, strategies_table


def row(
    strategy: str,
    world_size: int,
    tokens_per_s: float | None,
    usd: float | None = None,
    noise_pct: float | None = 0.1,
) -> StrategyRow:
    unknown: dict[str, float | None] = dict.fromkeys((figure.name for figure in STORED), None)
    figures = unknown | {TOKENS_PER_SECOND.name: tokens_per_s, USD_PER_1M_TOKENS.name: usd}
    return StrategyRow(
        work_key="a", gpu_name="NVIDIA H200", model="tier-a", recipe="full", preset="tuned", micro_batch_size=1,
        seq_length=2048, strategy=strategy, world_size=world_size, num_campaigns=1, num_runs=1,
        num_failed=0, is_imported=False, noise_pct=noise_pct, **figures,
    )  # fmt: skip


def test_cheapest_and_fastest_are_named_with_their_size_and_cost() -> None:
    rows = [row("single", 1, 74_945.0, 0.0371), row("ddp", 4, 280_000.0, 0.0397)]
    assert answer(rows) == (
        "Cheapest: single on 1 GPU, 74,945 tokens/s at $0.0371 per 1M tokens. "
        "Fastest: ddp on 4 GPUs, 280,000 tokens/s at $0.0397 per 1M tokens."
    )


def test_one_that_is_both_is_named_once() -> None:
    rows = [row("single", 1, 74_945.0, 0.0371), row("ddp", 4, 324_382.0, 0.0343)]
    assert answer(rows) == "Fastest and cheapest: ddp on 4 GPUs, 324,382 tokens/s at $0.0343 per 1M tokens."


def test_without_all_prices_only_the_fastest_is_named() -> None:
    assert answer([row("ddp", 2, 10.0, 0.5), row("fsdp", 2, 20.0)]) == "Fastest: fsdp on 2 GPUs, 20.00 tokens/s."


def test_a_difference_within_the_noise_of_both_is_no_rank() -> None:
    """1 % apart with 0.8 % of noise each: sqrt(0.8^2 + 0.8^2) = 1.13 %. fsdp is 10 % behind."""
    rows = [row("ddp", 2, 100.0, None, 0.8), row("zero2", 2, 99.0, None, 0.8), row("fsdp", 2, 90.0, None, 0.8)]
    assert answer(rows) == (
        "Fastest: ddp on 2 GPUs, 100.0 tokens/s. Too noisy to rank: zero2 on 2 GPUs is within the noise of it."
    )
    table = strategies_table(rows)
    at = table.names.index("place")
    assert [each.texts[at] for each in table.rows] == ["too noisy to rank", "too noisy to rank", "3"]


def test_a_single_run_says_why_it_has_no_place() -> None:
    one, other = (row(name, 2, rate, noise_pct=None) for name, rate in (("ddp", 100.0), ("fsdp", 90.0)))
    two = row("zero2", 2, 80.0)
    imported = row("zero3", 2, 70.0)
    imported.is_imported = True

    def places(*rows: StrategyRow) -> list[str]:
        table = strategies_table(rows)
        return [each.texts[table.names.index("place")] for each in table.rows]

    assert places(one, other, imported) == ["one run each: too few to rank"] * 2 + [""]
    assert places(one, two) == ["one run: too few to rank", "1"]
    assert places(two, imported) == ["alone", ""]
    assert answer([one, other]) == "One run each: too few to rank, so nothing is recommended."
    assert answer([one, two]) == "One run: too few to rank, so nothing is recommended."
    assert answer([one, two, row("fsdp", 2, 70.0)]) == "Fastest: zero2 on 2 GPUs, 80.00 tokens/s."


def test_one_measured_row_compares_nothing() -> None:
    assert answer([row("ddp", 2, 10.0, 0.5), row("fsdp", 2, None)]) is None
    assert answer([]) is None


def test_without_a_gpu_processes_are_named_and_no_cost_is_shown() -> None:
    rows = [row("single", 1, 640.0), row("ddp", 2, 1152.0)]
    for each in rows:
        each.gpu_name = None
    assert answer(rows) == "Fastest: ddp on 2 processes, 1,152 tokens/s of CPU time."
    names = [column.name for column in strategies_table(rows).columns]
    assert "processes" in names
    assert not any("GPU" in name or "$" in name for name in names)
    of_gpus = [column.name for column in strategies_table([row("ddp", 2, 10.0)]).columns]
    assert {"GPUs", "$ per 1M tokens"} <= set(of_gpus)


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
