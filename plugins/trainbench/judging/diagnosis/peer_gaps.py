"""Gaps between a node's figures and its peers': medians over runs, of each run the poorest GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Gpu, GpuTelemetry
from trainbench.core.grouping import grouped
from trainbench.core.known_values import known_median
from trainbench.results.setups import setup_of, versions

Read = Callable[[RunResult], float | None]


class Case(NamedTuple):
    """The evidence on a node. `own`: its valid runs; `peers`: those of its group's healthy nodes. `off_pct`: percent of
    samples/s that it lacks, 0 where another metric is off. `troubles`: conditions that the cluster reports.
    """

    own: Sequence[RunResult]
    peers: Sequence[RunResult]
    off_pct: float
    troubles: Sequence[str] = ()


class Gap(NamedTuple):
    own: float
    peers: float

    @property
    def pct(self) -> float:
        return 100 * (self.own - self.peers) / self.peers if self.peers else 0.0

    @property
    def points(self) -> float:
        """Own minus peers, in percentage points."""
        return self.own - self.peers


def peer_gap(own: Sequence[RunResult], peers: Sequence[RunResult], read: Read) -> Gap | None:
    mine, usual = median_of_runs(own, read), median_of_runs(peers, read)
    return Gap(mine, usual) if mine is not None and usual is not None else None


def median_of_runs(runs: Sequence[RunResult], read: Read) -> float | None:
    return known_median(map(read, runs))


def worst_value(runs: Sequence[RunResult], read: Callable[[GpuTelemetry], float | None]) -> float | None:
    values = (read(gpu) for run in runs for gpu in run.telemetry.gpus)
    return max((value for value in values if value is not None), default=None)


def power_limit_w(run: RunResult) -> float | None:
    return setup_of(run.context).power_limit_w


def memory_total_gb(run: RunResult) -> float | None:
    totals = [gpu.memory_total_bytes / 1e9 for gpu in _gpus([run]) if gpu.memory_total_bytes is not None]
    return min(totals, default=None)


def throttle_share(runs: Sequence[RunResult], classes: Sequence[str]) -> float | None:
    """Median over runs of the worst GPU's share. Throttle classes may overlap, so the largest counts, not the sum."""

    def of_run(run: RunResult) -> float | None:
        shares = [gpu.throttle_share_pct for gpu in run.telemetry.gpus if gpu.throttle_share_pct is not None]
        return max((share.get(name, 0.0) for share in shares for name in classes), default=None)

    return median_of_runs(runs, of_run)


def poorest_link(runs: Sequence[RunResult]) -> tuple[int, int] | None:
    """The poorest (generation, width) seen under load."""
    links = [
        (gpu.pcie_generation, gpu.pcie_width)
        for run in runs
        for gpu in run.telemetry.gpus
        if gpu.pcie_generation is not None and gpu.pcie_width is not None
    ]
    return min(links, default=None)


def best_link(runs: Sequence[RunResult]) -> tuple[int, int] | None:
    """The best (generation, width) that the poorest GPU and its slot support."""
    links = [(gpu.pcie_generation_max, gpu.pcie_width_max) for gpu in _gpus(runs)]
    return min(((gen, width) for gen, width in links if gen is not None and width is not None), default=None)


def common_versions(runs: Sequence[RunResult]) -> dict[str, str]:
    """Name -> most runs' version, of driver, VBIOS, kernel, image, pod template and libraries."""
    return _most_common(
        {name: value for name, value in versions(setup_of(run.context)).items() if name != "power limit"}
        for run in runs
    )


def common_execution(runs: Sequence[RunResult]) -> dict[str, str]:
    """Name -> most runs' choice of dtypes, kernels, compilation."""
    return _most_common(dict(run.chosen.execution) for run in runs if run.chosen)


def common_host(runs: Sequence[RunResult]) -> dict[str, str]:
    known = [run.context for run in runs if run.context]
    return _most_common({"CPU": context.cpu, "number of CPUs": str(context.num_cpus)} for context in known)


def differing(own: dict[str, str], peers: dict[str, str]) -> list[str]:
    return sorted(name for name in own.keys() & peers.keys() if own[name] != peers[name])


def _most_common(of_runs: Iterable[dict[str, str]]) -> dict[str, str]:
    seen = grouped((name, value) for values in of_runs for name, value in values.items())
    return {name: statistics.mode(sorted(values)) for name, values in seen.items()}


def _gpus(runs: Sequence[RunResult]) -> list[Gpu]:
    return [gpu for run in runs if run.context for gpu in run.context.gpus]
