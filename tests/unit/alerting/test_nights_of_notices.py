"""Nights in a row, judged, recorded and mailed: the notices never contradict each other or the rates."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from tests.builders import STARTED_AT, make_result
from tests.builders.pipelines import judged
from trainbench.alerting.breach_text import breach_phrase
from trainbench.alerting.notice_text import Event, Notice, event_of
from trainbench.alerting.outbox import Outbox
from trainbench.core.tables import Tone
from trainbench.core.verdicts import Level
from trainbench.history.history import History, open_history
from trainbench.history.node_histories import TRAIL_CAMPAIGNS
from trainbench.judging.conditions_of_campaign import conditions
from trainbench.judging.node_condition import Condition
from trainbench.params.campaign_params import parse_params
from trainbench.pipeline import assess
from trainbench.planning.nodes import Fleet
from trainbench.planning.plan import make_plan
from trainbench.reporting import verdict_text
from trainbench.results.campaign import Campaign
from trainbench.settings.channels import Channel, Mail

NODES = ("node-1", "node-2", "node-3", "node-4")
DAG = "node_consistency"
ERRORS = Mail(kind="mail", to=("oncall@example.org",))
ALL = Mail(kind="mail", to=("fleet@example.org",), at_least=Level.WARNING)
OLD, NEW = "570.1", "580.2"


class Nights:
    """A fleet that is checked night after night. `mailed[channel]`: for each night its (event, node, text)."""

    def __init__(self, folder: Path) -> None:
        self.history: History = open_history(f"sqlite:///{folder}/history.sqlite")
        self.campaigns: list[Campaign] = []
        self.mailed: dict[str, list[list[tuple[Event, str, str]]]] = {ERRORS.name: [], ALL.name: []}

    def check(self, rates: Mapping[str, float], driver: str = OLD, nodes: Sequence[str] = NODES) -> Campaign:
        """One night; a breach is run again and is as slow."""
        at = STARTED_AT + timedelta(days=len(self.campaigns))
        params = parse_params({"nodes": nodes, "strategies": ["single"], "rounds": 1})
        plan = make_plan(params, Fleet(), f"night-{len(self.campaigns) + 1}")

        def run(spec: RunSpec) -> RunResult:
            result = make_result(spec.identity.node, rates[spec.identity.node], driver=driver)
            times = {"started_at": at + timedelta(minutes=1), "finished_at": at + timedelta(minutes=2)}
            return result.model_copy(update={"spec": spec, **times})

        times = {"started_at": at, "finished_at": at + timedelta(minutes=9)}
        first = judged(plan, [run(spec) for spec in plan.specs], self.history, suite=DAG, **times)
        again = [run(spec) for spec in first.rerun_specs]
        campaign = assess(first.with_reruns(again, times["finished_at"]))
        self.history.record(campaign)
        self.campaigns.append(campaign)
        for channel in (ERRORS, ALL):
            self.mailed[channel.name].append(list(self._mailed(channel, campaign)))
        return campaign

    def _mailed(self, channel: Channel, campaign: Campaign) -> list[tuple[Event, str, str]]:
        outbox, now = Outbox(self.history.engine), campaign.finished_at + timedelta(minutes=1)
        taken = outbox.take(DAG, channel, now)
        outbox.sent(taken, channel, now)
        return [(event_of(notice[0]), notice[0].node, _text(notice)) for notice in taken]

    def all_events(self, node: str, channel: Channel = ALL) -> list[tuple[int, Event, str]]:
        """(night from 1, event, text)"""
        return [
            (night, event, text)
            for night, batch in enumerate(self.mailed[channel.name], start=1)
            for event, about, text in batch
            if about == node
        ]


def _text(notice: Notice) -> str:
    return "; ".join(breach.ended or breach_phrase(breach) for breach in notice)


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def fleet(rate: float = 10.0, **others: float) -> dict[str, float]:
    return dict.fromkeys(NODES, rate) | {name.replace("_", "-"): other for name, other in others.items()}


def test_a_driver_that_makes_minus_4_percent_to_minus_20_is_no_all_clear_and_no_good_report(nights: Nights) -> None:
    """[J3] -4 % for four nights, then a driver at -20 %: reported on its first night, with the driver's name."""
    for _ in range(8):
        nights.check(fleet())
    for _ in range(4):
        nights.check(fleet(9.6))
    later = [nights.check(fleet(8.0), driver=NEW) for _ in range(12)]

    events = nights.all_events("node-1")
    assert [(night, event) for night, event, _ in events] == [(9, Event.OPENED), (13, Event.OPENED)]
    assert events[1][2].startswith("are 16.7 % slower since 3 Dec 2026, when the driver went from 570.1 to 580.2")
    assert {verdict_text.tone(campaign) for campaign in later} == {Tone.WARN}


def test_a_fleet_that_a_driver_slows_by_20_percent_is_not_green_on_any_night(nights: Nights) -> None:
    """[J3] 8 / 10 - 1 = -20 %; mailed once for all nodes."""
    for _ in range(8):
        nights.check(fleet())
    slow = [nights.check(fleet(8.0), driver=NEW) for _ in range(10)]

    assert {verdict_text.tone(campaign) for campaign in slow} == {Tone.WARN}
    for node in NODES:
        ((night, event, text),) = nights.all_events(node)
        assert (night, event) == (9, Event.OPENED)
        assert text.startswith("are 20.0 % slower since 29 Nov 2026, when the driver went from 570.1 to 580.2")


def test_a_warning_of_a_driver_is_over_when_the_old_driver_is_back(nights: Nights) -> None:
    for _ in range(8):
        nights.check(fleet())
    nights.check(fleet(8.0), driver=NEW)
    nights.check(fleet())

    assert [event for _, event, _ in nights.all_events("node-2")] == [Event.OPENED, Event.CLOSED]


def test_a_node_that_recovers_is_well_again_and_not_slower_since_a_date(nights: Nights) -> None:
    """[J7] -8.2 % for ten nights, then well: one mail when it began and one when it was over."""
    for _ in range(8):
        nights.check(fleet())
    for _ in range(10):
        nights.check(fleet(node_2=9.18))
    for _ in range(4):
        nights.check(fleet())

    for channel in (ERRORS, ALL):
        events = nights.all_events("node-2", channel)
        assert [(night, event) for night, event, _ in events] == [(9, Event.OPENED), (19, Event.CLOSED)]
        assert "well again" in events[1][2]


def test_a_node_that_is_within_its_limits_again_but_slower_than_it_was_is_not_called_well_again(nights: Nights) -> None:
    """[J7] -8.2 % for six nights, then -2.3 %: the breach is over, and the node is not as it was before."""
    for _ in range(8):
        nights.check(fleet())
    for _ in range(6):
        nights.check(fleet(node_2=9.18))
    for _ in range(6):
        nights.check(fleet(node_2=9.77))
    nights.check(fleet())

    assert [event for _, event, _ in nights.all_events("node-2")] == [Event.OPENED, Event.OPENED, Event.CLOSED]
    assert nights.all_events("node-2", ERRORS)[-1][:2] == (21, Event.CLOSED)


def test_one_slowdown_is_mailed_on_one_night_whatever_finds_it_on_the_next(nights: Nights) -> None:
    """[J7] -4.9 %: watched and behind its past on the first night, dated on the third."""
    for _ in range(8):
        nights.check(fleet())
    for _ in range(8):
        nights.check(fleet(node_3=9.51))

    assert len(nights.all_events("node-3")) == 1
    assert nights.all_events("node-3", ERRORS) == []


def test_an_undecided_fleet_is_reported_on_the_third_night_and_when_it_is_judged_again(nights: Nights) -> None:
    """[J4] Two nodes of one kind that lie 50 % apart: nobody can say which one is slow."""
    nodes = ("node-1", "node-2")
    for _ in range(5):
        nights.check({"node-1": 10.0, "node-2": 5.0}, nodes=nodes)
    nights.check(fleet())

    for node in nodes:
        assert [(night, event) for night, event, _ in nights.all_events(node)] == [(3, Event.OPENED), (6, Event.CLOSED)]
        assert nights.all_events(node)[0][2].startswith("could not be judged since 21 Nov 2026: ")
        assert nights.all_events(node, ERRORS) == []


def test_a_node_that_has_been_slow_for_longer_than_a_trail_is_still_behind_its_past_until_it_is_back(
    nights: Nights,
) -> None:
    """A driver that costs 20 % on all nodes, for five nights more than a trail is long: nothing but the open warning
    knows the level before. Mailed once; over when the rate is back.
    """
    for _ in range(8):
        nights.check(fleet())
    slow = [nights.check(fleet(8.0), driver=NEW) for _ in range(TRAIL_CAMPAIGNS + 5)]

    assert {verdict_text.tone(campaign) for campaign in slow} == {Tone.WARN}
    assert {node.condition for campaign in slow for node in conditions(campaign)} == {Condition.BEHIND}
    assert "are still 20.0 % slower than before 29 Nov 2026" in [finding.summary for finding in slow[-1].findings]
    over = nights.check(fleet(), driver=NEW)
    assert {node.condition for node in conditions(over)} == {Condition.WELL}
    for node in NODES:
        assert [(night, event) for night, event, _ in nights.all_events(node)] == [
            (9, Event.OPENED),
            (9 + len(slow), Event.CLOSED),
        ]


def test_an_accepted_baseline_ends_the_warning_with_a_sentence_of_its_own_and_hides_no_breach(nights: Nights) -> None:
    """-20 % by an intended change on all nodes. Then node-4 falls another 10 % behind its peers: 7.2 / 8 - 1."""
    for _ in range(8):
        nights.check(fleet())
    nights.check(fleet(8.0), driver=NEW)
    at = nights.campaigns[-1].finished_at + timedelta(hours=6)
    nights.history.accept_baseline(None, "ada", "the new driver is meant to be slower", at)
    later = [nights.check(fleet(8.0), driver=NEW) for _ in range(8)]
    nights.check(fleet(8.0, node_4=7.2), driver=NEW)

    for node in NODES[:3]:
        (opened, closed) = nights.all_events(node)
        assert (opened[:2], closed[:2]) == ((9, Event.OPENED), (10, Event.CLOSED))
        assert closed[2] == "accepted as the new level by ada: the new driver is meant to be slower"
    assert {verdict_text.tone(campaign) for campaign in later} == {Tone.GOOD}
    assert nights.all_events("node-4", ERRORS)[-1][:2] == (18, Event.OPENED)


@pytest.mark.parametrize("seed", range(3))
def test_no_batch_contradicts_itself_and_no_all_clear_is_false(tmp_path: Path, seed: int) -> None:
    """Nodes that slow down and recover at random, and drivers that come and go: for each node at most one entry in a
    batch; "over" only at the level of its first nights; no node has two beginnings at one rate.
    """
    nights, rng = Nights(tmp_path), random.Random(seed)
    level, driver = dict.fromkeys(NODES, 1.0), OLD
    for _ in range(8):
        nights.check(fleet())
    for _ in range(16):
        if rng.random() < 0.4:
            level[rng.choice(NODES)] = rng.choice([1.0, 1.0, 0.98, 0.96, 0.92, 0.8])
        driver = rng.choice([OLD, NEW]) if rng.random() < 0.1 else driver
        cost = 0.9 if driver == NEW else 1.0
        noise = {node: 1 + rng.gauss(0, 0.0005) for node in NODES}
        nights.check({node: 10 * level[node] * cost * noise[node] for node in NODES}, driver)
        for channel in (ERRORS, ALL):
            _assert_consistent(nights.mailed[channel.name][-1], nights.campaigns[-1])


def _assert_consistent(batch: Sequence[tuple[Event, str, str]], campaign: Campaign) -> None:
    nodes = [node for _, node, _ in batch]
    assert len(nodes) == len(set(nodes))
    rates = {result.spec.identity.node: result.performance.samples_per_second or 0.0 for result in campaign.results}
    for event, node, text in batch:
        if event is Event.CLOSED:
            assert rates[node] >= 10 * (1 - 0.015), text
