"""The strategy comparison that studies/strategy_specs.py plans: every cell, and equal work within each job."""

from __future__ import annotations

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.options import Strategy
from strategy_specs import GANGS, JOBS, WORLD_SIZES, planned


def test_every_strategy_and_size_of_a_job_does_the_same_work() -> None:
    specs = list(planned("campaign"))
    jobs: dict[str, set[tuple[Strategy, int]]] = {}
    for spec in specs:
        jobs.setdefault(fingerprint(spec.work), set()).add((spec.placement.strategy, spec.placement.world_size))
    cells = {(strategy, size) for size in WORLD_SIZES if size > 1 for strategy in GANGS} | {(Strategy.SINGLE, 1)}

    assert sorted(len(job) for job in jobs.values()) == [1] + [len(cells)] * len(JOBS)  # the one: fsdp's best rate
    assert sum(job == cells for job in jobs.values()) == len(JOBS)
    assert len({spec.identity.run_id for spec in specs}) == len(specs)
