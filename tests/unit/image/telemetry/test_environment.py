"""The context of a run: what is read, and what is said when it cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_image.contract.pod_io import POD_ENV, TEMPLATE_ENV
from bench_image.contract.result_sections import Gpu
from bench_image.contract.work import Device
from bench_image.telemetry.environment import (
    CUDA_LIBRARIES,
    IMAGE_ENV,
    LIBRARIES,
    cpu_model,
    library_versions,
    read_context,
)
from tests.unit.image.fake_nvml import FakeNvml, NVMLError, gpus


def test_a_gpu_is_described_through_nvml() -> None:
    context, missing = read_context("node-1", Device.CUDA, gpus("GPU-a"), nvml=FakeNvml())

    assert context.gpus == (
        Gpu(
            index=0, name="NVIDIA H200", uuid="GPU-a", vbios="96.00.A5.00.1A", memory_total_bytes=150_754_820_096,
            compute_capability="9.0", pcie_generation_max=5, pcie_width_max=16, sm_clock_max_mhz=1980,
            power_limit_w=700,
        ),
    )  # fmt: skip
    assert (context.driver, context.cuda) == ("580.159.04", "13.0")
    assert missing.keys() <= {"pod", "image"}


@pytest.mark.parametrize(("number", "version"), [(13_000, "13.0"), (12_080, "12.8"), (11_040, "11.4")])
def test_cuda_versions(number: int, version: str) -> None:
    context, _ = read_context("node-1", Device.CUDA, gpus(), nvml=FakeNvml(nvmlSystemGetCudaDriverVersion=number))

    assert context.cuda == version


def test_a_query_that_is_not_supported_costs_only_itself() -> None:
    nvml = FakeNvml(nvmlDeviceGetVbiosVersion=NVMLError("No Permission"))
    context, missing = read_context("node-1", Device.CUDA, gpus("GPU-a", "GPU-b"), nvml=nvml)

    assert [gpu.vbios for gpu in context.gpus] == [None, None]
    assert [gpu.memory_total_bytes for gpu in context.gpus] == [150_754_820_096] * 2
    assert missing["gpus.1.vbios"] == "NVML: No Permission"


def test_without_nvml_driver_and_cuda_are_unknown() -> None:
    nvml = FakeNvml(nvmlInit=NVMLError("Driver Not Loaded"))
    context, missing = read_context("node-1", Device.CUDA, gpus("GPU-a"), nvml=nvml)

    assert (context.gpus, context.driver, context.cuda) == ((), None, None)
    assert missing["driver"] == missing["cuda"] == "NVML is not available: Driver Not Loaded"


def test_a_cpu_run_has_no_gpu_but_a_host() -> None:
    context, missing = read_context("node-1", Device.CPU, [])

    assert (context.node, context.gpus, context.driver) == ("node-1", (), None)
    assert context.num_cpus >= 1
    assert (context.os is None) == ("os" in missing)
    assert missing["driver"] == missing["cuda"] == "the run uses no GPU"


def test_pod_image_and_template_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of a pod the reason names the variable. No template is a value: one that is set first is a change."""
    variables = {POD_ENV: "trainbench-x7k2p", IMAGE_ENV: "registry.example/trainbench:0.1.0", TEMPLATE_ENV: "3f2a91c0"}
    for name in variables:
        monkeypatch.delenv(name, raising=False)
    outside, missing = read_context("node-1", Device.CPU, [])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    inside, known = read_context("node-1", Device.CPU, [])

    assert (outside.pod, outside.image, outside.pod_template) == (None, None, "none")
    assert missing["pod"] == "TRAINBENCH_POD is not set: not started as a pod"
    assert (inside.pod, inside.image, inside.pod_template) == tuple(variables.values())
    assert not known.keys() & {"pod", "image"}


def test_only_libraries_that_matter_are_listed() -> None:
    prefixes = (*LIBRARIES, *CUDA_LIBRARIES)

    assert all(name.startswith(prefixes) for name in library_versions())


def test_the_cpu_is_the_first_model_name_or_where_the_kernel_names_none_the_machine_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nmodel name\t: A: B\n\nprocessor\t: 1\nmodel name\t: another\n")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")

    assert (cpu_model(path), cpu_model(tmp_path / "absent")) == ("A: B", "aarch64")
