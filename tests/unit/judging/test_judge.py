"""What enters the judgement of a group: its noise and its examples."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from bench_image.contract.result import Chosen, RunResult
from bench_image.contract.result_sections import Clock
from bench_image.contract.spec import Drill
from tests.builders import STARTED_AT, make_cpu_result, make_failed, make_independent, make_result, on_gpus
from tests.builders.judged_fleets import by_name, judge_fleet
from trainbench.core.verdicts import Against, Metric, State, Why
from trainbench.judging.judge import FLEET_CHANGED
from trainbench.judging.noise import chance_quantile, to_pct
from trainbench.judging.past import records_of


@pytest.mark.parametrize(("scatter_pct", "is_own"), [(1.6, False), (2.0, True)])
def test_a_node_has_noise_of_its_own_where_three_sds_are_beyond_the_limit(scatter_pct: float, is_own: bool) -> None:
    """3 * 1.6 % are within 5 %, 3 * 2 % are not."""
    wide = (10 - scatter_pct / 10, 10.0, 10 + scatter_pct / 10)
    runs = [make_result(f"node-{i}", windows=(9.99, 10.0, 10.01)) for i in (1, 2, 3)]
    (group,) = judge_fleet([*runs, make_result("node-4", windows=wide)]).groups

    assert group.nodes[3].noise_pct == (pytest.approx(scatter_pct, abs=0.01) if is_own else group.noise_pct)


def test_of_two_clocks_the_coarser_says_by_how_much_equal_runs_differ() -> None:
    runs = [make_cpu_result(f"node-{i}") for i in (1, 2, 3)]
    wall = runs[2].performance.model_copy(update={"clock": Clock.WALL})
    (group,) = judge_fleet([*runs[:2], runs[2].model_copy(update={"performance": wall})]).groups

    assert group.noise_pct == 2.5


def test_a_drilled_node_is_no_example_for_the_others() -> None:
    """Of 9, 10 and a drill at 7: the median is 9.5, not 9."""
    runs = [make_result("node-1", 7.0, drill=Drill(slowdown_pct=30))]
    runs += [make_result(f"node-{i}", rate) for i, rate in ((2, 9.0), (3, 10.0), (4, 11.0))]
    (group,) = judge_fleet(runs).groups

    against = group.nodes[3].comparison(Metric.SAMPLES_PER_SECOND, Against.PEERS)
    assert against
    assert against.source == "the median of 2 peers"
    assert against.expected == pytest.approx(9.5)


@pytest.mark.parametrize(("at", "why"), [(40.0, Why.WELL), (60.0, Why.HOT)])
def test_a_node_on_a_shared_gpu_is_no_example_of_heat(at: float, why: Why) -> None:
    """node-1 at 72 degrees: beside node-2 at 62 and two shared ones; alone node-2 says nothing, where node-3 and node-4
    are not shared the median of 62, 60 and 60 does.
    """
    shared = {"num_other_processes": 1} if at == 40.0 else {}
    runs = [make_result(f"node-{i}", temperature_c=heat) for i, heat in ((1, 72.0), (2, 62.0))]
    runs += [make_result(f"node-{i}", temperature_c=at, **shared) for i in (3, 4)]
    assert judge_fleet(runs).groups[0].nodes[0].why is why


@pytest.mark.parametrize(("mfu_pct", "source"), [(100.0, "the median of 2 peers"), (100.1, "its only peer node-2")])
def test_a_rate_beyond_the_peak_of_the_data_sheet_is_no_peer(mfu_pct: float, source: str) -> None:
    runs = [make_result(f"node-{i}", 10.0) for i in (1, 2, 3)]
    runs[2] = runs[2].model_copy(update={"performance": runs[2].performance.model_copy(update={"mfu_pct": mfu_pct})})
    against = judge_fleet(runs).groups[0].nodes[0].comparison(Metric.SAMPLES_PER_SECOND, Against.PEERS)
    assert against
    assert against.source == source


def test_of_two_nodes_a_drilled_one_is_found_by_the_other_which_has_no_peer() -> None:
    (group,) = judge_fleet(
        [make_result("node-1", 7.0, drill=Drill(slowdown_pct=30)), make_result("node-2", 10.0)]
    ).groups
    assert [(node.state, node.why) for node in group.nodes] == [
        (State.DRILL, Why.SLOW), (State.NOT_CHECKED, Why.NOTHING_TO_COMPARE),
    ]  # fmt: skip


@pytest.mark.parametrize(("noise_floor", "num"), [(False, 3), (True, 0)])
def test_judged_as_a_noise_floor_no_node_is_compared_with_its_past(noise_floor: bool, num: int) -> None:
    runs = [make_result(f"node-{i}") for i in (1, 2, 3)]
    nights = [STARTED_AT - timedelta(days=days) for days in (1, 2, 3, 4, 5, 6)]
    earlier = [replace(record, campaign_id=f"night-{at:%d}") for at in nights for record in records_of(runs, at)]
    (group,) = judge_fleet(runs, earlier=earlier, params={"noise_floor": noise_floor}).groups

    pasts = [node for node in group.nodes if node.comparison(Metric.SAMPLES_PER_SECOND, Against.PAST)]
    assert len(pasts) == num


@pytest.mark.parametrize(
    ("has_reruns", "reruns", "ends"),
    [
        (False, [], "; no re-run was planned"),
        (True, [], "; no re-run decided: none gave a result"),
        (True, [make_failed("node-4", round=2, message="full")], "; no re-run decided: full"),
        (True, [make_result("node-4", 9.0, round=2)], " first, then −10.0 %"),
    ],
)
def test_a_slow_node_says_why_no_re_run_decides(has_reruns: bool, reruns: list[RunResult], ends: str) -> None:
    runs = [make_result(f"node-{i}", 9.0 if i == 4 else 10.0) for i in (1, 2, 3, 4)]
    (group,) = judge_fleet(runs, reruns, has_reruns=has_reruns).groups

    assert group.nodes[3].why is Why.SLOW
    assert group.nodes[3].reason.endswith(ends)
    assert "re-run" not in group.nodes[0].reason


def test_of_a_node_that_shares_its_gpu_no_re_run_is_missed() -> None:
    shares = make_result("node-4", 9.55, num_other_processes=1)
    (group,) = judge_fleet([*(make_result(f"node-{i}", 10.0) for i in (1, 2, 3)), shares]).groups
    assert (group.nodes[3].why, "re-run" in group.nodes[3].reason) == (Why.SHARED, False)


@pytest.mark.parametrize(
    ("again", "whys"), [((10.5, 10.6), (Why.WELL, Why.ONCE)), ((8.0, 8.1), (Why.PAIR, Why.PAIR))], ids=["once", "again"]
)
def test_two_nodes_differ_only_where_the_re_runs_of_the_slower_one_say_so_too(
    again: tuple[float, float], whys: tuple[Why, Why]
) -> None:
    """Of 8 and 10 samples/s the slower one runs again: then it makes 5 % more, or 20 % less. The other one's planned
    round alone would still say +25 %.
    """
    planned = [make_result("node-1", 10.0), make_result("node-2", 8.0)]
    reruns = [make_result("node-2", rate, round=round_) for round_, rate in enumerate(again, 2)]
    controls = [make_result("node-1", 10.0, round=round_) for round_ in (2, 3)]
    (group,) = judge_fleet(planned, [*reruns, *controls]).groups

    assert tuple(node.why for node in group.nodes) == whys


def against_past(*rates: float, num_shared: int = 0) -> list[tuple[float, str, Why]]:
    """(deviation, source of the expectation, reason) of nodes that made 10 samples/s in each of ten nights. The last
    `num_shared` were not alone on their GPU tonight.
    """
    runs = [make_result(f"node-{i}", rate) for i, rate in enumerate(rates, 1)]
    first_shared = len(runs) - num_shared
    runs[first_shared:] = [
        make_result(run.spec.identity.node, rate, num_other_processes=1)
        for run, rate in zip(runs[first_shared:], rates[first_shared:], strict=True)
    ]
    usual = [make_result(run.spec.identity.node, 10.0) for run in runs]
    nights = [STARTED_AT - timedelta(days=days) for days in range(1, 11)]
    earlier = [replace(record, campaign_id=f"night-{at:%d}") for at in nights for record in records_of(usual, at)]
    (group,) = judge_fleet(runs, earlier=earlier).groups
    found = [(c, node.why) for node in group.nodes if (c := node.comparison(Metric.SAMPLES_PER_SECOND, Against.PAST))]
    return [(round(c.deviation, 2), c.source, why) for c, why in found]


def test_what_the_round_did_to_all_nodes_is_no_change_of_one() -> None:
    """All lie at -0.5 %, node-5 at -2.5 %: 9.75 / (10 * 0.995) is -2.01 %."""
    *others, slow = against_past(9.95, 9.95, 9.95, 9.95, 9.75)
    source = "its own past of 10 nights from 11 Nov 2026 (its peers changed by −0.5 % tonight)"
    assert slow == (-2.01, source, Why.BEHIND)
    assert others == [(0.0, source, Why.WELL)] * 4


@pytest.mark.parametrize(
    ("rates", "deviation", "why"),
    [
        ((9.9, 9.9, 9.9, 9.9), -1.0, Why.BEHIND),  # beyond half of the limit: the fleet changed a little
        ((9.8, 9.8, 10.0, 10.0), -2.0, Why.CHANGED),  # half of the fleet changed
        ((9.95, 9.95, 9.95), -0.5, Why.WELL),  # of two others nobody knows which one is typical
    ],
)
def test_a_change_of_the_fleet_is_no_chance_and_stays_in(rates: tuple[float, ...], deviation: float, why: Why) -> None:
    assert against_past(*rates)[0] == (deviation, "its own past of 10 nights from 11 Nov 2026", why)


def test_what_a_night_does_to_a_node_does_not_average_out_over_its_rounds() -> None:
    """Ten equal nights, and three rounds tonight: the variance of one night and of the median of ten."""
    runs = [make_result("node-1", 10.0, round=round_) for round_ in (1, 2, 3)]
    nights = [STARTED_AT - timedelta(days=days) for days in range(1, 11)]
    earlier = [replace(record, campaign_id=f"night-{at:%d}") for at in nights for record in records_of(runs, at)]
    (group,) = judge_fleet(runs, earlier=earlier).groups

    against = group.nodes[0].comparison(Metric.SAMPLES_PER_SECOND, Against.PAST)
    assert against
    chance = chance_quantile(11, 1) * 0.005 * math.sqrt(2 / 11 * (1 + math.pi / 20))  # the prior, 2 of 11 degrees
    assert against.chance == pytest.approx(to_pct(chance))


def test_half_of_the_fleet_is_slow_too_where_only_what_nights_share_hid_it() -> None:
    """Nights of +-1 % for all ten: chance reaches more than 2.5 % for one alone, and less than 1.5 % without that."""
    runs = [make_result(f"node-{i}", {1: 9.62}.get(i, 9.75 if i <= 5 else 10.0)) for i in range(1, 11)]
    earlier = [
        replace(record, campaign_id=f"night-{days}", samples_per_second=10.1 if days % 2 else 9.9)
        for days in range(1, 11)
        for record in records_of(runs, STARTED_AT - timedelta(days=days))
    ]
    judgement = judge_fleet(runs, earlier=earlier)

    assert [node.why for node in judgement.groups[0].nodes] == [Why.CHANGED] * 5 + [Why.WELL] * 5
    (finding,) = judgement.findings
    assert finding.category == FLEET_CHANGED
    assert "−2.5 % in the median against their own past; 5 of 10 nodes" in finding.summary  # the mean is -2.8 %
    assert judgement.suspects == ()


@pytest.mark.parametrize(
    ("rates", "num_shared"),
    [((9.95, 9.95, 9.95, 9.75), 0), ((9.95, 9.95, 9.95, 10.3), 0), ((9.95, 9.95, 9.95, 9.95), 1)],
)
def test_nodes_that_changed_or_were_shared_say_nothing_of_the_round(rates: tuple[float, ...], num_shared: int) -> None:
    """Two others are left, of which nobody knows which one is typical."""
    assert against_past(*rates, num_shared=num_shared)[0][:2] == (-0.5, "its own past of 10 nights from 11 Nov 2026")


def test_what_nights_did_to_all_nodes_is_no_chance_of_one() -> None:
    """Nights of +-1 % for all five: chance reaches 3 %, so tonight's -1.2 % of all is no change. Without what they
    share the nights are equal, and only the prior is left: 0.5 %, 2 of the 2 + (5 - 1) x 9 degrees of freedom.
    """
    runs = [make_result(f"node-{i}", 9.88 if i < 5 else 9.88 * 0.98) for i in range(1, 6)]
    earlier = [
        replace(record, campaign_id=f"night-{days}", samples_per_second=10.1 if days % 2 else 9.9)
        for days in range(1, 11)
        for record in records_of(runs, STARTED_AT - timedelta(days=days))
    ]
    (group,) = judge_fleet(runs, earlier=earlier).groups

    slow = group.nodes[4].comparison(Metric.SAMPLES_PER_SECOND, Against.PAST)
    assert slow
    assert slow.deviation == pytest.approx(-2.0)
    variance = (1 + math.pi / 20) * (1 + math.pi / 8)  # of eleven nights, and of the four others
    chance = chance_quantile(38, 5) * 0.005 * math.sqrt(2 / 38 * variance)
    assert slow.chance == pytest.approx(to_pct(chance))


def test_runs_of_another_choice_are_not_compared_and_are_told() -> None:
    """node-4 chose other work in each run, node-3 in one of two."""

    def run(node: int, round_: int, layers: int) -> RunResult:
        chosen = Chosen(
            micro_batch_size=8, gradient_checkpointing=True, checkpointed_layers=layers, why="fits", execution={}
        )
        return make_result(f"node-{node}", round=round_, micro_batch_size="auto", chosen=chosen)

    odd = {(3, 2), (4, 1), (4, 2)}
    (group,) = judge_fleet([run(n, r, 6 if (n, r) in odd else 2) for n in (1, 2, 3, 4) for r in (1, 2)]).groups

    said = "its program chose micro-batch 8, checkpointing in 6 layers, those of its peers micro-batch 8, "
    assert [node.why for node in group.nodes] == [Why.WELL, Why.WELL, Why.WELL, Why.OTHER_CHOICE]
    assert group.nodes[3].reason == f"{said}checkpointing in 2 layers"
    assert group.nodes[2].remarks == (f"1 run not compared: {said}checkpointing in 2 layers",)
    assert group.nodes[0].remarks == ()


def faulty(result: RunResult, gpu: int) -> RunResult:
    """The run, with an uncorrected memory error on one of its GPUs."""
    gpus = [
        each.model_copy(update={"ecc_uncorrected_in_run": int(each.index == gpu)}) for each in result.telemetry.gpus
    ]
    return result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": tuple(gpus)})})


def test_of_four_gpus_only_the_broken_one_is_red() -> None:
    runs = [faulty(make_independent("node-1", (10.0,) * 4), 2), make_independent("node-2", (10.0,) * 4)]
    node = by_name(judge_fleet(runs).groups[0])["node-1"]

    assert [gpu.why for gpu in node.gpus] == [Why.WELL, Why.WELL, Why.BROKEN_GPU, Why.WELL]
    assert (node.why, node.reason) == (
        Why.BROKEN_GPU, "had 1 uncorrected memory error (ECC) in its runs on GPU 2 (GPU-node-1-2)",
    )  # fmt: skip


def test_of_a_node_with_a_broken_gpu_and_a_failed_rank_both_are_told() -> None:
    runs = [faulty(make_independent("node-1", (10.0,) * 3, failed={1: "CUDA error"}), 2)]
    (node,) = judge_fleet([*runs, make_independent("node-2", (10.0,) * 3)]).groups[0].nodes[:1]

    assert [gpu.why for gpu in node.gpus] == [Why.WELL, Why.FAILED, Why.BROKEN_GPU]
    assert node.why is Why.BROKEN_GPU
    assert node.reason.endswith("; GPU 1 (GPU-node-1-1): round 1 error: CUDA error")


@pytest.mark.parametrize("drill", [None, Drill(slowdown_pct=20)])
def test_a_broken_gpu_is_red_whatever_the_figures_say(drill: Drill | None) -> None:
    slow = make_result("node-4", 8.0, drill=drill, events={"xids": {"79": 1}})
    (group,) = judge_fleet([*(make_result(f"node-{i}", 10.0) for i in (1, 2, 3)), slow]).groups
    told = "reported Xid 79 on GPU 0 (GPU-node-4-0), 1 time"
    assert (group.nodes[3].state, group.nodes[3].why, group.nodes[3].reason) == (State.RED, Why.BROKEN_GPU, told)


def test_a_node_is_as_hot_as_its_hottest_gpu_and_not_as_its_slowest() -> None:
    """GPU 0 is the slowest, GPU 1 at 75 degrees; all others are at 60."""
    runs = [make_independent(f"node-{i}", (10.0, 10.0)) for i in (1, 2)]
    runs.append(make_independent("node-3", (9.9, 10.0), temperatures={1: 75.0}))
    node = by_name(judge_fleet(runs).groups[0])["node-3"]

    assert (node.why, node.temperature_c) == (Why.HOT, 75.0)
    assert node.reason.startswith("GPU 1 (GPU-node-3-1): temperature +15.0 °C")
    assert [gpu.temperature_c for gpu in node.gpus] == [60.0, 75.0]


def test_nodes_of_several_gpus_that_are_all_hotter_than_their_past_are_hot() -> None:
    usual = [make_independent(f"node-{i}", (10.0, 10.0)) for i in (1, 2, 3)]
    runs = [make_independent(f"node-{i}", (10.0, 10.0), temperature_c=72.0) for i in (1, 2, 3)]
    earlier = records_of(usual, STARTED_AT - timedelta(days=1))
    (group,) = judge_fleet(runs, earlier=earlier).groups

    assert [node.why for node in group.nodes] == [Why.HOT] * 3
    assert group.nodes[0].reason.startswith("temperature +12.0 °C against its own past of 1 night")


@pytest.mark.parametrize(("now", "before"), [(None, 60.0), (72.0, None)])
def test_without_a_figure_of_both_nights_nothing_is_said_of_the_heat(now: float | None, before: float | None) -> None:
    """Nor of two nodes of which one is hotter: who knows which one is as it should be."""
    runs = [make_result(f"node-{i}", temperature_c=now) for i in (1, 2, 3)]
    usual = [make_result(f"node-{i}", temperature_c=before) for i in (1, 2, 3)]
    (group,) = judge_fleet(runs, earlier=records_of(usual, STARTED_AT - timedelta(days=1))).groups
    (pair,) = judge_fleet([runs[0], make_result("node-2", temperature_c=90.0)]).groups
    assert {node.why for node in (*group.nodes, *pair.nodes)} == {Why.WELL}


def test_a_past_that_shows_nothing_dates_no_slowdown() -> None:
    """One night is a past as wide as chance among eight nodes: it does not say that node-8 was always so."""
    runs = [make_result(f"node-{i}", 9.2 if i == 8 else 10.0) for i in range(1, 9)]
    earlier = records_of(runs, STARTED_AT - timedelta(days=1))
    node = judge_fleet(runs, earlier=earlier).groups[0].nodes[7]
    assert (node.why, "since" in node.reason, "past" in node.reason) == (Why.SLOW, False, False)


@pytest.mark.parametrize(("gpus", "variance"), [(1, None), (2, 2.0), (4, 1 + math.pi / 6)])
def test_what_differs_from_chance_is_that_of_the_comparisons(gpus: int, variance: float | None) -> None:
    """One node without others: each GPU has the others as peers. Windows of +-0.1 %, two degrees of freedom each."""
    run = make_independent("node-1", (10.0,) * gpus, windows=dict.fromkeys(range(gpus), (9.99, 10.0, 10.01)))
    (group,) = judge_fleet([run]).groups

    chance = variance and to_pct(chance_quantile(2 * gpus, gpus) * 0.001 * math.sqrt(variance))
    assert group.detectable_pct == (chance and pytest.approx(chance, rel=1e-3))


def test_the_controls_of_a_suspect_are_of_its_kind() -> None:
    """What the re-runs of A100s show says nothing of an H200."""
    runs = [make_result(f"node-{i}", 5.0, gpu_name="NVIDIA A100") for i in (1, 2, 3, 4)]
    runs += [make_result(f"node-{i}", 9.0 if i == 8 else 10.0) for i in (5, 6, 7, 8)]
    judgement = judge_fleet(runs)

    assert (judgement.suspects, judgement.controls) == (("node-8",), ("node-5", "node-6", "node-7"))


def test_works_share_controls_and_a_suspect_of_any_is_none() -> None:
    """node-8 is slow at both works, node-1 at one. At the other work nodes 4 to 7 are nearer to their peers."""
    runs = [make_result(f"node-{i}", {8: 9.0}.get(i, 10.0 if i < 5 else 10.1)) for i in range(1, 9)]
    longer = {1: 9.0, 2: 10.1, 3: 10.1, 8: 9.0}
    runs += [make_result(f"node-{i}", longer.get(i, 10.0), seq_length=1024) for i in range(1, 9)]
    judgement = judge_fleet(runs)

    assert set(judgement.suspects) == {"node-1", "node-8"}
    assert len(judgement.controls) == 3
    assert "node-1" not in judgement.controls


def test_a_night_looks_at_the_pasts_of_all_its_nodes() -> None:
    """Two kinds of GPU of two nodes each: chance is that of four looks, not of two."""
    runs = [make_result(f"node-{i}", gpu_name="NVIDIA H200" if i < 3 else "NVIDIA A100") for i in (1, 2, 3, 4)]
    earlier = records_of(runs, STARTED_AT - timedelta(days=1))
    past = judge_fleet(runs, earlier=earlier).groups[0].nodes[0].comparison(Metric.SAMPLES_PER_SECOND, Against.PAST)

    assert past
    assert past.chance == pytest.approx(to_pct(chance_quantile(2, 4) * 0.005 * math.sqrt(2)))


def test_a_machine_under_two_names_is_one_example() -> None:
    """node-9 has the GPUs of node-2, at 9 samples/s. node-1 is compared with one of them only: then each GPU counts."""
    runs = [make_independent(f"node-{i}", (rate, rate)) for i, rate in ((1, 10.0), (2, 9.0), (9, 9.0))]
    same = on_gpus(runs[2], "GPU-node-2-0", "GPU-node-2-1")
    nodes = by_name(judge_fleet([*runs[:2], same]).groups[0])

    against = nodes["node-1"].comparison(Metric.SAMPLES_PER_SECOND, Against.PEERS)
    assert against
    assert against.source == "the median of 3 other GPUs"


def test_the_finding_on_a_changed_fleet_counts_those_that_are_red_too() -> None:
    """Five of ten lost 3 %, one of them 10 %, so it is slow beside its peers as well."""
    runs = [make_result(f"node-{i}", {1: 9.0}.get(i, 9.7 if i <= 5 else 10.0)) for i in range(1, 11)]
    usual = [make_result(f"node-{i}", 10.0) for i in range(1, 11)]
    nights = [STARTED_AT - timedelta(days=days) for days in range(1, 11)]
    earlier = [replace(record, campaign_id=f"night-{at:%d}") for at in nights for record in records_of(usual, at)]
    judgement = judge_fleet(runs, earlier=earlier)

    assert [node.why for node in judgement.groups[0].nodes] == [Why.SLOW, *[Why.CHANGED] * 4, *[Why.WELL] * 5]
    (finding,) = judgement.findings
    assert (len(finding.nodes), "5 of 10 nodes of this kind did" in finding.summary) == (4, True)
