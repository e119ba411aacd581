"""What one rank knows so far, as a file that is always whole: the rank writes it anew at each phase and at its end."""

from __future__ import annotations

import json
import signal
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
from bench_image.data.atomic_file import write_atomic
from bench_image.parallel.file_barrier import ARRIVED_FILE

STARTED_ENV = "TRAINBENCH_STARTED_AT"  # epoch seconds at which the supervisor's process started
EXITS_FILE = "rank-exits.json"


class WindowRecord(Frozen):
    """One finished window. Times are those of the slowest rank, losses the mean over ranks; None: not finite."""

    started_s: float = Field(description="since process start")
    wall_s: float
    loader_wait_s: float = Field(description="of the slowest rank")
    step_times_s: tuple[float, ...]
    losses: tuple[float | None, ...]


class RankReport(Frozen):
    """`status` is None as long as the rank has not had its last word. Reasons in `missing` name paths of the result."""

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
    return folder / f"rank-{rank}.json"


def read_reports(folder: Path, *, skip_broken: bool = False) -> tuple[RankReport, ...]:
    """The reports of all ranks of this pod, by rank. `skip_broken`: where one rank's is none of the others' business.

    Raises pydantic's ValidationError for figures that cannot be.
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


def write_exit_codes(folder: Path, codes: dict[int, int]) -> None:
    """Exit codes of the ranks that failed first; a negative one is a signal."""
    write_atomic(folder / EXITS_FILE, json.dumps(codes))


def read_exit_codes(folder: Path) -> dict[int, int]:
    path = folder / EXITS_FILE
    return {int(rank): code for rank, code in json.loads(path.read_bytes()).items()} if path.exists() else {}


def forget(folder: Path, names: Sequence[str]) -> None:
    """Removes what an earlier run left in the folder: it must not pass for this run's."""
    left = (*folder.glob("rank-*.json"), *folder.glob(ARRIVED_FILE.format("*")), *(folder / name for name in names))
    for path in left:
        path.unlink(missing_ok=True)


def signal_name(exit_code: int) -> str:
    """SIGKILL for -9."""
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"
