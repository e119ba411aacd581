"""The truth table: a fleet with one node in each condition, and what every surface makes of it. And the nights on which
a surface once called a fleet well that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.result import RunResult, Status
from bench_image.contract.spec import Drill
from tests.builders import make_failed
from tests.builders.judged_nights import ENDED_AT, NODES, judged_night, runs
from tests.conftest import Golden
from trainbench.alerting import run_summary
from trainbench.alerting.alerts import alerts
from trainbench.alerting.outbox import Outbox
from trainbench.cli.app import exit_code
from trainbench.core.tables import Tone
from trainbench.core.verdicts import Level
from trainbench.history.history import History
from trainbench.judging.node_condition import TRAITS, Condition, NodeCondition
from trainbench.pages.banners.banner_rows import open_banners
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.rows import CostRow, Overview
from trainbench.reporting import verdict_text
from trainbench.reporting.condition_effects import TABLE, Surfaces, document
from trainbench.results.campaign import Campaign
from trainbench.settings.channels import Mail

ROOT = Path(__file__).resolve().parents[3]
DAG = "node_consistency"
SOON = ENDED_AT + timedelta(hours=1)


def fleet(*of_node_1: RunResult) -> list[RunResult]:
    return [*of_node_1, *(run for node in NODES[1:] for run in runs(node))]


def breach(**fields: Any) -> Campaign:
    return judged_night(fleet(*runs("node-1", 9.0, **fields)), runs("node-1", 9.0, (3,), **fields))


def failed(kind: str, status: Status = Status.ERROR) -> Campaign:
    return judged_night(fleet(*(make_failed("node-1", round=n, kind=kind, status=status) for n in (1, 2))))


def past_of_node_1(rate: float) -> Callable[[str], Sequence[float]]:
    return lambda node: [rate if node == "node-1" else 10.0] * 9


NIGHTS: dict[Condition, Callable[[], Campaign]] = {
    Condition.FAILED: lambda: failed("RuntimeError"),
    Condition.MISSING: lambda: judged_night(fleet()),
    Condition.BREACH: breach,
    Condition.ACKNOWLEDGED: breach,
    Condition.STALE: lambda: judged_night(fleet(*runs("node-1"))),
    Condition.DRILL: lambda: breach(drill=Drill(slowdown_pct=10)),
    Condition.BEHIND: lambda: judged_night(fleet(*runs("node-1")), pasts=past_of_node_1(10.3)),
    Condition.UNSTEADY: lambda: judged_night(fleet(*runs("node-1", windows=(10.0, 6.7, 10.0)))),
    Condition.WATCHED: lambda: judged_night(fleet(*runs("node-1", 9.51)), pasts=past_of_node_1(9.51)),
    Condition.UNDECIDED: lambda: judged_night(fleet(*runs("node-1"))[:4], nodes=NODES[:2]),
    Condition.BUSY: lambda: failed("busy", Status.INCOMPLETE),
    Condition.WELL: lambda: judged_night(fleet(*runs("node-1"))),
}


def overview(history: History, now: datetime = SOON) -> Overview:
    return Pages(history.engine, {DAG}).overview(Filters(), now.date(), now)


def banners(history: History, now: datetime = SOON) -> dict[str, Level]:
    with history.engine.begin() as connection:
        return {row.node: row.level for row in open_banners(connection, now)}


def notices(history: History, now: datetime = SOON) -> dict[str, Level]:
    everything = Mail(kind="mail", to=("oncall@example.org",), at_least=Level.WARNING)
    return {worst.node: worst.level for worst, *_ in Outbox(history.engine).take(DAG, everything, now)}


def acknowledge_all(history: History) -> None:
    pages = Pages(history.engine, {DAG})
    for row in pages.open_breaches(Filters()).rows:
        pages.acknowledge(row.id, "ada", "the fan is ordered", SOON)


def test_every_condition_has_a_row_a_night_and_a_place_on_the_page(golden: Golden) -> None:
    assert [row.condition for row in TABLE] == list(NIGHTS) == list(Condition)
    golden("conditions.md", document(), folder=ROOT / "docs")


@pytest.mark.parametrize("row", [row for row in TABLE if row.in_run], ids=lambda row: row.condition)
def test_what_the_run_says(row: Surfaces) -> None:
    """Headline, table, exit code, note, asset event and alerts: of one campaign, without a history."""
    night = NIGHTS[row.condition]()
    assert row.in_run
    trait, total = TRAITS[row.in_run], len({node.node for node in night.nodes})
    raised = alerts(night)
    of_node = [alert for alert in raised if alert.nodes == ("node-1",)]
    (table,) = [verdict_text.verdict_table(night, group) for group in night.groups]
    cell = next(line.texts[-1] for line in table.rows if line.texts[0] == "node-1")
    says = {
        Condition.WELL: "All 4 nodes are well.",
        Condition.UNDECIDED: "None of 2 nodes could be judged",  # a pair: one node alone cannot be undecided so
        Condition.DRILL: "Drill detected: node-1",
    }.get(row.in_run, f"1 of {total} nodes {trait.one}: node-1")

    assert verdict_text.verdict(night).startswith(says)
    assert says in run_summary.note(night, raised, DAG, "scheduled__1", None)
    assert row.word
    assert row.word in cell
    assert exit_code(night) == (3 if row.in_run is Condition.UNDECIDED else row.exit_code)
    assert [alert.level for alert in of_node] == ([row.alert] if row.alert else [])
    assert any(alert.level is Level.ERROR for alert in raised) is (row.exit_code == 1)
    assert run_summary.breaches_extra(night, raised, DAG, "scheduled__1", None)["nodes"][row.in_run] > 0
    assert (verdict_text.tone(night) is Tone.GOOD) is (row.in_run is Condition.WELL)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.condition)
def test_what_is_seen_once_the_run_is_over(row: Surfaces, history: History) -> None:
    """Banner, notice and Fleet page: of a history that recorded the campaign."""
    history.record(NIGHTS[row.condition]())
    later = ENDED_AT + timedelta(hours=37) if row.condition is Condition.STALE else SOON
    if row.condition is Condition.ACKNOWLEDGED:
        acknowledge_all(history)
    seen = overview(history, later)
    first = next(node for node in seen.conditions if node.node == "node-1")
    tone = Tone.BAD if seen.num_red else Tone.GOOD if seen.summary.is_well else Tone.WARN

    assert first.condition is row.condition
    assert (
        TRAITS[row.condition].several in seen.summary.headline
        or TRAITS[row.condition].one in seen.summary.headline
        or str(TRAITS[row.condition].none) in seen.summary.headline
    )
    assert tone is row.fleet
    assert banners(history, later).get("node-1") is row.banner
    assert notices(history, later).get("node-1") is row.notice


def test_the_fleet_page_names_the_red_node_first_and_nodes_of_one_condition_together() -> None:
    """On a phone the breach's card stands far below the headline."""
    conditions_in = [("node-2", Condition.BEHIND, ""), ("node-10", Condition.BREACH, "why"),
            ("node-3", Condition.BEHIND, ""),
            ("node-4", Condition.WELL, ""), ("node-1", Condition.BEHIND, "-4.0 %")]  # fmt: skip
    conditions = tuple(NodeCondition(node, condition, None, why) for node, condition, why in conditions_in)
    seen = Overview(
        num_nodes=5, num_measured=5, conditions=conditions, last_campaign=None, measured_since=SOON.date(),
        spend_since=SOON.date(), spent=CostRow(name="total", usd=None, gpu_hours=None, num_runs=0, num_unpriced=0),
    )  # fmt: skip

    assert [(group.nodes, group.phrase) for group in seen.unwell] == [
        (("node-10",), "is in breach"),
        (("node-2", "node-3"), "fell behind their own past"),
        (("node-1",), "fell behind its own past: -4.0 %"),
    ]


# --- nights on which a surface once said that all was well ------------------------------------------------------------


def test_a_node_at_4_9_percent_below_its_peers_is_not_within_limits_and_reaches_people(history: History) -> None:
    night = NIGHTS[Condition.WATCHED]()
    assert verdict_text.verdict(night) == "1 of 4 nodes is watched: node-1 (samples/s −4.9 %, limit ±5 %); 3 are well."
    history.record(night)
    assert overview(history).summary.headline == "1 of 4 nodes is watched: node-1; 3 are well."


@pytest.mark.parametrize(
    ("make", "headline"),
    [
        (
            lambda: judged_night([*runs("node-1"), *runs("node-2", 5.0)], pasts=lambda node: [],
                             nodes=NODES[:2]),
            "None of 2 nodes could be judged: node-1 and node-2.",
        ),
        (
            lambda: judged_night([make_failed(node, round=n, kind="busy", status=Status.INCOMPLETE)
                              for node in NODES for n in (1, 2)]),
            "All 4 nodes were busy: node-1, node-2, node-3 and 1 more.",
        ),
        (
            lambda: judged_night(fleet(*runs("node-1")), pasts=lambda node: [], reference="history"),
            "None of 4 nodes could be judged: node-1, node-2, node-3 and 1 more.",
        ),
        (
            lambda: judged_night(fleet(*runs("node-1")), pasts=lambda node: [11.11] * 9),
            "All 4 nodes fell behind their own past: node-1, node-2, node-3 and 1 more.",
        ),
        (
            lambda: judged_night(fleet(*runs("node-1")), pasts=lambda node: [100.0] * 9),
            "All 4 nodes fell behind their own past: node-1, node-2, node-3 and 1 more.",
        ),
    ],
    ids=["two 50 % apart", "all busy", "no baseline", "all −10 % against their past", "all −90 %"],
)  # fmt: skip
def test_the_fleet_is_never_well_where_nobody_could_say_so(
    make: Callable[[], Campaign], headline: str, history: History
) -> None:
    history.record(make())
    assert overview(history).summary.headline == headline


def test_a_single_run_of_six_days_ago_says_nothing_about_today(history: History) -> None:
    history.record(NIGHTS[Condition.WELL]())
    assert overview(history).summary.headline == "All 4 nodes are well."
    seen = overview(history, ENDED_AT + timedelta(days=6)).summary.headline
    assert seen == "None of 4 nodes was checked lately: node-1, node-2, node-3 and 1 more."


def test_beside_an_acknowledged_breach_not_all_are_well(history: History) -> None:
    history.record(breach())
    acknowledge_all(history)
    assert overview(history).summary.headline == "1 of 4 nodes is acknowledged: node-1; 3 are well."


def test_a_fleet_that_fell_behind_its_own_past_together_does_not_exit_with_0() -> None:
    together = judged_night(fleet(*runs("node-1")), pasts=lambda node: [11.11] * 9)
    assert exit_code(together) == 4
    assert {alert.level for alert in alerts(together)} == {Level.WARNING}
    half = judged_night(fleet(*runs("node-1")), pasts=lambda node: [11.11 if node in NODES[:2] else 10.0] * 9)
    assert exit_code(half) == 0


def test_a_node_is_called_undecided_since_its_last_verdict(history: History) -> None:
    history.record(NIGHTS[Condition.WELL]())
    busy = failed("busy", Status.INCOMPLETE)
    for day in (1, 2, 3):
        at = ENDED_AT + timedelta(days=day)
        history.record(busy.model_copy(update={"campaign_id": f"night-{day}", "finished_at": at}))
    first = overview(history, ENDED_AT + timedelta(days=3, hours=1)).conditions[0]
    assert (first.condition, first.since) == (Condition.BUSY, ENDED_AT)
    assert first.reason.endswith(f"last judged on {ENDED_AT.day} {ENDED_AT:%b %Y}")


@pytest.mark.parametrize(
    ("past", "headline"),
    [
        (
            [10.0] * 9,
            "3 of 5 nodes are in breach: node-1, node-2 and node-3 (samples/s −10.0 %, limit ±5 %, confirmed by a "
            "re-run with −10.0 %, compared with node-4 and node-5, as fast as before, because 3 of 5 nodes became "
            "slower); 2 are well.",
        ),
        (
            [],
            "2 of 5 nodes are in breach: node-4 and node-5 (samples/s +11.1 %, limit ±5 %, confirmed by a re-run with "
            "+11.1 %, the fleet is split: 2 of 5 nodes read fast, so the reference may be the bad side: "
            "the nodes' own history would decide); 3 are well.",
        ),
    ],
    ids=["with pasts", "without"],
)
def test_the_headline_of_a_bad_majority_names_the_bad_ones_or_the_doubt(past: list[float], headline: str) -> None:
    """Three of five nodes fell by 10 %: 9 / 10 - 1 against the two that did not, 10 / 9 - 1 = +11.1 % the other way."""
    rates = dict.fromkeys((*NODES, "node-5"), 9.0) | {"node-4": 10.0, "node-5": 10.0}
    first = [run for node, rate in rates.items() for run in runs(node, rate)]
    again = [run for node, rate in rates.items() for run in runs(node, rate, (3,))]
    assert verdict_text.verdict(judged_night(first, again, nodes=tuple(rates), pasts=lambda node: past)) == headline
