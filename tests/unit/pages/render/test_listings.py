"""What is new on the page Fleet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.builders.notices import make_notice
from trainbench.core.verdicts import Why
from trainbench.pages.render.listings import changes


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
