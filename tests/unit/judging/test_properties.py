"""Properties of any night: fleets drawn at random with fixed seeds, failed, missing and broken runs among them."""

from __future__ import annotations

import random

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_failed, make_result
from trainbench.core.verdicts import RED, GroupVerdict, Metric, ReferenceMode, Side, State, Tolerances
from trainbench.judging.diagnosis.diagnose import diagnose
from trainbench.judging.peers.confirmation import confirm
from trainbench.judging.peers.node_verdicts import judge_groups, nodes_to_confirm

SEEDS = range(30)
GPUS = ("NVIDIA H200", "NVIDIA A100")


def a_night(draw: random.Random) -> tuple[list[RunResult], list[str], Tolerances, dict[str, float]]:
    """(results, expected nodes, limits, own past): 1 to 6 nodes, 1 to 3 rounds, one or two kinds of GPU."""
    nodes = [f"node-{i}" for i in range(draw.randint(1, 6))]
    kinds, rounds = draw.choice([GPUS, GPUS[:1]]), draw.randint(1, 3)
    results = []
    for node in nodes:
        gpu, speed = draw.choice(kinds), draw.choice([1, 1, 1, 0.9, 1.1])
        for round_ in range(1, rounds + 1):
            rate = 10 * speed * draw.choice([1, 1, draw.uniform(0.97, 1.03)])
            results.append(
                make_failed(node, round=round_)
                if draw.random() < 0.1
                else make_result(
                    node,
                    rate,
                    round=round_,
                    gpu_name=gpu,
                    windows=draw.choice([None, [rate * 0.98, rate, rate * 1.02]]),
                    memory_gb=draw.choice([7.1, 7.1, 7.4, None]),
                    temperature_c=draw.choice([60.0, 60.0, 75.0, None]),
                )
            )
    limits = Tolerances(reference=draw.choice(list(ReferenceMode)), fixed_samples_per_second=10.0)
    return results, [*nodes, "node-lost"], limits, {node: 10.0 for node in nodes if draw.random() < 0.7}


def faster(result: RunResult, factor: float, first_window: float = 1.0) -> RunResult:
    """The same run at `factor` times its throughput, in each window; the first one at `first_window` times that."""
    if (rate := result.performance.samples_per_second) is None:
        return result
    windows = [
        window.model_copy(
            update={"samples_per_second": window.samples_per_second * factor * (1 if i else first_window)}
        )
        for i, window in enumerate(result.performance.windows)
    ]
    update = {"samples_per_second": rate * factor, "windows": tuple(windows)}
    return result.model_copy(update={"performance": result.performance.model_copy(update=update)})


def states(groups: tuple[GroupVerdict, ...]) -> list[tuple[str, State]]:
    return [(node.node, node.state) for group in groups for node in group.nodes]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_expected_node_has_one_verdict_and_the_order_of_the_results_changes_nothing(seed: int) -> None:
    draw = random.Random(seed)
    results, expected, limits, past = a_night(draw)
    groups = judge_groups(results, expected, limits, past)
    shuffled = draw.sample(results, len(results))

    assert sorted(node for node, _ in states(groups)) == sorted(expected)
    assert ("node-lost", State.MISSING) in states(groups)
    assert judge_groups(shuffled, expected[::-1], limits, past) == groups
    diagnosed = {finding.subject for finding in diagnose(groups, results)}
    assert {node for node, state in states(groups) if state in RED} <= diagnosed


@pytest.mark.parametrize("seed", SEEDS)
def test_all_nodes_faster_by_one_factor_are_judged_alike(seed: int) -> None:
    """Powers of two, which change no rounding."""
    results, expected, limits, past = a_night(random.Random(seed))
    for factor in (0.25, 1024.0):
        scaled = limits.model_copy(update={"fixed_samples_per_second": 10.0 * factor})
        own = {node: rate * factor for node, rate in past.items()}
        again = judge_groups([faster(result, factor) for result in results], expected, scaled, own)
        assert states(again) == states(judge_groups(results, expected, limits, past))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_faster_node_is_never_found_slower_for_it(seed: int) -> None:
    draw = random.Random(seed)
    results, expected, limits, past = a_night(draw)
    node = results[0].spec.identity.node

    def is_slow(factor: float) -> bool:
        mine = [faster(result, factor) if result.spec.identity.node == node else result for result in results]
        verdicts = [n for group in judge_groups(mine, expected, limits, past) for n in group.nodes if n.node == node]
        rate = verdicts[0].metric(Metric.SAMPLES_PER_SECOND)
        return rate is not None and rate.state is State.BREACH and rate.side is Side.SLOW

    actual = [is_slow(factor) for factor in (0.5, 0.9, 0.97, 1.0, 1.1, 1.5)]
    assert actual == sorted(actual, reverse=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_figures_that_cannot_be_lose_nobody_a_verdict(seed: int) -> None:
    """Memory of 0 GB, a window without throughput, repeats thousands of times apart: a result is data from outside."""
    draw = random.Random(seed)
    results, expected, limits, past = a_night(draw)
    for i in draw.sample(range(len(results)), k=(len(results) + 1) // 2):
        spec, odd = results[i].spec, draw.choice([1e-3, 1.0, 1e6])
        memory_gb = draw.choice([0.0, 7.1])
        broken = make_result(spec.identity.node, odd, round=spec.identity.round, memory_gb=memory_gb, temperature_c=0.0)
        results[i] = faster(broken, 1.0, first_window=draw.choice([1.0, 0.0, 1e6]))
    groups = judge_groups(results, expected, limits, past)
    reruns = [
        make_result(node, draw.choice([1e-3, 10.0, 1e6]), round=4, memory_gb=draw.choice([0.0, 7.1, None]))
        for node in nodes_to_confirm(groups)
    ]
    settled = confirm(groups, reruns, limits)

    assert {node for node, _ in states(settled)} == set(expected)
    assert len(diagnose(settled, [*results, *reruns])) >= len({n for n, state in states(settled) if state in RED})
