"""The banners on Airflow's home page: their text and their number."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from trainbench.core.verdicts import Level
from trainbench.pages.banners.banners import banners
from trainbench.pages.banners.rows import Said


def said(node: str, breach_id: int | None = 1) -> Said:
    return Said(
        level=Level.ERROR if breach_id else Level.WARNING,
        node=node,
        what="did not run" if breach_id else "is 6.9 % slower since 20 Nov 2026",
        cause=None,
        since=datetime(2026, 11, 21, 2, tzinfo=UTC),
        dag_id="node_consistency",
        dag_run_id=None,
        breach_id=breach_id,
    )


@pytest.mark.parametrize(
    ("num_rows", "last"), [(3, "node-3"), (4, "node-4"), (5, "and 2 more"), (1003, "and 1,000 more")]
)
def test_a_few_are_shown_and_the_others_counted(num_rows: int, last: str) -> None:
    shown = banners([said(f"node-{number}") for number in range(1, num_rows + 1)], "")

    assert len(shown) == min(num_rows, 4)
    assert last in str(shown[-1]["text"])


def test_a_warning_is_one_sentence_with_dates_of_its_own() -> None:
    (shown,) = banners([said("node-9", breach_id=None)], "")

    assert shown["text"] == "**node-9** is 6.9 % slower since 20 Nov 2026 (told since 21 Nov 02:00 UTC)."
