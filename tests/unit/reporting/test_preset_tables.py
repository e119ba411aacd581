"""Preset tables: one training job by different means, which are named."""

from __future__ import annotations

from typing import Any

from tests.builders import campaigns, make_result
from trainbench.reporting.comparison_sections import presets

TUNED: dict[str, Any] = {"preset": "tuned", "optimizer": "adamw_torch", "gradient_checkpointing": False}


def test_the_same_job_with_another_execution_is_compared_and_the_execution_is_named() -> None:
    """30 / 10 samples/s are a speed-up of 3."""
    (table,) = presets(campaigns.make_campaign([make_result("node-1", 10.0), make_result("node-1", 30.0, **TUNED)]))

    assert [row.texts[:5] for row in table.rows] == [
        ("as_users_run", "paged_adamw_8bit", "on", "5,120", "1.00x"),
        ("tuned", "adamw_torch", "off", "15,360", "3.00x"),
    ]
    assert table.notes == (
        "tuned instead of as_users_run: gradient_checkpointing off, was on; optimizer adamw_torch, was "
        "paged_adamw_8bit; preset tuned, was as_users_run; compiled per layer, was no.",
    )


def test_another_job_is_not_compared() -> None:
    for other in ({"micro_batch_size": 4}, {"recipe": "lora"}, {"precision": "fp32"}, {"seq_length": 256}):
        runs = [make_result("node-1", 10.0), make_result("node-1", 30.0, **TUNED, **other)]  # type: ignore[arg-type]
        assert not list(presets(campaigns.make_campaign(runs))), other


def test_two_ways_of_one_preset_are_two_rows() -> None:
    runs = [
        make_result("node-1", 10.0),
        make_result("node-1", 30.0, **TUNED),
        make_result("node-1", 25.0, **TUNED | {"optimizer": "adamw_8bit"}),
    ]
    (table,) = presets(campaigns.make_campaign(runs))

    assert [row.texts[:2] for row in table.rows] == [
        ("as_users_run", "paged_adamw_8bit"), ("tuned", "adamw_torch"), ("tuned", "adamw_8bit"),
    ]  # fmt: skip


def test_one_preset_alone_is_no_comparison() -> None:
    assert not list(presets(campaigns.healthy()))
