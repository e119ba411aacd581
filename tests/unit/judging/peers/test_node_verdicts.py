from __future__ import annotations

import pytest

from bench_image.contract.parse import parse_result
from bench_image.contract.result import Chosen, RunResult, Status
from bench_image.contract.spec import Drill
from tests.builders import STARTED_AT, make_cpu_result, make_failed, make_result
from tests.builders.fleets import by_name, fleet, states
from tests.conftest import GOLDEN_DIR
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import (
    Confirmation,
    GroupVerdict,
    Metric,
    ReferenceMode,
    Side,
    State,
    Tolerances,
)
from trainbench.judging.node_runs import NO_RESULTS
from trainbench.judging.peers.confirmation import confirm
from trainbench.judging.peers.node_verdicts import judge_groups, lone_groups, nodes_to_confirm
from trainbench.results.collect import collect

LIMITS = Tolerances()
RATE = Metric.SAMPLES_PER_SECOND


def judged(
    results: list[RunResult], expected: list[str] | None = None, limits: Tolerances = LIMITS, **history: float
) -> GroupVerdict:
    (group,) = judge_groups(results, expected or [], limits, {k.replace("_", "-"): v for k, v in history.items()})
    return group


class TestReference:
    def test_a_node_is_compared_with_the_median_of_the_others(self) -> None:
        """Others of node-3: 9.4, 9.5, 9.7, median 9.5; 8.5 / 9.5 - 1 = -10.526 %. Spread 1.2 / 9.45."""
        group = judged(fleet(9.5, 9.4, 8.5, 9.7))
        slow = by_name(group)["node-3"]
        rate = slow.metric(RATE)
        assert rate
        assert rate.reference == 9.5
        assert rate.deviation == pytest.approx(-10.526, abs=1e-3)
        assert (slow.state, rate.side, slow.confirmation) == (State.BREACH, Side.SLOW, Confirmation.PENDING)
        assert states(group) == [State.OK, State.OK, State.BREACH, State.OK]
        assert group.spread_pct == pytest.approx(100 * 1.2 / 9.45)

    def test_the_mean_of_all_hides_what_the_median_of_the_others_shows(self) -> None:
        """Four nodes, one at -6 %: their mean is 9.85, so 9.4 reads -4.57 %, a missed breach."""
        results = fleet(10.0, 10.0, 9.4, 10.0)
        mean = judged(results, limits=Tolerances(reference=ReferenceMode.MEAN))
        rate = by_name(mean)["node-3"].metric(RATE)
        assert rate
        assert rate.deviation == pytest.approx(-4.569, abs=1e-3)
        assert states(mean) == [State.OK] * 4
        assert by_name(judged(results))["node-3"].state is State.BREACH

    def test_the_median_of_all(self) -> None:
        """Median of 9.4, 9.8, 10, 10.2 is 9.9: 9.4 / 9.9 - 1 = -5.05 %."""
        group = judged(fleet(10.0, 9.8, 9.4, 10.2), limits=Tolerances(reference=ReferenceMode.MEDIAN))
        rate = by_name(group)["node-3"].metric(RATE)
        assert rate
        assert rate.deviation == pytest.approx(-5.0505, abs=1e-3)

    def test_own_history_needs_no_peers(self) -> None:
        """9.5 against its own 10.0 is exactly -5 %: on the limit, not beyond it."""
        limits = Tolerances(reference=ReferenceMode.HISTORY)
        group = judged([make_result("node-1", 9.5), make_result("node-2", 9.0)], limits=limits, node_1=10.0)
        first, second = group.nodes
        assert first.metrics[0].deviation == -5.0
        assert (first.metrics[0].state, second.metrics[0].state) == (State.OK, State.NO_BASELINE)

    def test_a_fixed_figure(self) -> None:
        limits = Tolerances(reference=ReferenceMode.FIXED, fixed_samples_per_second=10.0)
        rate = judged([make_result("node-1", 9.0)], limits=limits).nodes[0].metric(RATE)
        assert rate
        assert (rate.deviation, rate.state) == (-10.0, State.BREACH)

    def test_a_fixed_reference_without_a_figure_is_refused(self) -> None:
        with pytest.raises(ValueError, match="needs fixed_samples_per_second"):
            judge_groups(fleet(1.0), [], Tolerances(reference=ReferenceMode.FIXED))

    def test_two_slow_among_four_are_all_named_with_their_sides(self) -> None:
        """Others of a slow node: 10, 10, 8, median 10 -> -20 %. Of a good one: 10, 8, 8, median 8 -> +25 %."""
        nodes = by_name(judged(fleet(10.0, 10.0, 8.0, 8.0)))
        assert [n.metrics[0].deviation for n in nodes.values()] == [25.0, 25.0, -20.0, -20.0]
        assert [n.metrics[0].side for n in nodes.values()] == [Side.FAST, Side.FAST, Side.SLOW, Side.SLOW]

    def test_a_node_with_several_runs_counts_with_their_median(self) -> None:
        results = [make_result(n, 9.5, round=r) for n in ("node-1", "node-2", "node-3") for r in (1, 2, 3)]
        results[8] = make_result("node-3", 9.7, round=3)
        assert by_name(judged(results))["node-3"].metrics[0].value == 9.5
        assert by_name(judged(results))["node-3"].num_runs == 3


class TestFewNodes:
    def test_one_node_has_nobody_to_be_compared_with(self) -> None:
        group = judged(fleet(9.5))
        assert states(group) == [State.INSUFFICIENT]
        assert "no peer" in group.nodes[0].reason
        assert group.spread_pct is None

    def test_two_nodes_differ_but_none_is_blamed(self) -> None:
        """10 against 8 is 25 % of the slower one. With the pair's mean a 5 % slow node would read -2.5 % and pass."""
        group = judged(fleet(10.0, 8.0))
        assert states(group) == [State.INSUFFICIENT] * 2
        assert all("differs by 25.0 %" in node.reason for node in group.nodes)
        assert [node.metrics[0].side for node in group.nodes] == [None, None]


class TestNoise:
    def test_a_swing_within_the_noise_is_insufficient_and_says_both_figures(self) -> None:
        windows = (30.0, 40.0, 55.0)
        results = [make_cpu_result(f"node-{i}", rate, windows=windows) for i, rate in enumerate((40, 41, 35, 42), 1)]
        node = by_name(judged(results))["node-3"]
        assert node.state is State.INSUFFICIENT
        assert node.reason.startswith("samples/s: deviation −14.6 %, limit 5.0 %, noise ")
        assert node.reason.endswith("use more repeats or a quieter machine")

    def test_a_difference_beyond_limit_and_noise_breaches_on_a_noisy_machine(self) -> None:
        steady = [(0.9, 1.0, 1.1)] * 3
        results = [
            make_cpu_result(f"node-{i}", rate, round=r, windows=[rate * w for w in windows])
            for r, windows in enumerate(steady, 1)
            for i, rate in enumerate((40.0, 41.0, 10.0, 42.0), 1)
        ]
        node = by_name(judged(results))["node-3"]
        rate = node.metric(RATE)
        assert rate
        assert rate.noise
        assert 5 < rate.noise < 40
        assert node.state is State.BREACH

    def test_the_group_says_its_noise_and_what_it_can_detect(self) -> None:
        """Windows at 0.999, 1, 1.001 of the run: SD 0.1 %. df 4 * 2 = 8, t 3.355, c(1) + c(3) = 1.524: 0.41 %."""
        group = judged(fleet(9.5, 9.5, 9.5, 9.5))
        assert group.noise_pct == pytest.approx(0.1, rel=1e-3)
        assert group.detectable_pct == pytest.approx(0.1 * 3.355 * 1.5236**0.5, rel=0.01)

    def test_without_repeats_the_noise_is_unknown_and_the_limit_decides(self) -> None:
        results = [make_result(f"node-{i}", rate, windows=(rate,)) for i, rate in enumerate((9.5, 9.5, 8.0, 9.5), 1)]
        group = judged(results)
        assert group.noise_pct is None
        assert states(group)[2] is State.BREACH


class TestMemoryAndTemperature:
    def test_memory_two_percent(self) -> None:
        """7.25 / 7.1 - 1 = +2.11 %, beyond 2 %; 7.2 would be +1.4 %."""
        results = [make_result(f"node-{i}", memory_gb=gb) for i, gb in enumerate((7.1, 7.1, 7.25, 7.2), 1)]
        group = judged(results)
        assert [n.metrics[1].state for n in group.nodes] == [State.OK, State.OK, State.BREACH, State.OK]
        assert group.nodes[2].metrics[1].side is Side.HIGH

    def test_temperature_is_degrees_not_percent(self) -> None:
        results = [make_result(f"node-{i}", temperature_c=t) for i, t in enumerate((60.0, 70.0, 71.0, 60.0, 60.0), 1)]
        group = judged(results)
        assert [n.metrics[2].deviation for n in group.nodes][1:3] == [10.0, 11.0]
        assert [n.metrics[2].state for n in group.nodes][1:3] == [State.OK, State.BREACH]

    def test_on_the_cpu_neither_is_judged(self) -> None:
        group = judged([make_cpu_result(f"node-{i}") for i in (1, 2, 3)])
        memory, temperature = group.nodes[0].metrics[1:]
        assert (memory.state, memory.value) == (State.NOT_JUDGED, 0.6)
        assert (temperature.state, temperature.reason) == (State.NOT_JUDGED, "no GPU")

    @pytest.mark.parametrize(
        "lacking", [make_result("node-4", temperature_c=None), make_result("node-4", memory_gb=None)]
    )
    def test_a_missing_metric_is_a_breach_on_a_gpu(self, lacking: RunResult) -> None:
        results = [*fleet(9.5, 9.5, 9.5), lacking]
        node = by_name(judged(results))["node-4"]
        assert node.state is State.BREACH
        assert "was not measured" in node.reason


class TestFailures:
    def test_a_failed_run_is_named_with_its_status(self) -> None:
        node = by_name(judged([*fleet(9.5, 9.5, 9.5), make_failed("node-4")]))["node-4"]
        assert (node.state, node.num_runs, node.metrics) == (State.FAILED, 0, ())
        assert node.reason == "round 1 oom: CUDA out of memory: tried to allocate 2.00 GiB"

    def test_one_failed_round_fails_the_node_but_the_others_are_still_judged(self) -> None:
        results = [make_result(f"node-{i}", 9.5, round=r) for r in (1, 2) for i in (1, 2, 3)]
        results[5] = make_failed("node-3", round=2, status=Status.TIMEOUT, message="no result after 1800 s")
        node = by_name(judged(results))["node-3"]
        assert (node.state, node.num_runs) == (State.FAILED, 1)
        assert node.metrics[0].deviation == 0.0
        assert node.reason.startswith("round 2 timeout")

    def test_an_expected_node_without_a_result_is_missing_not_skipped(self) -> None:
        group = judged(fleet(9.5, 9.5, 9.5), ["node-1", "node-2", "node-3", "node-4"])
        assert states(group)[3] is State.MISSING
        assert group.nodes[3].gpu_name == "NVIDIA H200"

    def test_nothing_came_back_at_all(self) -> None:
        group = judged([], ["node-1", "node-2"])
        assert (group.group_id, states(group)) == (NO_RESULTS, [State.MISSING] * 2)

    def test_ranks_of_one_job_over_several_nodes_are_refused(self) -> None:
        """Ancestor B compared ranks that all reported the same global rate, and so could never find a slow node."""
        with pytest.raises(ValueError, match="spans 2 nodes"):
            judge_groups([make_result(strategy="ddp", nodes=2)], [], LIMITS)

    def test_a_drill_is_marked(self) -> None:
        results = [*fleet(9.5, 9.5, 9.5), make_result("node-4", 4.0, drill=Drill(slowdown_pct=60))]
        assert [node.is_drill for node in judged(results).nodes] == [False, False, False, True]


class TestGroups:
    def test_a_node_of_unknown_gpu_is_compared_with_none_where_there_are_several_kinds(self) -> None:
        results = [*fleet(9.5), make_result("node-2", gpu_name="NVIDIA A100"), make_failed("node-3")]
        assert [(g.gpu_name, g.nodes[0].node) for g in judge_groups(results, [], LIMITS)] == [
            (None, "node-3"),
            ("NVIDIA A100", "node-2"),
            ("NVIDIA H200", "node-1"),
        ]

    def test_order_is_natural_and_independent_of_the_input(self) -> None:
        results = [make_result(f"node-{i}") for i in (10, 2, 1)]
        assert judge_groups(results, [], LIMITS) == judge_groups(results[::-1], [], LIMITS)
        assert [n.node for n in judged(results).nodes] == ["node-1", "node-2", "node-10"]
        assert natural("node-2") < natural("node-10")


def auto(node: str, rate: float, size: int, round: int = 1) -> RunResult:
    chosen = Chosen(micro_batch_size=size, gradient_checkpointing=False, why="the largest that fits", execution={})
    values = {"micro_batch_size": "auto", "gradient_checkpointing": "auto"}
    return make_result(node, rate, round=round, chosen=chosen, **values)


class TestOtherWork:
    def test_a_node_that_chose_another_micro_batch_is_not_compared_and_not_red(self) -> None:
        """node-4 did half the work per step, 40 % slower: it says nothing of the node, nor of its peers' reference."""
        group = judged([*(auto(f"node-{i}", 9.5, 12) for i in (1, 2, 3)), auto("node-4", 5.7, 6)])
        stray = by_name(group)["node-4"]
        assert states(group) == [State.OK, State.OK, State.OK, State.NOT_JUDGED]
        assert (stray.metrics, stray.confirmation) == ((), Confirmation.NOT_NEEDED)
        assert stray.reason == (
            "its program chose micro-batch 6, checkpointing off, those of its peers micro-batch 12, checkpointing "
            "off: other work, not compared"
        )
        assert group.choice == "micro-batch 12, checkpointing off"
        assert group.spread_pct == 0.0

    def test_one_round_of_other_work_is_left_out_and_the_rest_is_judged(self) -> None:
        results = [auto(f"node-{i}", 9.5, 12, r) for i in (1, 2, 3) for r in (1, 2)]
        group = judged([*results, auto("node-4", 9.5, 12), auto("node-4", 5.7, 6, 2)])
        assert (by_name(group)["node-4"].state, by_name(group)["node-4"].num_runs) == (State.OK, 1)

    def test_two_against_two_leaves_two_nodes_which_are_too_few(self) -> None:
        group = judged(
            [auto(f"node-{i}", rate, size) for i, (rate, size) in enumerate([(9, 8), (9, 8), (5, 4), (5, 4)])]
        )
        assert sorted(states(group)) == [State.INSUFFICIENT] * 2 + [State.NOT_JUDGED] * 2

    def test_a_re_run_that_chose_other_work_leaves_the_breach_standing(self) -> None:
        first = judge_groups([*(auto(f"node-{i}", 9.5, 12) for i in (1, 2, 3)), auto("node-4", 8.5, 12)], [], LIMITS)
        (group,) = confirm(first, [auto("node-4", 9.5, 6, 2)], LIMITS)
        node = by_name(group)["node-4"]
        assert (node.state, node.confirmation) == (State.BREACH, Confirmation.INCONCLUSIVE)
        assert "the re-run chose other work (micro-batch 6, checkpointing off)" in node.reason


class TestLoneGroups:
    def test_strategies_on_one_node_are_lone_but_a_single_group_is_not(self) -> None:
        two = judge_groups([make_result(), make_result(strategy="ddp", gpus_per_node=2)], [], LIMITS)
        assert lone_groups(two) == two
        assert lone_groups(two[:1]) == ()
        assert lone_groups((*two, judged(fleet(9.5, 9.5, 9.5)))) == two


def test_a_node_that_was_not_free_is_busy_and_judges_nobody() -> None:
    busy = make_failed("node-4", status=Status.INCOMPLETE, kind="busy", message="no room on the node")
    (group,) = judge_groups([*(make_result(f"node-{i}", 9.5) for i in (1, 2, 3)), busy], [], Tolerances())

    assert [node.state for node in group.nodes] == [State.OK, State.OK, State.OK, State.BUSY]
    assert group.nodes[3].reason == "no room on the node"


def test_a_node_that_was_preempted_once_is_judged_by_its_other_round() -> None:
    taken = make_failed(
        "node-3", status=Status.INCOMPLETE, kind="preempted", message="other work took the node", round=2
    )
    results = [make_result(f"node-{i}", 9.5, round=r) for r in (1, 2) for i in (1, 2, 3) if (i, r) != (3, 2)]
    (group,) = judge_groups([*results, taken], [], Tolerances())

    assert [node.state for node in group.nodes] == [State.OK] * 3


class TestKindsOfFleet:
    """The issue's words: every state, quarantined and missing nodes, 1 to 1,000 nodes, several GPU types."""

    @pytest.mark.parametrize("reference", list(ReferenceMode))
    @pytest.mark.parametrize("num_nodes", [0, 1, 2, 3, 4, 9])
    def test_every_reference_answers_for_every_size(self, reference: ReferenceMode, num_nodes: int) -> None:
        """All nodes at 10 samples/s, one expected besides: nobody breaches, nobody is lost, each has its reason."""
        names = [f"node-{i}" for i in range(1, num_nodes + 2)]
        limits = Tolerances(reference=reference, fixed_samples_per_second=10.0)
        (group,) = judge_groups(
            [make_result(name, 10.0) for name in names[:-1]], names, limits, dict.fromkeys(names, 10.0)
        )
        assert [node.node for node in group.nodes] == names
        assert group.nodes[-1].state is State.MISSING
        few = num_nodes < 3  # memory and temperature have no reference but the peers
        assert set(states(group)[:-1]) <= {State.INSUFFICIENT if few else State.OK}
        assert all(node.reason for node in group.nodes)
        rate = [node.metrics[0].state for node in group.nodes[:-1]]
        own = reference in (ReferenceMode.HISTORY, ReferenceMode.FIXED)
        assert set(rate) <= {State.INSUFFICIENT if few and not own else State.OK}

    @pytest.mark.parametrize("reference", list(ReferenceMode))
    @pytest.mark.parametrize(("rate", "side"), [(8.5, Side.SLOW), (11.5, Side.FAST)])
    def test_every_reference_has_two_sides(self, reference: ReferenceMode, rate: float, side: Side) -> None:
        """15 % off is beyond 5 % even against a mean of four that holds the node: 8.5 / 9.625 is -11.7 %."""
        limits = Tolerances(reference=reference, fixed_samples_per_second=10.0)
        own = {f"node_{i}": 10.0 for i in (1, 2, 3, 4)}
        nodes = by_name(judged(fleet(10.0, 10.0, rate, 10.0), limits=limits, **own))
        assert [node.state is State.BREACH for node in nodes.values()] == [False, False, True, False]
        assert nodes["node-3"].metrics[0].side is side

    @pytest.mark.parametrize(
        ("metric", "fields", "side"),
        [
            (Metric.MEMORY_GB, {"memory_gb": 6.9}, Side.LOW),
            (Metric.MEMORY_GB, {"memory_gb": 7.3}, Side.HIGH),
            (Metric.TEMPERATURE_C, {"temperature_c": 49.0}, Side.LOW),
            (Metric.TEMPERATURE_C, {"temperature_c": 71.0}, Side.HIGH),
        ],
    )
    def test_memory_and_temperature_have_two_sides(self, metric: Metric, fields: dict[str, float], side: Side) -> None:
        node = judged([*fleet(9.5, 9.5, 9.5), make_result("node-4", **fields)]).nodes[3]
        value = node.metric(metric)
        assert value
        assert (value.state, value.side) == (State.BREACH, side)

    def test_one_slow_node_of_three_is_named_and_the_good_ones_are_not(self) -> None:
        """Against the mean of the other two, each 10 would read 10 / 9.5: +5.3 %, and be blamed as fast."""
        assert states(judged(fleet(10.0, 9.0, 10.0))) == [State.OK, State.BREACH, State.OK]

    def test_one_hot_node_of_three_is_named_and_the_good_ones_are_not(self) -> None:
        results = [make_result(f"node-{i}", temperature_c=t) for i, t in enumerate((60.0, 85.0, 61.0), 1)]
        assert states(judged(results)) == [State.OK, State.BREACH, State.OK]

    def test_two_slow_nodes_of_five_are_named_and_the_good_ones_are_not(self) -> None:
        result = states(judged(fleet(10.0, 9.0, 10.0, 9.0, 10.0)))
        assert result == [State.OK, State.BREACH, State.OK, State.BREACH, State.OK]

    def test_a_drill_beside_a_slow_node_blames_no_good_one(self) -> None:
        """Of 10, 10, 9.2 and the drilled 4 the median of the others of each 10 would be 9.2: +8.7 %."""
        results = [*fleet(10.0, 10.0, 9.2), make_result("node-4", 4.0, drill=Drill(slowdown_pct=60))]
        assert states(judged(results)) == [State.OK, State.OK, State.BREACH, State.BREACH]

    def test_a_slow_node_is_found_among_its_own_kind_of_gpu(self) -> None:
        """An A100 at 3.5 is slow among A100s at 4; the H200s at 9.5 know nothing of it."""
        a100 = [make_result(f"node-{i}", rate, gpu_name="NVIDIA A100") for i, rate in ((4, 4.0), (5, 3.5), (6, 4.0))]
        results = [*fleet(9.5, 9.5, 9.5), *a100]
        first, second = judge_groups(results, [result.spec.identity.node for result in results], LIMITS)
        assert (first.gpu_name, states(first)) == ("NVIDIA A100", [State.OK, State.BREACH, State.OK])
        assert (second.gpu_name, states(second)) == ("NVIDIA H200", [State.OK] * 3)

    def test_a_node_with_two_kinds_of_gpu_is_a_kind_of_its_own(self) -> None:
        mixed = make_result("node-4", 5.0, strategy="ddp", gpus_per_node=2)
        context = mixed.context
        assert context
        gpus = (context.gpus[0], context.gpus[1].model_copy(update={"name": "NVIDIA A100"}))
        mixed = mixed.model_copy(update={"context": context.model_copy(update={"gpus": gpus})})
        same = [make_result(f"node-{i}", 9.5, strategy="ddp", gpus_per_node=2) for i in (1, 2, 3)]
        alone, others = sorted(judge_groups([*same, mixed], [], LIMITS), key=lambda group: len(group.nodes))
        assert alone.gpu_name == "NVIDIA A100 + NVIDIA H200"
        assert (states(alone), states(others)) == ([State.INSUFFICIENT], [State.OK] * 3)

    def test_every_state_side_by_side(self) -> None:
        """One campaign with a good, a slow, a failed, a busy, a missing and a stray node."""
        busy = make_failed("node-6", status=Status.INCOMPLETE, kind="busy", message="no room on the node")
        ran = [auto(f"node-{i}", rate, 12) for i, rate in ((1, 9.5), (2, 9.5), (3, 9.5), (4, 8.0))]
        lost = [make_failed("node-5", group_id=ran[0].spec.identity.group_id), busy]
        lost = [
            run.model_copy(update={"spec": run.spec.changed(identity={"group_id": ran[0].spec.identity.group_id})})
            for run in lost
        ]
        group = judged([*ran, *lost, auto("node-8", 5.0, 6)], [f"node-{i}" for i in range(1, 9)])
        assert states(group) == [State.OK] * 3 + [
            State.BREACH, State.FAILED, State.BUSY, State.MISSING, State.NOT_JUDGED,
        ]  # fmt: skip

    def test_a_thousand_nodes_of_two_kinds_under_two_strategies(self) -> None:
        """studies/time_judge.py tells how long five strategies take."""
        template = {gpu: make_result(gpu_name=gpu) for gpu in ("NVIDIA H200", "NVIDIA A100")}
        names = [f"node-{i}" for i in range(1000)]
        results = [
            template["NVIDIA H200" if i % 2 else "NVIDIA A100"].model_copy(
                update={
                    "spec": template["NVIDIA H200"].spec.changed(identity={"node": name, "group_id": strategy}),
                    "performance": template["NVIDIA H200"].performance.model_copy(
                        update={"samples_per_second": (9.0 if i in (7, 500) else 10.0) - 5 * (i % 2)}
                    ),
                }
            )
            for strategy in ("single", "ddp")
            for i, name in enumerate(names)
        ]
        groups = judge_groups(results, names, LIMITS)
        assert [(group.gpu_name, len(group.nodes)) for group in groups[:2]] == [
            ("NVIDIA A100", 500),
            ("NVIDIA H200", 500),
        ]
        assert nodes_to_confirm(groups) == ("node-500", "node-7")


class TestBadInput:
    def test_a_node_that_was_renamed_has_no_past_and_says_so(self) -> None:
        limits = Tolerances(reference=ReferenceMode.HISTORY)
        node = judge_groups([make_result("node-new", 9.5)], [], limits, {"node-old": 9.5})[0].nodes[0]
        assert node.metrics[0].state is State.NO_BASELINE
        assert node.metrics[0].reason == "no baseline yet: 5 past runs of this node are needed"

    def test_a_run_that_finished_before_it_started_is_a_failed_run(self) -> None:
        good = make_result("node-4", 9.5)
        text = good.model_dump_json().replace(good.model_dump(mode="json")["finished_at"], "2026-11-21T01:00:00Z", 1)
        (failed,) = collect([good.spec], [text], STARTED_AT)
        node = judged([*fleet(9.5, 9.5, 9.5), failed]).nodes[3]
        assert node.state is State.FAILED
        assert "finished_at 2026-11-21 01:00:00+00:00 lies before started_at" in node.reason

    def test_published_results_of_the_same_work_are_compared(self) -> None:
        old = parse_result((GOLDEN_DIR / "result-v1.json").read_bytes())
        spec = old.spec
        again = [
            old.model_copy(update={"spec": spec.changed(identity={"node": f"node-{i}", "run_id": f"r-{i}"})})
            for i in (11, 12)
        ]
        (group,) = judge_groups([old, *again], [], LIMITS)
        assert len(group.nodes) == 3
        assert {node.metrics[0].state for node in group.nodes} <= {State.OK}

    def test_a_result_of_two_kinds_of_node_names_keeps_a_natural_order(self) -> None:
        names = ["gpu-b", "gpu-10", "10.0.0.2", "gpu-2"]
        group = judged([make_result(name) for name in names])
        assert [node.node for node in group.nodes] == ["10.0.0.2", "gpu-2", "gpu-10", "gpu-b"]


def test_the_spread_of_a_pair_is_reported_though_neither_is_judged() -> None:
    """10 and 9: 1 of their median 9.5."""
    (group,) = judge_groups([make_result("node-1", 10.0), make_result("node-2", 9.0)], [], Tolerances())
    assert group.spread_pct == pytest.approx(100 / 9.5)
    (alone,) = judge_groups([make_result("node-1", 10.0)], [], Tolerances())
    assert alone.spread_pct is None


def test_the_memory_that_is_shown_of_a_process_is_the_median_of_its_runs() -> None:
    """1, 2 and 6 GB on the CPU, which are not judged: 2, and not their mean 3."""
    runs = [make_cpu_result("node-1", 40.0, round=i, memory_gb=gb) for i, gb in enumerate((1.0, 2.0, 6.0), start=1)]
    (group,) = judge_groups([*runs, make_cpu_result("node-2", 40.0), make_cpu_result("node-3", 40.0)], [], Tolerances())
    memory = group.nodes[0].metric(Metric.MEMORY_GB)
    assert memory is not None
    assert (memory.value, memory.state) == (2.0, State.NOT_JUDGED)
