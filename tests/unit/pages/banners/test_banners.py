"""The banners on Airflow's home page: their text and their number."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.builders.breaches import make_breach
from trainbench.core.verdicts import Level, State
from trainbench.history.breach import Breach, BreachKind
from trainbench.pages.banners.banners import banners


def breach(node: str, kind: BreachKind = BreachKind.BREACH) -> Breach:
    is_red = kind is BreachKind.BREACH
    return make_breach(
        node,
        kind=kind,
        state=State.MISSING if is_red else None,
        level=Level.ERROR if is_red else Level.WARNING,
        summary="was expected" if is_red else "is 6.9 % slower since 20 Nov 2026",
        cause=None,
        opened_at=datetime(2026, 11, 21, 2, tzinfo=UTC),
        dag_run_id=None,
    )


@pytest.mark.parametrize(
    ("num_rows", "last"), [(3, "node-3"), (4, "node-4"), (5, "and 2 more"), (1003, "and 1,000 more")]
)
def test_a_few_are_shown_and_the_others_counted(num_rows: int, last: str) -> None:
    shown = banners([breach(f"node-{number}") for number in range(1, num_rows + 1)], "")

    assert len(shown) == min(num_rows, 4)
    assert last in str(shown[-1]["text"])


def test_a_warning_is_one_sentence_with_dates_of_its_own() -> None:
    (shown,) = banners([breach("node-9", BreachKind.WARNING)], "")

    assert shown["text"] == "**node-9** is 6.9 % slower since 20 Nov 2026 (reported since 21 Nov 02:00 UTC)."
