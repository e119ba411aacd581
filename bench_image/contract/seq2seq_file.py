"""The bench file of `python -m bench_image.seq2seq`: the `RunResult` of a run that ended well, under the name
`bench_{GPU_MODEL}_{N}gpu_{TIMESTAMP}.json`. Each of its measured windows is an epoch: all steps of the data.
"""

from __future__ import annotations

import re

from bench_image.contract.result import RunResult
from bench_image.contract.work import Device

CAMPAIGN = "seq2seq"  # of all runs of that program


def bench_name(result: RunResult) -> str:
    """The file's name without its ending; a CPU run has 0 GPUs."""
    num_gpus = 0 if result.spec.work.device is Device.CPU else result.spec.placement.world_size
    return f"bench_{gpu_model(result)}_{num_gpus}gpu_{result.started_at:%Y%m%dT%H%M%SZ}"


def gpu_model(result: RunResult) -> str:
    """The GPU's name without its maker, in letters, digits and hyphens: 'A100-SXM4-80GB'; 'CPU' for a CPU run."""
    if result.spec.work.device is Device.CPU:
        return "CPU"
    names = {gpu.name for gpu in result.context.gpus} if result.context else set()
    name = re.sub(r"^(NVIDIA|Tesla)\s+", "", " + ".join(sorted(names)))
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "unknown"
