"""Seconds to judge 1,000 nodes under five strategies: first verdicts, the re-runs' settling, and the findings.

PYTHONPATH=.:plugins python studies/time_judge.py
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from bench_image.contract.result import RunResult
from detection_nights import template
from trainbench.core.verdicts import ReferenceMode, Tolerances
from trainbench.judging.checks.identity import identity_findings
from trainbench.judging.diagnosis import diagnose as diagnosis
from trainbench.judging.peers import confirmation, node_verdicts
from trainbench.judging.peers.slow_node_warnings import slow_node_findings

NODES, STRATEGIES = 1000, ("single", "ddp", "fsdp", "zero2", "zero3")
SLOW_NODES = 10

T = TypeVar("T")


def main() -> None:
    names = [f"node-{i}" for i in range(NODES)]
    results = fleet(names, round_=1)
    for reference in (ReferenceMode.LEAVE_ONE_OUT_MEDIAN, ReferenceMode.MEDIAN, ReferenceMode.MEAN):
        first = timed(
            f"judge, {reference}", partial(node_verdicts.judge_groups, results, names, Tolerances(reference=reference))
        )
    again = fleet(node_verdicts.nodes_to_confirm(first), round_=2)
    groups = timed("confirm", lambda: confirmation.confirm(first, again, Tolerances()))
    timed("watch", lambda: slow_node_findings(groups))
    timed("identity", lambda: identity_findings(results))
    timed("diagnose", lambda: diagnosis.diagnose(groups, [*results, *again]))


def fleet(names: Sequence[str], round_: int) -> list[RunResult]:
    """Every run of one round; the same nodes are slow under each strategy."""
    draw, usual = random.Random(round_), template()  # noqa: S311
    return [
        usual.model_copy(
            update={
                "spec": usual.spec.changed(
                    identity={
                        "node": name,
                        "group_id": strategy,
                        "round": round_,
                        "run_id": f"{strategy}-{name}-{round_}",
                    }
                ),
                "performance": usual.performance.model_copy(
                    update={"samples_per_second": (9.0 if int(name[5:]) < SLOW_NODES else 10.0) + draw.gauss(0, 0.04)}
                ),
                "context": usual.context
                and usual.context.model_copy(
                    update={"gpus": (usual.context.gpus[0].model_copy(update={"uuid": name}),)}
                ),
            }
        )
        for strategy in STRATEGIES
        for name in names
    ]


def timed(what: str, work: Callable[[], T]) -> T:
    started = time.perf_counter()
    done = work()
    print(f"{what}: {time.perf_counter() - started:.2f} s")
    return done


if __name__ == "__main__":
    main()
