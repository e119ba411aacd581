"""Strategy tables: equal rows are ranked, unequal ones stand apart with what differs."""

from __future__ import annotations

from typing import Any

from tests.builders import campaigns, make_result
from trainbench.core.tables import Table
from trainbench.reporting.comparison_sections import strategies


def cells(table: Table, *columns: str) -> list[tuple[str, ...]]:
    places = [table.names.index(name) for name in columns]
    return [tuple(row.texts[place] for place in places) for row in table.rows]


def table_of(rounds: int = 1, **kinds: tuple[float, int]) -> Table:
    """strategy=(samples/s, GPUs)"""
    runs = [
        make_result("node-1", rate, round=number + 1, strategy=name, gpus_per_node=gpus)
        for number in range(rounds)
        for name, (rate, gpus) in kinds.items()
    ]
    (table,) = strategies(campaigns.make_campaign(runs))
    return table


def test_equal_work_is_ranked_within_one_number_of_gpus() -> None:
    """10 samples/s of 512 tokens are 5,120 tokens/s. 30 / 4 over 10 / 1 is 75 %; 15 is half of 30."""
    table = table_of(2, single=(10.0, 1), fsdp=(15.0, 4), ddp=(30.0, 4))

    assert cells(table, "GPUs", "strategy", "place", "tokens/s", "of the fastest", "per GPU", "scaling") == [
        ("1", "single", "alone", "5,120", "100.0 %", "5,120", "100 % (base)"),
        ("4", "ddp", "1 of 2", "15,360", "100.0 %", "3,840", "75.0 %"),
        ("4", "fsdp", "2 of 2", "7,680", "50.0 %", "1,920", "37.5 %"),
    ]
    assert "against that at 1 GPU (single), the smallest size measured" in " ".join(table.notes)


def test_single_runs_are_level_within_what_equal_runs_differ_by() -> None:
    """5 % each are 6.8 % together: 28 is 6.7 % below 30, 15 is half of it."""
    table = table_of(fsdp=(15.0, 4), zero2=(28.0, 4), ddp=(30.0, 4))
    assert cells(table, "strategy", "place") == [("ddp", "too noisy"), ("zero2", "too noisy"), ("fsdp", "3 of 3")]
    notes = " ".join(table.notes)
    assert "One run alone may be 5 % off by chance" in notes
    assert "ddp on 4 GPUs and zero2 are level: 6.7 % apart, within their noise of 6.8 %." in notes
    assert "off by chance" not in " ".join(table_of(2, fsdp=(15.0, 4), ddp=(30.0, 4)).notes)


def test_without_one_gpu_the_base_is_the_strategys_own_smallest_size() -> None:
    runs = [make_result("node-1", rate, strategy="zero2", gpus_per_node=gpus) for rate, gpus in ((20.0, 2), (30.0, 4))]
    (table,) = strategies(campaigns.make_campaign(runs))

    assert cells(table, "GPUs", "scaling") == [("2", "100 % (base)"), ("4", "75.0 %")]
    assert "at 2 GPUs (zero2)" in " ".join(table.notes)


def test_the_reference_comparison_is_refused_with_the_field_that_differs() -> None:
    """ "ZeRO is 48 % faster than DDP": ZeRO accumulated 4 micro-steps, DDP one."""
    ddp = make_result("node-1", 20.0, strategy="ddp", gpus_per_node=4)
    zero2 = make_result("node-1", 29.6, strategy="zero2", gpus_per_node=4, gradient_accumulation_steps=4)
    of_ddp, of_zero2 = strategies(campaigns.make_campaign([ddp, zero2]))

    assert cells(of_ddp, "strategy", "place") == [("ddp", "alone")]
    assert cells(of_zero2, "strategy", "place") == [("zero2", "alone")]
    assert "gradient_accumulation_steps 1 vs 4" in of_ddp.notes[-1]
    assert "gradient_accumulation_steps 4 vs 1" in of_zero2.notes[-1]


def test_several_runs_of_a_strategy_are_one_row_of_their_medians() -> None:
    runs = [make_result(f"node-{i}", rate, strategy="ddp", gpus_per_node=2) for i, rate in enumerate((9.0, 10.0, 14.0))]
    (table,) = strategies(campaigns.make_campaign([make_result("node-0", 6.0), *runs]))

    assert cells(table, "strategy", "tokens/s") == [("single", "3,072"), ("ddp", "5,120")]


def test_patterns_are_compared_with_the_other_strategies() -> None:
    """4 GPUs: 18,100, 16,000, 12,200 and 9,400 tokens/s, median 14,100; 10.5, 9.7, 14.0 and 10.9 GB, median 10.7."""
    full, _, _ = strategies(campaigns.strategies())
    four = [row for row in cells(full, "GPUs", "strategy", "pattern") if row[0] == "4"]

    assert four == [
        ("4", "zero2", "sweet spot: highest throughput, medium memory"),
        ("4", "zero3", "saves memory: high throughput, low memory"),
        ("4", "ddp", "high overhead: low throughput, high memory"),
        ("4", "fsdp", "high overhead: low throughput, medium memory"),
    ]


def test_two_strategies_are_too_few_for_a_pattern() -> None:
    assert set(cells(table_of(ddp=(30.0, 4), fsdp=(15.0, 4)), "pattern")) == {("",)}


def test_a_single_strategy_on_a_single_size_is_no_comparison() -> None:
    fleet: list[Any] = [make_result("node-1"), make_result("node-2"), make_result("node-3", seq_length=1024)]

    assert strategies(campaigns.make_campaign(fleet)) == ()


def test_a_base_on_another_machine_is_named_in_the_notes() -> None:
    elsewhere = [make_result("node-7", 10.0), make_result("node-1", 18.0, strategy="ddp", gpus_per_node=2)]
    (table,) = strategies(campaigns.make_campaign(elsewhere))

    assert "Base elsewhere: single on 1 GPU on node-7. " in " ".join(table.notes)


def test_fewer_gpus_of_another_kind_are_no_base_and_the_report_says_so() -> None:
    other = make_result("node-7", 4.0, gpu_name="NVIDIA A10")
    of_a10, of_h200 = strategies(
        campaigns.make_campaign([other, make_result("node-1", 18.0, strategy="ddp", gpus_per_node=2)])
    )

    assert cells(of_h200, "scaling") == [("n/a",)]
    assert "No scaling: 1 GPU did this work only as NVIDIA A10, which does not apply to NVIDIA H200." in of_h200.notes
    assert "No scaling" not in " ".join(of_a10.notes)
