"""Nodes whose GPUs measured by themselves: each GPU is judged, and the node is as good as its worst one."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.result import RunResult, Status
from tests.builders import STARTED_AT, make_failed, make_independent, make_result
from tests.builders.judged_fleets import by_name, judge_fleet
from trainbench.core.verdicts import Confirmation, GroupVerdict, Metric, NodeVerdict, State, Why
from trainbench.judging.gpu_runs import by_gpu
from trainbench.judging.node_runs import GpuPlace, judged_rate
from trainbench.judging.past import records_of

GOOD = (10.0, 10.01, 9.99, 10.0)
SLOW_2 = (10.0, 10.01, 9.0, 10.0)


def fleet(*of_nodes: tuple[float, ...]) -> list[RunResult]:
    return [make_independent(f"node-{i}", rates) for i, rates in enumerate(of_nodes, 1)]


def judged(results: list[RunResult], *reruns: RunResult) -> GroupVerdict:
    (group,) = judge_fleet(results, reruns).groups
    return group


def whys(node: NodeVerdict) -> list[Why]:
    return [gpu.why for gpu in node.gpus]


class TestSplit:
    def test_each_gpu_gets_its_own_figures_and_those_of_its_host(self) -> None:
        result = make_independent("node-1", (10.0, 9.0), temperatures={1: 71.0})
        first, second = by_gpu(result).items()
        assert (first[0], second[0]) == (GpuPlace(0, "GPU-node-1-0"), GpuPlace(1, "GPU-node-1-1"))
        run = second[1]
        assert run.performance.samples_per_second == 9.0
        assert [gpu.temperature_mean_c for gpu in run.telemetry.gpus] == [71.0]
        assert run.context
        assert [gpu.uuid for gpu in run.context.gpus] == ["GPU-node-1-1"]
        assert run.memory.peak_during_training == pytest.approx(7.1)
        assert (run.status, run.spec.placement.gpus_per_node, len(run.ranks)) == (Status.OK, 1, 1)
        assert run.telemetry.host == result.telemetry.host

    def test_a_rank_that_failed_is_a_failed_run_of_its_gpu_alone(self) -> None:
        runs = list(by_gpu(make_independent("node-1", (10.0, 9.0, 10.0), failed={1: "CUDA error: ECC"})).values())
        assert [run.status for run in runs] == [Status.OK, Status.ERROR, Status.OK]
        assert runs[1].error
        assert runs[1].error.message == "CUDA error: ECC"
        assert runs[0].error is None

    def test_a_gpu_whose_rank_never_reported_is_a_failed_run(self) -> None:
        result = make_independent("node-1", (10.0, 9.0, 10.0), failed={1: "killed by SIGSEGV"})
        result = result.model_copy(update={"ranks": (result.ranks[0], result.ranks[2])})
        runs = by_gpu(result)
        lost = runs[GpuPlace(1, "GPU-node-1-1")]
        assert list(runs) == [GpuPlace(i, f"GPU-node-1-{i}") for i in range(3)]
        assert lost.status is Status.ERROR
        assert lost.error
        assert "killed by SIGSEGV" in lost.error.message
        assert (lost.performance.samples_per_second, lost.performance.measured_steps) == (None, 0)

    def test_two_ranks_that_failed_do_not_get_each_other_s_cause(self) -> None:
        """The run has one error, of rank 1: rank 2 ended for a reason of its own, which its log says."""
        failed = {1: "CUDA error: ECC", 2: "out of memory"}
        runs = list(by_gpu(make_independent("node-1", (10.0, 9.0, 10.0), failed=failed)).values())
        assert [run.error.message if run.error else None for run in runs] == [
            None,
            "CUDA error: ECC",
            "rank 2 ended as error: see the pod's log",
        ]

    def test_one_gpu_and_other_strategies_are_not_split(self) -> None:
        alone = make_independent("node-1", (10.0,))
        for whole in (alone, make_result("node-1"), make_result("node-1", strategy="ddp", gpus_per_node=4)):
            assert by_gpu(whole) == {}
        assert [node.gpus for node in judged([alone, make_independent("node-2", (10.0,))]).nodes] == [(), ()]


class TestVerdict:
    def test_one_slow_gpu_of_sixteen_makes_its_node_red_and_is_named(self) -> None:
        """Its reference is the median of the other nodes' medians, 10: -10 %."""
        nodes = by_name(judged(fleet(GOOD, SLOW_2, GOOD, GOOD)))
        bad = nodes.pop("node-2")
        assert {node.state for node in nodes.values()} == {State.WELL}
        assert (bad.state, bad.confirmation) == (State.RED, Confirmation.NO_ANSWER)
        assert whys(bad) == [Why.WELL, Why.WELL, Why.SLOW, Why.WELL]
        assert bad.reason.startswith("GPU 2 (GPU-node-2-2): samples/s −10.0 %")
        assert (bad.samples_per_second, bad.deviation(Metric.SAMPLES_PER_SECOND)) == (9.0, pytest.approx(-10.0))
        assert [(gpu.index, gpu.uuid) for gpu in bad.gpus] == [(i, f"GPU-node-2-{i}") for i in range(4)]

    def test_a_lone_node_is_judged_by_itself(self) -> None:
        (node,) = judged(fleet(SLOW_2)).nodes
        assert whys(node) == [Why.WELL, Why.WELL, Why.SLOW, Why.WELL]
        assert node.why is Why.SLOW
        (node,) = judged(fleet((10.0, 9.0))).nodes
        assert whys(node) == [Why.PAIR] * 2
        assert "its only peer GPU 0" in node.gpus[1].reason

    def test_one_unsteady_gpu_leaves_its_neighbours_judged(self) -> None:
        results = fleet(GOOD, GOOD, GOOD)
        results[0] = make_independent("node-1", GOOD, windows={3: (10.0, 5.0, 10.0)})
        node = by_name(judged(results))["node-1"]
        assert whys(node) == [Why.WELL, Why.WELL, Why.WELL, Why.UNSTEADY]
        assert node.why is Why.UNSTEADY
        assert node.reason.startswith("GPU 3 (GPU-node-1-3): its figures scatter by ")

    def test_a_failed_rank_fails_the_node_by_name_and_its_neighbours_are_judged(self) -> None:
        results = fleet(GOOD, GOOD, GOOD)
        results[1] = make_independent("node-2", GOOD, failed={1: "CUDA error: uncorrectable ECC"})
        nodes = by_name(judged(results))
        assert whys(nodes["node-2"]) == [Why.WELL, Why.FAILED, Why.WELL, Why.WELL]
        assert nodes["node-2"].why is Why.FAILED
        assert nodes["node-2"].reason == "GPU 1 (GPU-node-2-1): round 1 error: CUDA error: uncorrectable ECC"
        assert {nodes[name].state for name in ("node-1", "node-3")} == {State.WELL}

    def test_a_slow_neighbour_of_a_failed_gpu_is_still_re_run(self) -> None:
        results = fleet(GOOD, SLOW_2, GOOD, GOOD)
        results[1] = make_independent("node-2", SLOW_2, failed={0: "CUDA error"})
        assert judge_fleet(results).suspects == ("node-2",)

    def test_a_pod_that_failed_fails_its_node_though_another_round_measured(self) -> None:
        results = fleet(GOOD, GOOD, GOOD)
        results.append(make_failed("node-2", round=2, strategy="independent", gpus_per_node=4, message="no image"))
        nodes = by_name(judged(results))
        assert nodes["node-2"].why is Why.FAILED
        assert "no image" in nodes["node-2"].reason
        assert whys(nodes["node-2"]) == [Why.WELL] * 4


class TestReRun:
    def reruns(self, rates: tuple[float, ...], **fields: Any) -> list[RunResult]:
        return [
            make_independent(
                node, rates if node == "node-2" else GOOD, round=round_, **fields if node == "node-2" else {}
            )
            for round_ in (2, 3)
            for node in ("node-1", "node-2", "node-3")
        ]

    @pytest.mark.parametrize(
        ("rates", "fields", "confirmation"),
        [
            ((10.0, 10.0, 9.1, 10.0), {}, Confirmation.CONFIRMED),
            ((9.0, 10.0, 10.0, 10.0), {}, Confirmation.CLEARED),  # another GPU is slow
            ((10.0, 10.0, 9.1, 10.0), {"failed": {0: "CUDA error"}}, Confirmation.CONFIRMED),  # a neighbour fails
        ],
    )
    def test_the_gpu_s_own_part_of_the_re_run_decides(
        self, rates: tuple[float, ...], fields: dict[str, Any], confirmation: Confirmation
    ) -> None:
        node = by_name(judged(fleet(GOOD, SLOW_2, GOOD, GOOD), *self.reruns(rates, **fields)))["node-2"]
        assert node.confirmation is confirmation
        assert node.is_red is (confirmation is Confirmation.CONFIRMED)


def test_a_node_s_rate_is_that_of_its_slowest_gpu_and_not_the_sum_also_in_its_past() -> None:
    result = make_independent("node-1", SLOW_2)
    (record,) = records_of([result], STARTED_AT)
    assert judged_rate(result) == record.samples_per_second == 9.0
    assert result.performance.samples_per_second == pytest.approx(39.01)
    assert judged_rate(make_result("node-1", 9.5)) == 9.5
