"""The report of one rank: a file that the rank replaces at each phase border and at its end, and its reader."""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field, ValidationError

from bench_image.contract.frozen import Frozen
from bench_image.contract.links import Links
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
    Startup,
)
from bench_image.data.atomic_file import write_atomic
from bench_image.parallel.file_barrier import ARRIVED_FILE
from bench_image.parallel.visible_gpus import GPU_UUID_ENV

if TYPE_CHECKING:
    from bench_image.training.loop import Timing

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

    model_config = ConfigDict(frozen=False)  # the rank fills it in

    rank: int
    status: Status | None = None
    error: RunError | None = None
    phase: Phase
    written_at: float = Field(description="epoch seconds")
    startup: dict[str, float] = Field(description="fields of Startup that are known")
    windows: tuple[WindowRecord, ...] = ()
    own_step_time_median_s: float | None = None
    own_mean_loss: float | None = None
    own_steps_s: tuple[float, ...] = ()
    step_waits_s: tuple[float, ...] = ()
    chosen: Chosen | None = None
    context: Context | None = None
    gpu_uuid: str | None = None
    parameters: ParameterCount | None = None
    probes: Probes | None = None
    communication: Communication | None = None
    links: Links | None = None
    memory: Memory | None = None
    gpus: tuple[GpuTelemetry, ...] = ()
    host: HostTelemetry | None = None
    missing: dict[str, str] = Field({})


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


class Journal:
    """A rank's report as the phases fill it in; `report.startup` holds the seconds of finished phases."""

    def __init__(self, folder: Path, now: float) -> None:
        self.folder, self.local_rank = folder, int(os.environ["LOCAL_RANK"])
        self.started = float(os.environ.get(STARTED_ENV, now))
        self.report = RankReport(
            rank=int(os.environ["RANK"]), phase=Phase.LAUNCH, written_at=now, startup={"turns_s": 0.0},
            gpu_uuid=os.environ.get(GPU_UUID_ENV),
        )  # fmt: skip
        self.lock = threading.RLock()  # the watch of the ranks may end the run while the main thread writes
        self.timings: list[Timing] = []
        self.unwatched = ""  # why no rank would be named that hangs
        self.cuda_graph_peak_bytes = 0  # while the step was captured; torch does not count it when replayed
        self._entered_at = self.started

    def enter(self, phase: Phase, at: float | None = None) -> None:
        """Ends the current phase, whose seconds are known now, and begins `phase`, at epoch seconds `at`."""
        now = time.time() if at is None else at
        if (name := f"{self.report.phase.value}_s") in Startup.model_fields:
            self.report.startup[name] = now - self._entered_at
        self.report.phase, self._entered_at = phase, now
        self.write(None, None)
        self.log(seconds_since_start=round(now - self.started, 2))

    def has_waited(self, seconds: float) -> None:
        """Counts seconds in which other pods had their turn: they belong to no phase."""
        self.report.startup["turns_s"] += seconds
        self._entered_at += seconds

    def write(self, status: Status | None, error: RunError | None) -> None:
        """Writes the report. `status` None: the rank still runs."""
        with self.lock:
            report = self.report
            own = [seconds for timing in self.timings for seconds in timing.own_step_times_s]
            losses = [loss for timing in self.timings for loss in timing.own_losses]
            finite = all(loss is not None for timing in self.timings for loss in timing.losses)
            report.status, report.error, report.written_at = status, error, time.time()
            report.own_step_time_median_s = statistics.median(own) if own else None
            report.own_mean_loss = statistics.fmean(losses) if losses and finite else None
            report.windows = tuple(
                WindowRecord(
                    started_s=timing.started_at - self.started,
                    wall_s=timing.wall_s,
                    loader_wait_s=timing.loader_wait_s,
                    step_times_s=timing.step_times_s,
                    losses=timing.losses,
                )
                for timing in self.timings
            )
            write_atomic(rank_path(self.folder, report.rank), report.model_dump_json())

    def add_missing(self, section: str, reasons: dict[str, str]) -> None:
        """Adds reasons of null fields, whose paths are relative to `section` of the result."""
        self.report.missing |= {f"{section}.{path}": reason for path, reason in reasons.items()}

    def log(self, **facts: object) -> None:
        """Writes one line `phase=... name=value ...` to the log; rank 0 only."""
        if self.report.rank == 0:
            line = " ".join(f"{name}={value}" for name, value in facts.items())
            sys.stderr.write(f"phase={self.report.phase.value} {line}\n")
