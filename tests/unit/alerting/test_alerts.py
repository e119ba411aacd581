"""Alerts: which node, how far, confirmed or not, and whether it is a drill."""

from __future__ import annotations

from bench_image.contract.result import Status
from tests.builders import campaigns, make_failed, make_result
from trainbench.alerting.alerts import alerts
from trainbench.core.verdicts import HistoryVerdict, State
from trainbench.judging.checks.missing_nodes import absentees
from trainbench.judging.over_time.trend import findings
from trainbench.params.campaign_kind import Question
from trainbench.planning.nodes import AbsentNode


def test_a_healthy_fleet_raises_none() -> None:
    assert alerts(campaigns.healthy(), "dag", "run") == ()


def test_a_confirmed_breach_is_red_and_says_how_far() -> None:
    (alert,) = alerts(campaigns.slow_node(), "dag", "run")

    assert (alert.node, alert.red, alert.is_drill) == ("node-3", True, False)
    assert alert.text == ("node-3 is in breach: samples/s −9.7 %, limit ±5 %, confirmed by a re-run with −9.0 %")
    assert alert.resolution


def test_a_drill_is_called_a_drill() -> None:
    (alert,) = alerts(campaigns.cpu_drill(), "dag", "run")

    assert alert.is_drill
    assert alert.text.startswith("DRILL: node-3 was slowed on purpose: found: samples/s −76.1 %")


def test_failed_nodes_are_red_and_pairs_are_only_told() -> None:
    assert all(alert.red for alert in alerts(campaigns.all_failed(), "dag", "run"))
    assert [alert.red for alert in alerts(campaigns.two_nodes(), "dag", "run")] == [False, False]


def behind(node: str) -> HistoryVerdict:
    return HistoryVerdict(
        node=node,
        group_id="g",
        state=State.BREACH,
        samples_per_second=1.40,
        baseline_median=1.45,
        deviation_pct=-3.4,
        limit_pct=1.5,
        num_points=14,
        reason="−3.4 % against the median of its 14 past runs, limit 1.5 %",
    )


def test_falling_behind_one_s_own_past_is_told_but_not_red() -> None:
    (alert,) = alerts(campaigns.healthy().model_copy(update={"history": (behind("node-2"),)}), "dag", "run")

    assert not alert.red
    assert alert.text.startswith("node-2 fell behind its own past: −3.4 %")


def test_of_a_breach_that_is_behind_its_past_too_the_next_step_is_the_breach_s() -> None:
    past = behind("node-3")
    campaign = campaigns.slow_node()
    for result in ((*campaign.findings, *findings(past)), (*findings(past), *campaign.findings)):
        (breach,) = alerts(campaign.model_copy(update={"history": (past,), "findings": result}), "dag", "run")

        assert breach.resolution == campaign.findings[0].resolution
    (fell,) = alerts(campaigns.healthy().model_copy(update={"history": (past,), "findings": findings(past)}), "d", "r")
    assert fell.resolution.startswith("compare driver, image, clocks and temperature with the last good run")


def test_a_node_that_nothing_ran_on_is_told_but_not_red() -> None:
    absent = (
        AbsentNode(name="gpu-9", reason="not ready: kubelet stopped", expected=True),
        AbsentNode(name="gpu-10", reason="cordoned", expected=False),
    )
    (alert,) = alerts(campaigns.healthy().model_copy(update={"findings": absentees(absent, ())}), "dag", "run")

    assert (alert.node, alert.red, alert.condition) == ("gpu-9", False, None)
    assert alert.text == "gpu-9 was not benchmarked: not ready: kubelet stopped"


def test_of_strategies_a_broken_run_is_red_and_one_that_does_not_fit_or_found_no_place_is_not() -> None:
    results = [
        make_result(),
        make_failed(status=Status.OOM),
        make_failed(status=Status.INCOMPLETE, kind="busy", message="no room"),
        make_failed(status=Status.ERROR, kind="RuntimeError", message="NCCL error"),
    ]
    (alert,) = alerts(campaigns.make_campaign(results, question=Question.STRATEGIES), "dag", "run")

    assert alert.red
    assert alert.text.endswith("error, NCCL error")


def test_a_dated_slowdown_of_the_fleet_is_one_alert_and_not_red() -> None:
    (alert,) = alerts(campaigns.slower_since(), "dag", "run")

    assert (alert.node, alert.red, alert.level) == (None, False, "warning")
    assert alert.text.startswith(
        "node-1, node-2, node-3 and node-4 are 5.8 to 6.4 % slower since 12 Nov 2026, when the"
    )
    assert alert.resolution.startswith("undo this change")
