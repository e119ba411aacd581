"""Adds to the ranks' reports what the supervisor saw of their GPUs over the whole run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench_image.contract.frozen import fields_of
from bench_image.contract.result_sections import GpuTelemetry
from bench_image.process.rank_report import RankReport
from bench_image.telemetry.gpu_watch import Said

ENDED_EARLY = "the rank ended before it read its GPUs"


def with_watch(reports: Sequence[RankReport], watched: Callable[[str | None], Said]) -> tuple[RankReport, ...]:
    """The reports with the fields of `gpu_watch`. A rank that ended before it read its GPUs gets a row for its own GPU
    if that reported an Xid: it may be why the rank ended.
    """
    seen = []
    for report in reports:
        gpus, missing = list(report.gpus), dict(report.missing)
        if not gpus and watched(report.gpu_uuid).fields["xids"]:
            unread: dict[str, Any] = dict.fromkeys(fields_of(GpuTelemetry))
            gpus = [GpuTelemetry(**unread | {"index": 0, "uuid": report.gpu_uuid, "num_samples": 0})]
            missing["telemetry.gpus.0"] = ENDED_EARLY
        for position, gpu in enumerate(gpus):
            said = watched(gpu.uuid)
            gpus[position] = gpu.model_copy(update=said.fields)
            missing |= {f"telemetry.gpus.{position}.{name}": reason for name, reason in said.reasons.items()}
        seen.append(report.model_copy(update={"gpus": tuple(gpus), "missing": missing}))
    return tuple(seen)
