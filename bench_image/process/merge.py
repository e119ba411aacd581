"""Merges the reports and exit codes of ranks that work together into one RunResult. No files, clocks or torch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from bench_image.contract.flops import flops_per_token, tokens_per_sample
from bench_image.contract.frozen import fields_of
from bench_image.contract.gpu_specs import peak_tflops
from bench_image.contract.memory_estimate import num_layers
from bench_image.contract.result import SECTIONS, Phase, RankSummary, RunError, RunResult, Status, resolve_spec
from bench_image.contract.result_sections import (
    Clock,
    Communication,
    Cost,
    HostTelemetry,
    Memory,
    ParameterCount,
    Performance,
    Probes,
    Startup,
    Telemetry,
    Window,
)
from bench_image.contract.spec import RunSpec
from bench_image.contract.step_stats import half_width_pct, step_time, window_rate, window_s
from bench_image.contract.work import Device
from bench_image.process.exit_codes import ProcessExits, signal_name
from bench_image.process.rank_report import RankReport, WindowRecord

HINTS = {
    "SIGKILL": "most likely the kernel's out-of-memory killer: look at the pod's memory limit and the node's log",
    "SIGSEGV": "a crash in native code: look at the versions of driver, torch and bitsandbytes",
    "SIGABRT": "native code gave up, often after a CUDA or NCCL fault: look for its message in the log",
}
TOKEN_BYTES = 8  # token ids travel to the GPU as 64-bit integers
OF_NO_RANK = dict.fromkeys(("ranks.*.performance", "ranks.*.probes"), "the ranks work together and have one pace")
Missing = dict[str, str]


def merge(
    spec: RunSpec, reports: Sequence[RankReport], exits: ProcessExits, started_at: datetime, finished_at: datetime
) -> RunResult:
    """The result of a run whose ranks share one pace; valid whatever the reports hold.

    Figures come from rank 0, whose step times and losses are over all ranks already; memory from all ranks.
    """
    status, error = status_and_cause(spec, reports, exits)
    first = reports[0] if reports else None
    missing = _known_reasons(spec, status, error, first)
    windows = first.windows if first else ()
    work = resolve_spec(spec, first.chosen if first else None)
    performance = performance_of(work, first, windows, missing)
    return RunResult(
        spec=spec,
        chosen=first.chosen if first else None,
        status=status,
        error=error,
        started_at=started_at,
        finished_at=finished_at,
        context=first.context if first else None,
        startup=_startup(first, (finished_at - started_at).total_seconds()),
        performance=performance,
        memory=largest_memory(reports),
        telemetry=_telemetry(work, first, performance, missing),
        probes=(first and first.probes) or Probes(**dict.fromkeys(Probes.model_fields)),
        communication=(first and first.communication) or Communication(**dict.fromkeys(Communication.model_fields)),
        parameters=(first and first.parameters) or ParameterCount(total=None, trainable=None),
        cost=Cost(**dict.fromkeys(fields_of(Cost))),
        ranks=tuple(_summary(report, status) for report in reports),
        missing=missing,
    )


def _known_reasons(spec: RunSpec, status: Status, error: RunError | None, first: RankReport | None) -> Missing:
    """Why fields are null: as the control plane fills them, the run failed, it used no GPU, or rank 0 says so."""
    missing: Missing = {"cost": "prices are filled in by the control plane", **OF_NO_RANK}
    if error is not None:
        failed = f"the run ended as {status.value} in phase {error.phase.value}"
        missing |= dict.fromkeys(set(SECTIONS) - {"cost"}, failed)
        missing["ranks"] = f"the rank ended before it was measured: {status.value}"
    if spec.work.device is Device.CPU:
        missing |= dict.fromkeys(("ranks.*.gpu_uuid", "ranks.*.peak_allocated_bytes"), "the run uses no GPU")
    return missing | (first.missing if first else {})


def status_and_cause(
    spec: RunSpec, reports: Sequence[RankReport], exits: ProcessExits
) -> tuple[Status, RunError | None]:
    """The status of the run and its first cause. When one rank fails, the others fail or hang as a consequence.

    So causes are tried from the most to the least certain: all ranks ok; out of memory or an invalid loss, which only
    their own rank reports; a stop from outside; the time limit; a killed process; an exception; a stopped rank.
    """
    expected = spec.placement.gpus_per_node
    if len(reports) == expected and all(report.status is Status.OK for report in reports):
        return Status.OK, None
    # A rank's own report of a cause that no other rank can have produced.
    for status in (Status.OOM, Status.INVALID_LOSS):
        if cause := _earliest(reports, status):
            return status, cause
    # Ends from outside.
    phase = _last_phase(reports)
    if exits.stopped_by:
        message = f"stopped by {exits.stopped_by} in phase {phase.value}"
        return Status.INCOMPLETE, RunError(kind=exits.stopped_by, message=message, phase=phase)
    if exits.timed_out:
        message = _timeout_message(spec, phase, exits.patience_s, anyone=bool(reports))
        return Status.TIMEOUT, RunError(kind="timeout", message=message, phase=phase)
    # Ranks that failed: a signal comes before an exception, which may be its consequence.
    killed = _killed(reports, exits.codes)
    if killed:
        return Status.ERROR, killed
    if cause := _earliest(reports, Status.ERROR):
        return Status.ERROR, cause
    if cause := _earliest(reports, Status.INCOMPLETE):
        return Status.INCOMPLETE, cause
    message = f"exit codes by rank: {dict(exits.codes)}; no rank reported a cause: look at the log"
    return Status.ERROR, RunError(kind="no_result", message=message, phase=phase)


def _timeout_message(spec: RunSpec, phase: Phase, patience_s: float | None, *, anyone: bool) -> str:
    """Names the limit that ended the run. `patience_s`: see ProcessExits. `anyone`: whether any rank wrote a report."""
    if patience_s is not None:
        waited = f"not done {patience_s:.0f} s after a neighbour had done the same work"
        return f"{waited}, in phase {phase.value}: look for a hang"
    if spec.placement.nodes > 1 and not anyone:
        nodes = spec.placement.nodes
        return f"not all of the {nodes} nodes met within timeout_s {spec.timeout_s:g}: did their pods start?"
    return f"not done after timeout_s {spec.timeout_s:g}, in phase {phase.value}: raise it, or look for a hang"


def _earliest(reports: Sequence[RankReport], status: Status) -> RunError | None:
    failed = [report for report in reports if report.status is status and report.error]
    return min(failed, key=lambda report: report.written_at).error if failed else None


def _killed(reports: Sequence[RankReport], codes: Mapping[int, int]) -> RunError | None:
    """The error of the first rank that a signal ended before it could report."""
    by_rank = {report.rank: report for report in reports}
    for rank, code in sorted(codes.items()):
        report = by_rank.get(rank)
        if code < 0 and (report is None or report.status is None):
            name = signal_name(code)
            phase = report.phase if report else Phase.LAUNCH
            message = f"rank {rank} was killed by {name} in phase {phase.value}; {HINTS.get(name, 'look at the log')}"
            return RunError(kind=name, message=message, phase=phase, rank=rank)
    return None


def _last_phase(reports: Sequence[RankReport]) -> Phase:
    """The phase of the unfinished rank that had come least far."""
    order = list(Phase)
    open_phases = [report.phase for report in reports if report.status is not Status.OK]
    return min(open_phases, key=order.index) if open_phases else Phase.LAUNCH


def _startup(first: RankReport | None, total_s: float) -> Startup:
    known = first.startup if first else {}
    return Startup(**{name: known.get(name) for name in Startup.model_fields} | {"total_s": total_s})


def performance_of(
    spec: RunSpec, first: RankReport | None, windows: Sequence[WindowRecord], missing: Missing
) -> Performance:
    """Rates, step times, losses and utilisation over `windows`; notes the reason of each null in `missing`.

    `spec` is the work as it ran, without 'auto'. MFU = tokens/s per GPU x model FLOPs per token / the GPU's peak FLOP/s
    (arXiv 2204.02311, appendix B); HFU counts the FLOPs that checkpointing repeats as well.
    """
    work = spec.work
    # Rates: samples of all windows / seconds of all windows by the run's clock.
    steps = [seconds for window in windows for seconds in window.step_times_s]
    wall = sum(window.wall_s for window in windows)
    clock = Clock.of(work.device)
    clocked_s = math.fsum(window_s(clock, window.wall_s, window.step_times_s) for window in windows)
    samples_per_s = len(steps) * spec.samples_per_step / clocked_s if steps else None
    tokens_per_s = samples_per_s * tokens_per_sample(work.shape, work.seq_length) if samples_per_s else None
    mean_loss, first_loss, last_loss = _losses(windows, missing)
    # Utilisation: FLOPs per second of one GPU against its peak, and against the matmul rate measured on it.
    some = first.chosen.checkpointed_layers if first and first.chosen else 0
    checkpointed = some / num_layers(work.shape) if some else work.gradient_checkpointing is True
    flops = flops_per_token(work.shape, work.recipe, work.seq_length, work.lora, checkpointed)
    per_gpu = tokens_per_s / spec.placement.world_size if tokens_per_s else None
    peak, matmul = _peak(spec, first, missing), first.probes.matmul_tflops if first and first.probes else None
    return Performance(
        clock=clock,
        samples_per_second=samples_per_s,
        tokens_per_second=tokens_per_s,
        measured_steps=len(steps),
        measured_wall_s=wall if steps else None,
        step_time=step_time(steps) if len(steps) > 1 else None,
        windows=tuple(_window(spec, window) for window in windows),
        step_times_s=tuple(round(seconds, 6) for seconds in steps),
        mean_loss=mean_loss,
        first_loss=first_loss,
        last_loss=last_loss,
        flops_per_token=flops.model,
        mfu_pct=_share_pct(per_gpu, flops.model, peak),
        hfu_pct=_share_pct(per_gpu, flops.hardware, peak),
        matmul_share_pct=_share_pct(per_gpu, flops.model, matmul),
        loader_wait_pct=100 * sum(window.loader_wait_s for window in windows) / wall if steps else None,
        input_mb_per_s=tokens_per_s * TOKEN_BYTES / 1e6 if tokens_per_s else None,
    )


def _losses(windows: Sequence[WindowRecord], missing: Missing) -> tuple[float | None, float | None, float | None]:
    """Mean, first and last loss. A loss that is not finite makes the mean null, and is null itself."""
    losses = [loss for window in windows for loss in window.losses]
    if not losses:
        return None, None, None
    finite = [loss for loss in losses if loss is not None]
    if len(finite) < len(losses):
        names = ("performance.mean_loss", "performance.first_loss", "performance.last_loss")
        missing |= dict.fromkeys(names, "the loss is not finite")
    return statistics.fmean(finite) if len(finite) == len(losses) else None, losses[0], losses[-1]


def _share_pct(tokens_per_gpu_s: float | None, flops_per_token: float, tflops: float | None) -> float | None:
    """100 x FLOPs per second of one GPU / a rate of the same GPU in TFLOP/s; None where either is unknown."""
    if tokens_per_gpu_s is None or tflops is None:
        return None
    return 100 * tokens_per_gpu_s * flops_per_token / (tflops * 1e12)


def _peak(spec: RunSpec, first: RankReport | None, missing: Missing) -> float | None:
    """Peak TFLOP/s of the first GPU in the run's precision; None, with a reason, for a GPU that the table lacks."""
    gpus = first.context.gpus if first and first.context else ()
    peak = peak_tflops(gpus[0].name, spec.work.precision) if gpus else None
    if peak is None:
        reason = "the run uses no GPU" if spec.work.device is Device.CPU else "the GPU's name is unknown"
        if gpus:
            reason = f"the {spec.work.precision.value} peak of '{gpus[0].name}' is not in the GPU table"
        missing |= {"performance.mfu_pct": reason, "performance.hfu_pct": reason}
    return peak


def _window(spec: RunSpec, record: WindowRecord) -> Window:
    half_width = half_width_pct(record.step_times_s)
    clock = Clock.of(spec.work.device)
    assert half_width is not None, "a window has at least two steps"
    return Window(
        started_s=record.started_s,
        wall_s=record.wall_s,
        num_steps=len(record.step_times_s),
        samples_per_second=window_rate(clock, record.wall_s, record.step_times_s, spec.samples_per_step),
        half_width_pct=half_width,
        steady=half_width <= spec.measurement.target_half_width_pct,
    )


def largest_memory(reports: Sequence[RankReport]) -> Memory:
    """The maximum over ranks of each peak; retries and OOMs are summed over ranks."""
    known = [report.memory for report in reports if report.memory]

    def over(combine: Callable[[list[Any]], Any], name: str) -> Any:
        values = [getattr(memory, name) for memory in known if getattr(memory, name) is not None]
        return combine(values) if values else None

    return Memory(
        kind=known[0].kind if known else None,
        peak_during_training=over(max, "peak_during_training"),
        peak_allocated_bytes=over(max, "peak_allocated_bytes"),
        peak_reserved_bytes=over(max, "peak_reserved_bytes"),
        alloc_retries=over(sum, "alloc_retries"),
        num_ooms=over(sum, "num_ooms"),
    )


def _telemetry(spec: RunSpec, first: RankReport | None, performance: Performance, missing: Missing) -> Telemetry:
    gpus = first.gpus if first else ()
    energies = [gpu.energy_j for gpu in gpus]
    joules = math.fsum(energy for energy in energies if energy is not None)
    known = bool(energies) and None not in energies and performance.measured_steps > 0
    if not known:
        reason = "a GPU has no energy counter" if gpus else "no GPU was measured"
        missing |= {"telemetry.energy_per_sample_j": reason, "telemetry.energy_per_token_j": reason}
    # The energy is that of this pod's GPUs, so it is divided by this pod's share of the samples.
    samples = performance.measured_steps * spec.samples_per_step / spec.placement.nodes if known else 0
    nothing = HostTelemetry(cpu_utilisation_mean_pct=None, cpu_steal_pct=None, memory_used_pct=None)
    return Telemetry(
        gpus=gpus,
        host=(first and first.host) or nothing,
        energy_per_sample_j=joules / samples if known else None,
        energy_per_token_j=joules / (samples * tokens_per_sample(spec.work.shape, spec.work.seq_length))
        if known
        else None,
    )


def _summary(report: RankReport, run: Status) -> RankSummary:
    return RankSummary(
        rank=report.rank,
        status=report.status or run,
        gpu_uuid=report.gpu_uuid,
        step_time_median_s=report.own_step_time_median_s,
        peak_allocated_bytes=report.memory.peak_allocated_bytes if report.memory else None,
        mean_loss=report.own_mean_loss,
        performance=None,
        probes=None,
    )
