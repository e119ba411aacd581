"""Runs over several nodes: the search for a bad link, and the rank that makes the others wait."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from bench_image.contract.options import SINGLE_GPU
from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunError, RunResult
from bench_image.contract.spec import RunSpec
from committed import committed
from tests.builders import make_failed, make_links, make_result, on_gpus
from trainbench.core.verdicts import BAD_LINK, NODE_OF_GANGS, Level
from trainbench.judging.gangs import (
    SLOW_EXCHANGE,
    SLOW_RANK,
    gang_node_findings,
    link_findings,
    outcome_of,
    played,
    slow_rank_findings,
)
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
        # ln(380 / 360) = 0.054: chance makes 1 - exp(-3 x 1.4826 x 0.054) = 21.4 %
        (327.0, (340.0, 360.0, 380.0), GroupState.PASSED),
        (280.0, (340.0, 360.0, 380.0), GroupState.SLOW),  # 22.2 %
        (13.0, (150.0, 300.0, 600.0), GroupState.SLOW),  # 95.7 %; ln 2 makes 95.4 %
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
    outcome = outcome_of(TEST, runs[0], runs, [], plan.params)
    assert outcome.state is state
    assert ("GB/s is 92 % of the promised 400, limit 92 %" in outcome.evidence) is (state is GroupState.SLOW)


def test_a_group_without_a_figure_fails() -> None:
    plan = plan_of(16)
    run = run_of(plan.specs[0])
    lacks = run.model_copy(update={"links": run.links.model_copy(update={"figures": run.links.figures[:2]})})
    outcome = outcome_of(TEST, lacks, [], [], plan.params)
    assert (outcome.state, outcome.evidence[:30]) == (GroupState.FAILED, "it has no figure of all-gather")
    none = outcome_of(TEST, run.model_copy(update={"links": None}), [], [], plan.params)
    assert (none.state, none.evidence) == (GroupState.FAILED, "it has no figures of its links")


def test_the_bad_node_is_named_with_figures_limit_and_next_step() -> None:
    plan = plan_of(16)
    (finding,) = link_findings(plan, searched(plan, {"node-7"}))

    assert (finding.level, finding.category, finding.nodes) == (Level.ERROR, BAD_LINK, ("node-7",))
    assert ": slow, all-reduce 180 GB/s, 50 % below the median of" in finding.measured
    assert "limit 8 %; also all-gather 50 %, reduce-scatter 50 % and all-to-all 50 %; " in finding.measured
    assert "network adapters" in finding.resolution


def test_a_healthy_fleet_has_no_finding() -> None:
    plan = plan_of(16)
    results = searched(plan, ())
    assert (len(results), link_findings(plan, results)) == (9, ())


@pytest.mark.parametrize("taken", ["node-1", "node-3"])  # the first of its group, and another
def test_a_killed_node_and_a_busy_one_are_told_apart(taken: str) -> None:
    def busy(spec: RunSpec, _rate: float) -> RunResult:
        error = RunError(kind="busy", message=f"{taken}: its GPUs are taken", phase="launch")
        return run_of(spec, None).model_copy(update={"error": error})

    plan = plan_of(16)
    by = {taken: busy, "node-11": lambda spec, _: run_of(spec, None)}
    findings = link_findings(plan, searched(plan, (), by))

    assert [(each.category, each.nodes) for each in findings] == [
        (BAD_LINK, ("node-11",)), ("left_out_of_gangs", (taken,)),
    ]  # fmt: skip
    assert findings[1].summary == f"was left out of the search: {taken}: its GPUs are taken"


def test_a_node_whose_pods_cannot_begin_is_left_out_and_told_and_all_others_are_searched() -> None:
    """Its group was told as an impossible work, and the whole search found nobody: not node-11 either, whose link is
    slow.
    """

    def refuses(spec: RunSpec, _rate: float) -> RunResult:
        message = "node-3: weights '/models/x': there is no such folder; mount it"
        error = RunError(kind="ContractError", message=message, phase="build")
        return run_of(spec, None).model_copy(update={"error": error})

    plan = plan_of(16)
    results = searched(plan, {"node-11"}, {"node-3": refuses})
    (alarm,) = gang_node_findings(results)
    (culprit,) = link_findings(plan, results)

    assert (alarm.level, alarm.category, alarm.nodes) == (Level.ERROR, NODE_OF_GANGS, ("node-3",))
    assert alarm.summary.startswith("ended 1 gang, and no other node is at fault: weights '/models/x'")
    assert (culprit.category, culprit.nodes) == (BAD_LINK, ("node-11",))


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


WELL = ((0.50, 0.51, 0.50), (0.10, 0.10, 0.10))  # own time and waits of three steps
SLOW = ((0.55, 0.56, 0.54), (0.05, 0.05, 0.06))


def gang(*ranks: Sequence[Sequence[float]], nodes: int = 2, **fields: Any) -> RunResult:
    """A run over nodes of two GPUs without UUIDs, of which each rank has (own_steps_s, step_waits_s)."""
    spec = {"strategy": "ddp", "gpus_per_node": len(ranks) // nodes, "nodes": nodes, "peers": ("node-2",)[: nodes - 1]}
    result = make_result(**spec | fields)
    result = on_gpus(result, *[None] * (len(ranks) // nodes))
    summaries = tuple(
        result.ranks[0].model_copy(update={"rank": i, "gpu_uuid": None, "own_steps_s": own, "step_waits_s": waits})
        for i, (own, waits) in enumerate(ranks)
    )
    probes = result.probes.model_copy(update={"allreduce_bus_gb_per_s": 300.0})
    return result.model_copy(update={"ranks": summaries, "probes": probes})


def test_the_rank_that_computes_longest_is_named_with_what_the_others_wait() -> None:
    """Its own time is 0.55 s where the others have 0.50: 10 %. They wait 0.10 s, it 0.05 of its 0.60: 8.3 % more."""
    (finding,) = slow_rank_findings([gang(WELL, WELL, WELL, SLOW)], 5.0)

    assert (finding.level, finding.category, finding.nodes) == (Level.WARNING, SLOW_RANK, ("node-2",))
    assert finding.measured == "10.0 % longer"
    assert finding.summary == (
        "rank 3 (node-2, GPU 1) computes 10 % longer than the median of the others and makes them wait 8 % of each step"
        "; the links all-reduce 300 GB/s"
    )


@pytest.mark.parametrize(
    "odd",
    [
        ((0.55, 0.56, 0.50), (0.05, 0.05, 0.10)),  # not longer in the last step
        ((0.52, 0.53, 0.52), (0.08, 0.08, 0.08)),  # 4 %
        ((0.45, 0.46, 0.45), (0.15, 0.15, 0.15)),  # faster
        WELL,
        ((), ()),  # not profiled
        ((0.0, 0.0, 0.0), (0.6, 0.6, 0.6)),  # no time of its own: nothing is told of any rank
    ],
)
def test_where_nothing_is_wrong_nobody_is_named(odd: Sequence[Sequence[float]]) -> None:
    assert slow_rank_findings([gang(WELL, WELL, WELL, odd)], 5.0) == ()


def paced(run: RunResult, graph: str, step_s: float) -> RunResult:
    """The run with its CUDA graph and the median of its measured steps."""
    assert run.chosen
    assert run.performance.step_time
    chosen = run.chosen.model_copy(update={"execution": {"CUDA graph": graph}})
    step_time = run.performance.step_time.model_copy(update={"median_s": step_s})
    performance = run.performance.model_copy(update={"step_time": step_time})
    return run.model_copy(update={"chosen": chosen, "performance": performance})


@pytest.mark.parametrize(
    ("graph", "step_s", "is_named"),
    [("off", 0.58, True), ("off", 0.57, False), ("the whole step, with its communication", 0.40, True)],
)
def test_where_the_profiler_slows_the_host_down_nobody_is_named(graph: str, step_s: float, is_named: bool) -> None:
    """A profiled step takes 0.60 s: 3.4 and 5.3 % more than the measured ones. A graph is launched once."""
    run = paced(gang(WELL, WELL, WELL, SLOW), graph, step_s)
    assert bool(slow_rank_findings([run], 5.0)) is is_named


def test_no_gang_on_healthy_h200s_names_a_slow_rank() -> None:
    runs = [parse_result(text.encode()) for text in committed("four-gpus-h200-2026-11-28/*/result.json").values()]
    gangs = [run for run in runs if run.spec.placement.strategy not in SINGLE_GPU]

    assert len(gangs) == 36
    assert [finding for finding in slow_rank_findings(gangs, 5.0) if finding.category == SLOW_RANK] == []


def test_ranks_that_scatter_hide_a_slow_one() -> None:
    """The others have 0.45, 0.50 and 0.55 s, so chance explains 3 x 1.4826 x ln(0.55 / 0.50) = 42 %."""
    scattered = [((own,) * 3, (0.10,) * 3) for own in (0.45, 0.50, 0.55)]

    assert slow_rank_findings([gang(*scattered, ((0.55,) * 3, (0.05,) * 3))], 5.0) == ()


def test_a_place_that_is_slow_in_several_runs_is_one_finding() -> None:
    worse = ((0.60, 0.60, 0.60), (0.0, 0.0, 0.0))
    runs = [gang(WELL, SLOW, nodes=1), gang(WELL, worse, nodes=1, round=2), gang(WELL, WELL, nodes=1, round=3)]
    (finding,) = slow_rank_findings(runs, 5.0)

    assert finding.item == runs[1].spec.identity.run_id
    assert finding.summary.startswith("rank 1 (node-1, GPU 1) computes")
    assert finding.measured == "20.0 % longer"
    assert finding.summary.endswith("; so in 2 of 3 runs")


def test_a_long_exchange_without_a_slow_rank_is_communication_itself() -> None:
    """All compute 0.5 s. The rank that waits least waits 0.25 s of 0.75 s: 33 %; 0.12 s of 0.62 s would be 19 %."""
    slow = gang(((0.5,) * 3, (0.30,) * 3), ((0.5,) * 3, (0.25,) * 3))
    well = gang(((0.5,) * 3, (0.30,) * 3), ((0.5,) * 3, (0.12,) * 3), round=2)
    (finding,) = slow_rank_findings([slow, well], 5.0)

    assert (finding.level, finding.category, finding.nodes) == (Level.INFO, SLOW_EXCHANGE, ())
    assert finding.summary == (
        "no rank: communication itself is slow, 33 % of each step; the links all-reduce 300 GB/s; so in 1 of 2 runs"
    )
