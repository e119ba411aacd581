"""The strategy comparison that studies/strategy_specs.py plans: every cell, and equal work within each job."""

from __future__ import annotations

from collections import Counter

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.options import Precision, Strategy
from bench_image.contract.preset_switches import uses_cuda_graph
from run_specs import TCP_CAMPAIGN
from strategy_specs import ALL, HALF, planned

GANGS = {Strategy.DDP, Strategy.FSDP, Strategy.ZERO2, Strategy.ZERO3}
CELLS = {(strategy, 1, size) for strategy in GANGS for size in (HALF, ALL)} | {(Strategy.SINGLE, 1, 1)}


def test_every_strategy_and_size_of_a_job_does_the_same_work() -> None:
    """Two models and three recipes by every strategy; fp8 by those that can; fsdp's best batch alone."""
    specs = [spec for spec in planned("campaign") if spec.placement.nodes == 1]
    jobs: dict[str, set[tuple[Strategy, int, int]]] = {}
    for spec in specs:
        placement = spec.placement
        jobs.setdefault(fingerprint(spec.work), set()).add(
            (placement.strategy, placement.nodes, placement.gpus_per_node)
        )
    eight_bit = {fingerprint(spec.work) for spec in specs if spec.work.precision is Precision.FP8}

    assert sum(cells == CELLS for cells in jobs.values()) == 4
    assert [jobs[work] < CELLS and (Strategy.SINGLE, 1, 1) in jobs[work] for work in eight_bit] == [True, True]
    assert len(jobs) == 4 + len(eight_bit) + 1
    assert len({spec.identity.run_id for spec in specs}) == len(specs)


def test_one_gpu_comes_first_and_two_pods_run_by_each_way_of_exchange() -> None:
    specs = list(planned("campaign"))
    sizes = [spec.placement.world_size for spec in specs]
    pods = Counter(spec.identity.campaign_id for spec in specs if spec.placement.nodes == 2)

    assert sizes == sorted(sizes, key=[1, ALL, HALF].index)
    assert pods == {"campaign": 3, "campaign" + TCP_CAMPAIGN: 3}


def test_steps_are_recorded_wherever_they_can_be() -> None:
    for spec in planned("campaign"):
        assert uses_cuda_graph(spec) is (spec.placement.strategy not in (Strategy.ZERO2, Strategy.ZERO3))
