"""An object with NVML's functions, for a machine without a GPU. Its numbers are set by the test."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from bench_image.telemetry.unmeasured_gpus import TorchGpu


class NVMLError(Exception):
    """As in pynvml, `value` is NVML's number of the error."""

    def __init__(self, text: object, value: int = 999) -> None:
        super().__init__(text)
        self.value = value


NO_EVENT = NVMLError("Timeout", 10)


def field_values(*counts: int) -> list[SimpleNamespace]:
    """Of NVML's field values one for each count."""
    return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=count)) for count in counts]


def xid(code: int, gpu: str = "gpu") -> SimpleNamespace:
    return SimpleNamespace(device=gpu, eventData=code)


def gpus(*uuids: str) -> tuple[TorchGpu, ...]:
    """GPUs as torch names them."""
    return tuple(TorchGpu(uuid, "NVIDIA H200", 150_754_820_096) for uuid in uuids)


def nvml_of(count: int) -> SimpleNamespace:
    """NVML with so many GPUs: GPU-a, GPU-b and so on."""
    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{'abcdefgh'[handle]}",
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetName=lambda gpu: "NVIDIA H200",
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(total=2**37),
    )


class FakeNvml:
    """One GPU that every UUID leads to. A value may be a list: each call takes the next one, the last one stays.

    `FakeNvml(nvmlDeviceGetPowerUsage=NVMLError("Not Supported"))`: an exception as value is raised.
    """

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_SM = 1
    NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_SUCCESS = 0
    NVML_ERROR_TIMEOUT = 10
    NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL = 38
    NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL = 45
    NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL = 52
    NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL = 59
    nvmlMemory_v2 = 2
    nvmlEventTypeXidCriticalError = 8

    def __init__(self, **values: Any) -> None:
        self.calls = 0
        self._values: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlSystemGetDriverVersion": "580.159.04",
            "nvmlSystemGetCudaDriverVersion": 13_000,
            "nvmlDeviceGetHandleByUUID": "gpu",
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "gpu",
            "nvmlDeviceGetUUID": "GPU-a",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetVbiosVersion": "96.00.A5.00.1A",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150_754_820_096, used=0),
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=98, memory=45),
            "nvmlDeviceGetTemperature": 60,
            "nvmlDeviceGetPowerUsage": 650_000,
            "nvmlDeviceGetClockInfo": 1900,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
            "nvmlDeviceGetTotalEnergyConsumption": 0,
            "nvmlDeviceGetCurrPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetTotalEccErrors": 0,
            "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
            "nvmlDeviceGetComputeRunningProcesses": [[SimpleNamespace(pid=os.getpid())]],
            "nvmlSystemGetProcessName": "python3",
            "nvmlDeviceGetFieldValues": [field_values(0, 0)],
            "nvmlDeviceGetPcieReplayCounter": 0,
            "nvmlEventSetCreate": "events",
            "nvmlDeviceRegisterEvents": None,
            "nvmlEventSetWait_v2": NO_EVENT,
        } | values

    def __getattr__(self, name: str) -> Any:
        if name not in self._values:
            raise AttributeError(f"module 'pynvml' has no attribute '{name}'")

        def answer(*_arguments: Any, **_named: Any) -> Any:
            self.calls += 1
            value = self._values[name]
            if isinstance(value, list):
                value = value.pop(0) if len(value) > 1 else value[0]
            if isinstance(value, Exception):
                raise value
            return value

        return answer
