"""The banners on Airflow's home page: their text and their number."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.builders.notices import make_notice
from trainbench.core.verdicts import Why
from trainbench.pages.web.banners import banners

AT = datetime(2026, 11, 21, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("num_rows", "last"), [(3, "node-3"), (4, "node-4"), (5, "and 2 more"), (1003, "and 1,000 more")]
)
def test_a_few_are_shown_and_the_others_counted(num_rows: int, last: str) -> None:
    shown = banners([make_notice(f"node-{number}") for number in range(1, num_rows + 1)], "")

    assert len(shown) == min(num_rows, 4)
    assert last in str(shown[-1]["text"])


def test_a_banner_says_what_is_wrong_since_when_and_of_red_the_cause() -> None:
    about = {"opened_at": AT, "dag_run_id": None, "cause": "its fans stand still"}
    slow = make_notice("node-9", Why.SLOW, -7.3, **about)
    behind = make_notice("node-8", Why.BEHIND, -2.1, **about)
    texts = [shown["text"] for shown in banners([slow, behind], "/air")]

    assert texts == [
        "**node-9 is slow: samples/s −7.3 % against its peers**, since 21 Nov 02:00 UTC. its fans stand still. "
        "[Notice](plugin/trainbench/air/trainbench/notices/1)",
        "**node-8 lags behind: samples/s −2.1 % against its peers**, since 21 Nov 02:00 UTC. "
        "[Notice](plugin/trainbench/air/trainbench/notices/1)",
    ]
