"""Every strategy does the same work: the same losses, step after step, from the same seed."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.options import Strategy
from tests.builders.distributed_runs import CASES, FORGOTTEN, strategies_of
from tests.builders.equal_work_program import FORGETFUL, STEPS

CELLS = [(case, strategy) for case in CASES for strategy in strategies_of(case)]


def tolerance(case: str, strategy: Strategy = Strategy.DDP) -> float:
    """fp32 gradients differ by the order of additions only; narrower ones by their rounding, which training amplifies.

    ZeRO-3's hooks change the order in which the narrow gradients of activations are added up, under autocast too.
    """
    exact = "fp32" in case or ("as users run" in case and strategy is not Strategy.ZERO3)
    return 5e-6 if exact else 3e-3


@pytest.mark.parametrize(("case", "strategy"), CELLS)
def test_losses_are_those_of_one_rank_that_accumulates(
    seen: list[dict[str, Any]], case: str, strategy: Strategy
) -> None:
    alone, shared = seen[0][f"{case}/single"], seen[0][f"{case}/{strategy}"]

    assert "error" not in shared, shared
    assert len(shared["losses"]) == STEPS
    assert shared["losses"] == pytest.approx(alone["losses"], abs=tolerance(case, strategy))


@pytest.mark.parametrize("case", FORGOTTEN)
def test_a_strategy_that_ignored_accumulation_would_be_caught(seen: list[dict[str, Any]], case: str) -> None:
    """Gradients of the first micro-step dropped: the losses leave the tolerance by far, so the test above can fail."""
    alone, forgetful = seen[0][f"{case}/single"], seen[0][f"{case}/{FORGETFUL}"]

    assert abs(alone["losses"][-1] - forgetful["losses"][-1]) > 5 * tolerance(case)


@pytest.mark.parametrize("case", CASES)
def test_the_model_learns_its_batch(seen: list[dict[str, Any]], case: str) -> None:
    losses = seen[0][f"{case}/single"]["losses"]

    assert losses[-1] < losses[0] - 0.02
