"""Merges the reports and exit codes of a run's ranks into one RunResult. No files, clocks or torch.

Ranks that work together have one pace: their result is that of rank 0, whose times and losses are over all ranks.
Independent ranks are merged each as a run of its own, then added up.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from bench_image.contract.consistency import unexplained_nulls
from bench_image.contract.flops import flops_per_token, tokens_per_sample
from bench_image.contract.gpu_specs import peak_tflops
from bench_image.contract.options import Strategy
from bench_image.contract.parse import explain
from bench_image.contract.result import (
    SECTIONS,
    Phase,
    RankSummary,
    RunError,
    RunResult,
    Status,
    failed_result,
    resolve_spec,
)
from bench_image.contract.result_sections import (
    Clock,
    Communication,
    GpuTelemetry,
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
PRICED_LATER = "prices are filled in by the control plane"
WORST_FIRST = (Status.OOM, Status.INVALID_LOSS)  # only their own rank reports them
# How the figures of independent ranks become those of the run.
OF_ALL_RANKS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "samples_per_second": math.fsum,
    "tokens_per_second": math.fsum,
    "mfu_pct": statistics.fmean,
    "hfu_pct": statistics.fmean,
    "matmul_share_pct": statistics.fmean,
    "mean_loss": statistics.fmean,
    "loader_wait_pct": max,
    "input_mb_per_s": math.fsum,
}
Missing = dict[str, str]
T = TypeVar("T")


def merge(
    spec: RunSpec, reports: Sequence[RankReport], exits: ProcessExits, started_at: datetime, finished_at: datetime
) -> RunResult:
    """The result of a run; valid whatever the reports hold, but for figures outside of their bounds: ValidationError,
    or of independent ranks the failure of the rank that has them.
    """
    if spec.placement.strategy is Strategy.INDEPENDENT:
        parts = _each_alone(spec, reports, exits, started_at, finished_at)
        return _add_up(spec, parts, largest_memory(reports), started_at, finished_at)
    status, error = status_and_cause(spec, reports, exits)
    first = reports[0] if reports else None
    # Why fields are null: as the control plane fills them, the run failed, it used no GPU, or rank 0 says so.
    missing: Missing = {"cost": PRICED_LATER, **OF_NO_RANK}
    if error is not None:
        failed = f"the run ended as {status.value} in phase {error.phase.value}"
        missing |= dict.fromkeys(set(SECTIONS) - {"cost"}, failed)
        missing["ranks"] = f"the rank ended before it was measured: {status.value}"
    if spec.work.device is Device.CPU:
        missing |= dict.fromkeys(("ranks.*.gpu_uuid", "ranks.*.peak_allocated_bytes"), "the run uses no GPU")
    missing |= first.missing if first else {}
    work = resolve_spec(spec, first.chosen if first else None)
    performance = performance_of(work, first, first.windows if first else (), missing)
    gpus = first.gpus if first else ()
    # The energy is that of this pod's GPUs, so it is divided by this pod's share of the samples.
    samples = performance.measured_steps * work.samples_per_step / work.placement.nodes if performance.windows else 0
    telemetry = _telemetry(work, gpus, first.host if first else None, samples)
    if telemetry.energy_per_sample_j is None:
        reason = "a GPU has no energy counter" if gpus else "no GPU was measured"
        missing |= {"telemetry.energy_per_sample_j": reason, "telemetry.energy_per_token_j": reason}
    known = first.startup if first else {}
    return RunResult(
        spec=spec,
        chosen=first.chosen if first else None,
        status=status,
        error=error,
        started_at=started_at,
        finished_at=finished_at,
        context=first.context if first else None,
        startup=Startup(**known | _total_s(started_at, finished_at)),
        performance=performance,
        memory=largest_memory(reports),
        telemetry=telemetry,
        probes=(first and first.probes) or Probes(),
        communication=(first and first.communication) or Communication(),
        links=first.links if first else None,
        parameters=(first and first.parameters) or ParameterCount(),
        ranks=tuple(_summary(report.rank, report.status or status, report) for report in reports),
        missing=missing,
    )


def _summary(rank: int, status: Status, report: RankReport | None) -> RankSummary:
    """A rank's own figures beside those of the run. `report` None: it wrote none."""
    return RankSummary(
        rank=rank,
        status=status,
        gpu_uuid=report.gpu_uuid if report else None,
        step_time_median_s=report.own_step_time_median_s if report else None,
        peak_allocated_bytes=report.memory.peak_allocated_bytes if report and report.memory else None,
        mean_loss=report.own_mean_loss if report else None,
        performance=None,
        probes=None,
        own_steps_s=report.own_steps_s if report else (),
        step_waits_s=report.step_waits_s if report else (),
    )


# --- why a run ended


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
    for status in WORST_FIRST:
        if cause := _earliest(reports, status):
            return status, cause
    # Ends from outside, in the phase of the unfinished rank that had come least far.
    unfinished = [report.phase for report in reports if report.status is not Status.OK]
    phase = min(unfinished, key=list(Phase).index, default=Phase.LAUNCH)
    if exits.stopped_by:
        message = f"stopped by {exits.stopped_by} in phase {phase.value}"
        return Status.INCOMPLETE, RunError(kind=exits.stopped_by, message=message, phase=phase)
    if exits.timed_out:
        message = _timeout_message(spec, phase, exits.patience_s, anyone=bool(reports))
        return Status.TIMEOUT, RunError(kind="timeout", message=message, phase=phase)
    # Ranks that failed: a signal comes before an exception, which may be its consequence.
    if cause := _killed(reports, exits.codes) or _earliest(reports, Status.ERROR):
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
        return (
            f"not all of the {nodes} nodes met within timeout_s {spec.timeout_s:g}: did their pods start, and do their "
            "names resolve (`trainbench doctor --probe`)?"
        )
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


# --- figures


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
    # A loss that is not finite makes the mean null, and is null itself.
    losses = [loss for window in windows for loss in window.losses] or [None]
    finite = [loss for loss in losses if loss is not None]
    if windows and len(finite) < len(losses):
        names = ("performance.mean_loss", "performance.first_loss", "performance.last_loss")
        missing |= dict.fromkeys(names, "the loss is not finite")
    # Utilisation: FLOPs per second of one GPU against its peak, and against the matmul rate measured on it.
    some = first.chosen.checkpointed_layers if first and first.chosen else 0
    checkpointed = some / work.shape.num_layers if some else work.gradient_checkpointing is True
    flops = flops_per_token(work.shape, work.recipe, work.seq_length, work.lora, checkpointed)
    model, hardware = flops or (None, None)
    if flops is None:
        reason = f"no formula for the FLOPs of a model of type '{work.shape.kind}'"
        for name in ("flops_per_token", "mfu_pct", "hfu_pct", "matmul_share_pct"):
            missing[f"performance.{name}"] = reason
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
        mean_loss=statistics.fmean(finite) if len(finite) == len(losses) else None,
        first_loss=losses[0],
        last_loss=losses[-1],
        flops_per_token=model,
        mfu_pct=_share_pct(per_gpu, model, peak),
        hfu_pct=_share_pct(per_gpu, hardware, peak),
        matmul_share_pct=_share_pct(per_gpu, model, matmul),
        loader_wait_pct=100 * sum(window.loader_wait_s for window in windows) / wall if steps else None,
        input_mb_per_s=tokens_per_s * TOKEN_BYTES / 1e6 if tokens_per_s else None,
    )


def _share_pct(tokens_per_gpu_s: float | None, flops_per_token: float | None, tflops: float | None) -> float | None:
    """100 x FLOPs per second of one GPU / a rate of the same GPU in TFLOP/s; None where either is unknown."""
    if tokens_per_gpu_s is None or flops_per_token is None or tflops is None:
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
    return Memory(
        kind=known[0].kind if known else None,
        peak_during_training=_over(max, known, "peak_during_training"),
        peak_allocated_bytes=_over(max, known, "peak_allocated_bytes"),
        peak_reserved_bytes=_over(max, known, "peak_reserved_bytes"),
        alloc_retries=_over(sum, known, "alloc_retries"),
        num_ooms=_over(sum, known, "num_ooms"),
    )


def _over(combine: Callable[[list[Any]], Any], sections: Iterable[object], name: str) -> Any:
    """`combine` of the field over the sections that have it; None where none has."""
    values = [value for section in sections if (value := getattr(section, name)) is not None]
    return combine(values) if values else None


def _telemetry(spec: RunSpec, gpus: Sequence[GpuTelemetry], host: HostTelemetry | None, samples: float) -> Telemetry:
    """Joules of all GPUs per sample; None unless each of them counted its energy while there were samples."""
    energies = [gpu.energy_j for gpu in gpus]
    joules = math.fsum(energy for energy in energies if energy is not None)
    known = bool(energies) and None not in energies and samples > 0
    tokens = samples * tokens_per_sample(spec.work.shape, spec.work.seq_length)
    return Telemetry(
        gpus=tuple(gpus),
        host=host or HostTelemetry(),
        energy_per_sample_j=joules / samples if known else None,
        energy_per_token_j=joules / tokens if known else None,
    )


def _total_s(started_at: datetime, finished_at: datetime) -> dict[str, float]:
    return {"total_s": (finished_at - started_at).total_seconds()}


# --- independent ranks


def _each(spec: RunSpec) -> str:
    return "GPU" if spec.work.device is Device.CUDA else "process"


class RankPart(NamedTuple):
    """One rank: its report, None where it wrote none, and its result as that of a run on one GPU."""

    rank: int
    report: RankReport | None
    result: RunResult

    @property
    def name(self) -> str:
        uuid = self.report.gpu_uuid if self.report else None
        return f"GPU {self.rank} ({uuid})" if uuid else f"{_each(self.result.spec)} {self.rank}"

    @property
    def is_ok(self) -> bool:
        return self.result.status is Status.OK

    def failed(self, kind: str, message: str, phase: Phase) -> RankPart:
        error = RunError(kind=kind, message=message[:4000], phase=phase, rank=self.rank)
        return self._replace(result=self.result.model_copy(update={"status": Status.ERROR, "error": error}))


def _each_alone(
    spec: RunSpec, reports: Sequence[RankReport], exits: ProcessExits, started_at: datetime, finished_at: datetime
) -> list[RankPart]:
    """Each rank as a run of its own, stopped or timed out only if it still ran at the end; ranks that did other work
    than most are errors, since their rates are not comparable with their neighbours'.
    """
    by_rank, alone, parts = {report.rank: report for report in reports}, spec.of_one_rank, []
    for rank in range(spec.placement.gpus_per_node):
        cut_off, own = rank in exits.cut_off, [by_rank[rank]] if rank in by_rank else []
        ending = ProcessExits(
            {rank: exits.codes[rank]} if rank in exits.codes else {},
            exits.timed_out and cut_off,
            exits.stopped_by if cut_off else None,
            patience_s=exits.patience_s,
        )
        try:
            parts.append(RankPart(rank, by_rank.get(rank), merge(alone, own, ending, started_at, finished_at)))
        except ValidationError as error:  # a figure outside of its bounds, e.g. because a clock was set meanwhile
            message = f"the rank's figures break the contract: {explain(error)}"
            result = failed_result(
                alone, status=Status.ERROR, kind="broken_figures", message=message, phase=Phase.REPORT, at=started_at,
                rank=rank,
            )  # fmt: skip
            parts.append(RankPart(rank, None, result))
    works = [part.result.chosen and part.result.chosen.model_dump_json(exclude={"why"}) for part in parts]
    usual = next((work for work, _ in Counter(filter(None, works)).most_common(1)), None)
    return [
        part
        if work in (None, usual) or not part.is_ok
        else part.failed(
            "unequal_work",
            f"it did other work than its neighbours: {work} instead of {usual}: give numbers in place of 'auto', or "
            "compare its memory with theirs",
            Phase.AUTOTUNE,
        )
        for part, work in zip(parts, works, strict=True)
    ]


def _add_up(
    spec: RunSpec, parts: Sequence[RankPart], memory: Memory, started_at: datetime, finished_at: datetime
) -> RunResult:
    """The result of a run of independent ranks. A failed rank is named in the error and does not change the figures of
    the others.
    """
    reports = [part.report for part in parts if part.report]
    missing: Missing = dict(_reasons(parts))
    missing |= {"cost": PRICED_LATER, "communication": "independent ranks do not communicate"}
    status, error = Status.OK, None
    if failed := [part for part in parts if not part.is_ok]:
        worst = next((part for status in WORST_FIRST for part in failed if part.result.status is status), failed[0])
        status, error = worst.result.status, worst.result.error
        assert error is not None, "every status but ok comes with an error"
        others = ", ".join(f"{part.name}: {part.result.status.value}" for part in failed if part is not worst)
        message = f"{worst.name}: {error.message}"[:3000] + (f"; also {others}"[:1000] if others else "")
        error = error.model_copy(update={"message": message, "rank": worst.rank})
    gpus = [gpu.model_copy(update={"index": part.rank}) for part in parts for gpu in part.result.telemetry.gpus]
    samples = [part.result.performance.measured_steps * part.result.effective_spec.samples_per_step for part in parts]
    is_complete = not failed and len(gpus) == len(parts)  # else the joules are not those of the samples
    contexts = [(part.rank, part.result.context) for part in parts if part.result.context]
    known = [gpu.model_copy(update={"index": rank}) for rank, context in contexts for gpu in context.gpus]
    startups, probes = [part.result.startup for part in parts], [report.probes for report in reports if report.probes]
    longest = {name: _over(max, startups, name) for name in Startup.model_fields}
    sections = {
        "chosen": _first(part.result.chosen for part in parts),
        "context": contexts[0][1].model_copy(update={"gpus": tuple(known)}) if contexts else None,
        "startup": Startup(**longest | _total_s(started_at, finished_at)),
        "performance": _performance(spec, parts, missing),
        "memory": memory,
        "telemetry": _telemetry(
            spec, gpus, _first(report.host for report in reports), sum(samples) if is_complete else 0
        ),
        "probes": Probes(**{name: _over(min, probes, name) for name in Probes.model_fields}),
        "communication": Communication(),
        "parameters": _first(report.parameters for report in reports) or ParameterCount(),
        "ranks": tuple(
            _summary(part.rank, part.result.status, part.report).model_copy(
                update={
                    "performance": part.result.performance if part.result.performance.windows else None,
                    "probes": part.report.probes if part.report else None,
                }
            )
            for part in parts
        ),
    }
    missing |= dict.fromkeys(unexplained_nulls(sections, missing), f"not known of every {_each(spec)}")
    fields = {"spec": spec, "status": status, "error": error, "started_at": started_at, "finished_at": finished_at}
    return RunResult(**fields, **sections, missing=missing)


def _reasons(parts: Sequence[RankPart]) -> Iterator[tuple[str, str]]:
    """Yields (path, reason) of each rank's nulls, with the path that they have in the result of the run.

    A rank's `performance` lies under `ranks.N.performance`, its GPU at its position among all GPUs.
    """
    position = 0
    for part in parts:
        for path, reason in part.result.missing.items():
            section, _, rest = path.partition(".")
            if section in ("performance", "probes"):
                yield f"ranks.{part.rank}.{path}", reason
                if part.is_ok:
                    yield path, reason
            elif section == "ranks":
                if rest not in ("*.performance", "*.probes"):
                    yield ".".join(["ranks", str(part.rank), *rest.split(".")[1:]]), reason
            elif rest.startswith("gpus.0"):
                yield f"{section}.gpus.{position}{rest.removeprefix('gpus.0')}", reason
            elif rest or part.is_ok:
                yield path, reason
        position += len(part.result.telemetry.gpus)


def _performance(spec: RunSpec, parts: Sequence[RankPart], missing: Missing) -> Performance:
    """That of the slowest rank over the windows that every rank has, with OF_ALL_RANKS over all ranks, and the rates
    of each window summed.
    """
    num_windows = min(len(part.result.performance.windows) for part in parts)
    if num_windows == 0:
        lacking = ", ".join(part.name for part in parts if not part.result.performance.windows)
        missing["performance"] = f"no measured window of {lacking}: the ranks have those of the others"
        return Performance(clock=Clock.of(spec.work.device))
    each = []
    for part in parts:
        own = part.result.performance
        if len(own.windows) > num_windows and part.report:
            work = resolve_spec(spec.of_one_rank, part.report.chosen)
            own = performance_of(work, part.report, part.report.windows[:num_windows], {})
        each.append(own)
    slowest = min(each, key=lambda one: one.samples_per_second or 0.0)
    combined: dict[str, Any] = {}
    for name, combine in OF_ALL_RANKS.items():
        values = [getattr(one, name) for one in each]
        combined[name] = None if None in values else combine(values)
    windows = []
    for number, window in enumerate(slowest.windows):
        of_ranks = [one.windows[number] for one in each]
        rate, steady = math.fsum(of.samples_per_second for of in of_ranks), all(of.steady for of in of_ranks)
        windows.append(window.model_copy(update={"samples_per_second": rate, "steady": steady}))
    return slowest.model_copy(update={"windows": tuple(windows), **combined})


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)
