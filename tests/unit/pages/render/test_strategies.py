"""The page of strategies: what to choose for each work, and how far it is ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from trainbench.figure_catalogue.run_figures import SAMPLES_PER_SECOND, STORED, TOKENS_PER_SECOND, USD_PER_GPU_HOUR
from trainbench.pages.reads.rows import StrategyRow
from trainbench.pages.render.links import Links
from trainbench.pages.render.strategies import Choice, choices_table, strategies_table, works

DAY = datetime(2026, 11, 21, tzinfo=UTC)


def row(
    strategy: str,
    world_size: int,
    tokens_per_s: float | None,
    usd_per_gpu_hour: float | None = None,
    noise: float = 0.001,
    **about: Any,
) -> StrategyRow:
    figures: dict[str, float | None] = dict.fromkeys((figure.name for figure in STORED), None)
    figures |= {
        TOKENS_PER_SECOND.name: tokens_per_s,
        SAMPLES_PER_SECOND.name: tokens_per_s and tokens_per_s / 2048,
        USD_PER_GPU_HOUR.name: usd_per_gpu_hour,
    }
    work = {
        "work_key": "a1b2c3d4e5f6", "gpu_name": "NVIDIA H200", "model": "tier-a", "recipe": "full", "preset": "tuned",
        "micro_batch_size": 1, "seq_length": 2048, "is_imported": False, "at": DAY,
    }  # fmt: skip
    runs = {"num_campaigns": 1, "num_runs": 1, "num_failed": 0}
    return StrategyRow(strategy=strategy, world_size=world_size, noise=noise, **work | runs | figures | about)


def choice_of(*rows: StrategyRow) -> Choice:
    (choice,), _ = works(rows)
    return choice


def cells(*choices: Choice) -> list[tuple[str, ...]]:
    return [row.texts for row in choices_table(choices, Links()).rows]


def test_the_best_are_those_that_a_report_would_choose() -> None:
    """At $10 per GPU-hour: 10 / (74,945 x 3600) x 1e6 = $0.0371, and 40 / (280,000 x 3600) x 1e6 = $0.0397, of which
    the former is 1 - 0.0371 / 0.0397 = 6.6 % less. 280,000 / 74,945 = 3.736.
    """
    choice = choice_of(row("single", 1, 74_945.0, 10.0), row("ddp", 4, 280_000.0, 10.0))
    assert choice.text == (
        "single on 1 GPU for the least cost ($0.0371 per 1M tokens) or ddp on 4 GPUs for the least time ($0.0397 per "
        "1M tokens)"
    )
    assert cells(choice) == [
        (
            "tier-a full",
            *("single on 1 GPU", "n/a", "6.6 % than ddp on 4 GPUs"),
            *("ddp on 4 GPUs", "280,000", "273.6 % than single on 1 GPU"),
            "2026-11-21 00:00",
        )
    ]


def test_a_difference_within_the_noise_of_both_is_no_rank() -> None:
    """1 % apart with 0.8 % of noise each: sqrt(0.8^2 + 0.8^2) = 1.13 %. fsdp is 10 % behind. 2 GPUs x 1e6 / (100 x
    3600) = 5.56 GPU-hours.
    """
    rows = [row("ddp", 2, 100.0, None, 0.008), row("zero2", 2, 99.0, None, 0.008), row("fsdp", 2, 90.0, None, 0.008)]
    choice = choice_of(*rows, row("zero3", 4, 100.0, None, 0.008))  # twice the cost: it is no choice
    assert choice.text == "ddp on 2 GPUs: 5.56 GPU-hours per 1M tokens; too noisy to rank beside zero2 on 2 GPUs"
    assert cells(choice)[0][3] == "too noisy beside zero2 on 2 GPUs"
    assert cells(choice)[0][6] == "too noisy beside zero3 on 4 GPUs and zero2 on 2 GPUs"
    table = strategies_table(rows)
    at = table.names.index("place")
    assert [each.texts[at] for each in table.rows] == ["too noisy", "too noisy", "3 of 3"]


def test_the_newest_work_comes_first_and_works_of_one_name_say_that_they_differ() -> None:
    old, new = {"work_key": "1111aaaabbbb"}, {"work_key": "2222aaaabbbb", "at": DAY + timedelta(days=1)}
    rows = [row(strategy, 2, rate, **of) for of in (old, new) for strategy, rate in (("ddp", 10.0), ("fsdp", 9.0))]
    choices, _ = works(rows)
    name = "tier-a full, NVIDIA H200, tuned, batch 1 × 2048 tokens, other settings differ (fingerprint {})"
    assert [choice.work.name for choice in choices] == [name.format("2222aaaa"), name.format("1111aaaa")]
    assert cells(*choices)[0][0] == "other settings differ (fingerprint 2222aaaa)"
    href = choices_table(choices, Links(query={"days": "90"})).rows[0].cells[0].href
    assert href == "./strategies?days=90&gpu=NVIDIA+H200&model=tier-a&recipe=full#2222aaaa-NVIDIA-H200"


def test_what_others_measured_has_no_place() -> None:
    one, imported = row("ddp", 2, 80.0), row("zero3", 2, 70.0)
    imported.is_imported = True
    table = strategies_table((one, imported))
    assert [each.texts[table.names.index("place")] for each in table.rows] == ["alone", ""]


def test_one_measured_row_compares_nothing() -> None:
    choices, (alone,) = works([row("ddp", 2, 10.0, 10.0), row("fsdp", 2, None)])
    assert (choices, len(alone.rows)) == ([], 2)


def test_without_a_gpu_processes_are_named_and_no_cost_is_shown() -> None:
    rows = [row("single", 1, 640.0, gpu_name=None), row("ddp", 2, 1152.0, gpu_name=None)]
    assert choice_of(*rows).text == "ddp on 2 processes: 1,152 tokens/s of CPU time"
    told = ("ddp on 2 processes", "n/a", "no price", "ddp on 2 processes", "1,152", "80.0 % than single on 1 process")
    assert cells(choice_of(*rows))[0][1:7] == told
    names = [column.name for column in strategies_table(rows).columns]
    assert "processes" in names
    assert not any("GPU" in name or "1M tokens" in name for name in names)
    of_gpus = [column.name for column in strategies_table([row("ddp", 2, 10.0)]).columns]
    assert {"GPUs", "per 1M tokens"} <= set(of_gpus)
