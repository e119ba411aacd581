"""GPUs that NVML does not measure: MIG slices and AMD's. torch gives name and memory; the rest is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bench_image.contract.frozen import fields_of
from bench_image.contract.result_sections import Gpu

MIG, AMD = "MIG-", "ROCM-"  # prefixes of their ids; the first is NVML's own
REASONS = {
    MIG: "a MIG slice: NVML measures the whole GPU, which others use too",
    AMD: "an AMD GPU: telemetry is read from NVIDIA's NVML only",
}


class TorchGpu(NamedTuple):
    """A GPU as torch describes it; `uuid` as NVML writes it, or one that begins with MIG or AMD."""

    uuid: str
    name: str
    memory_bytes: int


def torch_gpus(torch: Any, num_gpus: int) -> tuple[TorchGpu, ...]:
    """The first `num_gpus` that torch sees: it numbers GPUs by CUDA_VISIBLE_DEVICES, NVML does not."""
    is_rocm = torch.version.hip is not None
    gpus = []
    for index in range(num_gpus):
        properties = torch.cuda.get_device_properties(index)
        prefix = AMD if is_rocm else MIG if " MIG " in properties.name else "GPU-"
        uuid = getattr(properties, "uuid", index)  # ROCm builds of torch may lack it
        gpus.append(TorchGpu(f"{prefix}{uuid}", properties.name, properties.total_memory))
    return tuple(gpus)


def unmeasurable_reason(gpus: Sequence[TorchGpu]) -> str | None:
    """Why NVML cannot measure these GPUs; None: it can."""
    return next((reason for gpu in gpus for prefix, reason in REASONS.items() if gpu.uuid.startswith(prefix)), None)


def described(gpus: Sequence[TorchGpu], reason: str, missing: dict[str, str]) -> tuple[Gpu, ...]:
    """The facts that torch has; `reason` explains all missing ones."""
    known = {"index", "name", "uuid", "memory_total_bytes"}
    unknown = dict.fromkeys(fields_of(Gpu).keys() - known)
    missing |= {f"gpus.{index}.{field}": reason for index in range(len(gpus)) for field in sorted(unknown)}
    return tuple(
        Gpu(index=index, name=gpu.name, uuid=gpu.uuid, memory_total_bytes=gpu.memory_bytes, **unknown)
        for index, gpu in enumerate(gpus)
    )
