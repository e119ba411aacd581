"""The truth table: a fleet with one node in each state for each reason, and what every surface makes of it."""

from __future__ import annotations

import html
import io
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.builders.nights import ENDED_AT, night
from tests.builders.states_page import EFFECTS, with_table
from tests.builders.three_nights import overview_of
from tests.builders.verdicts import make_finding
from tests.conftest import Golden
from trainbench.alerting import run_summary
from trainbench.alerting.gauges import CODES, gauges
from trainbench.alerting.notice_text import message
from trainbench.alerting.outbox import Outbox
from trainbench.alerting.run_summary import alerts
from trainbench.cli.app import exit_code
from trainbench.core.states import FRESH, TRAITS, NodeState, word
from trainbench.core.tables import Tone
from trainbench.core.verdicts import Level, State, Verdict, Why
from trainbench.history.history import History
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.notices import open_notices
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.rows import Overview
from trainbench.pages.render.links import Links
from trainbench.pages.render.listings import states_table, tone_of
from trainbench.pages.web.banners import open_banners
from trainbench.pages.web.banners import text as banner_text
from trainbench.reporting import glossary, verdict_text
from trainbench.reporting.report import benchmark_report, report_html
from trainbench.reporting.terminal import verdict_table
from trainbench.reporting.verdict_text import node_rows
from trainbench.results.campaign import Campaign
from trainbench.settings.channels import Mail

ROOT = Path(__file__).resolve().parents[3]
DAG = "node_consistency"
NODES = ("node-1", "node-2", "node-3", "node-4")
NO_RUN = (Why.MISSING, Why.BUSY, Why.ABSENT)
IN_RUN = [why for why in Why if EFFECTS[why].in_run]
REPORTS = ("terminal", "report", "HTML report")
ON_PAGES = [Why.STALE, Why.ACKNOWLEDGED, *IN_RUN]


def night_of(why: Why, day: int = 1) -> Campaign:
    """A night of four nodes: the first is not well for this reason, of a changed fleet the first two; the finding has
    the next step of the table.
    """
    rates = {node: 10.0 for node in NODES if node != "node-1" or why not in NO_RUN}
    bad = () if why is Why.WELL else NODES[:2] if why is Why.CHANGED else NODES[:1]
    drilled = bad if why is Why.DRILL else ()
    judged = Why.SLOW if drilled else why  # a drill that is detected
    more = {"measured": "the node is not Ready", "is_drill": bool(drilled), "resolution": TRAITS[why].next_step}
    if len(bad) > 1:  # one finding for all
        more |= {"nodes": bad, "summary": TRAITS[why].several}
    findings = tuple(make_finding(node, judged, **more) for node in bad[:1])
    if why is Why.ABSENT:
        return night(day, rates, findings=findings, campaign_id=f"night-{day}")
    if judged is Why.SLOW:
        rates["node-1"] = 9.0
    return night(day, rates, dict.fromkeys(bad, judged), drilled=drilled, findings=findings)


def overview(history: History, now: datetime) -> Overview:
    return overview_of(Pages(history.engine, {DAG}), Filters(), now.date(), now)


def state_of_node_1(history: History, now: datetime) -> NodeState:
    return next(node for node in overview(history, now).states if node.node == "node-1")


def banners(history: History, now: datetime) -> list[str]:
    with history.engine.begin() as connection:
        return [banner_text(row, "") for row in open_banners(connection, now)]


def messages(history: History, now: datetime) -> list[Any]:
    everything = Mail(kind="mail", to=("oncall@example.org",), at_least=Level.WARNING)
    return list(Outbox(history.engine).take(DAG, everything, now))


def ended(day: int) -> datetime:
    return ENDED_AT + timedelta(days=day - 1, hours=1)


def test_every_reason_is_in_the_table_in_the_docs_and_in_the_glossary(golden: Golden) -> None:
    assert set(EFFECTS) == set(TRAITS) == set(Why)
    assert len(glossary.tables()[0].rows) == len(Why)
    page = ROOT / "docs" / "states.md"
    golden(page.name, with_table(page.read_text()), folder=page.parent)


def plain(text: str) -> str:
    """Without the escapes of Markdown, HTML and JSON."""
    return html.unescape(text).replace("\\", "")


@pytest.mark.parametrize("why", IN_RUN)
def test_what_the_run_says(why: Why) -> None:
    """Terminal, reports, verdict.json, exit code, note, asset event and alerts: of one campaign, without a history."""
    campaign, effects, trait = night_of(why), EFFECTS[why], TRAITS[why]
    raised = alerts(campaign)
    of_node = [alert for alert in raised if "node-1" in alert.nodes]
    head = {Why.WELL: "All 4 nodes are well", Why.CHANGED: f"2 of 4 nodes {trait.several}: node-1 and node-2",
            Why.DRILL: "Drill detected: node-1"}.get(why, f"1 of 4 nodes {trait.one}: node-1")  # fmt: skip
    terminal = Console(width=2000, record=True, file=io.StringIO())
    terminal.print(verdict_table(campaign))
    said = {
        "terminal": terminal.export_text(),
        "report": plain(benchmark_report(campaign)),
        "HTML report": plain(report_html(campaign, {})),
        "note": plain(run_summary.note(campaign, raised, DAG, "scheduled__1", None)),
        "event": json.dumps(run_summary.breaches_extra(campaign, raised, DAG, "scheduled__1", None)),
    }
    (row,) = [row for row in node_rows(campaign) if row.node == "node-1"]

    for surface, text in said.items():
        assert head in text, surface
        if why is not Why.WELL and (effects.alert or surface in REPORTS):
            assert trait.next_step.replace("`", "") in text.replace("`", ""), surface
        if why is not Why.ABSENT and surface in REPORTS:
            assert word(min(campaign.nodes, key=Verdict.urgency)) in text, surface
    assert (row.state, row.next_step) == (trait.state, "nothing" if why is Why.WELL else trait.next_step)
    assert why is Why.DRILL or row.why is why
    assert exit_code(campaign) == (4 if why is Why.CHANGED else effects.exit_code)
    assert [alert.level for alert in of_node] == ([effects.alert] if effects.alert else [])
    assert any(alert.level is Level.ERROR for alert in raised) is (effects.exit_code == 1)
    assert (verdict_text.tone(campaign) is Tone.GOOD) is (why is Why.WELL)


@pytest.mark.parametrize("why", ON_PAGES)
def test_what_the_pages_and_gauges_say_once_the_run_is_over(why: Why, history: History) -> None:
    trait, now = TRAITS[why], ended(1)
    if why is Why.STALE:
        history.record(night_of(Why.WELL))
        now = ENDED_AT + timedelta(hours=37)
    elif why is Why.ACKNOWLEDGED:
        history.record(night_of(Why.SLOW))
        pages = Pages(history.engine, {DAG})
        History(pages.engine).acknowledge(
            pages.read(open_notices, Filters()).rows[0].id, "ada", "the fan is ordered", now
        )
    else:
        history.record(night_of(why))
    seen = overview(history, now)
    state, worst = state_of_node_1(history, now), seen.summary.worst
    fleet = Tone.GOOD if seen.summary.is_well else tone_of(worst)
    (row,) = [row.texts for row in states_table(seen.states, (), Links()).rows if row.texts[0] == "node-1"]
    gauged = {
        gauge.name: gauge.value
        for gauge in gauges(history.fleet_state(now, FRESH), now)
        if gauge.labels.get("node") == "node-1"
    }

    assert state.state is trait.state
    assert why is Why.DRILL or state.why is why
    assert fleet is EFFECTS[why].fleet
    assert (
        trait.one in seen.summary.headline
        or trait.several in seen.summary.headline
        or (trait.none is not None and trait.none in seen.summary.headline)
    )
    assert row[1] == ("drill: slow" if why is Why.DRILL else word(state))
    assert row[-1] == trait.next_step
    assert gauged["trainbench.node.condition"] == CODES[why]
    assert [each for each in State if gauged[f"trainbench.node.state_{each.value}"]] == [trait.state]
    assert len(banners(history, now)) == (state.state is State.RED)


@pytest.mark.parametrize("why", [why for why in IN_RUN if EFFECTS[why].nights])
def test_in_which_night_people_are_told(why: Why, history: History) -> None:
    """Once; of a changed fleet with one banner. A drill's notice ends with its run."""
    nights, trait = EFFECTS[why].nights or 0, TRAITS[why]
    head = trait.several if why is Why.CHANGED else TRAITS[Why.SLOW].one if why is Why.DRILL else trait.one
    for day in range(1, nights + 2):
        history.record(night_of(why, day))
        due = messages(history, ended(day))
        shown = banners(history, ended(day))
        if why is Why.DRILL:
            assert (len(due), len(shown)) == (1, 0), day
        else:
            assert (bool(due), len(shown)) == (day == nights, day >= nights), day
        for text in shown:
            assert head in plain(text)
        if due:
            text = message([each.notice for each in due], due[0].event, None).text
            assert head in text
            assert f"Next: {trait.next_step}." in text
            assert {each.notice.finding.resolution for each in due} == {trait.next_step}


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
