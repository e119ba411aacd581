"""The slow rank of a gang, or its exchange: by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_result
from trainbench.core.verdicts import Level
from trainbench.judging.slow_rank import SLOW_EXCHANGE, SLOW_RANK, slow_rank_findings

WELL = ((0.50, 0.51, 0.50), (0.10, 0.10, 0.10))  # own time and waits of three steps
SLOW = ((0.55, 0.56, 0.54), (0.05, 0.05, 0.06))


def gang(*ranks: Sequence[Sequence[float]], nodes: int = 2, **fields: Any) -> RunResult:
    """A run over nodes of two GPUs, of which each rank has (own_steps_s, step_waits_s)."""
    spec = {"strategy": "ddp", "gpus_per_node": len(ranks) // nodes, "nodes": nodes, "peers": ("node-2",)[: nodes - 1]}
    result = make_result(**spec | fields)
    summaries = tuple(
        result.ranks[0].model_copy(update={"rank": i, "gpu_uuid": None, "own_steps_s": own, "step_waits_s": waits})
        for i, (own, waits) in enumerate(ranks)
    )
    probes = result.probes.model_copy(update={"allreduce_bus_gb_per_s": 300.0})
    return result.model_copy(update={"ranks": summaries, "probes": probes})


def test_the_rank_that_computes_longest_is_named_with_what_the_others_wait() -> None:
    """Its own time is 0.55 s where the others have 0.50: 10 %. They wait 0.10 s, it 0.05 of its 0.60: 8.3 % more."""
    (finding,) = slow_rank_findings([gang(WELL, WELL, WELL, SLOW)], 5.0)

    assert (finding.level, finding.category, finding.nodes) == (Level.WARNING, SLOW_RANK, ("node-2",))
    assert finding.measured == "10.0 % longer"
    assert finding.summary == (
        "rank 3 (node-2, GPU 1) computes 10 % longer than the median of the others and makes them wait 8 % of each step"
        "; the links all-reduce 300 GB/s"
    )


@pytest.mark.parametrize(
    "odd",
    [
        ((0.55, 0.56, 0.50), (0.05, 0.05, 0.10)),  # not longer in the last step
        ((0.52, 0.53, 0.52), (0.08, 0.08, 0.08)),  # 4 %
        ((0.45, 0.46, 0.45), (0.15, 0.15, 0.15)),  # faster
        WELL,
        ((), ()),  # not profiled
        ((0.0, 0.0, 0.0), (0.6, 0.6, 0.6)),  # no time of its own: nothing is told of any rank
    ],
)
def test_where_nothing_is_wrong_nobody_is_named(odd: Sequence[Sequence[float]]) -> None:
    assert slow_rank_findings([gang(WELL, WELL, WELL, odd)], 5.0) == ()


def test_ranks_that_scatter_hide_a_slow_one() -> None:
    """The others have 0.45, 0.50 and 0.55 s: 3 x 1.4826 x 0.05 / 0.50 = 44 %, and it is 10 % longer."""
    scattered = [((own,) * 3, (0.10,) * 3) for own in (0.45, 0.50, 0.55)]

    assert slow_rank_findings([gang(*scattered, ((0.55,) * 3, (0.05,) * 3))], 5.0) == ()


def test_a_place_that_is_slow_in_several_runs_is_one_finding() -> None:
    worse = ((0.60, 0.60, 0.60), (0.0, 0.0, 0.0))
    runs = [gang(WELL, SLOW, nodes=1), gang(WELL, worse, nodes=1, round=2), gang(WELL, WELL, nodes=1, round=3)]
    (finding,) = slow_rank_findings(runs, 5.0)

    assert finding.item == runs[1].spec.identity.run_id
    assert finding.measured == "20.0 % longer"
    assert finding.summary.endswith("; so in 2 of 3 runs")


def test_a_long_exchange_without_a_slow_rank_is_communication_itself() -> None:
    """All compute 0.5 s. The rank that waits least waits 0.25 s of 0.75 s: 33 %; 0.12 s of 0.62 s would be 19 %."""
    slow = gang(((0.5,) * 3, (0.30,) * 3), ((0.5,) * 3, (0.25,) * 3))
    well = gang(((0.5,) * 3, (0.30,) * 3), ((0.5,) * 3, (0.12,) * 3), round=2)
    (finding,) = slow_rank_findings([slow, well], 5.0)

    assert (finding.level, finding.category, finding.nodes) == (Level.INFO, SLOW_EXCHANGE, ())
    assert finding.summary == (
        "no rank: communication itself is slow, 33 % of each step; the links all-reduce 300 GB/s; so in 1 of 2 runs"
    )
