"""The phases of one rank after its imports: build, probe, automatic settings, warm-up, windows, profile."""

from __future__ import annotations

import gc
import os
import sys
import time
from functools import partial
from pathlib import Path

import torch

from bench_image.contract.pod_io import TRACES_ENV
from bench_image.contract.result import HANG, Chosen, Phase, RunError, Status
from bench_image.contract.result_sections import Clock, Memory
from bench_image.contract.spec import RunSpec
from bench_image.contract.step_stats import window_rate
from bench_image.model.build import BuiltModel, build
from bench_image.model.dtypes import DTYPES, PRODUCTS
from bench_image.parallel.process_group import ProcessGroup
from bench_image.parallel.rank_watch import Hang, RankWatch
from bench_image.parallel.strategies import join_group
from bench_image.parallel.turnstile import turnstile_of
from bench_image.process.rank_report import Journal
from bench_image.telemetry.environment import read_context
from bench_image.telemetry.link_sweep import sweep_links
from bench_image.telemetry.peak_memory import read_peak_memory, reset_peak_memory
from bench_image.telemetry.probes import probe
from bench_image.telemetry.sampler import Sampler
from bench_image.telemetry.unmeasured_gpus import TorchGpu, torch_gpus
from bench_image.training.autotune import autotune
from bench_image.training.comm_profile import measure_communication
from bench_image.training.execution import describe_execution
from bench_image.training.loop import measure_window, settled_step_s, warm_up
from bench_image.training.stopwatch import synchronize
from bench_image.training.train_step import TrainStep

LOG_EVERY_S = 3.0
TRACED_STEPS = 3


def run(spec: RunSpec, journal: Journal) -> RunError | None:
    """Runs all phases. Returns the error of an invalid loss, with which the run is complete all the same."""
    journal.enter(Phase.BUILD)
    group = join_group(spec)
    watch = _watch(spec, journal, group) if group.world_size > 1 else None
    spec, report = spec.of_one_rank, journal.report
    gpus = torch_gpus(torch, spec.placement.gpus_per_node) if spec.work.device.value == "cuda" else ()
    if gpus:
        report.gpu_uuid = gpus[journal.local_rank].uuid  # before anything can fail that must name its GPU
    try:
        built = build(spec, group.device, group.shard)
        report.parameters = built.parameters
        journal.enter(Phase.PROBE)
        sampler = _start_telemetry(spec, journal, group, gpus)
        try:
            work, step = _prepare_step(spec, journal, built, group)
            expected_step_s = _warm_up(work, journal, group, step, sampler)
            error = measure(work, journal, group, step, sampler, expected_step_s)
        finally:
            if sampler:
                report.gpus, report.host, reasons = sampler.stop()
                journal.add_missing("telemetry", reasons)
        report.memory = _read_memory(group.device, journal)  # before the profiled steps, which are not measured
        if error is None:
            window = journal.timings[-1]
            profile(journal, group, step, window.wall_s / len(window.step_times_s))
    finally:
        report.memory = report.memory or _read_memory(group.device, journal)  # also of a run that failed
    journal.enter(Phase.REPORT)
    if error is None:
        trace(journal, group, step)
    if watch:
        watch.close()
    step.close()
    group.close()
    return error


def rank_names(spec: RunSpec) -> list[str]:
    nodes, each = spec.identity.nodes, spec.placement.gpus_per_node
    return [f"rank {rank} ({nodes[rank // each]})" for rank in range(spec.placement.world_size)]


def _watch(spec: RunSpec, journal: Journal, group: ProcessGroup) -> RankWatch | None:
    """The watch for a rank that hangs; None, on all ranks, where one of them cannot have it: the run needs it not."""
    watch, journal.unwatched = None, "another rank has no watch"
    try:
        watch = RankWatch(group, rank_names(spec), partial(_end_with, journal))
    except Exception as error:
        journal.unwatched = f"{type(error).__name__}: {error}"[:1000]
    if group.max_over_ranks([watch is None])[0]:
        sys.stderr.write(f"rank {group.rank}: a rank that hangs would not be named: {journal.unwatched}\n")
        if watch:
            watch.close()
        return None
    journal.unwatched = ""
    return watch


def _end_with(journal: Journal, hang: Hang) -> None:
    """Ends this process, whose main thread waits for ever; torchrun ends the others of its pod.

    Where another rank has ended already, the main thread learns of it and reports, too: this report is the last one.
    """
    with journal.lock:
        error = RunError(kind=HANG, message=hang.message[:4000], phase=journal.report.phase, rank=hang.rank)
        journal.write(Status.ERROR, error)
        os._exit(1)


def _start_telemetry(
    spec: RunSpec, journal: Journal, group: ProcessGroup, gpus: tuple[TorchGpu, ...]
) -> Sampler | None:
    """Reads the context and probes the hardware. The first rank of each node reads, and samples, for all its GPUs."""
    sampler = None
    if journal.local_rank == 0:
        journal.report.context, reasons = read_context(spec.identity.node, spec.work.device, gpus)
        journal.add_missing("context", reasons)
        sampler = Sampler(spec.work.device, gpus, spec.telemetry_interval_s)
        sampler.start()
    gpu_name = gpus[journal.local_rank].name if gpus else None
    dtypes = PRODUCTS if group.device.type == "cuda" else DTYPES  # the CPU emulates 8-bit products
    journal.report.probes, reasons = probe(group, gpu_name, dtypes[spec.work.precision])
    journal.add_missing("probes", reasons)
    if spec.link_sweep:
        journal.report.links = sweep_links(spec.link_sweep, group)
    if group.device.type == "cuda":
        torch.cuda.empty_cache()  # the probes' buffers would count as memory of the training
    return sampler


def _prepare_step(spec: RunSpec, journal: Journal, built: BuiltModel, group: ProcessGroup) -> tuple[RunSpec, TrainStep]:
    """Decides every 'auto' of the spec; the spec that will run, and its training step."""
    journal.enter(Phase.AUTOTUNE)
    spec, why, checkpointed = autotune(spec, built, group)
    step = TrainStep(spec, built, group)
    unwatched = {"a rank that hangs": f"would not be named: {journal.unwatched}"} if journal.unwatched else {}
    journal.report.chosen = Chosen(
        micro_batch_size=spec.work.samples_per_micro_step,
        gradient_checkpointing=spec.work.gradient_checkpointing is True,
        checkpointed_layers=checkpointed,
        why=why,
        execution=describe_execution(step) | {"data": step.batches.source} | unwatched,
    )
    return spec, step


def _warm_up(
    spec: RunSpec, journal: Journal, group: ProcessGroup, step: TrainStep, sampler: Sampler | None
) -> float | None:
    """Runs the warm-up. Returns the seconds that a step is expected to take; None after a single warm-up step."""
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
        journal.report.startup["compile_s"] = max(0.0, seconds[0] - seconds[-1])
    else:
        journal.add_missing("startup", {"compile_s": "one warm-up step shows no difference: warm up for 2 or more"})
    return settled_step_s(seconds)


def _current_use(sampler: Sampler | None) -> dict[str, float]:
    """For the log. Only between windows, because it queries the driver."""
    return sampler.glance() if sampler else {}


def measure(
    spec: RunSpec,
    journal: Journal,
    group: ProcessGroup,
    step: TrainStep,
    sampler: Sampler | None,
    expected_step_s: float | None,
) -> RunError | None:
    """Measures all windows, or those up to the first with an invalid loss, whose error it returns."""
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


def profile(journal: Journal, group: ProcessGroup, step: TrainStep, step_s: float) -> None:
    """Measures communication in a few more steps of about `step_s`; after the windows, because profiling slows them."""
    if group.world_size == 1:
        journal.report.missing |= dict.fromkeys(("communication", "startup.profile_s"), "one rank has no peer")
        return
    journal.enter(Phase.PROFILE)
    try:
        profiled = measure_communication(step, group, step_s)
    except RuntimeError as error:  # the windows that were measured before count all the same
        journal.report.missing["communication"] = f"the steps could not be profiled: {error}"[:1000]
        return
    report = journal.report
    report.communication, report.own_steps_s, report.step_waits_s = profiled


def trace(journal: Journal, group: ProcessGroup, step: TrainStep) -> None:
    """Keeps a profiler's timeline of TRACED_STEPS of each rank, where the pod has a folder for traces:
    https://ui.perfetto.dev reads it. A run without one counts, too.
    """
    if not (folder := os.environ.get(TRACES_ENV)):
        return
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    path = Path(folder, f"{step.spec.identity.run_id}.rank-{group.rank}.json.gz")
    try:
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (group.device.type == "cuda")
        with profiled(activities=activities) as profiler:
            for _ in range(TRACED_STEPS):
                step()
            synchronize(group.device)
        path.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(path))
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"rank {group.rank}: no trace: {type(error).__name__}: {error}\n")
    else:
        journal.log(trace=path)


def _read_memory(device: torch.device, journal: Journal) -> Memory:
    memory, reasons = read_peak_memory(device, journal.cuda_graph_peak_bytes)
    journal.add_missing("memory", reasons)
    return memory
