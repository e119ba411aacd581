"""Acknowledging a notice: who, when and why are kept, whatever else is rebuilt."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Barrier, Thread

import pytest
from sqlalchemy import select

from tests.builders.nights import night
from tests.builders.three_nights import node_of, overview_of
from trainbench.core.user_error import MAX_REASON, EntryError
from trainbench.core.verdicts import State, Why
from trainbench.exchange.reindex import reindex
from trainbench.history.history import History
from trainbench.history.notices import Acknowledgement
from trainbench.history.tables import acknowledgements
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.notices import closed_notices, notice_by_id, open_notices
from trainbench.pages.reads.queries import Pages, sees, suites_of
from trainbench.pages.reads.rows import EventKind
from trainbench.results.artefacts import open_store

AT = datetime(2026, 11, 1, 8, 5, tzinfo=UTC)
SEEN = "node_consistency"
ALL = Filters()
WHO, WHY = "vera", "fan ordered, ticket 12"


@pytest.fixture
def pages(history: History) -> Pages:
    """node-1 and node-2 are slow."""
    states = {"node-1": Why.SLOW, "node-2": Why.SLOW}
    history.record(night(1, {"node-1": 9.0, "node-2": 9.0, "node-3": 10.0}, states))
    return Pages(history.engine, {SEEN})


def notice_of(pages: Pages, node: str) -> int:
    return next(row.id for row in pages.read(open_notices, ALL).rows if row.node == node)


def acknowledge(pages: Pages, notice_id: int, who: str, reason: str, at: datetime) -> Acknowledgement:
    return History(pages.engine).acknowledge(notice_id, who, reason, at)


def refused(pages: Pages, notice_id: int, reason: str = WHY, who: str = WHO) -> str:
    with pytest.raises(EntryError) as refusal:
        acknowledge(pages, notice_id, who, reason, AT)
    return str(refusal.value)


@pytest.mark.both_databases
def test_an_acknowledged_notice_stays_open_says_who_and_why_and_goes_behind_the_others(pages: Pages) -> None:
    seen = Acknowledgement(who=WHO, at=AT, reason=WHY)
    assert acknowledge(pages, notice_of(pages, "node-1"), WHO, f"  {WHY}\n", AT) == seen
    rows = pages.read(open_notices, ALL).rows
    assert [(row.node, row.acknowledgement) for row in rows] == [("node-2", None), ("node-1", seen)]
    overview = overview_of(pages, ALL, date(2026, 11, 1))
    assert overview.summary.counts == {State.RED: 1, State.ACKNOWLEDGED: 1, State.WELL: 1}
    actual = node_of(pages, "node-1", ALL)
    assert actual
    assert (actual.events[0].kind, actual.events[0].at) == (EventKind.ACKNOWLEDGED, AT)
    assert actual.events[0].text == "acknowledged by vera: fan ordered, ticket 12"
    number = notice_of(pages, "node-1")  # nobody does so twice
    assert refused(pages, number, who="paul").startswith("node-1 was acknowledged by vera on 2026-11-01 08:05:00 UTC")


@pytest.mark.both_databases
def test_of_two_at_once_one_is_refused(pages: Pages) -> None:
    number, outcomes = notice_of(pages, "node-1"), []
    together = Barrier(2)

    def click(who: str) -> None:
        together.wait()
        try:
            outcomes.append(acknowledge(pages, number, who, WHY, AT).who)
        except EntryError:
            outcomes.append("refused")

    clicks = [Thread(target=click, args=(who,)) for who in ("vera", "paul")]
    for thread in clicks:
        thread.start()
    for thread in clicks:
        thread.join()
    assert sorted(outcomes) in (["paul", "refused"], ["refused", "vera"])


def test_a_notice_that_is_over_needs_nobody(history: History, pages: Pages) -> None:
    number = notice_of(pages, "node-1")
    for day in (2, 3):
        history.record(night(day, {"node-1": 10.0}))
    assert refused(pages, number) == "node-1 is well again since 2026-11-03 03:00:00 UTC: nothing to do"


def test_an_unknown_notice(pages: Pages) -> None:
    assert refused(pages, 999).startswith("there is no notice 999")


@pytest.mark.parametrize("text", ["", " \n\t", "x" * (MAX_REASON + 1), "\x00", "\ud800"])
def test_reason_and_name_are_short_texts(pages: Pages, text: str) -> None:
    number = notice_of(pages, "node-1")
    assert "the reason has" in refused(pages, number, text)
    assert "the name of who acknowledges has" in refused(pages, number, who=text)
    assert pages.read(open_notices, ALL).rows[0].acknowledgement is None


def test_a_node_that_is_slow_again_has_a_new_notice_which_nobody_has_seen(history: History, pages: Pages) -> None:
    acknowledge(pages, notice_of(pages, "node-1"), WHO, WHY, AT)
    for day in (2, 3):
        history.record(night(day, {"node-1": 10.0}))
    history.record(night(4, {"node-1": 9.0}, {"node-1": Why.SLOW}))
    assert [row.acknowledgement for row in pages.read(open_notices, ALL).rows if row.node == "node-1"] == [None]
    (closed,) = pages.read(closed_notices, ALL).rows
    assert closed.acknowledgement == Acknowledgement(who=WHO, at=AT, reason=WHY)


def test_a_reindex_rebuilds_the_rest_and_keeps_what_people_entered(
    history: History, pages: Pages, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "store"))
    store.write_campaign(night(1, {"node-1": 9.0, "node-2": 9.0}, {"node-1": Why.SLOW, "node-2": Why.SLOW}))
    for day in (2, 3):
        store.write_campaign(night(day, {"node-1": 9.0, "node-2": 10.0}, {"node-1": Why.SLOW}))
    acknowledge(pages, notice_of(pages, "node-1"), WHO, WHY, AT + timedelta(days=1))
    before = pages.read(notice_by_id, Filters(), notice_of(pages, "node-1"))
    reindex(store, history)
    assert [row.node for row in pages.read(open_notices, ALL).rows] == ["node-1"]
    assert pages.read(notice_by_id, Filters(), notice_of(pages, "node-1")) == before
    with history.engine.connect() as connection:
        (kept,) = connection.execute(select(acknowledgements)).all()
    assert (kept.node, kept.who, kept.reason) == ("node-1", WHO, WHY)


def test_an_accepted_baseline_is_an_event_of_its_nodes_where_the_level_begins(history: History, pages: Pages) -> None:
    accepted = history.accept_baseline("node-1", WHO, WHY, AT)
    ours, theirs = node_of(pages, "node-1", ALL), node_of(pages, "node-2", ALL)
    assert ours
    assert theirs
    assert ours.baselines == (accepted,)
    (event,) = [event for event in ours.events if event.kind is EventKind.BASELINE]
    assert (event.at, event.text) == (accepted.since, accepted.description)
    assert theirs.baselines == ()
    assert EventKind.BASELINE not in {event.kind for event in theirs.events}

    history.revoke_baseline(accepted.id, "bob", AT + timedelta(hours=1))
    again = node_of(pages, "node-1", ALL)
    assert again
    assert again.baselines == ()
    assert again.events[0].text == f"Taken back by bob: {accepted.description}"


def test_whose_dags_judged_a_node_is_known_whatever_one_may_see(history: History, pages: Pages) -> None:
    history.record(night(1, {"node-3": 10.0}, suite="another_dag", campaign_id="another"))
    assert pages.read(suites_of, Filters(), "node-3", AT - timedelta(days=1)) == ("another_dag", SEEN)
    assert pages.read(suites_of, Filters(), "node-1", AT - timedelta(days=1)) == (SEEN,)
    assert pages.read(suites_of, Filters(), None, AT + timedelta(days=1)) == ()
    assert (
        pages.read(sees, Filters(), "node-1"),
        pages.read(sees, Filters(), "node-9"),
        pages.read(sees, Filters(), None),
    ) == (True, False, True)
    assert not Pages(history.engine, {"another_dag"}).read(sees, Filters(), "node-1")
