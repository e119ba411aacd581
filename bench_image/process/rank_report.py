"""The report of one rank: a file that the rank replaces at each phase border and at its end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from bench_image.contract.frozen import Frozen
from bench_image.contract.parse import explain
from bench_image.contract.result import Chosen, Phase, RunError, Status
from bench_image.contract.result_sections import (
    Communication,
    Context,
    GpuTelemetry,
    HostTelemetry,
    Memory,
    ParameterCount,
    Probes,
)
from bench_image.parallel.file_barrier import ARRIVED_FILE

STARTED_ENV = "TRAINBENCH_STARTED_AT"  # epoch seconds at which the supervisor's process started


class WindowRecord(Frozen):
    """One finished window: times of the slowest rank, losses as means over ranks, None where not finite."""

    started_s: float = Field(description="since process start")
    wall_s: float
    loader_wait_s: float = Field(description="of the slowest rank")
    step_times_s: tuple[float, ...]
    losses: tuple[float | None, ...]


class RankReport(Frozen):
    """The measurements of one rank so far. `status` None: it still runs; `missing`: path in the result -> reason."""

    rank: int
    status: Status | None
    error: RunError | None
    phase: Phase
    written_at: float = Field(description="epoch seconds")
    startup: dict[str, float] = Field(description="fields of Startup that are known")
    windows: tuple[WindowRecord, ...]
    own_step_time_median_s: float | None
    own_mean_loss: float | None
    chosen: Chosen | None
    context: Context | None
    gpu_uuid: str | None
    parameters: ParameterCount | None
    probes: Probes | None
    communication: Communication | None
    memory: Memory | None
    gpus: tuple[GpuTelemetry, ...]
    host: HostTelemetry | None
    missing: dict[str, str]


def rank_path(folder: Path, rank: int) -> Path:
    """The file of a rank's report."""
    return folder / f"rank-{rank}.json"


def read_reports(folder: Path, *, skip_broken: bool = False) -> tuple[RankReport, ...]:
    """The reports of all ranks of this pod, ordered by rank.

    Raises pydantic's ValidationError for figures outside of their bounds; with `skip_broken` such a report is left out.
    """
    reports = []
    for path in folder.glob("rank-[0-9]*.json"):
        try:
            reports.append(RankReport.model_validate_json(path.read_bytes()))
        except ValidationError as error:
            if not skip_broken:
                raise
            sys.stderr.write(f"{path.name} breaks the contract: {explain(error)}\n")
    return tuple(sorted(reports, key=lambda report: report.rank))


def remove_earlier_run(folder: Path, names: Sequence[str]) -> None:
    """Removes the files of an earlier run, `names` among them, so that none is read as this run's."""
    left = (*folder.glob("rank-*.json"), *folder.glob(ARRIVED_FILE.format("*")), *(folder / name for name in names))
    for path in left:
        path.unlink(missing_ok=True)
