"""Checks that the figures of one result agree, e.g. a rate with its windows, and that each null has its reason."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bench_image.contract.flops import tokens_per_sample
from bench_image.contract.frozen import Frozen, Slotted, fields_of
from bench_image.contract.result_sections import Performance

if TYPE_CHECKING:
    from bench_image.contract.result import RunResult
    from bench_image.contract.spec import RunSpec

TOLERANCE = 0.01  # the figures come from the same seconds, up to rounding and slow clocks


def contradictions(performance: Performance, samples_per_step: int | None) -> Iterator[str]:
    """Yields a sentence for each contradiction. `samples_per_step`: over the ranks of these figures; None: unknown."""
    windows = performance.windows
    if not windows:
        if performance.samples_per_second is not None:
            yield f"performance.samples_per_second is {performance.samples_per_second:g}, of no window"
        return
    # Steps and wall time are the sums over the windows.
    steps, wall_s = sum(window.num_steps for window in windows), sum(window.wall_s for window in windows)
    if performance.measured_steps != steps:
        yield f"performance.measured_steps is {performance.measured_steps}, its windows have {steps} steps"
    if not _agree(performance.measured_wall_s, wall_s):
        yield f"performance.measured_wall_s is {performance.measured_wall_s:g} s, its windows took {wall_s:g} s"
    counted = _window_seconds(performance)
    if counted is None or len(performance.step_times_s) not in (0, steps):  # 0: see `without_steps` in trainbench
        yield f"performance.step_times_s holds {len(performance.step_times_s)} steps, its windows have {steps}"
        return
    # The rate of the run is that of all windows together.
    counted_s = sum(counted)
    samples = sum(window.samples_per_second * seconds for window, seconds in zip(windows, counted, strict=True))
    if not _agree(performance.samples_per_second, samples / counted_s):
        yield (
            f"performance.samples_per_second is {performance.samples_per_second:g}, its windows did "
            f"{samples:g} samples in {counted_s:g} s: {samples / counted_s:g}/s; they may differ by "
            f"{100 * TOLERANCE:g} %"
        )
    # The rate of each window follows from its steps.
    for index, (window, seconds) in enumerate(zip(windows, counted, strict=True) if samples_per_step else ()):
        done = window.num_steps * (samples_per_step or 0) / seconds
        if not _agree(window.samples_per_second, done):
            yield (
                f"performance.windows.{index}.samples_per_second is {window.samples_per_second:g}, but "
                f"{window.num_steps} steps of {samples_per_step} samples in {seconds:g} s are {done:g}/s"
            )


def impossible(result: RunResult) -> Iterator[str]:
    """Yields a sentence for each figure that another figure of the result, or physics, makes impossible."""
    yield from _of_another_run(result)
    yield from _memory_that_is_not_there(result)
    yield from _out_of_order("parameters", result.parameters, "trainable", "total")
    yield from _out_of_order("communication", result.communication, "exposed_pct", "total_pct")
    for index, gpu in enumerate(result.telemetry.gpus):
        yield from _out_of_order(f"telemetry.gpus.{index}", gpu, "sm_clock_min_mhz", "sm_clock_mean_mhz")
        yield from _out_of_order(f"telemetry.gpus.{index}", gpu, "temperature_mean_c", "temperature_max_c")
    wall_s = (result.finished_at - result.started_at).total_seconds()
    yield from _of_other_steps("performance", result.performance, result.spec, wall_s)
    for rank in result.ranks:
        if rank.performance:
            yield from _of_other_steps(f"ranks.{rank.rank}.performance", rank.performance, result.spec, wall_s)


def _of_another_run(result: RunResult) -> Iterator[str]:
    """Times, GPUs and nodes that the run did not have."""
    spec, gpus = result.spec, result.context.gpus if result.context else ()
    wall_s = (result.finished_at - result.started_at).total_seconds()
    for name in ("total_s", "measure_s"):
        seconds = getattr(result.startup, name)
        if seconds is not None and seconds > wall_s * (1 + TOLERANCE) + 1:
            yield f"startup.{name} is {seconds:g} s, but the run took {wall_s:g} s from started_at to finished_at"
    num_gpus = spec.placement.world_size
    for name, parts in (("context.gpus", gpus), ("telemetry.gpus", result.telemetry.gpus), ("ranks", result.ranks)):
        if len(parts) > num_gpus:
            yield f"{name} has {len(parts)}, of a run that was planned with {num_gpus}"
    nodes = spec.identity.nodes
    if result.context and result.context.node not in nodes:
        yield f"context.node is {result.context.node!r:.100}, but the run was planned for {', '.join(nodes):.200}"
    if uneven := [rank.rank for rank in result.ranks if len(rank.own_steps_s) != len(rank.step_waits_s)]:
        yield f"ranks.{uneven[0]} has another number of own_steps_s than of step_waits_s"
    if result.error is None and (failed := [rank for rank in result.ranks if rank.status != result.status]):
        yield f"status is '{result.status}', but ranks.{failed[0].rank}.status is '{failed[0].status}'"


def _memory_that_is_not_there(result: RunResult) -> Iterator[str]:
    memory, peak_bytes = result.memory, result.memory.peak_allocated_bytes
    yield from _out_of_order("memory", memory, "peak_allocated_bytes", "peak_reserved_bytes")
    if memory.kind != "cuda_allocated":
        return
    for rank in result.ranks if result.error is None else ():  # a failed gang has the memory of one pod, ranks of all
        if peak_bytes is not None and (rank.peak_allocated_bytes or 0) > peak_bytes:
            yield f"memory.peak_allocated_bytes is {peak_bytes}, but rank {rank.rank} has {rank.peak_allocated_bytes}"
    gpus = result.context.gpus if result.context else ()
    most_gb = max((gpu.memory_total_bytes or 0 for gpu in gpus), default=0) / 1e9
    for name in ("peak_during_training", "peak_allocated_bytes", "peak_reserved_bytes") if most_gb else ():
        peak_gb = (getattr(memory, name) or 0) / (1 if name == "peak_during_training" else 1e9)
        if peak_gb > most_gb * (1 + TOLERANCE):
            yield f"memory.{name} is {peak_gb:g} GB, but the largest GPU has {most_gb:g} GB"


def _of_other_steps(where: str, performance: Performance, spec: RunSpec, wall_s: float) -> Iterator[str]:
    """Figures that the run's time, its samples or its single steps exclude. `wall_s`: from start to finish."""
    end_s = 0.0
    for index, window in enumerate(performance.windows):
        end_s = max(window.started_s, end_s) + window.wall_s  # one window after another
        if end_s > wall_s * (1 + TOLERANCE) + 1:
            yield f"{where}.windows.{index} ends {end_s:g} s after the run began, which took {wall_s:g} s"
    yield from _out_of_order(where, performance, "mfu_pct", "hfu_pct")
    rate, tokens_per_s, shape = performance.samples_per_second, performance.tokens_per_second, spec.work.known_shape
    if rate is not None and shape is not None:
        per_sample = tokens_per_sample(shape, spec.work.seq_length)
        if not _agree(tokens_per_s, rate * per_sample):
            yield f"{where}.tokens_per_second is {tokens_per_s:g}, but {rate:g} samples/s have {per_sample} tokens each"
    summary, steps = performance.step_time, performance.step_times_s
    if summary is None:
        return
    yield from _out_of_order(f"{where}.step_time", summary, "min_s", "p5_s", "median_s", "p95_s", "max_s")
    yield from _out_of_order(f"{where}.step_time", summary, "min_s", "mean_s", "max_s")
    of_steps = {"min_s": min(steps), "mean_s": math.fsum(steps) / len(steps), "max_s": max(steps)} if steps else {}
    for name, seconds in of_steps.items():
        if abs(getattr(summary, name) - seconds) > TOLERANCE * seconds + 1e-6:  # they are rounded to microseconds
            yield f"{where}.step_time.{name} is {getattr(summary, name):g}, that of step_times_s is {seconds:g}"


def _out_of_order(where: str, section: object, *names: str) -> Iterator[str]:
    """Yields a sentence for two neighbours in `names`, which rise, of which the first is larger."""
    for lower, upper in itertools.pairwise(names):
        low, high = getattr(section, lower), getattr(section, upper)
        if low is not None and high is not None and low > high + TOLERANCE * abs(high):
            yield f"{where}.{lower} is {low:g}, above {upper}, which is {high:g}"


def sum_of(performance: Performance, ranks: Sequence[Performance]) -> Iterator[str]:
    """Yields a sentence if the rate of a run of independent ranks is not the sum of their rates.

    It is not checked where ranks have different numbers of windows. The run's windows are those of one rank, so they do
    not add up to its rate where the ranks slow down at different times.
    """
    rates = [rank.samples_per_second or 0.0 for rank in ranks]
    if {len(rank.windows) for rank in ranks} != {len(performance.windows)}:
        return
    if not _agree(performance.samples_per_second, sum(rates)):
        yield (
            f"performance.samples_per_second is {performance.samples_per_second:g}, its ranks add up to "
            f"{sum(rates):g}; they may differ by {100 * TOLERANCE:g} %"
        )


def _window_seconds(performance: Performance) -> list[float] | None:
    """Seconds of each window by the run's clock; None where the number of step times is not that of the steps.

    CPU time is measured per step, so a window has the sum of its step times.
    """
    windows = performance.windows
    if performance.clock == "wall":
        return [window.wall_s for window in windows]
    ends = list(itertools.accumulate(window.num_steps for window in windows))
    if len(performance.step_times_s) != ends[-1]:
        return None
    return [
        math.fsum(performance.step_times_s[end - window.num_steps : end])
        for window, end in zip(windows, ends, strict=True)
    ]


def _agree(value: float | None, other: float) -> bool:
    """Whether the values agree within TOLERANCE. None agrees: `missing` has its reason."""
    return value is None or abs(value - other) <= TOLERANCE * other


# --- reasons for nulls: they name dotted paths; `*` stands for any index of a list


def unexplained_nulls(sections: Mapping[str, object], reasons: Container[str]) -> Iterator[str]:
    """Yields the paths of all nulls within `sections` that no reason covers: neither for it nor for what holds it.

    Nothing is made of the reasons, so a hostile one costs no more than its text.
    """
    for name, value in sections.items():
        for path in _nulls(value, name):
            if not _is_covered(path, reasons):
                yield path


def _nulls(value: object, path: str) -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, Frozen | Slotted):
        for name in fields_of(type(value)):
            if _may_hold_null(item := getattr(value, name)):
                yield from _nulls(item, f"{path}.{name}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if _may_hold_null(item):
                yield from _nulls(item, f"{path}.{index}")


def _may_hold_null(item: object) -> bool:
    """Saves a call for the many numbers and texts; a list that begins with a number holds only numbers."""
    if isinstance(item, tuple):
        return not isinstance(next(iter(item), None), float)
    return item is None or isinstance(item, Frozen | Slotted)


def _is_covered(path: str, reasons: Container[str]) -> bool:
    covering = [""]  # the ways to name what holds the null: no path has more than two indices, so at most four
    for step in path.split("."):
        names = (step, "*") if step.isdecimal() else (step,)
        covering = [f"{before}.{name}" if before else name for before in covering for name in names]
        if any(name in reasons for name in covering):
            return True
    return False
