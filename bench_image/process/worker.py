"""One training process: walks through the phases and writes down what it knows at each border.

The training stack is imported in its own phase, not with this module: the seconds it takes are a result, and what
happens while it loads must be reported too.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from bench_image.contract.parse import parse_spec
from bench_image.contract.pod_io import OUTPUT_DIR_ENV, SPEC_ENV
from bench_image.contract.result import Chosen, Phase, RunError, Status
from bench_image.contract.result_sections import Clock, Memory, Probes
from bench_image.contract.spec import RunSpec
from bench_image.process.journal import Journal
from bench_image.process.parent_death import die_with_parent
from bench_image.process.training_imports import import_stack
from bench_image.training.oom import is_out_of_memory

if TYPE_CHECKING:
    import torch

    from bench_image.parallel.process_group import ProcessGroup
    from bench_image.telemetry.sampler import Sampler
    from bench_image.training.train_step import TrainStep

TELL_EVERY_S = 3.0


class Terminated(BaseException):
    """SIGTERM. Not an Exception: no library may take it for a fault of its own."""


def main() -> int:
    """Returns 0 after a complete run, also one with an invalid loss; else 1, so that torchrun ends the peers."""
    first_line_at = time.time()
    die_with_parent()
    signal.signal(signal.SIGTERM, _on_sigterm)
    spec = parse_spec(os.environ[SPEC_ENV])
    journal = Journal(Path(os.environ[OUTPUT_DIR_ENV]), first_line_at)
    journal.enter(Phase.IMPORT, at=first_line_at)
    try:
        error = _run(spec, journal)
    except Terminated:
        return _fail(journal, Status.INCOMPLETE, "SIGTERM", f"rank {journal.rank} was asked to stop by SIGTERM")
    except Exception as cause:
        traceback.print_exc()
        status = Status.OOM if is_out_of_memory(cause) else Status.ERROR
        return _fail(journal, status, type(cause).__name__, str(cause))
    journal.write(Status.INVALID_LOSS if error else Status.OK, error)
    return 0


def _on_sigterm(_signum: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: the last words must not be cut short
    raise Terminated


def _fail(journal: Journal, status: Status, kind: str, message: str) -> int:
    journal.write(status, RunError(kind=kind, message=message[:4000], phase=journal.phase, rank=journal.rank))
    return 1


def _run(spec: RunSpec, journal: Journal) -> RunError | None:
    """All phases. Returns the error of an invalid loss: the run is complete all the same."""
    import_stack(spec)
    from bench_image.model.build import build
    from bench_image.parallel.strategies import join_group
    from bench_image.training.autotune import autotune
    from bench_image.training.execution import describe_execution
    from bench_image.training.train_step import TrainStep

    journal.enter(Phase.BUILD)
    group = join_group(spec)
    spec = spec.of_one_rank
    if uuids := _gpu_uuids(spec):
        journal.gpu_uuid = uuids[journal.local_rank]  # before anything can fail that its GPU is to be named for
    try:
        built = build(spec, group.device, group.shard)
        journal.parameters = built.parameters
        journal.enter(Phase.PROBE)
        sampler = _look_around(spec, journal, group)
        try:
            journal.enter(Phase.CHOOSE)
            work, why = autotune(spec, built, group)
            step = TrainStep(work, built, group)
            journal.chosen = Chosen(
                micro_batch_size=work.samples_per_micro_step,
                gradient_checkpointing=work.gradient_checkpointing is True,
                why=why,
                means=describe_execution(step) | {"data": step.batches.source},
            )
            expected_step_s = _warm_up(work, journal, group, step, sampler)
            error = _measure(work, journal, group, step, sampler, expected_step_s)
        finally:
            _stop_sampling(journal, sampler)
        journal.memory = _memory(group.device, journal)
        if error is None:
            _profile(journal, group, step)
    finally:
        journal.memory = journal.memory or _memory(group.device, journal)
    journal.enter(Phase.REPORT)
    step.close()
    group.close()
    return error


def _look_around(spec: RunSpec, journal: Journal, group: ProcessGroup) -> Sampler | None:
    """Context and probes; the first rank of each node speaks, and later samples, for all of its GPUs."""
    import torch

    from bench_image.telemetry.environment import read_context
    from bench_image.telemetry.sampler import Sampler

    uuids = _gpu_uuids(spec)
    sampler = None
    if journal.local_rank == 0:
        journal.context, reasons = read_context(spec.node, spec.device, uuids)
        journal.add_missing("context", reasons)
        sampler = Sampler(spec.device, uuids, spec.telemetry_interval_s)
        sampler.start()
    journal.probes = _probe(spec, journal, group)
    if group.device.type == "cuda":
        torch.cuda.empty_cache()
    return sampler


def _gpu_uuids(spec: RunSpec) -> tuple[str, ...]:
    """As NVML writes them: torch's numbering follows CUDA_VISIBLE_DEVICES, NVML's does not."""
    import torch

    if spec.device.value != "cuda":
        return ()
    return tuple(f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(spec.gpus_per_node))


def _probe(spec: RunSpec, journal: Journal, group: ProcessGroup) -> Probes:
    from bench_image.model.dtypes import DTYPES
    from bench_image.telemetry import probes

    h2d = probes.h2d_gb_per_s(group.device)
    if h2d is None:
        journal.missing["probes.h2d_gb_per_s"] = "no GPU to copy to"
    matmul = probes.matmul_tflops(group.device, DTYPES[spec.precision])
    allreduce = probes.allreduce_bus_gb_per_s(group.device) if group.world_size > 1 else None
    if allreduce is None:
        journal.missing["probes.allreduce_bus_gb_per_s"] = "one rank has no peer"
    # The slowest GPU: the one with the largest negative rate.
    rates = [-rate for rate in group.max_over_ranks([-matmul] if h2d is None else [-matmul, -h2d])]
    return Probes(
        matmul_tflops=rates[0], h2d_gb_per_s=None if h2d is None else rates[1], allreduce_bus_gb_per_s=allreduce
    )


def _warm_up(
    spec: RunSpec, journal: Journal, group: ProcessGroup, step: TrainStep, sampler: Sampler | None
) -> float | None:
    """The seconds that a step is expected to take; None where one warm-up step does not show it."""
    from bench_image.training.loop import settled_step_s, warm_up

    journal.enter(Phase.WARMUP)
    told_at = 0.0

    def log(done: int, seconds: float) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= TELL_EVERY_S or done == spec.warmup_steps:
            told_at = time.monotonic()
            rate = round(spec.samples_per_step / seconds, 3)
            journal.log(step=f"{done}/{spec.warmup_steps}", samples_per_s=rate, **_glance(sampler))

    seconds = warm_up(step, spec.warmup_steps, group, log)
    journal.cuda_graph_peak_bytes = step.cuda_graph.peak_bytes if step.cuda_graph else 0
    if len(seconds) > 1:
        journal.startup["compile_s"] = max(0.0, seconds[0] - seconds[-1])
    else:
        journal.missing["startup.compile_s"] = "one warm-up step shows no difference: warm up for 2 or more"
    return settled_step_s(seconds)


def _glance(sampler: Sampler | None) -> dict[str, float]:
    """For whoever follows the log. Between windows only: it asks the driver."""
    return sampler.glance() if sampler else {}


def _measure(
    spec: RunSpec,
    journal: Journal,
    group: ProcessGroup,
    step: TrainStep,
    sampler: Sampler | None,
    expected_step_s: float | None,
) -> RunError | None:
    """All windows, or those up to the first with an invalid loss."""
    import torch

    from bench_image.contract.step_stats import window_s
    from bench_image.training.loop import measure_window

    gc.collect()
    gc.freeze()  # what lives now lives to the end: no later collection has to look at it within a window
    if group.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(group.device)
    journal.enter(Phase.MEASURE)
    for number in range(1, spec.repeats + 1):
        if sampler:
            sampler.resume()
        timing = measure_window(step, group, spec, expected_step_s)
        if sampler:
            sampler.pause()
        journal.timings.append(timing)
        steps = len(timing.step_times_s)
        expected_step_s = timing.wall_s / steps
        counted_s = window_s(Clock.of(spec.device), timing.wall_s, timing.step_times_s)
        rate = steps * spec.samples_per_step / counted_s
        journal.log(window=f"{number}/{spec.repeats}", steps=steps, samples_per_s=round(rate, 3), **_glance(sampler))
        if None in timing.losses:
            message = f"loss of step {timing.losses.index(None) + 1} in window {number} is NaN or infinite"
            return RunError(kind="invalid_loss", message=message, phase=Phase.MEASURE)
    return None


def _profile(journal: Journal, group: ProcessGroup, step: TrainStep) -> None:
    """The share of communication, from a few more steps; after the windows, because profiling slows them."""
    from bench_image.training.comm_profile import measure_communication

    if group.world_size == 1:
        journal.missing |= dict.fromkeys(("communication", "startup.profile_s"), "one rank has no peer")
        return
    journal.enter(Phase.PROFILE)
    try:
        journal.communication = measure_communication(step, group)
    except RuntimeError as error:  # what was measured before counts all the same
        journal.missing["communication"] = f"the steps could not be profiled: {error}"[:1000]


def _stop_sampling(journal: Journal, sampler: Sampler | None) -> None:
    if sampler:
        journal.gpus, journal.host, reasons = sampler.stop()
        journal.add_missing("telemetry", reasons)


def _memory(device: torch.device, journal: Journal) -> Memory:
    """Peaks since the first window began; retries and OOMs since process start."""
    import torch

    if device.type == "cuda":
        allocated = max(torch.cuda.max_memory_allocated(device), journal.cuda_graph_peak_bytes)
        stats = torch.cuda.memory_stats(device)
        return Memory(
            kind="cuda_allocated",
            peak_during_training=allocated / 1e9,
            peak_allocated_bytes=allocated,
            peak_reserved_bytes=torch.cuda.max_memory_reserved(device),
            alloc_retries=stats.get("num_alloc_retries", 0),
            num_ooms=stats.get("num_ooms", 0),
        )
    for name in ("peak_allocated_bytes", "peak_reserved_bytes", "alloc_retries", "num_ooms"):
        journal.missing[f"memory.{name}"] = "no GPU allocator on the CPU"
    return Memory(
        kind="process_rss",
        peak_during_training=_peak_rss_bytes() / 1e9,
        peak_allocated_bytes=None,
        peak_reserved_bytes=None,
        alloc_retries=None,
        num_ooms=None,
    )


def _peak_rss_bytes() -> int:
    """Of the whole life of this process; Linux counts ru_maxrss in KiB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # All is written: the libraries' own shutdown takes a second, and after a fault may wait for peers that are gone.
    os._exit(code)
