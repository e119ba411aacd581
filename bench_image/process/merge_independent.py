"""Merges the reports of independent ranks into one RunResult: sums over ranks, and each rank's own figures."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from pydantic import ValidationError

from bench_image.contract.flops import tokens_per_sample
from bench_image.contract.missing_reasons import unexplained_nulls
from bench_image.contract.parse import explain
from bench_image.contract.result import (
    Chosen,
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
    Context,
    HostTelemetry,
    ParameterCount,
    Performance,
    Probes,
    Startup,
    Telemetry,
)
from bench_image.contract.spec import RunSpec
from bench_image.process.exit_codes import ProcessExits
from bench_image.process.merge import Missing, largest_memory, merge, performance_of
from bench_image.process.rank_report import RankReport

T = TypeVar("T")
WORST_FIRST = (Status.OOM, Status.INVALID_LOSS)
NO_PEER = "independent ranks do not communicate"
PRICED_LATER = "prices are filled in by the control plane"


class RankPart(NamedTuple):
    """One rank: its report, None where it wrote none, and its result as that of a run on one GPU."""

    rank: int
    report: RankReport | None
    result: RunResult

    @property
    def name(self) -> str:
        uuid = self.report.gpu_uuid if self.report else None
        return f"GPU {self.rank}" + (f" ({uuid})" if uuid else "")

    @property
    def is_ok(self) -> bool:
        return self.result.status is Status.OK


def merge_independent(
    spec: RunSpec, reports: Sequence[RankReport], exits: ProcessExits, started_at: datetime, finished_at: datetime
) -> RunResult:
    """The result of a run of independent ranks; valid whatever the reports hold. A failed rank is named in the error
    and does not change the figures of the others.

    `performance` is that of the slowest rank, with the rates of all ranks summed window by window. It covers the
    windows that every rank has: none if one rank has none.
    """
    # Each rank is merged as a run of its own; ranks that did other work than most become errors.
    by_rank = {report.rank: report for report in reports}
    ranks = range(spec.placement.gpus_per_node)
    parts = _check_equal_work([_part(spec, rank, by_rank.get(rank), exits, started_at, finished_at) for rank in ranks])
    status, error = _status_and_cause(parts)
    missing: Missing = dict(_reasons(parts)) | {"cost": PRICED_LATER, "communication": NO_PEER}
    # Then the sections of the whole run, and a reason for each null that no rank's reason covers.
    sections = {
        "chosen": _first(part.result.chosen for part in parts),
        "context": _context(parts),
        "startup": _startup(parts, (finished_at - started_at).total_seconds()),
        "performance": _performance(spec, parts, missing),
        "memory": largest_memory(reports),
        "telemetry": _telemetry(spec, parts),
        "probes": _slowest_probes(parts),
        "communication": Communication(**dict.fromkeys(Communication.model_fields)),
        "parameters": _first(part.report and part.report.parameters for part in parts)
        or ParameterCount(total=None, trainable=None),
        "ranks": tuple(_summary(part) for part in parts),
    }
    missing |= dict.fromkeys(unexplained_nulls(sections, missing), "not known of every GPU")
    fields = {"spec": spec, "status": status, "error": error, "started_at": started_at, "finished_at": finished_at}
    return RunResult(**fields, **sections, cost=parts[0].result.cost, missing=missing)


def _part(
    spec: RunSpec,
    rank: int,
    report: RankReport | None,
    exits: ProcessExits,
    started_at: datetime,
    finished_at: datetime,
) -> RankPart:
    """The rank's result as that of a run on one GPU; stopped or timed out only if it still ran at the end."""
    cut_off = rank in exits.cut_off
    own = ProcessExits(
        {rank: exits.codes[rank]} if rank in exits.codes else {},
        exits.timed_out and cut_off,
        exits.stopped_by if cut_off else None,
        patience_s=exits.patience_s,
    )
    reports = [report] if report else []
    try:
        return RankPart(rank, report, merge(spec.of_one_rank, reports, own, started_at, finished_at))
    except ValidationError as error:  # a figure outside of its bounds, e.g. because a clock was set meanwhile
        message = f"the rank's figures break the contract: {explain(error)}"
        result = failed_result(
            spec.of_one_rank, status=Status.ERROR, kind="broken_figures", message=message, phase=Phase.REPORT,
            at=started_at, rank=rank,
        )  # fmt: skip
        return RankPart(rank, None, result)


def _check_equal_work(parts: Sequence[RankPart]) -> list[RankPart]:
    """Marks ranks that did other work than most as errors: their rates are not comparable with their neighbours'."""
    works = {part.rank: _work_done(part.result.chosen) for part in parts}
    most = Counter(work for work in works.values() if work).most_common(1)
    usual = most[0][0] if most else None
    return [
        part if works[part.rank] in (None, usual) or not part.is_ok else _with_unequal_work(part, str(usual))
        for part in parts
    ]


def _work_done(chosen: Chosen | None) -> str | None:
    return chosen.model_dump_json(exclude={"why"}) if chosen else None


def _with_unequal_work(part: RankPart, usual: str) -> RankPart:
    message = (
        f"it did other work than its neighbours: {_work_done(part.result.chosen)} instead of {usual}: give numbers in "
        "place of 'auto', or compare its memory with theirs"
    )
    error = RunError(kind="unequal_work", message=message[:4000], phase=Phase.AUTOTUNE, rank=part.rank)
    return part._replace(result=part.result.model_copy(update={"status": Status.ERROR, "error": error}))


def _status_and_cause(parts: Sequence[RankPart]) -> tuple[Status, RunError | None]:
    """OK if all ranks are; else the status and error of the worst rank, with the names of the other failed ones."""
    failed = [part for part in parts if not part.is_ok]
    if not failed:
        return Status.OK, None
    worst = next((part for status in WORST_FIRST for part in failed if part.result.status is status), failed[0])
    error = worst.result.error
    assert error is not None, "every status but ok comes with an error"
    others = ", ".join(f"{part.name}: {part.result.status.value}" for part in failed if part is not worst)
    message = f"{worst.name}: {error.message}"[:3000] + (f"; also {others}"[:1000] if others else "")
    return worst.result.status, error.model_copy(update={"message": message, "rank": worst.rank})


def _reasons(parts: Sequence[RankPart]) -> Iterator[tuple[str, str]]:
    """Yields (path, reason) of each rank's nulls, with the path that they have in the result of the run.

    A rank's `performance` lies under `ranks.N.performance`, its GPU at its position among all GPUs.
    """
    position = 0
    for part in parts:
        here = {"performance": f"ranks.{part.rank}.performance", "probes": f"ranks.{part.rank}.probes"}
        for path, reason in part.result.missing.items():
            section, _, rest = path.partition(".")
            if section in here:
                yield ".".join(filter(None, (here[section], rest))), reason
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
    """The figures of the run over the windows that every rank has; see `merge_independent`.

    Rates are summed, utilisations and losses averaged, the loader wait is the largest. Step times are those of
    the slowest rank.
    """
    num_windows = min(len(part.result.performance.windows) for part in parts)
    if num_windows == 0:
        lacking = ", ".join(part.name for part in parts if not part.result.performance.windows)
        missing["performance"] = f"no measured window of {lacking}: the ranks have those of the others"
        return Performance.unmeasured(Clock.of(spec.work.device))
    each = [_over(spec, part, num_windows) for part in parts]
    slowest = min(each, key=lambda one: one.samples_per_second or 0.0)
    return slowest.model_copy(
        update={
            "windows": tuple(
                window.model_copy(
                    update={
                        "samples_per_second": math.fsum(one.windows[number].samples_per_second for one in each),
                        "steady": all(one.windows[number].steady for one in each),
                    }
                )
                for number, window in enumerate(slowest.windows)
            ),
            **{name: _combined(math.fsum, each, name) for name in ("samples_per_second", "tokens_per_second")},
            **{name: _combined(statistics.fmean, each, name) for name in ("mfu_pct", "hfu_pct", "matmul_share_pct")},
            "mean_loss": _combined(statistics.fmean, each, "mean_loss"),
            "loader_wait_pct": _combined(max, each, "loader_wait_pct"),
            "input_mb_per_s": _combined(math.fsum, each, "input_mb_per_s"),
        }
    )


def _over(spec: RunSpec, part: RankPart, num_windows: int) -> Performance:
    """The rank's figures over its first `num_windows` windows."""
    if len(part.result.performance.windows) == num_windows or part.report is None:
        return part.result.performance
    work = resolve_spec(spec.of_one_rank, part.report.chosen)
    return performance_of(work, part.report, part.report.windows[:num_windows], {})


def _combined(combine: object, each: Sequence[Performance], name: str) -> float | None:
    """`combine` of one figure over all ranks; None where a rank lacks it."""
    values = [getattr(one, name) for one in each]
    return None if None in values else combine(values)  # type: ignore[operator]


def _summary(part: RankPart) -> RankSummary:
    """The rank's own figures; null as a whole for a rank without a window."""
    measured = part.result.performance if part.result.performance.windows else None
    known = part.result.ranks[0] if part.result.ranks else None
    return RankSummary(
        rank=part.rank,
        status=part.result.status,
        gpu_uuid=part.report.gpu_uuid if part.report else None,
        step_time_median_s=known.step_time_median_s if known else None,
        peak_allocated_bytes=known.peak_allocated_bytes if known else None,
        mean_loss=known.mean_loss if known else None,
        performance=measured,
        probes=part.report.probes if part.report else None,
    )


def _context(parts: Sequence[RankPart]) -> Context | None:
    """The first rank's context, with the GPUs of all ranks, numbered by rank."""
    known = [(part.rank, part.result.context) for part in parts if part.result.context]
    if not known:
        return None
    gpus = tuple(gpu.model_copy(update={"index": rank}) for rank, context in known for gpu in context.gpus)
    return known[0][1].model_copy(update={"gpus": gpus})


def _startup(parts: Sequence[RankPart], total_s: float) -> Startup:
    """For each phase the seconds of the rank that took longest."""
    longest = {}
    for name in Startup.model_fields:
        known = [value for part in parts if (value := getattr(part.result.startup, name)) is not None]
        longest[name] = max(known) if known else None
    return Startup(**longest | {"total_s": total_s})


def _telemetry(spec: RunSpec, parts: Sequence[RankPart]) -> Telemetry:
    """All GPUs, numbered by rank; the host as the first rank saw it; joules of all GPUs per sample of all ranks."""
    gpus = tuple(
        gpu.model_copy(update={"index": part.rank}) for part in parts for gpu in part.result.telemetry.gpus
    )  # fmt: skip
    nothing = HostTelemetry(cpu_utilisation_mean_pct=None, cpu_steal_pct=None, memory_used_pct=None)
    per_sample_j = _energy_per_sample_j(parts)
    return Telemetry(
        gpus=gpus,
        host=_first(part.report.host for part in parts if part.report) or nothing,
        energy_per_sample_j=per_sample_j,
        energy_per_token_j=per_sample_j / tokens_per_sample(spec.work.shape, spec.work.seq_length)
        if per_sample_j
        else None,
    )


def _energy_per_sample_j(parts: Sequence[RankPart]) -> float | None:
    """Joules of all GPUs / samples of all ranks; None unless every rank is ok and every GPU counted its energy."""
    energies = [gpu.energy_j for part in parts for gpu in part.result.telemetry.gpus]
    samples = [
        part.result.performance.measured_steps * part.result.effective_spec.samples_per_step
        for part in parts
        if part.is_ok
    ]
    known = [energy for energy in energies if energy is not None]
    complete = len(known) == len(energies) == len(samples) == len(parts)
    return math.fsum(known) / sum(samples) if complete else None


def _slowest_probes(parts: Sequence[RankPart]) -> Probes:
    """For each probe the least rate over the ranks."""
    known = [part.report.probes for part in parts if part.report and part.report.probes]

    def least(name: str) -> float | None:
        values = [value for probes in known if (value := getattr(probes, name)) is not None]
        return min(values) if values else None

    return Probes(**{name: least(name) for name in Probes.model_fields})


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)
