"""What the supervisor saw of the GPUs enters the reports, with its reasons."""

from __future__ import annotations

from typing import Any

from bench_image.contract.options import Recipe
from bench_image.contract.parse import parse_result
from bench_image.contract.result import Phase, Status
from bench_image.process.exit_codes import ProcessExits
from bench_image.process.merge import merge
from bench_image.process.supervisor import watched_reports
from bench_image.telemetry.gpu_watch import FIELDS, Said
from tests.builders.image_processes import make_spec
from tests.builders.results import SILENT
from tests.image.process.test_merge import BEGIN, END, failed, make_report

SPEC = make_spec(recipe=Recipe.FULL, max_measured_steps=4)


def said(uuid: str | None, **fields: Any) -> Said:
    unknown = {name: "NVML: Not Supported" for name, value in fields.items() if value is None}
    return Said(SILENT | fields, unknown) if uuid == "GPU-1" else Said(dict.fromkeys(FIELDS), {})


def test_the_row_of_each_gpu_gets_its_fields_and_reasons() -> None:
    (report,) = watched_reports([make_report()], lambda uuid: said(uuid, pcie_replays=3, nvlink_replays=None))
    result = parse_result(merge(SPEC, [report], ProcessExits({0: 0}), BEGIN, END).model_dump_json())
    (gpu,) = result.telemetry.gpus

    assert (gpu.pcie_replays, gpu.nvlink_replays, gpu.xids) == (3, None, {})
    assert result.missing["telemetry.gpus.0.nvlink_replays"] == "NVML: Not Supported"


def test_an_xid_of_a_rank_that_died_early_is_in_the_result() -> None:
    """It ended before it read its GPU, perhaps because of this."""
    dead = failed(0, Status.ERROR, "AcceleratorError").model_copy(update={"gpus": (), "phase": Phase.BUILD})
    (report,) = watched_reports([dead], lambda uuid: said(uuid, xids={"79": 1}))
    result = parse_result(merge(SPEC, [report], ProcessExits({0: 1}), BEGIN, END).model_dump_json())

    assert [(gpu.uuid, gpu.xids, gpu.num_samples) for gpu in result.telemetry.gpus] == [("GPU-1", {"79": 1}, 0)]


def test_without_an_xid_such_a_rank_has_no_row() -> None:
    dead = failed(0, Status.ERROR, "RuntimeError").model_copy(update={"gpus": ()})
    (report,) = watched_reports([dead], said)

    assert report.gpus == ()
