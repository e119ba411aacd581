"""What a group of an interconnect search made: limits beside other groups and a promise, and the findings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from bench_image.contract.result import RunError, RunResult
from bench_image.contract.spec import RunSpec
from tests.builders import make_failed, make_links, make_result
from trainbench.core.verdicts import BAD_LINK, Level
from trainbench.judging.interconnect import link_findings, outcome_of, played
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.link_search import GroupState, GroupTest, Step
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import Plan, PlanError, make_plan
from trainbench.planning.planners import PLANNERS

PLANNER = PLANNERS[CampaignKind.INTERCONNECT]
TEST = GroupTest(nodes=("node-1", "node-2"), step=Step.SCREEN)


def plan_of(number: int, gpus: int = 8, **params: Any) -> Plan:
    nodes = tuple(GpuNode(name=f"node-{i}", num_gpus=gpus, gpu_product="NVIDIA-H100") for i in range(1, number + 1))
    return make_plan(PLANNER.params(params, locally=False), Fleet(nodes=nodes), "c", CampaignKind.INTERCONNECT)


def run_of(spec: RunSpec, bus_gb_per_s: float | None = 360.0) -> RunResult:
    """Its links reach this; None: one of its nodes was killed."""
    if bus_gb_per_s is None:
        error = RunError(kind="SIGKILL", message=f"{spec.identity.peers[0]}: killed", phase="measure")
        return make_failed(spec.identity.node).model_copy(update={"spec": spec, "error": error})
    made = make_result(spec.identity.node)
    return made.model_copy(update={"spec": spec, "links": make_links(bus_gb_per_s)})


def searched(plan: Plan, bad: Collection[str], by: Mapping[str, Any] | None = None) -> list[RunResult]:
    """The results of all rounds; groups with a bad node have half the rate, or what `by` says of a node."""
    results: list[RunResult] = []
    while due := played(plan, results).due:
        for spec in due:
            nodes = spec.identity.nodes
            rate = 180.0 if {*bad} & {*nodes} else 360.0
            results.append((by or {}).get(next(filter((by or {}).get, nodes), ""), run_of)(spec, rate))
    return results


@pytest.mark.parametrize(
    ("rate", "others", "state"),
    [
        (327.0, (360.0, 360.0, 360.0), GroupState.SLOW),  # 9.2 % below, limit 8 %
        (332.0, (360.0, 360.0, 360.0), GroupState.PASSED),  # 7.8 %
        (
            327.0,
            (340.0, 360.0, 380.0),
            GroupState.PASSED,
        ),  # they scatter by 20 around 360: 3 x 1.4826 x 20 / 360 = 25 %
        (260.0, (340.0, 360.0, 380.0), GroupState.SLOW),  # 27.8 %
    ],
)
def test_a_group_is_slow_beyond_the_limit_and_beyond_the_scatter(
    rate: float, others: Sequence[float], state: GroupState
) -> None:
    plan = plan_of(16)
    run, *rest = (run_of(spec, of) for spec, of in zip(plan.specs, (rate, *others), strict=True))
    assert outcome_of(TEST, run, [run, *rest], [], plan.params).state is state


@pytest.mark.parametrize(("rate", "state"), [(367.9, GroupState.SLOW), (368.1, GroupState.PASSED)])
def test_a_fleet_that_is_slow_as_a_whole_is_below_its_promise(rate: float, state: GroupState) -> None:
    """92 % of 400 GB/s are 368."""
    plan = plan_of(16, link_gb_per_s=400.0)
    runs = [run_of(spec, rate) for spec in plan.specs]
    assert outcome_of(TEST, runs[0], runs, [], plan.params).state is state


def test_a_group_without_a_figure_fails() -> None:
    plan = plan_of(16)
    run = run_of(plan.specs[0])
    lacks = run.model_copy(update={"links": run.links.model_copy(update={"figures": run.links.figures[:2]})})
    outcome = outcome_of(TEST, lacks, [], [], plan.params)
    assert (outcome.state, outcome.evidence[:30]) == (GroupState.FAILED, "it has no figure of all_gather")
    none = outcome_of(TEST, run.model_copy(update={"links": None}), [], [], plan.params)
    assert (none.state, none.evidence) == (GroupState.FAILED, "it has no figures of its links")


def test_the_bad_node_is_named_with_figures_limit_and_next_step() -> None:
    plan = plan_of(16)
    (finding,) = link_findings(plan, searched(plan, {"node-7"}))

    assert (finding.level, finding.category, finding.nodes) == (Level.ERROR, BAD_LINK, ("node-7",))
    assert "all_reduce 180, 50 % below the median of" in finding.measured
    assert "limit 8 %" in finding.measured
    assert "network adapters" in finding.resolution


def test_a_healthy_fleet_has_no_finding() -> None:
    plan = plan_of(16)
    results = searched(plan, ())
    assert (len(results), link_findings(plan, results)) == (9, ())


def test_a_killed_node_and_a_busy_one_are_told_apart() -> None:
    def busy(spec: RunSpec, _rate: float) -> RunResult:
        error = RunError(kind="busy", message="node-3: its GPUs are taken", phase="launch")
        return run_of(spec, None).model_copy(update={"error": error})

    plan = plan_of(16)
    by = {"node-3": busy, "node-11": lambda spec, _: run_of(spec, None)}
    findings = link_findings(plan, searched(plan, (), by))

    assert [(each.category, each.nodes) for each in findings] == [
        (BAD_LINK, ("node-11",)), ("left_out_of_gangs", ("node-3",)),
    ]  # fmt: skip
    assert findings[1].summary == "was left out of the search: node-3: its GPUs are taken"


def test_a_search_that_was_cut_off_says_so() -> None:
    plan = plan_of(16)
    (finding,) = link_findings(plan, searched(plan, ())[:5])
    assert finding.level is Level.ERROR
    assert finding.summary.startswith("the search is not over: 4 groups did not run (node-1")


def test_the_plan_says_what_it_takes_before_it_starts() -> None:
    assert plan_of(16).promise == (
        "4 groups: 9 runs in 3 rounds where all are well; at most 53 runs in 8 rounds and 1 h 20 min, by timeout_s "
        "600, beside the waiting for busy nodes"
    )
    assert [len(spec.identity.peers) for spec in plan_of(16).specs] == [3, 3, 3, 3]
    with pytest.raises(PlanError, match="only node-1 can run: a link needs two nodes"):
        plan_of(1)
