"""The truth table: a fleet with one node in each state for each reason, and what every surface makes of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.builders.nights import ENDED_AT, night
from tests.builders.verdicts import make_finding
from tests.conftest import Golden
from trainbench.alerting import run_summary
from trainbench.alerting.alerts import alerts
from trainbench.alerting.outbox import Outbox
from trainbench.cli.app import exit_code
from trainbench.core.states import TRAITS, NodeState, word
from trainbench.core.tables import Tone
from trainbench.core.verdicts import Level, State, Why
from trainbench.history.history import History
from trainbench.pages.banners.banners import open_banners
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.rows import Overview
from trainbench.pages.render.listings import glossary_tables, tone_of
from trainbench.reporting import verdict_text
from trainbench.reporting.glossary import EFFECTS, document
from trainbench.results.campaign import Campaign
from trainbench.settings.channels import Mail

ROOT = Path(__file__).resolve().parents[3]
DAG = "node_consistency"
NODES = ("node-1", "node-2", "node-3", "node-4")
NO_RUN = (Why.MISSING, Why.BUSY, Why.ABSENT)
IN_RUN = [why for why in Why if EFFECTS[why].in_run]
ON_PAGES = [Why.STALE, Why.ACKNOWLEDGED, *IN_RUN]


def night_of(why: Why, day: int = 1) -> Campaign:
    """A night of four nodes: the first is not well for this reason, of a changed fleet the first two."""
    rates = {node: 10.0 for node in NODES if node != "node-1" or why not in NO_RUN}
    if why in (Why.SLOW, Why.DRILL):
        rates["node-1"] = 9.0
    if why is Why.ABSENT:
        finding = make_finding("node-1", why, measured="the node is not Ready")
        return night(day, rates, findings=(finding,), campaign_id=f"night-{day}")
    whys = {} if why is Why.WELL else {"node-1": Why.SLOW if why is Why.DRILL else why}  # a drill that is detected
    if why is Why.CHANGED:
        whys["node-2"] = why
    return night(day, rates, whys, drilled=["node-1"] if why is Why.DRILL else [])


def overview(history: History, now: datetime) -> Overview:
    return Pages(history.engine, {DAG}).overview(Filters(), now.date(), now)


def state_of_node_1(history: History, now: datetime) -> NodeState:
    return next(node for node in overview(history, now).states if node.node == "node-1")


def banners(history: History, now: datetime) -> dict[str, Level]:
    with history.engine.begin() as connection:
        return {row.node: row.level for row in open_banners(connection, now)}


def messages(history: History, now: datetime) -> list[Any]:
    everything = Mail(kind="mail", to=("oncall@example.org",), at_least=Level.WARNING)
    return list(Outbox(history.engine).take(DAG, everything, now))


def ended(day: int) -> datetime:
    return ENDED_AT + timedelta(days=day - 1, hours=1)


def test_every_reason_is_in_the_table_in_the_docs_and_in_the_glossary(golden: Golden) -> None:
    assert set(EFFECTS) == set(TRAITS) == set(Why)
    assert len(glossary_tables()[0].rows) == len(Why)
    golden("states.md", document(), folder=ROOT / "docs")


@pytest.mark.parametrize("why", IN_RUN)
def test_what_the_run_says(why: Why) -> None:
    """Headline, table, exit code, note, asset event and alerts: of one campaign, without a history."""
    campaign, effects, trait = night_of(why), EFFECTS[why], TRAITS[why]
    raised = alerts(campaign)
    of_node = [alert for alert in raised if "node-1" in alert.nodes]
    says = {Why.WELL: "All 4 nodes are well", Why.CHANGED: "2 of 4 nodes became slower together: node-1 and node-2",
            Why.DRILL: "Drill"}.get(why, f"1 of 4 nodes {trait.one}: node-1")  # fmt: skip
    (table,) = [verdict_text.verdict_table(campaign, group) for group in campaign.groups]
    texts = [line.texts for line in table.rows if line.texts[0] == "node-1"]

    assert verdict_text.verdict(campaign).startswith(says)
    assert says in run_summary.note(campaign, raised, DAG, "scheduled__1", None)
    if why is not Why.ABSENT:
        assert any(word(min(campaign.node_states, key=NodeState.urgency)) in text for text in texts[0])
    assert exit_code(campaign) == (4 if why is Why.CHANGED else effects.exit_code)
    assert [alert.level for alert in of_node] == ([effects.alert] if effects.alert else [])
    assert any(alert.level is Level.ERROR for alert in raised) is (effects.exit_code == 1)
    assert (verdict_text.tone(campaign) is Tone.GOOD) is (why is Why.WELL)


@pytest.mark.parametrize("why", ON_PAGES)
def test_what_the_pages_say_once_the_run_is_over(why: Why, history: History) -> None:
    trait, now = TRAITS[why], ended(1)
    if why is Why.STALE:
        history.record(night_of(Why.WELL))
        now = ENDED_AT + timedelta(hours=37)
    elif why is Why.ACKNOWLEDGED:
        history.record(night_of(Why.SLOW))
        pages = Pages(history.engine, {DAG})
        pages.acknowledge(pages.open_notices(Filters()).rows[0].id, "ada", "the fan is ordered", now)
    else:
        history.record(night_of(why))
    seen = overview(history, now)
    state, worst = state_of_node_1(history, now), seen.summary.worst
    fleet = Tone.GOOD if seen.summary.is_well else tone_of(worst)

    assert state.state is trait.state
    assert why is Why.DRILL or state.why is why
    assert fleet is EFFECTS[why].fleet
    assert (
        trait.one in seen.summary.headline
        or trait.several in seen.summary.headline
        or (trait.none is not None and trait.none in seen.summary.headline)
    )
    assert bool(banners(history, now)) is (state.state is State.RED)


@pytest.mark.parametrize("why", [why for why in IN_RUN if EFFECTS[why].nights])
def test_in_which_night_people_are_told(why: Why, history: History) -> None:
    """Once; of a changed fleet with one banner. A drill's notice ends with its run."""
    nights = EFFECTS[why].nights or 0
    for day in range(1, nights + 2):
        history.record(night_of(why, day))
        told = {due.notice.why for due in messages(history, ended(day))}
        shown = len(banners(history, ended(day)))
        if why is Why.DRILL:
            assert (len(told), shown) == (1, 0), day
        else:
            assert (len(told), shown) == (day == nights, day >= nights), day


def test_red_stays_red_on_the_pages_until_its_notice_closes(history: History) -> None:
    """A busy night, a noisy one and a silent month change nothing; two good nights in a row end it."""
    nights = ((9.0, Why.SLOW), (None, Why.BUSY), (9.0, Why.NOISY), (10.0, Why.WELL))
    for day, (rate, why) in enumerate(nights, start=1):
        rates = dict.fromkeys(NODES[1:], 10.0) | ({"node-1": rate} if rate else {})
        history.record(night(day, rates, {"node-1": why}))
        assert state_of_node_1(history, ended(day)).why is Why.SLOW, why
    assert state_of_node_1(history, ended(30)).why is Why.SLOW
    history.record(night_of(Why.WELL, 5))
    assert overview(history, ended(5)).summary.headline == "All 4 nodes are well."


def test_a_single_run_of_six_days_ago_says_nothing_about_today(history: History) -> None:
    history.record(night_of(Why.WELL))
    assert overview(history, ended(1)).summary.headline == "All 4 nodes are well."
    seen = overview(history, ended(7)).summary.headline
    assert seen == "None of 4 nodes was checked lately: node-1, node-2, node-3 and 1 more."


def test_beside_an_acknowledged_node_not_all_are_well(history: History) -> None:
    history.record(night_of(Why.SLOW))
    pages = Pages(history.engine, {DAG})
    pages.acknowledge(pages.open_notices(Filters()).rows[0].id, "ada", "the fan is ordered", ended(1))
    assert overview(history, ended(1)).summary.headline == "1 of 4 nodes is acknowledged: node-1; 3 are well."
