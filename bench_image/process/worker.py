"""One training process (rank): runs the phases of a benchmark and writes its report at each border.

The training stack is imported in a phase of its own, not with this module: the seconds it takes are a result, and an
import that fails must be reported too.
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
from bench_image.contract.result_sections import Clock, Memory
from bench_image.contract.spec import RunSpec
from bench_image.process.journal import Journal
from bench_image.process.parent_death import die_with_parent
from bench_image.process.training_imports import import_stack
from bench_image.training.oom import is_out_of_memory

if TYPE_CHECKING:
    import torch

    from bench_image.model.build import BuiltModel
    from bench_image.parallel.process_group import ProcessGroup
    from bench_image.telemetry.sampler import Sampler
    from bench_image.telemetry.unmeasured_gpus import TorchGpu
    from bench_image.training.train_step import TrainStep

LOG_EVERY_S = 3.0


class Terminated(BaseException):
    """SIGTERM arrived. Not an Exception, so that no library catches it as a fault of its own."""


def main() -> int:
    """Runs the spec of the environment. Returns 0 after a complete run, also one with an invalid loss; else 1, on
    which torchrun ends the other ranks.
    """
    first_line_at = time.time()
    die_with_parent()
    signal.signal(signal.SIGTERM, _on_sigterm)
    spec = parse_spec(os.environ[SPEC_ENV])
    journal = Journal(Path(os.environ[OUTPUT_DIR_ENV]), first_line_at)
    journal.enter(Phase.IMPORT, at=first_line_at)
    try:
        error = _run(spec, journal)
    except Terminated:
        return _fail(journal, Status.INCOMPLETE, "SIGTERM", f"rank {journal.rank} was stopped by SIGTERM")
    except Exception as cause:
        traceback.print_exc()
        status = Status.OOM if is_out_of_memory(cause) else Status.ERROR
        return _fail(journal, status, type(cause).__name__, str(cause))
    journal.write(Status.INVALID_LOSS if error else Status.OK, error)
    return 0


def _on_sigterm(_signum: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the last report short
    raise Terminated


def _fail(journal: Journal, status: Status, kind: str, message: str) -> int:
    journal.write(status, RunError(kind=kind, message=message[:4000], phase=journal.phase, rank=journal.rank))
    return 1


def _run(spec: RunSpec, journal: Journal) -> RunError | None:
    """Runs all phases. Returns the error of an invalid loss, with which the run is complete all the same."""
    # Imports belong to the phase IMPORT, whose seconds are a result. What they make stays: to look for garbage among
    # it, again and again, takes a seventh of their time.
    gc.disable()
    import_stack(spec)
    # The first three are imported again by later functions, at no cost then.
    import bench_image.training.autotune
    import bench_image.training.execution
    import bench_image.training.loop  # noqa: F401
    from bench_image.model.build import build
    from bench_image.parallel.strategies import join_group

    gc.enable()

    journal.enter(Phase.BUILD)
    group = join_group(spec)
    spec = spec.of_one_rank
    if gpus := _gpus(spec):
        journal.gpu_uuid = gpus[journal.local_rank].uuid  # before anything can fail that must name its GPU
    try:
        built = build(spec, group.device, group.shard)
        journal.parameters = built.parameters
        journal.enter(Phase.PROBE)
        sampler = _start_telemetry(spec, journal, group)
        try:
            work, step = _prepare_step(spec, journal, built, group)
            expected_step_s = _warm_up(work, journal, group, step, sampler)
            error = _measure(work, journal, group, step, sampler, expected_step_s)
        finally:
            if sampler:
                journal.gpus, journal.host, reasons = sampler.stop()
                journal.add_missing("telemetry", reasons)
        journal.memory = _read_memory(group.device, journal)  # before the profiled steps, which are not measured
        if error is None:
            _profile(journal, group, step)
    finally:
        journal.memory = journal.memory or _read_memory(group.device, journal)  # also of a run that failed
    journal.enter(Phase.REPORT)
    step.close()
    group.close()
    return error


def _start_telemetry(spec: RunSpec, journal: Journal, group: ProcessGroup) -> Sampler | None:
    """Reads the context and probes the hardware. The first rank of each node reads, and samples, for all its GPUs."""
    import torch

    from bench_image.model.dtypes import DTYPES, PRODUCTS
    from bench_image.telemetry.environment import read_context
    from bench_image.telemetry.probes import probe
    from bench_image.telemetry.sampler import Sampler

    gpus = _gpus(spec)
    sampler = None
    if journal.local_rank == 0:
        journal.context, reasons = read_context(spec.identity.node, spec.work.device, gpus)
        journal.add_missing("context", reasons)
        sampler = Sampler(spec.work.device, gpus, spec.telemetry_interval_s)
        sampler.start()
    gpu_name = gpus[journal.local_rank].name if gpus else None
    dtypes = PRODUCTS if group.device.type == "cuda" else DTYPES  # the CPU emulates 8-bit products
    journal.probes, reasons = probe(group, gpu_name, dtypes[spec.work.precision])
    journal.add_missing("probes", reasons)
    if group.device.type == "cuda":
        torch.cuda.empty_cache()  # the probes' buffers would count as memory of the training
    return sampler


def _gpus(spec: RunSpec) -> tuple[TorchGpu, ...]:
    """The GPUs of this node's ranks."""
    import torch

    from bench_image.telemetry.unmeasured_gpus import torch_gpus

    return torch_gpus(torch, spec.placement.gpus_per_node) if spec.work.device.value == "cuda" else ()


def _prepare_step(spec: RunSpec, journal: Journal, built: BuiltModel, group: ProcessGroup) -> tuple[RunSpec, TrainStep]:
    """Decides every 'auto' of the spec; the spec that will run, and its training step."""
    from bench_image.training.autotune import autotune
    from bench_image.training.execution import describe_execution
    from bench_image.training.train_step import TrainStep

    journal.enter(Phase.AUTOTUNE)
    spec, why, checkpointed = autotune(spec, built, group)
    step = TrainStep(spec, built, group)
    journal.chosen = Chosen(
        micro_batch_size=spec.work.samples_per_micro_step,
        gradient_checkpointing=spec.work.gradient_checkpointing is True,
        checkpointed_layers=checkpointed,
        why=why,
        execution=describe_execution(step) | {"data": step.batches.source},
    )
    return spec, step


def _warm_up(
    spec: RunSpec, journal: Journal, group: ProcessGroup, step: TrainStep, sampler: Sampler | None
) -> float | None:
    """Runs the warm-up. Returns the seconds that a step is expected to take; None after a single warm-up step."""
    from bench_image.training.loop import settled_step_s, warm_up

    journal.enter(Phase.WARMUP)
    logged_at = 0.0

    def log(done: int, seconds: float) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at >= LOG_EVERY_S or done == spec.measurement.warmup_steps:
            logged_at = time.monotonic()
            rate = round(spec.samples_per_step / seconds, 3)
            journal.log(step=f"{done}/{spec.measurement.warmup_steps}", samples_per_s=rate, **_current_use(sampler))

    seconds = warm_up(step, spec.measurement.warmup_steps, group, log)
    journal.cuda_graph_peak_bytes = step.cuda_graph.peak_bytes if step.cuda_graph else 0
    if len(seconds) > 1:
        journal.startup["compile_s"] = max(0.0, seconds[0] - seconds[-1])
    else:
        journal.missing["startup.compile_s"] = "one warm-up step shows no difference: warm up for 2 or more"
    return settled_step_s(seconds)


def _current_use(sampler: Sampler | None) -> dict[str, float]:
    """For the log. Only between windows, because it queries the driver."""
    return sampler.glance() if sampler else {}


def _measure(
    spec: RunSpec,
    journal: Journal,
    group: ProcessGroup,
    step: TrainStep,
    sampler: Sampler | None,
    expected_step_s: float | None,
) -> RunError | None:
    """Measures all windows, or those up to the first with an invalid loss, whose error it returns."""
    from bench_image.contract.step_stats import window_rate
    from bench_image.parallel.turnstile import turnstile_of
    from bench_image.telemetry.peak_memory import reset_peak_memory
    from bench_image.training.loop import measure_window

    # What lives now lives to the end: frozen, it is not looked at by a garbage collection within a window.
    gc.collect()
    gc.freeze()
    reset_peak_memory(group.device)
    turnstile = turnstile_of(os.environ)
    journal.has_waited(turnstile.arrive())
    journal.enter(Phase.MEASURE)
    for number in range(1, spec.measurement.repeats + 1):
        with turnstile.turn() as waited_s:
            journal.has_waited(waited_s)
            if sampler:
                sampler.resume()
            timing = measure_window(step, group, spec, expected_step_s)
            if sampler:
                sampler.pause()
        journal.timings.append(timing)
        steps = len(timing.step_times_s)
        expected_step_s = timing.wall_s / steps
        rate = window_rate(Clock.of(spec.work.device), timing.wall_s, timing.step_times_s, spec.samples_per_step)
        use = _current_use(sampler)
        journal.log(window=f"{number}/{spec.measurement.repeats}", steps=steps, samples_per_s=round(rate, 3), **use)
        if None in timing.losses:
            message = f"loss of step {timing.losses.index(None) + 1} in window {number} is NaN or infinite"
            return RunError(kind="invalid_loss", message=message, phase=Phase.MEASURE)
    turnstile.leave()
    return None


def _profile(journal: Journal, group: ProcessGroup, step: TrainStep) -> None:
    """Measures the share of communication in a few more steps; after the windows, because profiling slows them."""
    from bench_image.training.comm_profile import measure_communication

    if group.world_size == 1:
        journal.missing |= dict.fromkeys(("communication", "startup.profile_s"), "one rank has no peer")
        return
    journal.enter(Phase.PROFILE)
    try:
        journal.communication = measure_communication(step, group)
    except RuntimeError as error:  # the windows that were measured before count all the same
        journal.missing["communication"] = f"the steps could not be profiled: {error}"[:1000]


def _read_memory(device: torch.device, journal: Journal) -> Memory:
    from bench_image.telemetry.peak_memory import read_peak_memory

    memory, reasons = read_peak_memory(device, journal.cuda_graph_peak_bytes)
    journal.add_missing("memory", reasons)
    return memory


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is written. The libraries' own shutdown takes a second, and after a fault may wait for lost peers.
    os._exit(code)
