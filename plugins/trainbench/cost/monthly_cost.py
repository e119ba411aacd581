"""Cost of benchmarking by month, DAG and node. Runs without a known cost are counted and named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import count, listing

if TYPE_CHECKING:
    from pandas import DataFrame

NO_GPU = "CPU, or a GPU that the run never reported"


class Spend(Frozen):
    """Cost of a set of runs. `usd`, `gpu_hours`: sums of the known ones; None without any. `unknown`: why others are
    not.
    """

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


def spend(what: str, runs: DataFrame) -> Spend:
    """The cost of the rows of a run table."""
    usd, hours = runs.run_usd.dropna(), runs.gpu_hours.dropna()
    return Spend(
        what=what,
        usd=float(usd.sum()) if len(usd) else None,
        gpu_hours=float(hours.sum()) if len(hours) else None,
        num_runs=len(runs),
        num_unknown=len(runs) - len(usd),
        unknown=_unknown(runs[runs.run_usd.isna()]) if len(usd) < len(runs) else (),
    )


def by_month(runs: DataFrame, months: Sequence[str]) -> tuple[MonthSpend, ...]:
    """The cost of each of `months`, empty ones included."""
    of_month = [(month, runs[runs.month == month]) for month in months]
    return tuple(
        MonthSpend(month=month, total=spend("all", of), by_dag=_dearest(of, "suite")) for month, of in of_month
    )


def by_node(runs: DataFrame) -> tuple[Spend, ...]:
    """The cost by node, the most expensive first. The nodes of a gang share its cost equally, as they share GPUs."""
    num_nodes = runs.nodes.map(len).astype(float)
    shares = runs.assign(run_usd=runs.run_usd / num_nodes, gpu_hours=runs.gpu_hours / num_nodes)
    return _dearest(shares.explode("nodes"), "nodes")


def _dearest(runs: DataFrame, column: str) -> tuple[Spend, ...]:
    lines = [spend(str(what), of) for what, of in runs.groupby(column)]
    return tuple(sorted(lines, key=lambda line: (-(line.usd or 0.0), -(line.gpu_hours or 0.0), line.what)))


def _unknown(runs: DataFrame) -> tuple[str, ...]:
    """The reasons why runs have no known cost, with their numbers."""
    unpriced = runs[runs.usd_per_gpu_hour.isna()]
    gpus = unpriced.gpu_name.fillna(NO_GPU).value_counts().sort_index()
    reasons = [f"{count(int(number), 'run')} on {gpu}: no price" for gpu, number in gpus.items()]
    untimed = runs[runs.usd_per_gpu_hour.notna()]
    if len(untimed):
        nodes = listing(sorted(set(untimed.nodes.explode())))
        reasons.append(f"{count(len(untimed), 'run')} on {nodes}: no duration, they did not report their end")
    return tuple(reasons)
