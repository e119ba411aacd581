"""Peak rates by the name that NVML gives: whole words, no guess."""

from __future__ import annotations

import pytest

from bench_image.contract.gpu_specs import GPU_SPECS, PEAK_TFLOPS, data_sheet, peak_tflops
from bench_image.contract.options import Precision


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA A10", 125),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H200", 989),
        ("NVIDIA H200 NVL", 835),
        ("NVIDIA GH200 144G HBM3e", 989),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA RTX A6000", 154.8),
        ("NVIDIA RTX 6000 Ada Generation", 364.2),
        # no peak for a GPU that is not known exactly
        ("", None),
        ("NVIDIA Fake 9000", None),
        ("NVIDIA A10G", None),  # not an A10
        ("NVIDIA H100", None),  # SXM, PCIe or NVL? They differ by 30 %
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 4080 SUPER", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),  # a slice of a GPU
        ("GRID A100-40C", None),  # a virtual GPU
    ],
)
def test_gpus_by_their_nvml_names(name: str, tflops: float | None) -> None:
    assert peak_tflops(name, Precision.BF16) == tflops


@pytest.mark.parametrize(
    ("name", "peaks"),
    [
        ("Tesla T4", {"bf16": None, "fp16": 65, "tf32": None}),  # it has units for neither bf16 nor TF32
        ("NVIDIA A100-SXM4-80GB", {"fp32": 19.5, "fp8": None, "tf32": 156}),  # fp32 runs on the CUDA cores
        ("NVIDIA H200", {"fp8": 1979}),
    ],
)
def test_each_precision_has_its_own_peak(name: str, peaks: dict[str, float | None]) -> None:
    assert {precision: peak_tflops(name, Precision(precision)) for precision in peaks} == peaks


def test_every_key_of_the_table_finds_itself() -> None:
    for name, peak in PEAK_TFLOPS.items():
        assert peak_tflops(f"NVIDIA {name}", Precision.FP16) == peak.fp16_tflops


def test_what_the_data_sheet_of_an_h200_promises() -> None:
    """One direction of each link: half of PCIe's 128 GB/s and of NVLink's 900."""
    assert data_sheet("NVIDIA H200") == {
        "matmul_bf16_tflops": 989, "matmul_fp8_tflops": 1979, "memory_gb_per_s": 4800, "h2d_gb_per_s": 64,
        "d2h_gb_per_s": 64, "peer_gb_per_s": 450,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "memory", "peer"),
    [
        ("NVIDIA A100-SXM4-40GB", 1555, 300),
        ("NVIDIA A100-SXM4-80GB", 2039, 300),
        ("NVIDIA A100 80GB PCIe", 1935, None),  # a bridge may link it to a second one
        ("NVIDIA H100 80GB HBM3", 3350, 450),
        ("NVIDIA H200 NVL", 4800, None),
        ("NVIDIA GH200 144G HBM3e", 4900, None),
        ("NVIDIA L4", 300, None),
        ("NVIDIA A10G", None, None),
        ("", None, None),
    ],
)
def test_rates_differ_by_size_and_form(name: str, memory: float | None, peer: float | None) -> None:
    assert (data_sheet(name).get("memory_gb_per_s"), data_sheet(name).get("peer_gb_per_s")) == (memory, peer)


def test_a_gpu_promises_nothing_in_a_format_that_it_lacks() -> None:
    assert "matmul_fp8_tflops" not in data_sheet("NVIDIA A100-SXM4-80GB")
    assert "matmul_bf16_tflops" not in data_sheet("Tesla T4")


def test_a_gpu_that_jobs_are_planned_for_has_the_rate_of_its_sxm_module() -> None:
    forms = {"A100 40GB": "A100 SXM4 40GB", "A100 80GB": "A100 SXM4 80GB", "H100": "H100 HBM3"}
    for name, spec in GPU_SPECS.items():
        assert data_sheet(f"NVIDIA {forms.get(name, name)}")["memory_gb_per_s"] == spec.memory_gb_per_s
