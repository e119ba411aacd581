"""Peak rates, memory and power of known GPUs, from NVIDIA's data sheets. An unknown GPU has no shares: no fallback."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, TypeVar

from bench_image.contract.options import Precision

T = TypeVar("T")


class Peak(NamedTuple):
    """Dense TFLOP/s with fp32 accumulation, as NVIDIA states them; None: the GPU has no unit for that format."""

    bf16: float | None
    fp16: float | None
    fp32: float | None
    fp8: float | None = None
    tf32: float | None = None


# Sources: NVIDIA data sheets of each product (the figure without sparsity: where a sheet states only the sparse one,
# half of it), and the GA102, AD102 and GB202 white papers for GeForce cards (the fp32-accumulate figure). fp32 is the
# rate of the CUDA cores, tf32 that of the tensor cores; of the RTX 4070 Ti they are 7,680 cores x 2 x 2.61 GHz and the
# same shares of it as of other Ada cards. A key consists of words of the NVML product name.
PEAK_TFLOPS: dict[str, Peak] = {
    "T4": Peak(None, 65, 8.1),
    "V100 SXM2": Peak(None, 125, 15.7),
    "V100 PCIE": Peak(None, 112, 14),
    "A10": Peak(125, 125, 31.2, tf32=62.5),
    "A30": Peak(165, 165, 10.3, tf32=82),
    "A40": Peak(149.7, 149.7, 37.4, tf32=74.8),
    "A100": Peak(312, 312, 19.5, tf32=156),
    "L4": Peak(121, 121, 30.3, 242.5, tf32=60),
    "L40": Peak(181, 181, 90.5, 362, tf32=90.5),
    "L40S": Peak(362, 362, 91.6, 733, tf32=183),
    "H20": Peak(148, 148, 44, 296, tf32=74),
    "H100 HBM3": Peak(989, 989, 67, 1979, tf32=494.5),
    "H100 SXM5": Peak(989, 989, 67, 1979, tf32=494.5),
    "H100 PCIe": Peak(756, 756, 51, 1513, tf32=378),
    "H100 NVL": Peak(835, 835, 60, 1671, tf32=417.5),
    "H200": Peak(989, 989, 67, 1979, tf32=494.5),
    "H200 NVL": Peak(835, 835, 60, 1671, tf32=417.5),
    "GH200": Peak(989, 989, 67, 1979, tf32=494.5),
    "B200": Peak(2250, 2250, None, 4500, tf32=1125),
    "RTX 3090": Peak(71, 71, 35.6, tf32=35.6),
    "RTX 4070 Ti": Peak(80.2, 80.2, 40.1, 160.4, tf32=40.1),
    "RTX 4080": Peak(97.5, 97.5, 48.7, 194.9, tf32=48.7),
    "RTX 4090": Peak(165.2, 165.2, 82.6, 330.3, tf32=82.6),
    "RTX 5090": Peak(209.5, 209.5, 104.8, 419, tf32=104.8),
    "RTX A5000": Peak(111.1, 111.1, 27.8, tf32=55.6),
    "RTX A6000": Peak(154.8, 154.8, 38.7, tf32=77.4),
    "RTX 6000 Ada Generation": Peak(364.2, 364.2, 91.1, 728.5, tf32=182.1),
}


class Rates(NamedTuple):
    """GB/s (1e9 bytes/s): of the memory, reads and writes together; of the links in one direction, which is half of the
    figure of data sheets that add both. `peer`: from GPU to GPU by NVLink; None where a data sheet names no link, or a
    bridge that a machine need not have.
    """

    memory: float
    host: float
    peer: float | None
    source: str


# Links to the host: 16 lanes of PCIe generation 3, 4 or 5; of GH200 NVLink-C2C. Keys as in PEAK_TFLOPS, but where the
# memory's size or kind decides its rate.
PCIE_3, PCIE_4, PCIE_5 = 16.0, 32.0, 64.0
RATES: dict[str, Rates] = {
    "T4": Rates(320, PCIE_3, None, "NVIDIA T4 data sheet"),
    "V100 SXM2": Rates(900, PCIE_3, 150, "NVIDIA V100 data sheet"),
    "V100 PCIE": Rates(900, PCIE_3, None, "NVIDIA V100 data sheet"),
    "A10": Rates(600, PCIE_4, None, "NVIDIA A10 data sheet"),
    "A30": Rates(933, PCIE_4, None, "NVIDIA A30 data sheet"),
    "A40": Rates(696, PCIE_4, None, "NVIDIA A40 data sheet"),
    "A100 SXM4 40GB": Rates(1555, PCIE_4, 300, "NVIDIA A100 data sheet, SXM"),
    "A100 SXM4 80GB": Rates(2039, PCIE_4, 300, "NVIDIA A100 data sheet, SXM"),
    "A100 PCIE 40GB": Rates(1555, PCIE_4, None, "NVIDIA A100 data sheet, PCIe"),
    "A100 PCIe 80GB": Rates(1935, PCIE_4, None, "NVIDIA A100 data sheet, PCIe"),
    "L4": Rates(300, PCIE_4, None, "NVIDIA L4 data sheet"),
    "L40": Rates(864, PCIE_4, None, "NVIDIA L40 data sheet"),
    "L40S": Rates(864, PCIE_4, None, "NVIDIA L40S data sheet"),
    "H20": Rates(4000, PCIE_5, 450, "NVIDIA H20 data sheet"),
    "H100 HBM3": Rates(3350, PCIE_5, 450, "NVIDIA H100 data sheet, SXM"),
    "H100 PCIe": Rates(2000, PCIE_5, None, "NVIDIA H100 PCIe data sheet"),
    "H100 NVL": Rates(3900, PCIE_5, None, "NVIDIA H100 data sheet, NVL"),
    "H200": Rates(4800, PCIE_5, 450, "NVIDIA H200 data sheet, SXM"),
    "H200 NVL": Rates(4800, PCIE_5, None, "NVIDIA H200 data sheet, NVL"),
    "GH200 144G HBM3e": Rates(4900, 450, None, "NVIDIA GH200 data sheet, HBM3e"),
    "B200": Rates(8000, PCIE_5, 900, "NVIDIA HGX B200 data sheet"),
    "RTX 3090": Rates(936, PCIE_4, None, "NVIDIA GA102 white paper"),
    "RTX 4070 Ti": Rates(504.2, PCIE_4, None, "pages of third parties"),
    "RTX 4080": Rates(716.8, PCIE_4, None, "NVIDIA GeForce RTX 4080 specifications"),
    "RTX 4090": Rates(1008, PCIE_4, None, "NVIDIA AD102 white paper"),
    "RTX 5090": Rates(1792, PCIE_5, None, "NVIDIA GB202 white paper"),
    "RTX A5000": Rates(768, PCIE_4, None, "NVIDIA RTX A5000 data sheet"),
    "RTX A6000": Rates(768, PCIE_4, None, "NVIDIA RTX A6000 data sheet"),
    "RTX 6000 Ada Generation": Rates(960, PCIE_4, None, "NVIDIA RTX 6000 Ada data sheet"),
}


class GpuSpec(NamedTuple):
    """One GPU. `peak_name`: its name in PEAK_TFLOPS; bandwidth in 1e9 bytes/s; `tdp_w`: the default power limit."""

    memory_gib: int
    bandwidth_gb_per_s: float
    tdp_w: int
    peak_name: str
    source: str


# The SXM module where there are several forms. Keys are words of the NVML product name.
GPU_SPECS: dict[str, GpuSpec] = {
    "RTX 4070 Ti": GpuSpec(12, 504.2, 285, "RTX 4070 Ti", "pages of third parties"),
    "RTX 4080": GpuSpec(16, 716.8, 320, "RTX 4080", "NVIDIA GeForce RTX 4080 specifications"),
    "A10": GpuSpec(24, 600, 150, "A10", "NVIDIA A10 data sheet"),
    "L4": GpuSpec(24, 300, 72, "L4", "NVIDIA L4 data sheet"),
    "RTX 3090": GpuSpec(24, 936, 350, "RTX 3090", "NVIDIA GA102 white paper"),
    "RTX 4090": GpuSpec(24, 1008, 450, "RTX 4090", "NVIDIA AD102 white paper"),
    "RTX 5090": GpuSpec(32, 1792, 575, "RTX 5090", "NVIDIA GB202 white paper"),
    "A100 40GB": GpuSpec(40, 1555, 400, "A100", "NVIDIA A100 data sheet, SXM"),
    "L40S": GpuSpec(48, 864, 350, "L40S", "NVIDIA L40S data sheet"),
    "RTX A6000": GpuSpec(48, 768, 300, "RTX A6000", "NVIDIA RTX A6000 data sheet"),
    "A100 80GB": GpuSpec(80, 2039, 400, "A100", "NVIDIA A100 data sheet, SXM"),
    "H100": GpuSpec(80, 3350, 700, "H100 HBM3", "NVIDIA H100 data sheet, SXM"),
    "H200": GpuSpec(141, 4800, 700, "H200", "NVIDIA H200 data sheet, SXM"),
    "B200": GpuSpec(180, 8000, 1000, "B200", "NVIDIA HGX B200 data sheet"),
}

# Words that do not change the rate. Any other word may change it: "Laptop", "SUPER", "Ti", "MIG 1g.10gb", "40C" (vGPU).
_NEUTRAL = re.compile(r"nvidia|tesla|geforce|sxm\d?|pcie|hbm\d?e?|\d+gb?")


def peak_tflops(gpu_name: str, precision: Precision) -> float | None:
    """Dense peak in TFLOP/s of a GPU by its NVML name, e.g. 'NVIDIA A100-SXM4-80GB'; None for an unknown GPU."""
    peak = _named(PEAK_TFLOPS, gpu_name)
    if peak is None:
        return None
    by_precision = {
        Precision.BF16: peak.bf16, Precision.FP16: peak.fp16, Precision.FP32: peak.fp32, Precision.FP8: peak.fp8,
        Precision.TF32: peak.tf32,
    }  # fmt: skip
    return by_precision[precision]


def data_sheet(gpu_name: str) -> dict[str, float]:
    """Field of `Probes` -> what the data sheet promises, in the field's unit; without what it does not say."""
    peak, rates = _named(PEAK_TFLOPS, gpu_name), _named(RATES, gpu_name)
    promised = {
        "matmul_bf16_tflops": peak and peak.bf16,
        "matmul_fp8_tflops": peak and peak.fp8,
        "memory_gb_per_s": rates and rates.memory,
        "h2d_gb_per_s": rates and rates.host,
        "d2h_gb_per_s": rates and rates.host,
        "peer_gb_per_s": rates and rates.peer,
    }
    return {name: float(value) for name, value in promised.items() if value is not None}


def _named(table: Mapping[str, T], gpu_name: str) -> T | None:
    """The row whose key has the most words of the name, if the words that are left change no rate."""
    words = _name_parts(gpu_name)
    matches = [
        (len(key), row)
        for key, row in ((_name_parts(name), row) for name, row in table.items())
        if key <= words and all(_NEUTRAL.fullmatch(word) for word in words - key)
    ]
    return max(matches, key=lambda match: match[0])[1] if matches else None


@lru_cache(maxsize=256)  # a report asks for the same few names again and again
def _name_parts(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))
