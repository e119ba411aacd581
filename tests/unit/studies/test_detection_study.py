"""The detection study: its page shows its counts, and its counts are those of the rules as they are now."""

from __future__ import annotations

import json
from typing import Any

import pytest

from detection_doc import COUNTS, PAGE, TABLES, interval_pct, refreshed, share
from detection_nights import Fleet, Past, simulate
from detection_study import FIRST, cases

STUDY: dict[str, Any] = json.loads(COUNTS.read_text())


def test_the_page_shows_what_was_counted() -> None:
    """`studies/detection_doc.py` writes its tables."""
    page = PAGE.read_text()
    assert refreshed(page) == page
    assert all(f"<!-- {name} -->" in page for name in TABLES)


def test_the_counts_are_those_of_the_cases_that_the_study_has_now() -> None:
    counted = [(row["table"], row["nights"], row["case"]) for row in STUDY["cases"]]
    planned = [case.model_dump(mode="json", exclude_defaults=True) for case in cases()]
    assert counted == [(row["table"], row["nights"], row["case"]) for row in planned]


def test_the_targets_of_the_design_are_met() -> None:
    """One window at half the speed makes nobody else undecided, a slow node is detected beside disturbed runs with one
    round and with three, and good nodes are not red at noise up to 0.3 %.
    """
    rows = [(Fleet.model_validate(row["case"]), row["counts"]) for row in STUDY["cases"] if "nodes" in row["case"]]
    uneven = [counts for fleet, counts in rows if fleet.window_pct == 50]
    beside = [counts for fleet, counts in rows if fleet.disturbed_pct == 2 and fleet.slow_pct]
    quiet = [
        counts for fleet, counts in rows if fleet.noise_pct <= 0.3 and fleet.spread_pct <= 0.4 and not fleet.num_bad
        and fleet.tails == "normal" and not fleet.temperature_spread_c and not fleet.memory_spread_pct
        and not fleet.disturbed_pct
    ]  # fmt: skip
    assert len(uneven) >= 18
    assert all(counts.get("unsure", 0) == 0 for counts in uneven)
    assert len(beside) == 12
    assert all(counts["bad_red"] >= 0.99 * counts["bad"] for counts in beside)
    assert sum(counts["nights"] for counts in quiet) > 10_000
    assert sum(counts.get("red", 0) for counts in quiet) <= 0.001 * sum(counts["nights"] for counts in quiet)


# One case of each table, of those with few nodes; `simulate` runs the real judge, confirm and judge_history.
SLICE = {row["table"]: row for row in STUDY["cases"] if row["first"] and row["case"].get("nodes", 1) <= 8}


@pytest.mark.parametrize("table", sorted(SLICE))
def test_the_first_nights_of_each_table_come_out_the_same_again(table: str) -> None:
    """When this fails a rule has changed: run the study again, and read what it says of the new one."""
    case = SLICE[table]["case"]
    kind = Past if "points" in case else Fleet
    assert simulate(kind.model_validate(case), FIRST) == SLICE[table]["first"]


def test_an_interval_by_hand() -> None:
    """Wilson for 8 of 10: (0.8 + 0.19207) / 1.38415 = 0.7167, half 1.96 / 1.38415 * sqrt(0.016 + 0.0096) = 0.2266."""
    assert interval_pct(8, 10) == pytest.approx((49.02, 94.33), abs=0.01)
    assert interval_pct(0, 1000) == (0.0, 0.3)
    assert interval_pct(3000, 3000) == (99.9, 100.0)
    assert (share((0, 1000)), share((1000, 1000)), share((5, 10))) == (
        "0 (≤ 0.3)",
        "100 (≥ 99.70)",
        "50.0 (23.7-76.3)",
    )
