"""The GPU that explains why its node is off: the slowest, the hottest, or the one that holds most memory.

The ranks of one job wait for each other, so their step times hardly differ; the SM clock shows which rank is slow.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import RunResult
from trainbench.core.formats import degrees, figure
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Metric

# A GPU closer to its neighbours than this is not named: healthy boards of one host differ as much.
MIN_GAP_PCT = 2.0
MIN_GAP_C = 5.0

# Of one run: (index, UUID) of each GPU that has the figure -> the figure.
_Read = Callable[[RunResult], Iterator[tuple[tuple[int, str | None], float]]]


class OddGpu(Frozen):
    gpu: str  # "GPU 3 (GPU-5f3c...)", as nvidia-smi -L names it
    text: str  # one phrase with its figure and that of the others


class _Look(NamedTuple):
    word: str
    read: _Read
    lowest: bool
    write: Callable[[float | None], str]
    gap_is_pct: bool = True


def odd_gpu(runs: Sequence[RunResult], metric: Metric) -> OddGpu | None:
    """The GPU that differs most to the bad side; None for a single GPU, and where none differs enough."""
    candidates = (_stands_out(runs, look) for look in _LOOKS[metric])
    return next((odd for odd in candidates if odd), None)


def _stands_out(runs: Sequence[RunResult], look: _Look) -> OddGpu | None:
    values = _by_gpu(runs, look.read)
    if len(values) < 2:
        return None
    odd = (min if look.lowest else max)(values, key=lambda gpu: values[gpu])
    others = statistics.median(value for gpu, value in values.items() if gpu != odd)
    gap = abs(values[odd] - others)
    if look.gap_is_pct:
        gap = 100 * gap / others if others else 0.0
    if gap < (MIN_GAP_PCT if look.gap_is_pct else MIN_GAP_C):
        return None
    name = f"GPU {odd[0]}" + (f" ({odd[1]})" if odd[1] else "")
    others_name = "the other" if len(values) == 2 else "the others"
    return OddGpu(gpu=name, text=f"{look.word} {name}: {look.write(values[odd])}, {others_name} {look.write(others)}")


def _by_gpu(runs: Sequence[RunResult], read: _Read) -> Mapping[tuple[int, str | None], float]:
    """The median over the runs."""
    of_gpu = grouped((gpu, value) for run in runs for gpu, value in read(run))
    return {gpu: statistics.median(values) for gpu, values in of_gpu.items()}


def _clock(run: RunResult) -> Iterator[tuple[tuple[int, str | None], float]]:
    return (((g.index, g.uuid), mhz) for g in run.telemetry.gpus if (mhz := g.sm_clock_mean_mhz) is not None)


def _temperature(run: RunResult) -> Iterator[tuple[tuple[int, str | None], float]]:
    return (((g.index, g.uuid), mean) for g in run.telemetry.gpus if (mean := g.temperature_mean_c) is not None)


def _step_time(run: RunResult) -> Iterator[tuple[tuple[int, str | None], float]]:
    places = _places(run)
    for rank in run.ranks:
        if rank.gpu_uuid in places and rank.step_time_median_s is not None:
            yield (places[rank.gpu_uuid], rank.gpu_uuid), rank.step_time_median_s


def _allocated(run: RunResult) -> Iterator[tuple[tuple[int, str | None], float]]:
    places = _places(run)
    for rank in run.ranks:
        if rank.gpu_uuid in places and rank.peak_allocated_bytes is not None:
            yield (places[rank.gpu_uuid], rank.gpu_uuid), float(rank.peak_allocated_bytes)


def _places(run: RunResult) -> dict[str | None, int]:
    """UUID -> the GPU's index on its node, which may differ from the rank."""
    return {gpu.uuid: gpu.index for gpu in (run.context.gpus if run.context else ()) if gpu.uuid}


_LOOKS: dict[Metric, tuple[_Look, ...]] = {
    Metric.SAMPLES_PER_SECOND: (
        _Look("slowest", _step_time, False, lambda s: f"{figure(s and s * 1000)} ms per step"),
        _Look("lowest clock", _clock, True, lambda mhz: f"{figure(mhz)} MHz"),
    ),
    Metric.TEMPERATURE_C: (_Look("hottest", _temperature, False, degrees, gap_is_pct=False),),
    Metric.MEMORY_GB: (
        _Look("most memory", _allocated, False, lambda number: f"{figure(number and number / 1e9)} GB"),
    ),
}
