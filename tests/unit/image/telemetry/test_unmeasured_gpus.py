"""MIG slices and AMD's GPUs: named by torch, and never with the figures of something else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.contract.work import Device
from bench_image.telemetry.environment import read_context
from bench_image.telemetry.unmeasured_gpus import TorchGpu, torch_gpus, unmeasurable_reason
from tests.unit.image.fake_nvml import FakeNvml, NVMLError

SLICE = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"


def fake_torch(name: str, hip: str | None = None, **more: Any) -> Any:
    properties = SimpleNamespace(name=name, total_memory=4864 * 2**20, **more)
    cuda = SimpleNamespace(get_device_properties=lambda index: properties)
    return SimpleNamespace(version=SimpleNamespace(hip=hip), cuda=cuda)


@pytest.mark.parametrize(
    ("torch", "uuid", "reason"),
    [
        (fake_torch("NVIDIA H200", uuid="aa"), "GPU-aa", None),
        (fake_torch(SLICE, uuid="aa"), "MIG-aa", "a MIG slice: NVML measures the whole GPU, which others use too"),
        (fake_torch("AMD Instinct MI300X", "6.4"), "ROCM-0", "an AMD GPU: telemetry is read from NVIDIA's NVML only"),
    ],
)
def test_the_id_says_whether_nvml_measures_it(torch: Any, uuid: str, reason: str | None) -> None:
    (gpu,) = torch_gpus(torch, 1)
    assert gpu.uuid == uuid
    assert unmeasurable_reason((gpu,)) == reason


@pytest.mark.parametrize("nvml", [FakeNvml(), FakeNvml(nvmlInit=NVMLError("Driver Not Loaded"))])
@pytest.mark.parametrize(("uuid", "name"), [("MIG-aa", SLICE), ("ROCM-0", "AMD Instinct MI300X")])
def test_the_context_has_name_and_memory_and_reasons_for_the_rest(uuid: str, name: str, nvml: FakeNvml) -> None:
    context, missing = read_context("node-1", Device.CUDA, (TorchGpu(uuid, name, 5_100_273_664),), nvml=nvml)
    (gpu,) = context.gpus
    assert (gpu.name, gpu.uuid, gpu.memory_total_bytes, gpu.power_limit_w) == (name, uuid, 5_100_273_664, None)
    assert (context.driver, context.cuda) == (None, None)
    assert {"driver", "cuda", "gpus.0.power_limit_w", "gpus.0.vbios"} <= missing.keys()
