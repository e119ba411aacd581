"""The memory formula against every peak in the committed results, and the page that shows both."""

from __future__ import annotations

import re
from datetime import date

import pytest

from bench_image.contract.memory_estimate import GPU_MEMORY_GIB, USABLE_SHARE
from bench_image.contract.options import Recipe
from sizing_doc import ROOT, SIZED, beyond, by_todays_means, document, least, measured_rows, smallest_table
from tests.unit.published.measured import run
from trainbench.cost.job_estimates import EstimateRequest, MemoryFit, by_formula
from trainbench.prices.quote import Pricing


def test_the_formula_is_within_10_pct_of_every_measured_peak() -> None:
    rows = measured_rows()

    assert len(rows) >= 20
    assert not beyond(rows)


def test_a_run_with_another_execution_says_nothing_about_todays() -> None:
    """QLoRA packed its weights again, and head and loss were two operations: the same fingerprint, other memory."""
    old, today = "after-h200-2026-11-21/results", "today-h200-2026-11-26/runs"
    results = [run(f"{old}/tuned-qlora-8x512-r1"), run(f"{today}/qlora-8x512"), run(f"{today}/lora-8x2048")]

    assert [by_todays_means(result.effective_spec, result.chosen.execution) for result in results if result.chosen] == [
        False, True, True,
    ]  # fmt: skip


def test_what_was_measured_before_the_formula_was_settled_does_not_count_as_a_prediction() -> None:
    rows = measured_rows()

    assert not [row for row in rows if row.fitted and row.spec.placement.world_size == 2]  # measured later
    assert [row for row in rows if row.fitted]
    assert [row for row in rows if not row.fitted]


def test_the_page_shows_what_the_formula_and_the_results_say_now() -> None:
    """`python studies/sizing_doc.py` writes it."""
    assert (ROOT / "docs" / "internals" / "sizing.md").read_text() == document()


def estimated(model: str, recipe: Recipe, gpu: str | None) -> MemoryFit:
    """The estimate of `trainbench estimate` for the page's configuration, but with the paged optimizer."""
    changes = {"model": model, "recipe": recipe, "preset": "tuned", "micro_batch_size": 1}
    changes |= {"seq_length": least(model, recipe).work.seq_length, "gradient_checkpointing": True}
    changes |= {"optimizer": "paged_adamw_8bit", "lora_targets": "all"}
    request = EstimateRequest(num_samples=1, gpu=gpu, changes=changes)
    memory = by_formula(request, (), Pricing(), date(2026, 11, 23)).memory
    assert memory
    return memory


@pytest.mark.parametrize("model", SIZED)
def test_the_command_estimate_agrees_with_the_page_on_every_gpu(model: str) -> None:
    row = next(line for line in smallest_table().splitlines() if line.startswith(f"| {model} |"))
    for recipe, cell in zip(Recipe, row.strip("| ").split(" | ")[2:], strict=True):
        smallest, need_gb = re.fullmatch(r"(.*) \(([\d.]+) GB\)", cell).groups()  # type: ignore[union-attr]
        whole = estimated(model, recipe, None)
        assert (f"{whole.need_gb:.1f}", whole.smallest_gpu or "-") == (need_gb, smallest)
        for gpu, gib in GPU_MEMORY_GIB.items():
            fit = estimated(model, recipe, gpu)
            assert (f"{fit.need_gb:.1f}", fit.smallest_gpu or "-") == (need_gb, smallest)
            assert fit.fits is (fit.need_gb * 1e9 <= USABLE_SHARE * gib * 2**30)
