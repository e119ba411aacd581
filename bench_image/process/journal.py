"""The state of one rank as its phases fill it in; writes the rank's report at each border and at the end."""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

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
from bench_image.parallel.visible_gpus import GPU_UUID_ENV
from bench_image.process.rank_report import STARTED_ENV, RankReport, WindowRecord, rank_path

if TYPE_CHECKING:
    from bench_image.training.loop import Timing

SECONDS_FIELD = {
    Phase.LAUNCH: "launch_s",
    Phase.IMPORT: "import_s",
    Phase.BUILD: "build_s",
    Phase.PROBE: "probe_s",
    Phase.AUTOTUNE: "autotune_s",
    Phase.WARMUP: "warmup_s",
    Phase.MEASURE: "measure_s",
    Phase.PROFILE: "profile_s",
}


class Journal:
    """Attributes with the name of a report's field are that field, None until known. `startup` holds the seconds
    of finished phases.
    """

    def __init__(self, folder: Path, now: float) -> None:
        self.folder = folder
        self.rank, self.local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        self.started = float(os.environ.get(STARTED_ENV, now))
        self.phase = Phase.LAUNCH
        self.startup: dict[str, float] = {"turns_s": 0.0}
        self.timings: list[Timing] = []
        self.chosen: Chosen | None = None
        self.context: Context | None = None
        self.gpu_uuid = os.environ.get(GPU_UUID_ENV)
        self.parameters: ParameterCount | None = None
        self.probes: Probes | None = None
        self.communication: Communication | None = None
        self.memory: Memory | None = None
        self.cuda_graph_peak_bytes = 0  # while the step was captured; torch does not count it when replayed
        self.gpus: tuple[GpuTelemetry, ...] = ()
        self.host: HostTelemetry | None = None
        self.missing: dict[str, str] = {}
        self._entered_at = self.started

    def enter(self, phase: Phase, at: float | None = None) -> None:
        """Ends the current phase, whose seconds are known now, and begins `phase`, at epoch seconds `at`."""
        now = time.time() if at is None else at
        if name := SECONDS_FIELD.get(self.phase):
            self.startup[name] = now - self._entered_at
        self.phase, self._entered_at = phase, now
        self.write(None, None)
        self.log(seconds_since_start=round(now - self.started, 2))

    def has_waited(self, seconds: float) -> None:
        """Counts seconds in which other pods had their turn: they belong to no phase."""
        self.startup["turns_s"] += seconds
        self._entered_at += seconds

    def write(self, status: Status | None, error: RunError | None) -> None:
        """Writes the report. `status` None: the rank still runs."""
        own = [seconds for timing in self.timings for seconds in timing.own_step_times_s]
        losses = [loss for timing in self.timings for loss in timing.own_losses]
        finite = all(loss is not None for timing in self.timings for loss in timing.losses)
        report = RankReport(
            **{name: getattr(self, name) for name in RankReport.model_fields if hasattr(self, name)},
            status=status,
            error=error,
            written_at=time.time(),
            windows=tuple(
                WindowRecord(
                    started_s=timing.started_at - self.started,
                    wall_s=timing.wall_s,
                    loader_wait_s=timing.loader_wait_s,
                    step_times_s=timing.step_times_s,
                    losses=timing.losses,
                )
                for timing in self.timings
            ),
            own_step_time_median_s=statistics.median(own) if own else None,
            own_mean_loss=statistics.fmean(losses) if losses and finite else None,
        )
        write_atomic(rank_path(self.folder, self.rank), report.model_dump_json())

    def add_missing(self, section: str, reasons: dict[str, str]) -> None:
        """Adds reasons of null fields, whose paths are relative to `section` of the result."""
        self.missing |= {f"{section}.{path}": reason for path, reason in reasons.items()}

    def log(self, **facts: object) -> None:
        """Writes one line `phase=... name=value ...` to the log; rank 0 only."""
        if self.rank == 0:
            line = " ".join(f"{name}={value}" for name, value in facts.items())
            sys.stderr.write(f"phase={self.phase.value} {line}\n")
