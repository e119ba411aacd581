"""The training step and the measured window: what is timed, where its borders are, and when it is long enough."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import nn

from bench_image.contract.memory_estimate import keeps_unpacked
from bench_image.contract.presets import STEPS_BEFORE_CAPTURE, uses_cuda_graph
from bench_image.contract.result_sections import Clock
from bench_image.contract.spec import RunSpec
from bench_image.contract.step_stats import half_width_pct
from bench_image.contract.work import Device
from bench_image.data.batches import batches
from bench_image.model.build import BuiltModel
from bench_image.model.dtypes import acts_as_hf_trainer
from bench_image.parallel.process_group import ProcessGroup
from bench_image.training.cuda_graph import CudaGraphStep

CHECK_EVERY = 10  # steps between looks at whether the mean step time is known well enough
MIN_STEPS = 2  # of a window: one shows no spread


class TrainStep:
    """One optimizer step per call: copy to the device, forward, backward, clip, update. Returns its mean loss.

    The loss stays on the device: reading it would wait for the GPU. Only a preset that stands for users' loops looks.
    """

    def __init__(self, spec: RunSpec, built: BuiltModel, group: ProcessGroup) -> None:
        self.spec, self.group, self.base = spec, group, built.base
        self.keeps_unpacked = keeps_unpacked(spec, group.memory_bytes())
        for siblings in built.fused:
            siblings.keep_unpacked = self.keeps_unpacked
        self.optimizer_step = group.optimizer_step(spec, built)
        self.pool = batches(spec, group.rank, spec.shape.vocab_size, pinned=group.device.type == "cuda")
        self.steps_done = 0
        self.cuda_graph: CudaGraphStep | None = None
        self.loader_wait_s = 0.0  # since the first step; the caller takes differences

    @property
    def model(self) -> nn.Module:
        """As its strategy wrapped it."""
        return self.optimizer_step.model

    def __call__(self) -> torch.Tensor:
        begin = seconds(self.group.device)
        if uses_cuda_graph(self.spec) and self.steps_done >= STEPS_BEFORE_CAPTURE:
            loss = self._replay_graph()
        else:
            loss = self._launch_step(self._batch(index) for index in range(self.spec.gradient_accumulation_steps))
        self.steps_done += 1
        if self.spec.drill:
            self._lose_time(begin, self.spec.drill.slowdown_pct)
        return loss

    def close(self) -> None:
        """Ends the reading ahead."""
        self.pool.close()

    def _replay_graph(self) -> torch.Tensor:
        batches = [self._batch(index) for index in range(self.spec.gradient_accumulation_steps)]
        if self.cuda_graph is None:
            optimizer = self.optimizer_step.optimizer
            self.cuda_graph = CudaGraphStep(self._launch_step, batches, optimizer, self.group.device)
        return self.cuda_graph(batches)

    def _launch_step(self, batches: Iterable[torch.Tensor]) -> torch.Tensor:
        last = self.spec.gradient_accumulation_steps - 1
        losses = [self._micro_step(batch, last=index == last) for index, batch in enumerate(batches)]
        self.optimizer_step.update()
        if acts_as_hf_trainer(self.spec):
            self.base.zero_grad()
        return torch.stack(losses).mean()

    def _micro_step(self, batch: torch.Tensor, *, last: bool) -> torch.Tensor:
        ids = batch.to(self.group.device, non_blocking=True)
        if not acts_as_hf_trainer(self.spec):
            return self.optimizer_step.micro_step(ids, last=last)
        self.base.train()
        loss = self.optimizer_step.micro_step(ids, last=last)
        _ = bool(torch.isnan(loss)) or bool(torch.isinf(loss))
        self.base.num_parameters(exclude_embeddings=True)
        return loss

    def _batch(self, micro_step: int) -> torch.Tensor:
        asked_at = time.perf_counter()
        batch = self.pool.batch(self.steps_done, micro_step)
        self.loader_wait_s += time.perf_counter() - asked_at
        return batch

    def _lose_time(self, begin: float, slowdown_pct: float) -> None:
        device = self.group.device
        synchronize(device)
        lose(device, drill_loss_s(seconds(device) - begin, slowdown_pct))


def seconds(device: torch.device) -> float:
    """The time of the clock by which this device's runs are measured (Performance.clock)."""
    on_cpu = Clock.of(Device(device.type)) is Clock.PROCESS_CPU
    return time.process_time() if on_cpu else time.perf_counter()


def lose(device: torch.device, lost_s: float) -> None:
    """Lets `lost_s` seconds of the device's clock pass: sleeping takes no CPU time, so the CPU is kept busy."""
    if Clock.of(Device(device.type)) is Clock.WALL:
        time.sleep(lost_s)
        return
    end = seconds(device) + lost_s
    while seconds(device) < end:
        pass


def drill_loss_s(step_s: float, slowdown_pct: float) -> float:
    """Seconds to add to a step so that throughput falls by `slowdown_pct`: step / (1 - pct/100) - step."""
    return step_s * slowdown_pct / (100 - slowdown_pct)


def synchronize(device: torch.device) -> None:
    """Waits for the GPU; the CPU has nothing outstanding."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Stopwatch(Protocol):
    """Marks step borders. `intervals` gives the seconds between the marks that have passed already."""

    def mark(self) -> None: ...

    def intervals(self) -> list[float]: ...


class CpuStopwatch:
    """CPU time of this process, all threads."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        self._marks.append(seconds(torch.device("cpu")))

    def intervals(self) -> list[float]:
        return [end - begin for begin, end in pairwise(self._marks)]


class CudaStopwatch:
    """Events in the compute stream: the GPU's own time of each border, without waiting for it."""

    def __init__(self) -> None:
        self._marks: list[torch.cuda.Event] = []

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._marks.append(event)

    def intervals(self) -> list[float]:
        passed = []
        for event in self._marks:  # in order of recording, hence in order of passing
            if not event.query():  # type: ignore[no-untyped-call]
                break
            passed.append(event)
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairwise(passed)]


def stopwatch(device: torch.device) -> Stopwatch:
    return CudaStopwatch() if device.type == "cuda" else CpuStopwatch()


class Timing(NamedTuple):
    """One window. Step times are those of the slowest rank and losses means over ranks; `own` ones are this rank's.

    Step times are by the device's clock; `wall_s` and `loader_wait_s` are wall time on every device.
    """

    started_at: float
    wall_s: float
    loader_wait_s: float
    step_times_s: tuple[float, ...]
    own_step_times_s: tuple[float, ...]
    losses: tuple[float | None, ...]
    own_losses: tuple[float, ...]


def warm_up(
    step: Callable[[], object],
    num_steps: int,
    group: ProcessGroup,
    log: Callable[[int, float], None],
) -> list[float]:
    """Seconds of each warm-up step by the device's clock, each waited for; `tell` gets the steps done and the last
    one's seconds.

    Always `num_steps`, however long they take: so the first measured loss is that of the same training step on every
    GPU, and peers can be compared by it. Neighbours meet once they have compiled, and warm up together from there on.
    """
    step_times_s = []
    for done in range(1, num_steps + 1):
        begin = seconds(group.device)
        step()
        synchronize(group.device)
        step_times_s.append(seconds(group.device) - begin)
        log(done, step_times_s[-1])
        if done == min(num_steps, STEPS_BEFORE_CAPTURE + 1):
            group.wait_for_neighbours()
    return step_times_s


def settled_step_s(warm_up_s: Sequence[float]) -> float | None:
    """The median of the later half of the warm-up steps; None for a single one, which may hold the compilation."""
    return statistics.median(warm_up_s[len(warm_up_s) // 2 :]) if len(warm_up_s) > 1 else None


def measure_window(step: TrainStep, group: ProcessGroup, spec: RunSpec, expected_step_s: float | None = None) -> Timing:
    """Contiguous steps between two synchronisations, until the mean step time is known well enough or time is up.

    Nothing in here waits for the GPU, except the steps of `as_users_run` themselves. Whether to go on is decided from
    those steps that the GPU has finished by then, and rank 0's decision travels between the hosts, while the GPUs still
    have work queued. The first border is marked on an idle GPU: the first step holds the launch of its first kernels,
    as the wall time does, and the step times add up to the wall time.
    """
    watch = stopwatch(group.device)
    losses: list[torch.Tensor] = []
    group.barrier()
    synchronize(group.device)
    waited_s = step.loader_wait_s
    started_at, begin = time.time(), time.perf_counter()
    watch.mark()
    to_do = 1
    while to_do:
        for _ in range(to_do):
            losses.append(step())
            watch.mark()
        elapsed_s = time.perf_counter() - begin
        to_do = group.broadcast(steps_to_do(len(losses), watch.intervals(), elapsed_s, expected_step_s, spec))
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
    """Steps until the window is looked at again; 0: it is long enough.

    `num_done` steps were launched within `elapsed_s`; the GPU has finished those of `step_times_s`. The window ends at
    max_measured_steps; from measured_steps on when the 95 % half-width of the mean step time is within the target; and
    from MIN_STEPS on when the steps launched so far will have taken max_window_s.
    """
    step_s = _likely_step_s(step_times_s, elapsed_s, expected_step_s)
    if num_done >= spec.max_measured_steps:
        return 0
    if num_done >= MIN_STEPS and num_done * step_s >= spec.max_window_s:
        return 0
    past_minimum = num_done - spec.measured_steps
    if past_minimum >= 0 and past_minimum % CHECK_EVERY == 0:
        half_width = half_width_pct(step_times_s)
        if half_width is not None and half_width <= spec.target_half_width_pct:
            return 0
    to_precision = -past_minimum if past_minimum < 0 else CHECK_EVERY - past_minimum % CHECK_EVERY
    to_time = math.ceil(spec.max_window_s / step_s) - num_done if step_s > 0 else num_done
    # Never more than were done: what is known of the step time may be wrong by much while few have passed.
    return max(1, min(to_precision, to_time, spec.max_measured_steps - num_done, num_done))


def _likely_step_s(step_times_s: Sequence[float], elapsed_s: float, expected_step_s: float | None) -> float:
    """The mean of the steps that have passed, or what is expected before two have; 0.0 while nothing is known.

    The next step has not passed yet, so that a GPU that hangs in it shows in the elapsed time.
    """
    at_least = elapsed_s / (len(step_times_s) + 1)
    known = statistics.fmean(step_times_s) if len(step_times_s) >= MIN_STEPS else expected_step_s
    return max(at_least, known or 0.0)
