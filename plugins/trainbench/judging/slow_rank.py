"""The rank that computes longest in a run whose ranks work together, or the exchange between them.

A step's time is the rank's own and its wait for communication (`bench_image.training.comm_profile`); of several steps
the medians count. A rank is slow if its own time is above the median of the others by more than the limit and by more
than they scatter, and above it in each step. Nobody waits less than the exchange itself takes.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench_image.contract.result import RankSummary, RunResult
from bench_image.contract.work import Device
from trainbench.core.formats import figure, share
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Finding, Level
from trainbench.judging.interconnect import scatter_pct

SLOW_RANK, SLOW_EXCHANGE = "slow_rank", "slow_exchange"
EXCHANGE_PCT = 25.0  # of a step: where the exchange takes less, faster links gain little


class SlowRank(NamedTuple):
    """`longer_pct`: own time above the median of the others; `wait_pct`: what they wait more than it, of its step."""

    rank: RankSummary
    longer_pct: float
    wait_pct: float


def slow_rank_findings(results: Sequence[RunResult], limit_pct: float) -> tuple[Finding, ...]:
    """One finding for each slow rank of each node, from the run in which it is slowest, and one for the exchange."""
    runs = []
    for run in results:  # of which several ranks profiled equally many steps, all of them with a time of its own
        num_steps = {len(rank.own_steps_s) if all(rank.own_steps_s) else 0 for rank in run.ranks}
        if len(run.ranks) > 1 and len(num_steps) == 1 and 0 not in num_steps:
            runs.append(run)
    slow = [(run, one) for run in runs for one in slow_ranks(run.ranks, limit_pct)]
    places = grouped(((run.spec.identity.nodes, place(run, one.rank)), (run, one)) for run, one in slow)
    findings = [_finding(of_place, runs, limit_pct) for of_place in places.values()]
    named = {run.spec.identity.run_id for run, _ in slow}
    shares = [(exchange_pct(run.ranks), run) for run in runs if run.spec.identity.run_id not in named]
    if long := sorted((pair for pair in shares if pair[0] >= EXCHANGE_PCT), key=lambda pair: -pair[0]):
        pct, run = long[0]
        findings.append(
            Finding(
                level=Level.INFO,
                category=SLOW_EXCHANGE,
                item=run.spec.identity.run_id,
                measured=f"{share(pct)} of a step",
                expected=f"less than {share(EXCHANGE_PCT, 0)}",
                summary=f"no rank: communication itself is slow, {share(pct, 0)} of each step{_links(run)}"
                + _in_runs(len(long), len(runs)),
                resolution="compare the links with their data sheets (`nvidia-smi nvlink -s`, the network of the Pod "
                "template); a larger batch or more accumulation exchanges less often",
            )
        )
    return tuple(findings)


def slow_ranks(ranks: Sequence[RankSummary], limit_pct: float) -> Iterator[SlowRank]:
    own_s = {rank.rank: statistics.median(rank.own_steps_s) for rank in ranks}
    wait_s = {rank.rank: statistics.median(rank.step_waits_s) for rank in ranks}
    for rank in ranks:
        others = [other for other in ranks if other is not rank]
        theirs_s = [own_s[other.rank] for other in others]
        longer_pct = 100 * (own_s[rank.rank] / statistics.median(theirs_s) - 1)
        if longer_pct <= limit_pct or longer_pct <= scatter_pct(theirs_s):
            continue
        of_steps = zip(rank.own_steps_s, zip(*(other.own_steps_s for other in others), strict=True), strict=True)
        if all(own > statistics.median(theirs) for own, theirs in of_steps):
            more_s = statistics.median(wait_s[other.rank] for other in others) - wait_s[rank.rank]
            yield SlowRank(rank, longer_pct, 100 * max(0.0, more_s) / (own_s[rank.rank] + wait_s[rank.rank]))


def exchange_pct(ranks: Sequence[RankSummary]) -> float:
    """The least wait of any rank as a share of its step, median over the steps."""
    shares_pct = [
        [100 * wait_s / (own_s + wait_s) for own_s, wait_s in zip(rank.own_steps_s, rank.step_waits_s, strict=True)]
        for rank in ranks
    ]
    least_pct: list[float] = [min(step) for step in zip(*shares_pct, strict=True)]
    return statistics.median(least_pct)


def place(run: RunResult, rank: RankSummary) -> str:
    """ "node-3, GPU 1"; on the CPU the node alone."""
    node, local = divmod(rank.rank, run.spec.placement.gpus_per_node)
    name = run.spec.identity.nodes[node]
    if run.spec.work.device is not Device.CUDA:
        return name
    index = next((gpu.index for gpu in (run.context.gpus if run.context else ()) if gpu.uuid == rank.gpu_uuid), local)
    return f"{name}, GPU {index}"


def _finding(of_place: Sequence[tuple[RunResult, SlowRank]], runs: Sequence[RunResult], limit_pct: float) -> Finding:
    run, slow = max(of_place, key=lambda pair: pair[1].longer_pct)
    where, number = place(run, slow.rank), slow.rank.rank
    so = _in_runs(len(of_place), sum(other.spec.identity.nodes == run.spec.identity.nodes for other in runs))
    return Finding(
        level=Level.WARNING,
        category=SLOW_RANK,
        item=run.spec.identity.run_id,
        nodes=(where.split(", ", maxsplit=1)[0],),
        measured=f"{share(slow.longer_pct)} longer",
        expected=f"at most {share(limit_pct)}",
        summary=f"rank {number} ({where}) computes {share(slow.longer_pct, 0)} longer than the median of the others "
        f"and makes them wait {share(slow.wait_pct, 0)} of each step{_links(run)}{so}",
        resolution="compare clock, temperature and Xids of its GPU, and the load of its host, with the others'",
    )


def _links(run: RunResult) -> str:
    rate = run.probes.allreduce_bus_gb_per_s
    return f"; the links all-reduce {figure(rate, 3)} GB/s" if rate else ""


def _in_runs(slow: int, of: int) -> str:
    return f"; so in {slow} of {of} runs" if of > 1 else ""
