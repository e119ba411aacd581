"""Properties of any night: fleets drawn at random with fixed seeds, failed, missing and broken runs among them."""

from __future__ import annotations

import random

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_failed, make_result
from tests.builders.judged_fleets import judge_fleet
from trainbench.core.verdicts import GroupVerdict, State, Why
from trainbench.judging.diagnose import diagnose

SEEDS = range(30)
GPUS = ("NVIDIA H200", "NVIDIA A100")
LOST = ("node-lost",)


def a_night(draw: random.Random) -> list[RunResult]:
    """1 to 6 nodes, 1 to 3 rounds, one or two kinds of GPU."""
    kinds, rounds = draw.choice([GPUS, GPUS[:1]]), draw.randint(1, 3)
    results = []
    for node in (f"node-{i}" for i in range(draw.randint(1, 6))):
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
    return results


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


def whys(groups: tuple[GroupVerdict, ...]) -> list[tuple[str, Why]]:
    return [(node.node, node.why) for group in groups for node in group.nodes]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_expected_node_has_one_verdict_and_the_order_of_the_results_changes_nothing(seed: int) -> None:
    draw = random.Random(seed)
    results = a_night(draw)
    groups = judge_fleet(results, expected=LOST).groups
    shuffled = draw.sample(results, len(results))

    assert {node for node, _ in whys(groups)} == {run.spec.identity.node for run in results} | set(LOST)
    assert ("node-lost", Why.MISSING) in whys(groups)
    assert sorted(whys(judge_fleet(shuffled, expected=LOST).groups)) == sorted(whys(groups))
    red = {node.node for group in groups for node in group.nodes if node.state is State.RED}
    assert red <= {finding.subject for finding in diagnose(groups, results)}


@pytest.mark.parametrize("seed", SEEDS)
def test_all_nodes_faster_by_one_factor_are_judged_alike(seed: int) -> None:
    results = a_night(random.Random(seed))
    first = whys(judge_fleet(results, expected=LOST).groups)
    for factor in (0.25, 1024.0):
        assert whys(judge_fleet([faster(run, factor) for run in results], expected=LOST).groups) == first


@pytest.mark.parametrize("seed", SEEDS)
def test_a_faster_node_is_never_found_slower_for_it(seed: int) -> None:
    results = a_night(random.Random(seed))
    node = results[0].spec.identity.node

    def is_slow(factor: float) -> bool:
        mine = [faster(run, factor) if run.spec.identity.node == node else run for run in results]
        return any(name == node and why is Why.SLOW for name, why in whys(judge_fleet(mine).groups))

    actual = [is_slow(factor) for factor in (0.5, 0.9, 0.97, 1.0, 1.1, 1.5)]
    assert actual == sorted(actual, reverse=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_figures_that_cannot_be_lose_nobody_a_verdict(seed: int) -> None:
    """Memory of 0 GB, a window without throughput, repeats thousands of times apart: a result is data from outside."""
    draw = random.Random(seed)
    results = a_night(draw)
    for i in draw.sample(range(len(results)), k=(len(results) + 1) // 2):
        spec, odd = results[i].spec, draw.choice([0.02, 1.0, 1e6])
        memory_gb = draw.choice([0.0, 7.1])
        broken = make_result(
            spec.identity.node, odd, timeout_s=86_400, round=spec.identity.round, memory_gb=memory_gb, temperature_c=0.0
        )
        results[i] = faster(broken, 1.0, first_window=draw.choice([1.0, 0.0, 1e6]))
    first = judge_fleet(results, expected=LOST)
    reruns = [
        make_result(
            node,
            draw.choice([0.02, 10.0, 1e6]),
            timeout_s=86_400,
            round=round_,
            memory_gb=draw.choice([0.0, 7.1, None]),
        )
        for node in (*first.suspects, *first.controls)
        for round_ in (4, 5)
    ]
    settled = judge_fleet(results, reruns, expected=LOST)

    assert {node for node, _ in whys(settled.groups)} == {run.spec.identity.node for run in results} | set(LOST)
    assert settled.failures == ()
