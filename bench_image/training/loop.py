"""Warm-up and measured windows: their timing, borders and length."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from bench_image.contract.preset_switches import STEPS_BEFORE_CAPTURE
from bench_image.contract.spec import RunSpec
from bench_image.contract.step_stats import half_width_pct
from bench_image.parallel.process_group import ProcessGroup
from bench_image.training.stopwatch import Stopwatch, clock_seconds, synchronize
from bench_image.training.train_step import TrainStep

CHECK_EVERY = 10  # steps between two checks of the mean step time's half-width
MIN_STEPS = 2  # of a window: one step shows no spread


class Timing(NamedTuple):
    """One measured window.

    `step_times_s` are those of the slowest rank and `losses` means over ranks; `own_...` are this rank's. Step times
    are by the device's clock; `wall_s` and `loader_wait_s` are wall time on every device, of the slowest rank.
    `started_at` is in epoch seconds. A loss that is not finite is None in `losses`.
    """

    started_at: float
    wall_s: float
    loader_wait_s: float
    step_times_s: tuple[float, ...]
    own_step_times_s: tuple[float, ...]
    losses: tuple[float | None, ...]
    own_losses: tuple[float, ...]


def warm_up(
    step: Callable[[], object], num_steps: int, group: ProcessGroup, log: Callable[[int, float], None]
) -> list[float]:
    """Runs `num_steps` steps, each waited for; returns the seconds of each by the device's clock.

    `log` gets the number of steps done and the last one's seconds. The number of steps does not depend on their
    duration, so the first measured loss belongs to the same training step on every GPU, and peers are compared by it.
    Independent neighbours wait for each other once they have compiled, and warm up together from there on.
    """
    step_times_s = []
    for done in range(1, num_steps + 1):
        begin = clock_seconds(group.device)
        step()
        synchronize(group.device)
        step_times_s.append(clock_seconds(group.device) - begin)
        log(done, step_times_s[-1])
        if done == min(num_steps, STEPS_BEFORE_CAPTURE + 1):  # compiled, and the CUDA graph captured
            group.wait_for_neighbours()
    return step_times_s


def settled_step_s(warm_up_s: Sequence[float]) -> float | None:
    """The median of the later half of the warm-up steps; None for a single one, which may hold the compilation."""
    return statistics.median(warm_up_s[len(warm_up_s) // 2 :]) if len(warm_up_s) > 1 else None


def measure_window(step: TrainStep, group: ProcessGroup, spec: RunSpec, expected_step_s: float | None = None) -> Timing:
    """Runs contiguous steps until the mean step time is known well enough or time is up; see `steps_to_do`.

    Nothing in here waits for the GPU, except the steps of `as_users_run` themselves: the decision to go on uses the
    steps that the GPU has finished by then, and rank 0 sends it to the other hosts while the GPUs still have queued
    work.
    """
    # The window begins on idle GPUs: the first step then holds the launch of its first kernels, as the wall time does,
    # and the step times add up to the wall time.
    watch = Stopwatch(group.device)
    losses: list[torch.Tensor] = []
    group.barrier()
    synchronize(group.device)
    waited_s, started_at, begin = step.loader_wait_s, time.time(), time.perf_counter()
    watch.mark()

    # Launch as many steps as are surely needed, then decide again. All ranks must do the same number.
    to_do = 1
    while to_do:
        for _ in range(to_do):
            losses.append(step())
            watch.mark()
        elapsed_s = time.perf_counter() - begin
        to_do = group.broadcast(steps_to_do(len(losses), watch.intervals(), elapsed_s, expected_step_s, spec))

    # The window ends when the last step has left the GPU. Only then may losses be read and ranks exchange figures.
    synchronize(group.device)
    wall_s = time.perf_counter() - begin
    waited_s = step.loader_wait_s - waited_s
    own = watch.intervals()
    values = torch.stack(losses).tolist()
    return Timing(
        started_at=started_at,
        wall_s=group.max_over_ranks([wall_s])[0],
        loader_wait_s=group.max_over_ranks([waited_s])[0],
        step_times_s=tuple(group.max_over_ranks(own)),
        own_step_times_s=tuple(own),
        losses=tuple(loss if math.isfinite(loss) else None for loss in group.mean_over_ranks(values)),
        own_losses=tuple(values),
    )


def steps_to_do(
    num_done: int, step_times_s: Sequence[float], elapsed_s: float, expected_step_s: float | None, spec: RunSpec
) -> int:
    """Steps until the next decision whether the window goes on; 0 ends it.

    `num_done` steps were launched within `elapsed_s`; the GPU has finished those of `step_times_s`. The window ends at
    max_measured_steps; from measured_steps on when the 95 % half-width of the mean step time is within the target; and
    from MIN_STEPS on when the steps launched so far will have taken max_window_s.
    """
    # The mean of the finished steps, or the expected time before two have finished. At least the elapsed time per step
    # that finished or is under way, so that a GPU that hangs ends the window.
    known_s = statistics.fmean(step_times_s) if len(step_times_s) >= MIN_STEPS else expected_step_s
    step_s = max(elapsed_s / (len(step_times_s) + 1), known_s or 0.0)
    # Hard limits: number of steps, and time.
    if num_done >= spec.measurement.max_measured_steps:
        return 0
    if num_done >= MIN_STEPS and num_done * step_s >= spec.measurement.max_window_s:
        return 0
    # Precision, checked every CHECK_EVERY steps after the minimum.
    past_minimum = num_done - spec.measurement.measured_steps
    if past_minimum >= 0 and past_minimum % CHECK_EVERY == 0:
        half_width = half_width_pct(step_times_s)
        if half_width is not None and half_width <= spec.measurement.target_half_width_pct:
            return 0
    # Go on to the nearest of: the next check of precision, the end of the time, the most steps allowed.
    to_precision = -past_minimum if past_minimum < 0 else CHECK_EVERY - past_minimum % CHECK_EVERY
    to_time = math.ceil(spec.measurement.max_window_s / step_s) - num_done if step_s > 0 else num_done
    # Never more than were done: the step time may be wrong by much while few steps have finished.
    return max(1, min(to_precision, to_time, spec.measurement.max_measured_steps - num_done, num_done))
