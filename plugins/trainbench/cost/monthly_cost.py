"""What benchmarking itself cost: runs -> sums by DAG, node and month. What has no known cost is counted and named."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import count, listing

NO_GPU = "CPU, or a GPU that the run never told"


@dataclass(frozen=True, kw_only=True, slots=True)
class PaidRun:
    """One run, drills and failed ones included: they were paid for, too."""

    campaign_id: str
    run_id: str
    suite: str
    nodes: tuple[str, ...]  # all of the gang
    work: str  # readable: "mistral-7b qlora, batch 8 x 512 tokens, single on 1 GPU, tuned"
    fingerprint: str
    gpu_name: str | None  # None: on a CPU, or never told
    num_gpus: int
    is_measured: bool  # ended well and was no drill: its throughput counts
    started_at: datetime
    samples_per_s: float | None
    tokens_per_s: float | None
    gpu_hours: float | None
    run_usd: float | None
    usd_per_gpu_hour: float | None
    price_source: str | None
    energy_j: float | None
    energy_per_sample_j: float | None


class Spend(Frozen):
    """`usd` sums what is known, `gpu_hours` likewise; None when nothing is. `unknown` names why the rest is missing."""

    what: str
    usd: float | None
    gpu_hours: float | None
    num_runs: int
    num_unknown: int
    unknown: tuple[str, ...]  # "3 runs on NVIDIA H200: no price"


class MonthSpend(Frozen):
    month: str
    total: Spend
    by_dag: tuple[Spend, ...]


def spend(what: str, runs: Sequence[PaidRun], share: Callable[[PaidRun], float] = lambda _: 1.0) -> Spend:
    """`share`: the part of each run that counts here, for a gang on several nodes."""
    usd = [run.run_usd * share(run) for run in runs if run.run_usd is not None]
    hours = [run.gpu_hours * share(run) for run in runs if run.gpu_hours is not None]
    return Spend(
        what=what,
        usd=math.fsum(usd) if usd else None,
        gpu_hours=math.fsum(hours) if hours else None,
        num_runs=len(runs),
        num_unknown=len(runs) - len(usd),
        unknown=_unknown(runs),
    )


def by_month(runs: Sequence[PaidRun], months: Sequence[str]) -> tuple[MonthSpend, ...]:
    """One for each of `months`, empty ones too."""
    of_month = grouped(runs, month_of)
    return tuple(
        MonthSpend(
            month=month,
            total=spend("all", of_month.get(month, ())),
            by_dag=_dearest(grouped(of_month.get(month, ()), lambda run: run.suite)),
        )
        for month in months
    )


def by_node(runs: Sequence[PaidRun]) -> tuple[Spend, ...]:
    """Dearest first. A gang's cost is shared evenly by its nodes, for each gives as many GPUs."""
    of_node: dict[str, list[PaidRun]] = {}
    for run in runs:
        for node in run.nodes:
            of_node.setdefault(node, []).append(run)
    return _dearest(of_node, lambda run: 1 / len(run.nodes))


def grouped(runs: Iterable[PaidRun], key: Callable[[PaidRun], str]) -> dict[str, list[PaidRun]]:
    groups: dict[str, list[PaidRun]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def month_of(run: PaidRun) -> str:
    """In UTC: "2026-11"."""
    return f"{run.started_at:%Y-%m}"


def _dearest(
    groups: Mapping[str, Sequence[PaidRun]], share: Callable[[PaidRun], float] = lambda _: 1.0
) -> tuple[Spend, ...]:
    lines = [spend(what, runs, share) for what, runs in groups.items()]
    return tuple(sorted(lines, key=lambda line: (-(line.usd or 0.0), -(line.gpu_hours or 0.0), line.what)))


def _unknown(runs: Sequence[PaidRun]) -> tuple[str, ...]:
    missing = [run for run in runs if run.run_usd is None]
    unpriced = grouped((run for run in missing if run.usd_per_gpu_hour is None), lambda run: run.gpu_name or NO_GPU)
    told = [f"{count(len(of), 'run')} on {gpu}: no price" for gpu, of in sorted(unpriced.items())]
    untimed = [run for run in missing if run.usd_per_gpu_hour is not None]
    if untimed:
        nodes = sorted({node for run in untimed for node in run.nodes})
        told.append(f"{count(len(untimed), 'run')} on {listing(nodes)}: no duration, they never told how they ended")
    return tuple(told)
