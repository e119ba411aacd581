"""The environment of a run: node, pod, GPUs, driver, libraries, CPU."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from bench_image.contract.pod_io import IMAGE_ENV, NO_TEMPLATE, POD_ENV, TEMPLATE_ENV
from bench_image.contract.result_sections import Context, Gpu
from bench_image.contract.work import Device
from bench_image.telemetry import nvml as nvml_api
from bench_image.telemetry.unmeasured_gpus import TorchGpu, described, unmeasurable_reason

LIBRARIES = ("torch", "transformers", "peft", "bitsandbytes", "accelerate", "triton")
CUDA_LIBRARIES = ("nvidia-cuda-runtime", "nvidia-nccl")  # followed by the CUDA version: -cu12, -cu13


def read_context(
    node: str, device: Device, torch_gpus: Sequence[TorchGpu], *, nvml: Any = None
) -> tuple[Context, dict[str, str]]:
    """The context, and a reason for each null in it (paths relative to `context`). Never raises.

    `Gpu.index` is the position in `torch_gpus`. `cuda` is the newest version that the driver supports; the one that
    torch uses is among the libraries. Tests pass a fake `nvml`.
    """
    missing: dict[str, str] = {}
    gpus, driver, cuda = _read_gpus(device, torch_gpus, nvml, missing)
    context = Context(
        node=node,
        pod=_environment("pod", POD_ENV, missing),
        hostname=socket.gethostname(),
        image=_environment("image", IMAGE_ENV, missing),
        gpus=gpus,
        driver=driver,
        cuda=cuda,
        python=platform.python_version(),
        libraries=library_versions(),
        kernel=platform.release(),
        cpu=cpu_model(),
        num_cpus=len(os.sched_getaffinity(0)),
        os=system_name(missing),
        pod_template=os.environ.get(TEMPLATE_ENV) or NO_TEMPLATE,
    )
    return context, missing


def library_versions() -> dict[str, str]:
    """Package name -> version of the installed training libraries."""
    installed = {
        name.lower(): distribution.version
        for distribution in metadata.distributions()
        if (name := distribution.metadata["Name"])
    }
    return {name: installed[name] for name in sorted(installed) if name in LIBRARIES or name.startswith(CUDA_LIBRARIES)}


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """'model name' of the first CPU, or the machine type where the kernel lacks it (ARM)."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def system_name(missing: dict[str, str]) -> str | None:
    """ "Debian GNU/Linux 12 (bookworm)": of the container's image, where the run is in one."""
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        missing["os"] = "there is no /etc/os-release"
        return None


def _environment(field: str, variable: str, missing: dict[str, str]) -> str | None:
    value = os.environ.get(variable)
    if not value:
        missing[field] = f"{variable} is not set: not started as a pod"
    return value or None


def _read_gpus(
    device: Device, torch_gpus: Sequence[TorchGpu], nvml: Any, missing: dict[str, str]
) -> tuple[tuple[Gpu, ...], str | None, str | None]:
    if device is Device.CPU:
        missing |= dict.fromkeys(("driver", "cuda"), "the run uses no GPU")
        return (), None, None
    if reason := unmeasurable_reason(torch_gpus):
        missing |= dict.fromkeys(("driver", "cuda"), reason)
        return described(torch_gpus, reason, missing), None, None
    try:
        nvml = nvml_api.connect(nvml)
    except nvml_api.NvmlError as error:
        missing |= dict.fromkeys(("gpus", "driver", "cuda"), str(error))
        return (), None, None
    system, reasons = nvml_api.read_each(_OF_SYSTEM, nvml, lambda: None)
    missing |= reasons
    gpus = []
    for index, uuid in enumerate(gpu.uuid for gpu in torch_gpus):
        facts, reasons = nvml_api.read_each(_OF_GPU, nvml, partial(nvml.nvmlDeviceGetHandleByUUID, uuid))
        missing |= {f"gpus.{index}.{name}": reason for name, reason in reasons.items()}
        known: dict[str, Any] = dict.fromkeys(_OF_GPU) | {"name": "unknown"} | facts
        gpus.append(Gpu(index=index, uuid=uuid, **known))
    return tuple(gpus), system.get("driver"), system.get("cuda")


def _cuda_version(nvml: Any, _: object) -> str:
    number = int(nvml.nvmlSystemGetCudaDriverVersion())
    return f"{number // 1000}.{number % 1000 // 10}"  # NVML writes 13000 for 13.0


_OF_SYSTEM: dict[str, nvml_api.Reading] = {
    "driver": lambda nvml, _: nvml.nvmlSystemGetDriverVersion(), "cuda": _cuda_version
}  # fmt: skip
# Field of Gpu -> its reading.
_OF_GPU: dict[str, nvml_api.Reading] = {
    "name": lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),
    "vbios": lambda nvml, gpu: nvml.nvmlDeviceGetVbiosVersion(gpu),
    "memory_total_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    "compute_capability": lambda nvml, gpu: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(gpu)),
    "pcie_generation_max": lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
    "pcie_width_max": lambda nvml, gpu: nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu),
    "sm_clock_max_mhz": lambda nvml, gpu: float(nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
}
