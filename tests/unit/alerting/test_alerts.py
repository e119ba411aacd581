"""Alerts: which node, how far, confirmed or not, and whether it is a drill."""

from __future__ import annotations

from bench_image.contract.result import Status
from tests.builders import campaigns, make_failed, make_result
from tests.builders.verdicts import behind_its_past
from trainbench.alerting.alerts import alerts
from trainbench.core.verdicts import Finding, HistoryVerdict, Level
from trainbench.judging.checks.missing_nodes import absent_node_findings
from trainbench.judging.over_time.baseline_deviation import trend_findings
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import AbsentNode


def test_a_healthy_fleet_raises_none() -> None:
    assert alerts(campaigns.healthy()) == ()


def test_a_confirmed_breach_is_red_and_says_how_far() -> None:
    (alert,) = alerts(campaigns.slow_node())

    assert (alert.nodes, alert.level, alert.is_drill) == (("node-3",), Level.ERROR, False)
    assert alert.headline.startswith("node-3 is in breach: samples/s: deviation −9.7 %")
    assert alert.resolution


def test_a_drill_is_called_a_drill() -> None:
    (alert,) = alerts(campaigns.cpu_drill())

    assert alert.is_drill
    assert alert.text.startswith("DRILL: node-3 was slowed on purpose: detected: samples/s −76.1 %")


def test_failed_nodes_are_red_and_pairs_are_only_reported() -> None:
    assert all(alert.level is Level.ERROR for alert in alerts(campaigns.all_failed()))
    assert [alert.level is Level.ERROR for alert in alerts(campaigns.two_nodes())] == [False, False]


def behind(node: str) -> HistoryVerdict:
    reason = "−3.4 % against the median of its 14 past runs, limit 1.5 %"
    return behind_its_past(node, rate=1.40, median=1.45, reason=reason)


def test_falling_behind_the_own_history_is_reported_but_not_red() -> None:
    (alert,) = alerts(campaigns.healthy().model_copy(update={"history": (behind("node-2"),)}))

    assert alert.level is not Level.ERROR
    assert alert.text.startswith("node-2 fell behind its own past: −3.4 %")


def test_of_a_breach_that_is_behind_its_past_too_the_next_step_is_the_breach_s() -> None:
    past = behind("node-3")
    campaign = campaigns.slow_node()
    for result in ((*campaign.findings, *trend_findings(past)), (*trend_findings(past), *campaign.findings)):
        (breach,) = alerts(campaign.model_copy(update={"history": (past,), "findings": result}))

        assert breach.resolution == campaign.findings[0].resolution
    (fell,) = alerts(campaigns.healthy().model_copy(update={"history": (past,), "findings": trend_findings(past)}))
    assert fell.resolution.startswith("compare driver, image, clocks and temperature with the last good run")


def test_a_warning_is_explained_by_its_own_finding_else_by_another_of_the_same_node() -> None:
    """node-2 is behind its past, and its clock is wrong. The clock's finding is no explanation of the slowness; without
    a better one, its next step is still about node-2, and that of node-1 is not.
    """
    past = behind("node-2")
    (slower,) = trend_findings(past)
    other, clock = (
        slower.model_copy(update={"nodes": (node,), "category": "wall_clock", "resolution": f"set the clock of {node}"})
        for node in ("node-1", "node-2")
    )

    def next_step(*findings: Finding) -> str:
        (alert,) = alerts(campaigns.healthy().model_copy(update={"history": (past,), "findings": findings}))
        return alert.resolution

    assert next_step(other, clock, slower) == slower.resolution
    assert next_step(other, clock) == "set the clock of node-2"
    assert next_step(other) == "open the report of the run"


def test_a_node_that_nothing_ran_on_is_reported_but_not_red() -> None:
    absent = (
        AbsentNode(name="gpu-9", reason="not ready: kubelet stopped", expected=True),
        AbsentNode(name="gpu-10", reason="cordoned", expected=False),
    )
    (alert,) = alerts(campaigns.healthy().model_copy(update={"findings": absent_node_findings(absent, ())}))

    assert (alert.nodes, alert.level) == (("gpu-9",), Level.WARNING)
    assert alert.headline == "gpu-9 was not benchmarked: not ready: kubelet stopped"


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


def test_a_dated_slowdown_of_the_fleet_is_one_alert_and_not_red() -> None:
    (alert,) = alerts(campaigns.slower_since())

    assert (len(alert.nodes), alert.level) == (4, Level.WARNING)
    assert alert.text.startswith(
        "node-1, node-2, node-3 and node-4 are 5.8 to 6.4 % slower since 12 Nov 2026, when the"
    )
    assert alert.resolution.startswith("undo this change")
