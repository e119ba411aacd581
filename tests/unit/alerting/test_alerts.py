"""Alerts: which node, how far, confirmed or not, and whether it is a drill."""

from __future__ import annotations

from bench_image.contract.result import Status
from tests.builders import campaigns, make_failed, make_result
from tests.builders.nights import night
from tests.builders.verdicts import make_finding
from trainbench.alerting.run_summary import alerts
from trainbench.core.verdicts import Level, Why
from trainbench.params.campaign_kind import CampaignKind

RATES = {"node-1": 10.0, "node-2": 9.0, "node-3": 10.0}


def test_a_healthy_fleet_raises_none() -> None:
    assert alerts(campaigns.healthy()) == ()


def test_a_red_node_is_an_error_a_look_a_warning_and_what_was_not_checked_is_none() -> None:
    """Errors come first, whatever the order of the nodes."""
    raised = alerts(night(1, RATES, {"node-1": Why.BEHIND, "node-2": Why.SLOW, "node-3": Why.NOISY}))

    assert [(alert.nodes, alert.level, alert.why) for alert in raised] == [
        (("node-2",), Level.ERROR, Why.SLOW),
        (("node-1",), Level.WARNING, Why.BEHIND),
    ]
    assert raised[0].resolution == "look at the fans of node-2"


def test_a_node_without_a_finding_is_told_in_the_words_of_its_state() -> None:
    (alert,) = alerts(night(1, RATES, {"node-2": Why.SLOW}, findings=()))

    assert alert.headline == "node-2 is slow: samples/s −10.0 % against the median of 3 peers"
    assert alert.resolution.startswith("repeat the check on this node and a good one")


def test_a_finding_of_another_reason_does_not_explain_it() -> None:
    clock = make_finding("node-2").model_copy(update={"why": None, "category": "wall_clock"})
    other = make_finding("node-1", Why.SLOW)
    (alert,) = alerts(night(1, RATES, {"node-2": Why.SLOW}, findings=(clock, other)))

    assert (alert.nodes, alert.category) == (("node-2",), "slow")


def test_a_drill_that_was_detected_is_called_a_drill_and_else_it_is_an_alarm() -> None:
    (alert,) = alerts(night(1, RATES, {"node-2": Why.SLOW}, drilled=["node-2"]))

    assert alert.is_drill
    assert alert.text.startswith("DRILL: node-2 is slow")
    (untold,) = alerts(night(1, RATES, {"node-2": Why.SLOW}, drilled=["node-2"], findings=()))
    assert untold.headline.startswith("DRILL: node-2 was slowed on purpose: samples/s")
    assert untold.resolution == "nothing: the next check judges it again"
    assert alerts(night(1, RATES, {"node-2": Why.DRILL}, drilled=["node-2"])) == ()


def test_of_strategies_a_broken_run_is_red_and_one_that_does_not_fit_or_is_unschedulable_is_not() -> None:
    results = [
        make_result(),
        make_failed(status=Status.OOM),
        make_failed(status=Status.INCOMPLETE, kind="busy", message="no room"),
        make_failed(status=Status.ERROR, kind="RuntimeError", message="NCCL error"),
    ]
    (alert,) = alerts(campaigns.make_campaign(results, campaign_kind=CampaignKind.STRATEGIES))

    assert alert.level is Level.ERROR
    assert alert.text.endswith("error, NCCL error")
    assert not alert.is_drill
