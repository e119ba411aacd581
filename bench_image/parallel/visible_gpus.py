"""Counts the GPUs that a process may use (CUDA_VISIBLE_DEVICES), and assigns one to each independent rank.

An independent rank sees only its own GPU, so each rank compiles the same code, and all share one cache.
It needs no torch, whose import takes seconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from bench_image.telemetry import nvml as nvml_api
from bench_image.telemetry.unmeasured_gpus import TorchGpu

VISIBLE = "CUDA_VISIBLE_DEVICES"
GPU_UUID_ENV = "TRAINBENCH_GPU_UUID"
COMPILE_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"
NONE = "-1"  # no GPU, for CUDA


def rank_environments(spec: RunSpec, environ: Mapping[str, str], nvml: Any = None) -> list[dict[str, str]]:
    """For each independent rank of the node, the variables to add to its environment. Tests pass a fake `nvml`."""
    count = spec.placement.gpus_per_node
    own = [{"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "1"} for rank in range(count)]
    if count == 1:
        return own
    for variables in own:
        # All ranks compile at the same time: together they start as many compilers as there are CPUs.
        variables[COMPILE_THREADS] = str(max(1, (os.cpu_count() or 1) // count))
    if spec.work.device is Device.CUDA:
        # UUIDs name a GPU even when it is lost before a rank starts; without NVML there are only numbers.
        listed = [gpu.uuid for gpu in visible_gpus({}, nvml)] or list(map(str, range(count)))
        names = [name.strip() for name in environ[VISIBLE].split(",")] if VISIBLE in environ else listed
        for variables, name in zip(own, names + [NONE] * (count - len(names)), strict=False):
            variables |= {VISIBLE: name} | ({GPU_UUID_ENV: name} if name.startswith("GPU-") else {})
    return own


def visible_gpus(environ: Mapping[str, str], nvml: Any = None) -> tuple[TorchGpu, ...]:
    """The GPUs that a process with this environment sees, in its order; none without NVML."""
    try:
        return _seen(environ, nvml)
    except nvml_api.NvmlError:
        return ()


def count_visible_gpus(environ: Mapping[str, str], *, nvml: Any = None) -> tuple[int, str | None]:
    """The number of NVIDIA GPUs that a process started here may use, and the reason if there is none."""
    try:
        if seen := _seen(environ, nvml):
            return len(seen), None
    except nvml_api.NvmlError as error:
        return 0, str(error)
    return 0, f"{VISIBLE} is '{environ[VISIBLE]}'" if VISIBLE in environ else "NVML lists none"


def _seen(environ: Mapping[str, str], nvml: Any) -> tuple[TorchGpu, ...]:
    lib = nvml_api.connect(nvml)

    def described() -> tuple[TorchGpu, ...]:
        handles = [lib.nvmlDeviceGetHandleByIndex(index) for index in range(lib.nvmlDeviceGetCount())]
        uuids = [str(lib.nvmlDeviceGetUUID(gpu)) for gpu in handles]
        names = environ[VISIBLE].split(",") if VISIBLE in environ else uuids
        chosen = []
        for name in (name.strip() for name in names):
            known = uuids[int(name)] if name.isdecimal() and int(name) < len(uuids) else name
            whole = next((uuid for uuid in uuids if known and uuid.startswith(known)), None)
            if whole is None and not known.startswith("MIG-"):
                break  # CUDA reads up to its first invalid entry
            gpu = lib.nvmlDeviceGetHandleByUUID(whole or known)
            chosen.append(
                TorchGpu(whole or known, str(lib.nvmlDeviceGetName(gpu)), int(lib.nvmlDeviceGetMemoryInfo(gpu).total))
            )
        return tuple(chosen)

    found: tuple[TorchGpu, ...] = nvml_api.query(described)
    return found
