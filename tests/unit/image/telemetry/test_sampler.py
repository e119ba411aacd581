"""Telemetry: only within windows, each figure on its own, a reason for each null."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.contract.result_sections import GpuTelemetry, HostTelemetry
from bench_image.contract.work import Device
from bench_image.telemetry.gpu_watch import FIELDS
from bench_image.telemetry.sampler import Sampler, cpu_times, throttle_shares
from tests.builders import NO_THROTTLING
from tests.unit.image.fake_nvml import FakeNvml, NVMLError, gpus

NEVER_S = 3600.0  # no sample but the one that each window gets at its end
NOT_ITS_OWN = set(FIELDS)  # the supervisor fills these
Outcome = tuple[tuple[GpuTelemetry, ...], HostTelemetry, dict[str, str]]


def sample(nvml: Any, *, windows: int = 1, uuids: tuple[str, ...] = ("GPU-a",)) -> Outcome:
    sampler = Sampler(Device.CUDA, gpus(*uuids), NEVER_S, nvml=nvml)
    sampler.start()
    for _ in range(windows):
        sampler.resume()
        sampler.pause()
    return sampler.stop()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline, "nothing happened for 600 s"
        time.sleep(0.001)


def test_a_healthy_gpu_answers_everything() -> None:
    (gpu,), _, missing = sample(FakeNvml(nvmlDeviceGetTotalEnergyConsumption=[1_000_000, 1_650_000]))

    assert gpu == GpuTelemetry(
        index=0, uuid="GPU-a", num_samples=1, utilisation_mean_pct=98, temperature_mean_c=60, temperature_max_c=60,
        power_mean_w=650, sm_clock_mean_mhz=1900, sm_clock_min_mhz=1900, energy_j=650, ecc_corrected=0,
        ecc_uncorrected=0, remapped_rows=0, pcie_generation=5, pcie_width=16, num_other_processes=0,
        throttle_share_pct=NO_THROTTLING | {"power_cap": 100},
    )  # fmt: skip
    assert not any(path.startswith("gpus") for path in missing)


def test_means_and_extremes_are_over_all_windows() -> None:
    """60, 64 and 71 degrees: mean 65, maximum 71. 1900, 1800 and 1700 MHz: mean 1800, minimum 1700."""
    nvml = FakeNvml(nvmlDeviceGetTemperature=[60, 64, 71], nvmlDeviceGetClockInfo=[1900, 1800, 1700])

    (gpu,), _, _ = sample(nvml, windows=3)

    assert gpu.num_samples == 3
    assert (gpu.temperature_mean_c, gpu.temperature_max_c) == (65, 71)
    assert (gpu.sm_clock_mean_mhz, gpu.sm_clock_min_mhz) == (1800, 1700)


def test_energy_between_windows_does_not_count() -> None:
    """The counter in mJ: 0 -> 500 in the first window, 9000 -> 9700 in the second: 1.2 J."""
    (gpu,), _, _ = sample(FakeNvml(nvmlDeviceGetTotalEnergyConsumption=[0, 500, 9000, 9700]), windows=2)

    assert gpu.energy_j == pytest.approx(1.2)


def test_the_energy_of_some_windows_is_not_reported_as_the_energy_of_all() -> None:
    nvml = FakeNvml(nvmlDeviceGetTotalEnergyConsumption=[0, 500, NVMLError("Unknown Error"), 9700])

    (gpu,), _, missing = sample(nvml, windows=2)

    assert gpu.energy_j is None
    assert missing["gpus.0.energy_j"] == "NVML: Unknown Error"


def test_an_idle_link_does_not_look_like_a_narrow_one() -> None:
    """The generation falls to 1 while nothing is copied; the width stays."""
    (gpu,), _, _ = sample(FakeNvml(nvmlDeviceGetCurrPcieLinkGeneration=[1, 5, 1]), windows=3)

    assert gpu.pcie_generation == 5


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetUtilizationRates", {"utilisation_mean_pct"}),
        ("nvmlDeviceGetTemperature", {"temperature_mean_c", "temperature_max_c"}),
        ("nvmlDeviceGetPowerUsage", {"power_mean_w"}),
        ("nvmlDeviceGetClockInfo", {"sm_clock_mean_mhz", "sm_clock_min_mhz"}),
        ("nvmlDeviceGetTotalEnergyConsumption", {"energy_j"}),
        ("nvmlDeviceGetTotalEccErrors", {"ecc_corrected", "ecc_uncorrected"}),
        ("nvmlDeviceGetRemappedRows", {"remapped_rows"}),
        ("nvmlDeviceGetCurrPcieLinkGeneration", {"pcie_generation"}),
        ("nvmlDeviceGetCurrPcieLinkWidth", {"pcie_width"}),
        ("nvmlDeviceGetComputeRunningProcesses", {"num_other_processes"}),
    ],
)
def test_a_query_that_is_not_supported_costs_only_its_own_figures(function: str, fields: set[str]) -> None:
    (gpu,), _, missing = sample(FakeNvml(**{function: NVMLError("Not Supported")}))

    assert {name for name, value in asdict(gpu).items() if value is None} - NOT_ITS_OWN == fields
    assert {path: reason for path, reason in missing.items() if path.startswith("gpus")} == {
        f"gpus.0.{field}": "NVML: Not Supported" for field in fields
    }


def test_an_old_driver_knows_throttling_by_its_old_name() -> None:
    nvml = FakeNvml(
        nvmlDeviceGetCurrentClocksEventReasons=NVMLError("Function Not Found"),
        nvmlDeviceGetCurrentClocksThrottleReasons=0x40,
    )

    (gpu,), _, _ = sample(nvml)

    assert gpu.throttle_share_pct is not None
    assert gpu.throttle_share_pct["thermal"] == 100


def test_throttle_classes_as_shares_of_the_samples() -> None:
    """Four samples: idle; power cap; power cap and software thermal; hardware thermal with hardware slowdown."""
    known = {"thermal": 50, "power_cap": 50, "hw_slowdown": 25}
    assert throttle_shares([0x1, 0x4, 0x4 | 0x20, 0x40 | 0x8]) == NO_THROTTLING | known


def test_a_process_of_somebody_else_is_counted() -> None:
    ours, other = SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=2**22 + 1)
    (gpu,), _, _ = sample(FakeNvml(nvmlDeviceGetComputeRunningProcesses=[[ours, other]]))

    assert gpu.num_other_processes == 1


def test_process_numbers_of_the_host_say_nothing_inside_a_container() -> None:
    (gpu,), _, missing = sample(FakeNvml(nvmlDeviceGetComputeRunningProcesses=[[SimpleNamespace(pid=2**22 + 1)]]))

    assert gpu.num_other_processes is None
    assert "this container" in missing["gpus.0.num_other_processes"]


def test_a_gpu_that_is_lost_keeps_its_row_with_reasons() -> None:
    (gpu,), _, missing = sample(FakeNvml(nvmlDeviceGetHandleByUUID=NVMLError("GPU is lost")))

    assert gpu.uuid == "GPU-a"
    assert missing["gpus.0.temperature_mean_c"] == "NVML: GPU is lost"


def test_every_null_has_its_reason_when_no_window_was_opened() -> None:
    (gpu,), host, missing = sample(FakeNvml(), windows=0)

    assert gpu.num_samples == 0
    nulls = {name for name, value in asdict(gpu).items() if value is None} - NOT_ITS_OWN
    assert {f"gpus.0.{name}" for name in nulls} <= missing.keys()
    assert {f"host.{name}" for name, value in asdict(host).items() if value is None} <= missing.keys()


def test_each_gpu_has_its_place() -> None:
    gpus, _, _ = sample(FakeNvml(), uuids=("GPU-a", "GPU-b"))

    assert [(gpu.index, gpu.uuid) for gpu in gpus] == [(0, "GPU-a"), (1, "GPU-b")]


def test_without_nvml_there_are_no_gpus_but_there_is_a_host() -> None:
    gpus, _, missing = sample(FakeNvml(nvmlInit=NVMLError("NVML Shared Library Not Found")))

    assert gpus == ()
    assert missing["gpus"] == "NVML is not available: NVML Shared Library Not Found"


def test_a_cpu_run_samples_no_gpu() -> None:
    nvml = FakeNvml()
    sampler = Sampler(Device.CPU, (), NEVER_S, nvml=nvml)
    sampler.start()
    sampler.resume()
    sampler.pause()

    gpus, host, missing = sampler.stop()

    assert gpus == ()
    assert host.memory_used_pct is not None
    assert missing["gpus"] == "the run uses no GPU"
    assert nvml.calls == 0


def test_the_thread_samples_while_a_window_is_open_and_sleeps_otherwise() -> None:
    nvml = FakeNvml()
    sampler = Sampler(Device.CUDA, gpus("GPU-a"), 0.001, nvml=nvml)
    sampler.start()
    at_start = nvml.calls
    time.sleep(0.02)
    assert nvml.calls == at_start

    sampler.resume()
    opened = nvml.calls
    wait_until(lambda: nvml.calls > opened + 50)
    sampler.pause()
    paused = nvml.calls
    time.sleep(0.02)
    assert nvml.calls == paused

    (gpu,), _, _ = sampler.stop()
    assert gpu.num_samples > 5


def test_stop_closes_an_open_window() -> None:
    sampler = Sampler(Device.CUDA, gpus("GPU-a"), NEVER_S, nvml=FakeNvml())
    sampler.start()
    sampler.resume()

    (gpu,), _, _ = sampler.stop()

    assert gpu.num_samples == 1


def test_cpu_times_of_linux() -> None:
    """Guest time is part of user time already; waiting for I/O is idle time: 100 in all, 60 idle, 5 stolen."""
    times = cpu_times(_Times(user=30, nice=0, system=5, idle=50, iowait=10, steal=5, guest=20, guest_nice=0))

    assert times == {"total": 100, "idle": 60, "steal": 5}


def test_cpu_times_where_stolen_time_is_not_counted() -> None:
    assert cpu_times(_Times(user=30, nice=0, system=10, idle=60)) == {"total": 100, "idle": 60}


class _Times:
    """psutil's named tuple: its fields differ between platforms."""

    def __init__(self, **seconds: float) -> None:
        self._seconds = seconds

    def _asdict(self) -> dict[str, float]:
        return self._seconds


def test_a_glance_shows_the_least_used_and_the_hottest_gpu_and_leaves_no_trace() -> None:
    """Between windows, for the log: nothing of it enters the result, neither a reading nor a reason."""
    sampler = Sampler(Device.CUDA, gpus("GPU-a", "GPU-b"), NEVER_S, nvml=FakeNvml())
    sampler.start()
    assert sampler.glance() == {"gpu_use_pct": 98, "temperature_c": 60}
    (first, _), _, missing = sampler.stop()
    assert (first.utilisation_mean_pct, first.num_samples) == (None, 0)
    assert missing["gpus.0.utilisation_mean_pct"] == "no measured window"


def test_a_glance_at_what_cannot_be_read_is_empty() -> None:
    assert Sampler(Device.CPU, (), NEVER_S).glance() == {}
    broken = FakeNvml(nvmlDeviceGetUtilizationRates=NVMLError("lost"), nvmlDeviceGetTemperature=NVMLError("lost"))
    assert Sampler(Device.CUDA, gpus("GPU-a"), NEVER_S, nvml=broken).glance() == {}


def test_a_reading_that_cannot_be_costs_its_own_figure_only() -> None:
    """Some drivers give 0xFFFFFFFF milliwatts for a GPU that they have lost."""
    (gpu,), _, missing = sample(FakeNvml(nvmlDeviceGetPowerUsage=0xFFFFFFFF))

    assert (gpu.power_mean_w, gpu.temperature_mean_c) == (None, 60)
    assert missing["gpus.0.power_mean_w"] == (
        "the driver returned an impossible value: 4294967.295: Input should be less than or equal to 10000"
    )


@pytest.mark.parametrize(
    ("uuid", "reason"),
    [
        ("MIG-1", "a MIG slice: NVML measures the whole GPU, which others use too"),
        ("ROCM-1", "an AMD GPU: telemetry is read from NVIDIA's NVML only"),
    ],
)
def test_what_nvml_would_not_measure_is_missing_with_its_reason(uuid: str, reason: str) -> None:
    """Not even where NVML answers: its power and use are those of the whole GPU."""
    seen, _, missing = sample(FakeNvml(), uuids=(uuid,))
    assert (seen, missing["gpus"]) == ((), reason)
