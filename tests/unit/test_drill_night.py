"""A drill on a night when the rest of the fleet has trouble of its own: each surface keeps the two apart."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest
from rich.console import Console

from bench_image.contract.spec import Drill
from tests.builders.judged_nights import ENDED_AT, judged_night, runs
from trainbench.alerting import run_summary
from trainbench.alerting.notice_text import message
from trainbench.alerting.outbox import Outbox
from trainbench.alerting.run_summary import alerts
from trainbench.cli.app import exit_code
from trainbench.cli.base import ExitCode
from trainbench.core.verdicts import Level
from trainbench.history.history import History
from trainbench.pages.web.banners import open_banners
from trainbench.reporting import verdict_text
from trainbench.reporting.report import benchmark_report, report_html
from trainbench.reporting.terminal import verdict_table
from trainbench.results.campaign import Campaign
from trainbench.settings.channels import Mail

SOON = ENDED_AT + timedelta(hours=1)
NODES = tuple(f"node-{number}" for number in range(1, 10))
DETECTED = (
    "Drill detected: node-9 (samples/s −20.0 % against the median of 8 peers, limit 5 %; −20.0 % first, then −20.0 %)."
)
MISSED = "Drill not detected: node-9 (slowed by 20 %, measured −1.0 %)."
REASON = " (samples/s −10.0 % against its own past of 9 nights from 12 Nov 2026, limit 1.5 %; since 21 Nov 2026)"
BEHIND = (
    "Apart from the drill, all 8 nodes have become slower, and no single node is at fault: "
    "node-1, node-2, node-3, node-4, node-5 and 3 more"
    f"{REASON}."
)


def drill_night(*, past: float = 10.0, drilled_rate: float = 8.0) -> Campaign:
    """Nine nodes at 10 samples/s, node-9 slowed by 20 % on purpose; `past`: earlier samples/s of each."""
    drill = Drill(slowdown_pct=20)
    first = [run for node in NODES[:8] for run in runs(node)]
    first += runs("node-9", drilled_rate, drill=drill)
    again = runs("node-9", drilled_rate, (3,), drill=drill)
    return judged_night(first, again, pasts=lambda node: [past] * 9, nodes=NODES, drill_node="node-9")


def subject_of(history: History) -> str:
    everything = Mail(kind="mail", to=("oncall@example.org",), at_least=Level.WARNING)
    due = Outbox(history.engine).take("node_consistency", everything, SOON)
    return message([each.notice for each in due], due[0].event, None).subject


def banners(history: History) -> list[str]:
    with history.engine.begin() as connection:
        return [row.name for row in open_banners(connection, SOON)]


@pytest.mark.parametrize(
    ("night", "headline"),
    [
        (drill_night(), f"{DETECTED} Apart from the drill, all 8 nodes are well."),
        (drill_night(past=11.11), f"{DETECTED} {BEHIND}"),
        (drill_night(past=11.11, drilled_rate=9.9), f"{MISSED} {BEHIND}"),
    ],
    ids=["all else well", "all else behind", "not detected"],
)
def test_each_surface_says_first_whether_the_drill_was_detected_and_then_how_the_others_are(
    night: Campaign, headline: str
) -> None:
    """10 / 11.11 - 1 = -10.0 % against the past of the eight; 8 / 10 - 1 = -20.0 % and 9.9 / 10 - 1 = -1.0 % against
    the peers.
    """
    raised = alerts(night)
    note = run_summary.note(night, raised, "node_consistency", "scheduled__1", None)
    console = Console(width=1000, record=True, file=io.StringIO())
    console.print(verdict_table(night))
    brief = headline.replace(REASON, "")  # of a report, whose findings tell the reasons of other nodes

    assert verdict_text.verdict(night) == headline
    assert benchmark_report(night).splitlines()[2] == f"**{brief}**"
    assert brief in report_html(night, {})
    assert note.startswith(f"**Benchmark.** {headline[:200]}")
    assert run_summary.breaches_extra(night, raised, "node_consistency", "scheduled__1", None)["verdict"] == headline
    assert console.export_text().rstrip().endswith(headline)
    assert exit_code(night) == ExitCode.RED


@pytest.mark.parametrize(
    ("night", "badge"),
    [
        (drill_night(), "Drill detected"),
        (drill_night(past=11.11), "Drill detected, other nodes need a look"),
        (drill_night(drilled_rate=9.9), "Action needed"),
    ],
)
def test_the_badge_of_a_detected_drill_calls_nobody_to_act(night: Campaign, badge: str) -> None:
    assert f"</span> {badge}</p>" in report_html(night, {})


def test_the_subject_of_a_mail_keeps_the_drill_and_the_others_apart(history: History) -> None:
    history.record(drill_night(past=11.11))
    assert subject_of(history).startswith("[trainbench] DRILL: node-9 is slow: samples/s −20.0 % against its peers")


def test_a_drill_that_was_not_detected_reaches_people_and_ends_with_the_next_run(history: History) -> None:
    history.record(drill_night(drilled_rate=9.9))
    assert subject_of(history).startswith(
        "[trainbench] DRILL: node-9 was slowed on purpose, and the check did not detect it: slowed by 20 %"
    )
    assert banners(history) == ["node-9"]

    later = {"campaign_id": "next", "finished_at": ENDED_AT + timedelta(days=1), "findings": ()}
    history.record(drill_night().model_copy(update=later))
    assert banners(history) == []
