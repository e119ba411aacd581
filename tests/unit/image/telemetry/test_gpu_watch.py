"""What a GPU says over a run: counters as their growth, Xids, and who else uses it. Each figure degrades alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.contract.result_sections import SINCE_0_2, GpuTelemetry, Probes
from bench_image.contract.work import Device
from bench_image.telemetry.gpu_watch import FIELDS, GpuWatch, Said
from tests.builders.results import SILENT
from tests.unit.image.fake_nvml import NO_EVENT, FakeNvml, NVMLError, field_values, xid

NOBODY: dict[str, Any] = {"nvmlDeviceGetComputeRunningProcesses": [[]]}


def watched(uuid: str | None = "GPU-a", **values: Any) -> Said:
    """A run in which NVML answers with these values, before and after."""
    return GpuWatch(Device.CUDA, FakeNvml(**NOBODY | values)).end()(uuid)


def test_a_quiet_gpu_answers_everything() -> None:
    assert watched() == Said(SILENT, {})


def test_the_watch_and_the_probes_fill_what_results_of_0_1_lack() -> None:
    of_gpus = {name for name in SINCE_0_2 if name in GpuTelemetry.__dataclass_fields__}  # type: ignore[attr-defined]

    assert set(FIELDS) == of_gpus
    assert SINCE_0_2 - of_gpus - {"os"} < set(Probes.model_fields)


@pytest.mark.parametrize(
    ("function", "before_and_after", "field", "growth"),
    [
        ("nvmlDeviceGetPcieReplayCounter", [7, 12], "pcie_replays", 5),
        # corrected and uncorrected rows: 1 and 0, then 2 and 1. The values after are read three times.
        ("nvmlDeviceGetRemappedRows", [(1, 0, 0, 0), (2, 1, 0, 0)], "rows_remapped_in_run", 2),
        # corrected, then uncorrected errors, before and after
        ("nvmlDeviceGetTotalEccErrors", [3, 1, 10, 1], "ecc_corrected_in_run", 7),
        ("nvmlDeviceGetTotalEccErrors", [3, 1, 10, 2], "ecc_uncorrected_in_run", 1),
    ],
)
def test_a_counter_is_its_growth_over_the_run(function: str, before_and_after: Any, field: str, growth: int) -> None:
    assert watched(**{function: before_and_after}).fields[field] == growth


def test_errors_of_links_are_sums_over_two_counters() -> None:
    """CRC of flits and of data 1 + 2 before, 5 + 2 after: 4 more. Replays and recoveries 0 + 0, then 1 + 2: 3."""
    values = [field_values(1, 2), field_values(0, 0), field_values(5, 2), field_values(1, 2)]
    fields = watched(nvmlDeviceGetFieldValues=values).fields

    assert (fields["nvlink_crc_errors"], fields["nvlink_replays"]) == (4, 3)


def test_a_counter_that_went_back_is_not_known() -> None:
    said = watched(nvmlDeviceGetPcieReplayCounter=[9, 2])

    assert said.fields["pcie_replays"] is None
    assert "went back" in said.reasons["pcie_replays"]


def test_a_remapping_that_waits_or_failed_is_said_as_of_the_end() -> None:
    fields = watched(nvmlDeviceGetRemappedRows=[(0, 0, 0, 0), (0, 1, 1, 1)]).fields

    assert (fields["row_remap_pending"], fields["row_remap_failed"]) == (True, True)


def test_xids_are_counted_by_code() -> None:
    said = watched(nvmlEventSetWait_v2=[xid(94), xid(63), xid(94), NO_EVENT])

    assert said.fields["xids"] == {"94": 2, "63": 1}


def test_the_xid_of_a_gpu_that_is_lost_is_that_of_the_gpu_that_no_longer_answers() -> None:
    said = watched(nvmlDeviceGetUUID=["GPU-a", NVMLError("GPU is lost")], nvmlEventSetWait_v2=[xid(79), NO_EVENT])

    assert said.fields["xids"] == {"79": 1}


@pytest.mark.parametrize(
    ("function", "lost"),
    [
        ("nvmlDeviceGetComputeRunningProcesses", {"other_processes_at_start"}),
        ("nvmlDeviceGetMemoryInfo", {"other_memory_at_start_gb", "other_memory_at_end_gb"}),
        ("nvmlDeviceGetTotalEccErrors", {"ecc_corrected_in_run", "ecc_uncorrected_in_run"}),
        ("nvmlDeviceGetRemappedRows", {"rows_remapped_in_run", "row_remap_pending", "row_remap_failed"}),
        ("nvmlDeviceGetFieldValues", {"nvlink_crc_errors", "nvlink_replays"}),
        ("nvmlDeviceGetPcieReplayCounter", {"pcie_replays"}),
        ("nvmlEventSetCreate", {"xids"}),
        ("nvmlDeviceRegisterEvents", {"xids"}),
        ("nvmlEventSetWait_v2", {"xids"}),
    ],
)
def test_what_nvml_does_not_support_costs_only_its_own_figures(function: str, lost: set[str]) -> None:
    said = watched(**{function: NVMLError("Not Supported")})

    assert {name for name, value in said.fields.items() if value is None} == lost
    assert said.reasons == dict.fromkeys(lost, "NVML: Not Supported")


def test_a_field_value_with_an_error_of_its_own_is_not_zero() -> None:
    unsupported = [SimpleNamespace(nvmlReturn=3, value=SimpleNamespace(ullVal=0))]

    assert watched(nvmlDeviceGetFieldValues=[unsupported]).fields["nvlink_replays"] is None


def test_memory_and_processes_before_the_run_are_others() -> None:
    """40.5 GB are in use before the first process, 0.2 GB after the last one."""
    memory = [SimpleNamespace(used=40_500_000_000), SimpleNamespace(used=200_000_000)]
    fields = watched(
        nvmlDeviceGetMemoryInfo=memory, nvmlDeviceGetComputeRunningProcesses=[[SimpleNamespace(pid=4)]]
    ).fields

    assert fields["other_processes_at_start"] == 1
    assert (fields["other_memory_at_start_gb"], fields["other_memory_at_end_gb"]) == (40.5, 0.2)


def test_an_empty_list_of_processes_beside_memory_in_use_is_that_of_a_container() -> None:
    said = watched(nvmlDeviceGetMemoryInfo=SimpleNamespace(used=40_500_000_000))

    assert said.fields["other_processes_at_start"] is None
    assert "this container" in said.reasons["other_processes_at_start"]


def test_the_server_of_mps_is_nobody_s_work() -> None:
    two = [[SimpleNamespace(pid=4), SimpleNamespace(pid=5)]]
    names = ["/usr/bin/nvidia-cuda-mps-server", "/usr/bin/python3"]

    fields = watched(nvmlDeviceGetComputeRunningProcesses=two, nvmlSystemGetProcessName=names).fields
    assert fields["other_processes_at_start"] == 1


def test_a_driver_without_the_newer_query_counts_its_reserve_too() -> None:
    memory = [NVMLError("Function Not Found"), SimpleNamespace(used=600_000_000)]

    assert watched(nvmlDeviceGetMemoryInfo=memory).fields["other_memory_at_start_gb"] == 0.6


@pytest.mark.parametrize(
    ("uuid", "values", "reason"),
    [
        ("GPU-b", {}, "NVML did not list the GPU when the run began"),
        (None, {}, "NVML did not list the GPU when the run began"),
        ("GPU-a", {"nvmlInit": NVMLError("Driver Not Loaded")}, "NVML is not available: Driver Not Loaded"),
        ("GPU-a", {"nvmlDeviceGetCount": NVMLError("Unknown Error")}, "NVML: Unknown Error"),
    ],
)
def test_of_a_gpu_that_was_not_watched_nothing_is_known(uuid: str | None, values: Any, reason: str) -> None:
    assert watched(uuid, **values) == Said(dict.fromkeys(FIELDS), dict.fromkeys(FIELDS, reason))


def test_a_run_on_the_cpu_asks_no_driver() -> None:
    nvml = FakeNvml()

    said = GpuWatch(Device.CPU, nvml).end()("GPU-a")
    assert (said.fields["xids"], said.reasons["xids"], nvml.calls) == (None, "the run uses no GPU", 0)
