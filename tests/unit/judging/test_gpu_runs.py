"""Nodes whose GPUs measured by themselves: each GPU is judged, and the node is as good as its worst one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.contract.result import RunResult, Status
from tests.builders import STARTED_AT, make_failed, make_independent, make_result
from tests.builders.fleets import by_name
from trainbench.core.verdicts import Confirmation, GroupVerdict, Metric, NodeVerdict, Side, State, Tolerances
from trainbench.judging.diagnosis.diagnose import diagnose
from trainbench.judging.gpu_runs import by_gpu
from trainbench.judging.node_runs import GpuPlace, judged_rate
from trainbench.judging.over_time.baseline_deviation import judge_history
from trainbench.judging.over_time.node_history import records_of
from trainbench.judging.peers import gpu_verdicts
from trainbench.judging.peers.confirmation import confirm
from trainbench.judging.peers.node_verdicts import judge_groups, nodes_to_confirm

LIMITS = Tolerances()
GOOD = (10.0, 10.01, 9.99, 10.0)
SLOW_2 = (10.0, 10.01, 9.0, 10.0)


def fleet(*of_nodes: tuple[float, ...]) -> list[RunResult]:
    return [make_independent(f"node-{i}", rates) for i, rates in enumerate(of_nodes, 1)]


def judged(results: list[RunResult]) -> GroupVerdict:
    (group,) = judge_groups(results, [], LIMITS)
    return group


def states(node: NodeVerdict) -> list[State]:
    return [gpu.state for gpu in node.gpus]


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

    def test_a_single_gpu_is_its_node(self) -> None:
        alone = make_independent("node-1", (10.0,))
        assert by_gpu(alone) == {}
        assert [node.gpus for node in judged([alone, make_independent("node-2", (10.0,))]).nodes] == [(), ()]

    def test_other_strategies_are_not_split(self) -> None:
        assert by_gpu(make_result("node-1")) == {}
        assert by_gpu(make_result("node-1", strategy="ddp", gpus_per_node=4)) == {}


class TestVerdict:
    def test_one_slow_gpu_of_sixteen_makes_its_node_red_and_is_named(self) -> None:
        """Its reference is the median of the other nodes' medians, 10: -10 %."""
        nodes = by_name(judged(fleet(GOOD, SLOW_2, GOOD, GOOD)))
        bad = nodes.pop("node-2")
        assert {node.state for node in nodes.values()} == {State.OK}
        assert (bad.state, bad.confirmation) == (State.BREACH, Confirmation.PENDING)
        assert states(bad) == [State.OK, State.OK, State.BREACH, State.OK]
        assert bad.reason.startswith("GPU 2 (GPU-node-2-2): samples/s: deviation −10.0 %")
        rate = bad.metric(Metric.SAMPLES_PER_SECOND)
        assert rate
        assert (rate.value, rate.reference, rate.gpu, rate.side) == (9.0, 10.0, "GPU 2 (GPU-node-2-2)", Side.SLOW)
        assert [(gpu.index, gpu.uuid) for gpu in bad.gpus] == [(i, f"GPU-node-2-{i}") for i in range(4)]

    def test_a_node_whose_gpus_are_all_slow_is_reattached_podst_the_other_nodes(self) -> None:
        nodes = by_name(judged(fleet(GOOD, tuple(0.9 * rate for rate in GOOD), GOOD)))
        assert states(nodes["node-2"]) == [State.BREACH] * 4
        assert {nodes[name].state for name in ("node-1", "node-3")} == {State.OK}
        assert "and 1 more of its 4 GPUs" in nodes["node-2"].reason

    def test_a_lone_node_is_judged_by_itself(self) -> None:
        (node,) = judged(fleet(SLOW_2)).nodes
        assert states(node) == [State.OK, State.OK, State.BREACH, State.OK]

    def test_two_gpus_of_a_lone_node_leave_the_slower_one_unknown(self) -> None:
        (node,) = judged(fleet((10.0, 9.0))).nodes
        assert states(node) == [State.INSUFFICIENT] * 2

    def test_one_unsteady_gpu_leaves_its_neighbours_judged(self) -> None:
        results = fleet(GOOD, GOOD, GOOD)
        results[0] = make_independent("node-1", GOOD, windows={3: (10.0, 5.0, 10.0)}, throttled={3: {"thermal": 33.0}})
        group = judged(results)
        node = by_name(group)["node-1"]
        assert states(node) == [State.OK, State.OK, State.OK, State.INSUFFICIENT]
        assert node.is_unsteady
        assert [gpu.is_unsteady for gpu in node.gpus] == [False, False, False, True]
        assert node.reason.startswith("GPU 3 (GPU-node-1-3): unsteady: its windows scatter")
        (finding,) = (f for f in diagnose([group], results) if f.category == "unsteady")
        assert finding.subject == "node-1"
        assert "GPU 3 (GPU-node-1-3)" in finding.explanation
        assert "he GPU was too hot and slowed itself down for 33 % of the time" in finding.explanation

    def test_a_failed_rank_fails_the_node_by_name_and_its_neighbours_are_judged(self) -> None:
        results = fleet(GOOD, GOOD, GOOD)
        results[1] = make_independent("node-2", GOOD, failed={1: "CUDA error: uncorrectable ECC"})
        nodes = by_name(judged(results))
        assert states(nodes["node-2"]) == [State.OK, State.FAILED, State.OK, State.OK]
        assert nodes["node-2"].state is State.FAILED
        assert nodes["node-2"].reason == "GPU 1 (GPU-node-2-1): round 1 error: CUDA error: uncorrectable ECC"
        assert {nodes[name].state for name in ("node-1", "node-3")} == {State.OK}

    @pytest.mark.parametrize("rank", [0, 1, 3])
    def test_whichever_rank_failed_a_slow_neighbour_is_still_re_run(self, rank: int) -> None:
        """GPU 2 is 10 % slow. The first GPU's failure was taken for the whole pod's: said twice, and no re-run."""
        results = fleet(GOOD, SLOW_2, GOOD, GOOD)
        results[1] = make_independent("node-2", SLOW_2, failed={rank: "CUDA error"})
        node = by_name(judged(results))["node-2"]
        assert (node.state, node.confirmation) == (State.FAILED, Confirmation.PENDING)
        assert node.reason.startswith(
            f"GPU {rank} (GPU-node-2-{rank}): round 1 error: CUDA error; GPU 2 (GPU-node-2-2)"
        )

    def test_a_pod_that_failed_fails_its_node_though_another_round_measured(self) -> None:
        results = fleet(GOOD, GOOD, GOOD)
        results.append(make_failed("node-2", round=2, strategy="independent", gpus_per_node=4, message="no image"))
        nodes = by_name(judged(results))
        assert nodes["node-2"].state is State.FAILED
        assert "no image" in nodes["node-2"].reason
        assert states(nodes["node-2"]) == [State.OK] * 4

    def test_the_diagnosis_of_a_gpu_looks_at_its_own_telemetry(self) -> None:
        results = fleet(GOOD, GOOD, GOOD)
        results[1] = make_independent("node-2", SLOW_2, throttled={2: {"thermal": 40.0}, 0: {"power_cap": 90.0}})
        (finding,) = diagnose([judged(results)], results)
        assert finding.category == "thermal_throttling"
        assert "GPU 2 (GPU-node-2-2)" in finding.explanation
        assert "power limit" not in finding.explanation


class TestReRun:
    def first(self) -> list[RunResult]:
        return fleet(GOOD, SLOW_2, GOOD, GOOD)

    def test_a_gpu_that_is_slow_again_is_confirmed(self) -> None:
        groups = judge_groups(self.first(), [], LIMITS)
        assert nodes_to_confirm(groups) == ("node-2",)
        node = by_name(confirm(groups, [make_independent("node-2", (10.0, 10.0, 9.1, 10.0), round=2)], LIMITS)[0])[
            "node-2"
        ]
        assert (node.state, node.confirmation) == (State.BREACH, Confirmation.CONFIRMED)
        assert node.confirm_deviation_pct == pytest.approx(-9.0)
        assert states(node) == [State.OK, State.OK, State.BREACH, State.OK]

    def test_a_re_run_in_which_another_gpu_is_slow_confirms_nothing(self) -> None:
        groups = judge_groups(self.first(), [], LIMITS)
        node = by_name(confirm(groups, [make_independent("node-2", (9.0, 10.0, 10.0, 10.0), round=2)], LIMITS)[0])[
            "node-2"
        ]
        assert (node.state, node.confirmation) == (State.NOTICE, Confirmation.NOT_CONFIRMED)

    def test_a_neighbour_that_fails_in_the_re_run_does_not_spoil_the_answer(self) -> None:
        groups = judge_groups(self.first(), [], LIMITS)
        rerun = make_independent("node-2", (10.0, 10.0, 9.1, 10.0), round=2, failed={0: "CUDA error"})
        node = by_name(confirm(groups, [rerun], LIMITS)[0])["node-2"]
        assert (node.state, node.confirmation) == (State.BREACH, Confirmation.CONFIRMED)

    def test_a_re_run_that_never_came_leaves_the_breach(self) -> None:
        groups = judge_groups(self.first(), [], LIMITS)
        node = by_name(confirm(groups, [], LIMITS)[0])["node-2"]
        assert (node.state, node.confirmation) == (State.BREACH, Confirmation.INCONCLUSIVE)


class TestJudgedRate:
    def test_it_is_that_of_the_slowest_gpu_and_not_the_sum(self) -> None:
        result = make_independent("node-1", SLOW_2)
        assert judged_rate(result) == 9.0
        assert result.performance.samples_per_second == pytest.approx(39.01)

    def test_other_strategies_have_one_rate(self) -> None:
        assert judged_rate(make_result("node-1", 9.5)) == 9.5

    def test_history_and_trails_remember_the_slowest_gpu(self) -> None:
        """9.0 against a past of 10: -10 %; the sum of four would hide it (39 of 40 is -2.5 %)."""
        result = make_independent("node-1", SLOW_2)
        verdict = judge_history(result, [10.0] * 5, LIMITS)
        assert (verdict.state, verdict.deviation_pct) == (State.BREACH, pytest.approx(-10.0))
        (point,) = records_of([result], STARTED_AT)
        assert point.samples_per_second == 9.0


@pytest.mark.parametrize(("num_red", "more"), [(3, []), (4, ["and 1 more of its 4 GPUs"])])
def test_three_gpus_are_named_and_the_others_counted(num_red: int, more: list[str]) -> None:
    slow = {"state": State.BREACH, "is_watched": False, "reason": "slow"}
    gpus: Any = [SimpleNamespace(name=f"GPU {i}", **slow) for i in range(num_red)]
    assert gpu_verdicts._reasons(gpus, State.BREACH) == [f"GPU {i}: slow" for i in range(3)] + more
