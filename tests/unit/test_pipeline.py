"""The pipeline: results become one campaign with verdicts, findings and prices, and its reports."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from tests.builders import STARTED_AT, make_independent, make_result
from tests.builders.pipelines import StubHistory, assessed, judged, nights_before
from tests.conftest import GOLDEN_DIR
from trainbench.core.verdicts import Against, Level, Metric, State, Why
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import parse_params
from trainbench.pipeline import report
from trainbench.planning.nodes import Fleet, GpuNode, named_nodes
from trainbench.planning.plan import Plan, make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.results.artefacts import open_store
from trainbench.results.campaign import Campaign

NODES = ("node-1", "node-2", "node-3", "node-4")


def plan(**params: Any) -> Plan:
    return make_plan(parse_params({"nodes": NODES, **params}), Fleet(), "campaign-1")


def results(planned: Plan, *rates: float) -> list[RunResult]:
    """One result for each planned run of round 1, in the plan's order."""
    return [
        make_result(spec.identity.node, rate).model_copy(update={"spec": spec})
        for spec, rate in zip(planned.specs, rates, strict=True)
    ]


def test_a_campaign_holds_every_run_priced_and_judged() -> None:
    """9.5 samples/s at $2.00 per GPU-hour: 1000 / 9.5 s * 2 / 3600 = $0.05848 per 1K samples."""
    planned = plan(usd_per_gpu_hour=2.0)
    campaign = assessed(planned, results(planned, 9.5, 9.5, 9.5, 9.5))

    assert [node.state for node in campaign.nodes] == [State.WELL] * 4
    assert len(campaign.costs) == len(campaign.results) == 4
    assert campaign.results[0].cost.cost_per_1000_samples_usd == pytest.approx(0.05848, abs=1e-5)
    assert campaign.costs[0]["usd_per_1000_samples"] == campaign.results[0].cost.cost_per_1000_samples_usd


def test_errors_come_first_among_the_findings() -> None:
    planned = plan()
    levels = [finding.level for finding in assessed(planned, results(planned, 9.5, 7.0, 9.5, 9.5)).findings]

    assert levels[0] == "error"
    assert levels == sorted(levels, key=["error", "warning", "info"].index)


def test_what_the_gpus_said_and_odd_probes_are_among_the_findings() -> None:
    planned = plan()
    broken, odd, *others = results(planned, 9.5, 9.5, 9.5, 9.5)
    (gpu,) = broken.telemetry.gpus
    telemetry = broken.telemetry.model_copy(update={"gpus": (gpu.model_copy(update={"xids": {"79": 1}}),)})
    slow_link = make_result(h2d_gb_per_s=12.1).probes
    campaign = assessed(
        planned,
        [broken.model_copy(update={"telemetry": telemetry}), odd.model_copy(update={"probes": slow_link}), *others],
    )

    found = {finding.category: (finding.level, finding.nodes) for finding in campaign.findings}
    assert found["xid"] == (Level.ERROR, ("node-1",))
    assert found["probe_odd"] == (Level.WARNING, ("node-2",))


def test_the_re_runs_are_two_rounds_of_the_slow_nodes_and_of_three_well_ones() -> None:
    planned = plan(rounds=1)
    first = judged(planned, results(planned, 9.5, 7.0, 9.5, 9.5))

    reran = [(spec.identity.round, spec.identity.node) for spec in first.rerun_specs]
    assert sorted(reran) == [(round_, node) for round_ in (2, 3) for node in NODES]
    assert judged(planned, results(planned, 9.5, 9.5, 9.5, 9.5)).rerun_specs == ()
    again = [
        make_result(spec.identity.node, 7.0 if spec.identity.node == "node-2" else 9.5) for spec in first.rerun_specs
    ]
    reruns = [run.model_copy(update={"spec": spec}) for run, spec in zip(again, first.rerun_specs, strict=True)]
    (red,) = assessed(planned, first.measured.results, reruns).red_nodes
    assert (red.node, red.why, red.is_confirmed) == ("node-2", Why.SLOW, True)


def test_a_renamed_node_keeps_its_past_and_its_old_name_is_not_missed() -> None:
    """9.0 against the 9.5 that the same GPUs made under another name."""
    planned = plan()
    measured = results(planned, 9.0, 9.5, 9.5, 9.5)
    points = nights_before(measured[0], *[9.5] * 5, node="old-name")
    history = StubHistory(points=points, measured={"old-name": STARTED_AT - timedelta(days=1)})
    campaign = assessed(planned, measured, (), history, is_on_cluster=True)
    verdict = campaign.nodes[0]

    assert verdict.deviation(Metric.SAMPLES_PER_SECOND, Against.PAST) == pytest.approx(-5.2632, abs=1e-4)
    assert [finding.subject for finding in campaign.findings if finding.category == "renamed_node"] == ["node-1"]
    assert not [finding for finding in campaign.findings if finding.category == "gone_node"]


@pytest.mark.parametrize(("asked", "missed"), [({"is_on_cluster": True}, ["node-9"]), ({}, [])])
def test_a_node_that_left_is_missed_where_the_cluster_was_asked(asked: dict[str, bool], missed: list[str]) -> None:
    planned = make_plan(parse_params({"strategies": ["single"]}), Fleet(nodes=named_nodes(NODES)), "campaign-1")
    history = StubHistory(measured={"node-9": STARTED_AT - timedelta(days=1)})
    campaign = assessed(planned, results(planned, *[9.5] * 4), (), history, **asked)

    assert [finding.subject for finding in campaign.findings if finding.category == "gone_node"] == missed


def test_publish_writes_every_file_and_again_replaces_them(tmp_path: Path) -> None:
    planned, store = plan(), open_store(str(tmp_path))
    campaign = assessed(planned, results(planned, 9.5, 9.5, 9.5, 9.5))
    first = report(campaign, store)
    second = report(campaign, store)

    assert first == second
    assert {"metrics.csv", "BENCHMARK_REPORT.md", "report.html", "COST_REPORT.md", "plots/node_variance.png"} <= set(
        first
    )
    assert all(Path(address).is_file() for address in first.values())
    assert store.read_campaign("campaign-1") == campaign
    assert len(store.read_results("campaign-1").results) == 4


def test_a_node_is_not_missed_where_the_plan_skips_it() -> None:
    nodes = (*named_nodes(NODES), GpuNode(name="node-5", num_gpus=1))
    planned = make_plan(
        parse_params({"strategies": ["single", "ddp"], "gpus_per_node": 2}), Fleet(nodes=nodes), "campaign-1"
    )
    groups = assessed(planned, results(planned, *[9.5] * 5, *[19.0] * 4)).groups

    assert {state for group in groups for state in [node.state for node in group.nodes]} == {State.WELL}
    assert sorted(len(group.nodes) for group in groups) == [4, 5]


def test_runs_over_several_nodes_judge_no_node() -> None:
    planned = plan()
    gang = make_result("node-1", 30.0, strategy="fsdp", nodes=2, gpus_per_node=2)
    campaign = assessed(planned, [*results(planned, 9.5, 9.5, 9.5, 9.5), gang])

    assert len(campaign.groups) == 1
    assert gang.spec.identity.run_id in {result.spec.identity.run_id for result in campaign.results}


def test_the_title_says_what_differs() -> None:
    planned = plan(strategies=["single", "zero2", "zero3"], gpus_per_node=2)

    assert assessed(planned, results(planned, *[9.5] * 12)).title == (
        "mistral-7b qlora, batch 8 x 512 tokens, single, zero2 and zero3, on 4 nodes, 1 and 2 GPUs of each"
    )


def test_a_node_is_missed_only_in_the_work_that_was_planned_for_it() -> None:
    """4-GPU and 1-GPU nodes: the second kind has no `ddp`, and is not missing there."""
    nodes = [GpuNode(name=name, num_gpus=gpus) for name, gpus in zip(NODES, (4, 4, 4, 1), strict=True)]
    planned = make_plan(parse_params({"strategies": ["single", "ddp"]}), Fleet(nodes=tuple(nodes)), "campaign-1")
    groups = assessed(planned, results(planned, *[9.5] * 7)).groups
    ddp, single = sorted(groups, key=lambda group: len(group.nodes))

    assert [node.node for node in ddp.nodes] == list(NODES[:3])
    assert [node.node for node in single.nodes] == list(NODES)
    assert {node.state for node in (*ddp.nodes, *single.nodes)} == {State.WELL}


def test_a_fleet_of_nodes_with_1_4_and_8_gpus_is_judged_gpu_by_gpu_and_nobody_is_missed() -> None:
    """The default night: `ddp` on 8 GPUs ran on one node only, which is judged by its GPUs all the same."""
    sizes = {"n1": 4, "n2": 4, "n3": 4, "n4": 8, "n5": 1}
    fleet = Fleet(nodes=tuple(GpuNode(name=name, num_gpus=gpus) for name, gpus in sizes.items()))
    planned = make_plan(PLANNERS[CampaignKind.NODES].params({}, locally=False), fleet, "campaign-1")
    campaign = assessed(planned, [_measured(spec) for spec in planned.specs])
    by_group = {group.group_id: {node.node: len(node.gpus) for node in group.nodes} for group in campaign.groups}

    assert {node.node: node.state for node in campaign.node_states} == dict.fromkeys(sizes, State.WELL)
    assert sorted(by_group.values(), key=len) == [
        {"n4": 0}, {"n1": 0, "n2": 0, "n3": 0}, {"n1": 4, "n2": 4, "n3": 4, "n4": 8, "n5": 0},
    ]  # fmt: skip
    assert campaign.title.endswith("independent and ddp, on 5 nodes, 1, 4 and 8 GPUs of each")


def _measured(spec: RunSpec) -> RunResult:
    """10 samples/s on each GPU."""
    if spec.placement.strategy is not Strategy.INDEPENDENT:
        return make_result(spec.identity.node, 10.0 * spec.placement.gpus_per_node).model_copy(update={"spec": spec})
    return make_independent(spec.identity.node, [10.0] * spec.placement.gpus_per_node).model_copy(update={"spec": spec})


def test_a_published_campaign_is_readable() -> None:
    published = sorted(GOLDEN_DIR.parents[1].glob("docs/results/campaigns/h200-aa-*/summary/verdict.json"))

    assert published
    for path in published:
        campaign = Campaign.model_validate_json(path.read_bytes())
        assert len(campaign.results) == 5
        assert campaign.results[0].missing["chosen"] == "not measured by the program of that time"


def test_a_noise_floor_judges_nobody_and_says_so_in_its_title() -> None:
    planned = plan(noise_floor=True)
    measured = results(planned, *[9.5, 9.4, 7.0, 9.6] * 5)
    campaign = assessed(planned, measured, (), StubHistory(points=nights_before(measured[0], *[12.0] * 9)))

    assert campaign.title.startswith("noise floor: mistral-7b qlora")
    assert (campaign.groups, campaign.red_nodes) == ((), ())
    assert len(campaign.results) == 20
