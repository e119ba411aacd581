"""Peak rates, memory and power of known GPUs, from NVIDIA's data sheets. An unknown GPU has no shares: no fallback.

`gpus.csv` has them, a GPU or a form of one per row; an empty cell is a figure that its sheet does not state, or that
the row of another form has. Sources: NVIDIA data sheets of each product (where a sheet states only the figure with
sparsity, half of it), and the GA102, AD102 and GB202 white papers for GeForce cards; of the RTX 4070 Ti they are 7,680
cores x 2 x 2.61 GHz and the same shares of it as of other Ada cards. A name consists of words of the NVML product name.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from bench_image.contract.options import Precision


class GpuSpec(NamedTuple):
    """One row. Peaks: dense TFLOP/s with fp32 accumulation; fp32 on the CUDA cores, tf32 on the tensor cores.

    GB/s are 1e9 bytes/s: of the memory, reads and writes together; of the links in one direction, which is half of the
    figure of data sheets that add both. Links to the host: 16 lanes of PCIe generation 3, 4 or 5; of GH200 NVLink-C2C.
    `peer`: from GPU to GPU by NVLink; None where a data sheet names no link, or a bridge that a machine need not have.
    `tdp_w`: the default power limit, of the SXM module where there are several forms. `peak_name`: the row with its
    peaks.
    """

    bf16_tflops: float | None
    fp16_tflops: float | None
    fp32_tflops: float | None
    fp8_tflops: float | None
    tf32_tflops: float | None
    memory_gb_per_s: float | None
    host_gb_per_s: float | None
    peer_gb_per_s: float | None
    memory_gib: int
    tdp_w: int
    peak_name: str
    source: str


def _read() -> dict[str, GpuSpec]:
    rows = csv.DictReader(Path(__file__).with_name("gpus.csv").read_text().splitlines())
    texts = {"name", "peak_name", "source"}
    return {
        row["name"]: GpuSpec(*(row[key] if key in texts else _number(row[key]) for key in GpuSpec._fields))  # type: ignore[arg-type]
        for row in rows
    }


def _number(text: str) -> float | None:
    return (int(text) if text.isdecimal() else float(text)) if text else None


_ROWS = _read()
PEAK_TFLOPS = {name: row for name, row in _ROWS.items() if row.fp16_tflops}
_RATES = {name: row for name, row in _ROWS.items() if row.host_gb_per_s}
# Those that a job can be planned for, the smallest first.
GPU_SPECS = dict(sorted(((n, row) for n, row in _ROWS.items() if row.tdp_w), key=lambda item: item[1].memory_gib))

# Words that make no other GPU of it. Any other word may: "Laptop", "SUPER", "Ti", "NVL", "MIG 1g.10gb", "40C" (vGPU).
_NEUTRAL = re.compile(r"nvidia|tesla|geforce|quadro|sxm\d?|pcie|hbm\d?e?|\d+gb?")


def peak_tflops(gpu_name: str, precision: Precision) -> float | None:
    """Dense peak in TFLOP/s of a GPU by its NVML name, e.g. 'NVIDIA A100-SXM4-80GB'; None for an unknown GPU, or one
    without a unit for that format.
    """
    row = _named(PEAK_TFLOPS, gpu_name)
    peak: float | None = getattr(row, f"{precision.value}_tflops", None)
    return peak


def data_sheet(gpu_name: str) -> dict[str, float]:
    """Field of `Probes` -> what the data sheet promises, in the field's unit; without what it does not say."""
    peak, rates = _named(PEAK_TFLOPS, gpu_name), _named(_RATES, gpu_name)
    promised = {
        "matmul_bf16_tflops": peak and peak.bf16_tflops,
        "matmul_fp8_tflops": peak and peak.fp8_tflops,
        "memory_gb_per_s": rates and rates.memory_gb_per_s,
        "h2d_gb_per_s": rates and rates.host_gb_per_s,
        "d2h_gb_per_s": rates and rates.host_gb_per_s,
        "peer_gb_per_s": rates and rates.peer_gb_per_s,
    }
    return {name: float(value) for name, value in promised.items() if value is not None}


def _named(table: Mapping[str, GpuSpec], gpu_name: str) -> GpuSpec | None:
    """The row whose name has the most words of the GPU's, and names it."""
    fitting = [name for name in table if names_gpu(name, gpu_name)]
    return table[max(fitting, key=lambda name: len(name_parts(name)))] if fitting else None


def names_gpu(short: str, gpu_name: str) -> bool:
    """Whether `short`, such as `A100 80GB`, names the GPU with this NVML name: all of its words occur there, and the
    other words make no other GPU of it.
    """
    row, gpu = name_parts(short), name_parts(gpu_name)
    return row <= gpu and all(_NEUTRAL.fullmatch(word) for word in gpu - row)


@lru_cache(maxsize=4096)  # a fleet looks up the same GPU thousands of times
def name_parts(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower()))
