"""Gangs: one run over several nodes, whose pods' results become one; the first cause counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.parse import parse_result
from bench_image.contract.result import Phase, RunResult, Status, failed_result
from bench_image.contract.result_sections import Probes
from bench_image.contract.spec import RunSpec
from tests.builders import STARTED_AT, make_result, make_spec
from tests.builders.pipelines import assessed
from tests.kube.after_fault import after_night, is_green
from trainbench.alerting.run_summary import alerts
from trainbench.core.verdicts import IMPOSSIBLE_WORK, NO_FIGURE, NODE_OF_GANGS
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.planners import PLANNERS
from trainbench.pods.gangs import combine_ranks, failed_rank
from trainbench.pods.manifests import gang_id
from trainbench.results.campaign import Campaign

SPEC = make_spec(
    node="gpu-1", peers=("gpu-2",), nodes=2, gpus_per_node=2, strategy=Strategy.DDP, recipe=Recipe.FULL, lora=None
)


def healthy(node: str, **changes: Any) -> RunResult:
    return make_result(node, 20.0, **changes).model_copy(update={"spec": SPEC})


def failed(kind: str, status: Status = Status.ERROR, after_s: float = 0.0, phase: Phase = Phase.MEASURE) -> RunResult:
    at = STARTED_AT + timedelta(seconds=after_s)
    return failed_result(SPEC, status=status, kind=kind, message=f"because of {kind}", phase=phase, at=at)


def pair(**changes: Any) -> tuple[RunResult, RunResult]:
    """Two pods with two ranks each; the second with the ranks 2 and 3."""
    shape = {"nodes": 2, "gpus_per_node": 2, "strategy": Strategy.DDP, "recipe": Recipe.FULL}
    first, second = healthy("gpu-1", memory_gb=70.0, **shape), healthy("gpu-2", memory_gb=72.5, **shape | changes)
    ranks = tuple(rank.model_copy(update={"rank": rank.rank + 2}) for rank in second.ranks)
    return first, second.model_copy(update={"ranks": ranks})


def study_of(whole: RunResult) -> Campaign:
    """A study of this one run."""
    planner = PLANNERS[CampaignKind.STRATEGIES]
    fleet = Fleet(nodes=tuple(GpuNode(name=node, num_gpus=1, gpu_product="H200") for node in ("gpu-1", "gpu-2")))
    params = planner.params({"strategies": ["ddp"], "world_sizes": [2], "gpus_per_node": 1}, locally=False)
    plan = planner.make(params, fleet, "study-1")
    (spec,) = plan.specs
    return assessed(plan, [whole.model_copy(update={"spec": spec})])


def test_the_gang_has_the_throughput_of_all_the_largest_memory_and_every_gpu() -> None:
    first, second = pair()
    whole = combine_ranks(SPEC, (first, second))

    assert parse_result(whole.model_dump_json()) == whole  # still of the contract
    assert whole.performance == first.performance  # counted over all ranks in both
    assert whole.memory.peak_during_training == 72.5
    assert [rank.rank for rank in whole.ranks] == [0, 1, 2, 3]
    assert whole.context is not None
    assert [gpu.uuid for gpu in whole.context.gpus] == [f"GPU-gpu-{n}-{i}" for n in (1, 2) for i in (0, 1)]
    assert len(whole.telemetry.gpus) == 4


def without(result: RunResult, index: int, field: str) -> RunResult:
    """`result`, one of whose GPUs does not report a figure; the reason names the GPU by its place in this pod."""
    gpus = [gpu.model_copy(update={field: None}) if gpu.index == index else gpu for gpu in result.telemetry.gpus]
    return result.model_copy(
        update={
            "telemetry": result.telemetry.model_copy(update={"gpus": tuple(gpus)}),
            "missing": result.missing | {f"telemetry.gpus.{index}.{field}": "NVML: Not Supported"},
        }
    )


def test_a_figure_that_a_gpu_of_the_second_pod_lacks_is_explained_in_the_whole() -> None:
    """Its reason named the first pod's GPU, so that the stored campaign broke the contract and nobody could read it."""
    first, second = pair()
    whole = combine_ranks(SPEC, (first, without(second, 1, "power_mean_w")))

    assert whole.missing["telemetry.gpus.3.power_mean_w"] == "NVML: Not Supported"
    assert parse_result(whole.model_dump_json()) == whole


def test_a_pod_of_unknown_node_keeps_its_result() -> None:
    first, second = pair()
    unknown = {"context": None, "missing": first.missing | {"context": "not read"}}
    whole = combine_ranks(SPEC, (first.model_copy(update=unknown), second))
    neither = combine_ranks(SPEC, (first.model_copy(update=unknown), second.model_copy(update=unknown)))

    assert whole.context is not None
    assert neither.context is None
    assert [parse_result(run.model_dump_json()) for run in (whole, neither)] == [whole, neither]


def test_energy_is_the_mean_over_pods_with_equal_shares_of_the_samples() -> None:
    """3 J and 5 J per sample of each pod's own half are 4 J per sample of all."""
    results = [
        result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"energy_per_sample_j": joules})})
        for result, joules in zip(pair(), (3.0, 5.0), strict=True)
    ]

    assert combine_ranks(SPEC, results).telemetry.energy_per_sample_j == 4.0


@pytest.mark.parametrize("name", [name for name in Probes.model_fields if name != "allreduce_bus_gb_per_s"])
def test_the_slowest_gpu_of_any_node_counts_in_each_probe_and_an_unknown_one_leaves_it_unknown(name: str) -> None:
    """Those since 0.2 were node rank 0's, so that a slow GPU of another node did not show."""

    def joined(value: float | None) -> float | None:
        pods = [
            result.model_copy(update={"probes": result.probes.model_copy(update={name: of_pod})})
            for result, of_pod in zip(pair(), (30.0, value), strict=True)
        ]
        found: float | None = getattr(combine_ranks(SPEC, pods).probes, name)
        return found

    assert (joined(20.0), joined(40.0), joined(None)) == (20.0, 30.0, None)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        # rank 1 ran out of memory, rank 0 lost it and was first to say so
        ((("ConnectionResetError", Status.ERROR, 1.0), ("OutOfMemoryError", Status.OOM, 2.0)), "OutOfMemoryError"),
        # a pod that never found a place: its peer waited for it, and was ended
        ((("vanished", Status.INCOMPLETE, 9.0), ("unschedulable", Status.INCOMPLETE, 5.0)), "unschedulable"),
        ((("timeout", Status.TIMEOUT, 3.0), ("evicted", Status.INCOMPLETE, 9.0)), "evicted"),
        # without DNS no rank finds the others
        ((("timeout", Status.TIMEOUT, 3.0), ("timeout", Status.TIMEOUT, 9.0)), "timeout"),
        # a pod was deleted; its peer lost it, and is not to blame
        ((("connection reset by peer", Status.ERROR, 1.0), ("vanished", Status.INCOMPLETE, 9.0)), "vanished"),
        # rank 0 failed by itself, and its peer was ended for that
        ((("RuntimeError", Status.ERROR, 1.0), ("vanished", Status.INCOMPLETE, 9.0)), "RuntimeError"),
        ((("SIGTERM", Status.INCOMPLETE, 1.0), ("RuntimeError", Status.ERROR, 2.0)), "RuntimeError"),
    ],
)
def test_the_first_cause_counts_not_what_it_led_to(kinds: tuple[Any, Any], expected: str) -> None:
    whole = combine_ranks(SPEC, [failed(kind, status, after) for kind, status, after in kinds])
    node = "gpu-1" if kinds[0][0] == expected else "gpu-2"
    node = "gpu-1 and gpu-2" if kinds[0][0] == kinds[1][0] else node  # no single node is at fault

    assert whole.error is not None
    assert (whole.error.kind, whole.error.message) == (expected, f"{node}: because of {expected}")
    campaign = study_of(whole)
    assert campaign.results[0].error == whole.error
    after_night("rank-evicted", "no-dns", planned=["gpu-1"], campaign=campaign, is_green=is_green(campaign))


@pytest.mark.parametrize("peer", ["cut_off", "SIGTERM", "connection reset by peer"])
@pytest.mark.parametrize("lacks", ["ContractError", "not_started", "no_image"])
def test_what_one_node_of_a_gang_lacks_is_that_node_s_fault_alone(lacks: str, peer: str) -> None:
    """A folder that was not mounted on one node was told as the campaign's fault."""
    whole = combine_ranks(SPEC, [failed(peer, after_s=9.0), failed(lacks, phase=Phase.LAUNCH)])
    study = study_of(whole)
    (alarm,) = study.alarms

    assert (alarm.category, alarm.nodes, alarm.item) == (NODE_OF_GANGS, ("gpu-2",), None)
    assert alerts(study) == (alarm,)  # told once, and of no other node
    assert alarm.headline == f"gpu-2 ended 1 gang, and no other node is at fault: because of {lacks}"
    after_night("rank-lacks", planned=["gpu-1"], campaign=study, is_green=is_green(study))
    of_older_version = study.model_copy(update={"findings": ()})
    assert (len(of_older_version.unjudged_failures), is_green(of_older_version)) == (1, False)


@pytest.mark.parametrize(
    ("kinds", "where"),
    [
        (("ContractError", "ContractError"), "gpu-1 and gpu-2"),
        # Its pod had not started, so nobody knows what it would have said.
        (("ContractError", "vanished"), "gpu-1, before any other pod began"),
    ],
)
def test_what_no_node_of_a_gang_is_known_to_have_is_the_campaign_s_fault(kinds: Sequence[str], where: str) -> None:
    study = study_of(combine_ranks(SPEC, [failed(kind, phase=Phase.LAUNCH) for kind in kinds]))
    (alarm,) = study.alarms

    assert (alarm.category, alarm.nodes) == (IMPOSSIBLE_WORK, ())
    assert alarm.cause == f"Each of 1 run on 2 nodes says: {where}: because of ContractError"


def test_an_image_that_no_node_can_pull_is_no_single_node_s_fault() -> None:
    study = study_of(combine_ranks(SPEC, [failed("no_image"), failed("no_image", after_s=3.0)]))

    assert [(alarm.category, alarm.nodes) for alarm in study.alarms] == [(NO_FIGURE, ())]
    assert "gpu-1 and gpu-2: because of no_image" in (study.alarms[0].cause or "")


def test_the_alert_on_a_failed_gang_names_the_node_that_failed() -> None:
    """It named the gang's first node, whichever failed."""

    def named(*kinds: str) -> list[tuple[str, ...]]:
        study = study_of(combine_ranks(SPEC, [failed(kind) for kind in kinds]))
        return [alert.nodes for alert in alerts(study) if alert.category == "run_error"]

    assert named("vanished", "RuntimeError") == [("gpu-2",)]
    assert named("RuntimeError", "RuntimeError") == [("gpu-1", "gpu-2")]


def test_a_hang_is_that_of_the_node_whose_rank_hung() -> None:
    """The first pod tells it of rank 2, the second pod's first; that pod was then deleted."""
    told = failed("hang", after_s=5)
    assert told.error
    told = told.model_copy(update={"error": told.error.model_copy(update={"rank": 2, "message": "it timed out"})})
    whole = combine_ranks(SPEC, [told, failed("vanished", after_s=1)])

    assert whole.error
    assert (whole.error.kind, whole.error.message) == ("hang", "gpu-2: it timed out")
    assert failed_rank(whole) == 1


def test_a_gang_s_name_fits_a_host_name_and_differs_by_run() -> None:
    assert re.fullmatch(r"g[0-9a-f]{10}", gang_id(SPEC))
    assert gang_id(SPEC) != gang_id(SPEC.changed(identity={"campaign_id": "other"}))


def test_a_gang_needs_as_many_nodes_as_it_has() -> None:
    with pytest.raises(ValueError, match="3 nodes, but node gpu-1 has the peers gpu-2"):
        RunSpec.model_validate(SPEC.changed(placement={"nodes": 3}).model_dump())
    with pytest.raises(ValueError, match="2 nodes, but node gpu-1 has the peers gpu-1"):
        RunSpec.model_validate(SPEC.changed(identity={"peers": ("gpu-1",)}).model_dump())
