"""The bench file of a run, `bench_{GPU_MODEL}_{N}gpu_{TIMESTAMP}.json`: its result, and the table for a terminal.

An epoch is a window of the result.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench_image.contract.options import Precision
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Clock
from bench_image.contract.work import Device
from bench_image.process.rank_report import WindowRecord
from bench_image.seq2seq.flags import Plan

AMP_NAMES = {Precision.FP16: "fp16", Precision.BF16: "bf16", Precision.FP32: "off"}


def free_path(folder: Path, result: RunResult) -> Path:
    """The path of a new file; a number is added where a file of the same second exists, which is never overwritten."""
    name = f"bench_{gpu_model(result)}_{num_gpus(result)}gpu_{result.started_at:%Y%m%dT%H%M%SZ}"
    path, number = folder / f"{name}.json", 2
    while path.exists():
        path, number = folder / f"{name}-{number}.json", number + 1
    return path


def gpu_model(result: RunResult) -> str:
    """The GPU's name without its maker, in letters, digits and hyphens: 'A100-SXM4-80GB'; 'CPU' for a CPU run."""
    if result.spec.work.device is Device.CPU:
        return "CPU"
    names = {gpu.name for gpu in result.context.gpus} if result.context else set()
    name = re.sub(r"^(NVIDIA|Tesla)\s+", "", " + ".join(sorted(names)))
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "unknown"


def num_gpus(result: RunResult) -> int:
    """0 for a CPU run."""
    return 0 if result.spec.work.device is Device.CPU else result.spec.placement.world_size


def table(plan: Plan, result: RunResult, windows: Sequence[WindowRecord]) -> str:
    """The epochs and the summary as text. `windows`: those of rank 0, with its losses, which a result does not hold."""
    work, placement, performance = result.effective_spec.work, result.spec.placement, result.performance
    count = f"{num_gpus(result)} x {gpu_model(result)}" if num_gpus(result) else result.context and result.context.cpu
    by_cpu_time = performance.clock is Clock.PROCESS_CPU
    rate = "per CPU s" if by_cpu_time else "samples/s"
    use = [gpu.utilisation_mean_pct for gpu in result.telemetry.gpus if gpu.utilisation_mean_pct is not None]
    use_pct = statistics.fmean(use) if use and len(use) == len(result.telemetry.gpus) else None
    memory_gb = result.memory.peak_during_training if result.memory.kind == "cuda_allocated" else None
    lines = [
        f"{result.parameters.total:,} parameters, {placement.strategy} on {count}, amp {AMP_NAMES[work.precision]}, "
        f"batch {work.micro_batch_size} x {placement.world_size}, sequence {work.seq_length}",
        f"data: {result.chosen and result.chosen.execution.get('data')}",
        *(f"note: {note}" for note in plan.notes),
        "",
        f"{'epoch':>5}  {'wall s':>9}  {rate:>11}  {'mean loss':>9}  {'loader wait s':>13}",
    ]
    for number, (epoch, window) in enumerate(zip(performance.windows, windows, strict=True), 1):
        mean_loss = statistics.fmean(loss for loss in window.losses if loss is not None)
        lines.append(
            f"{number:>5}  {epoch.wall_s:>9.2f}  {epoch.samples_per_second:>11,.1f}  {mean_loss:>9.4f}  "
            f"{window.loader_wait_s:>13.2f}"
        )
    mean_s = statistics.fmean(epoch.wall_s for epoch in performance.windows)
    lines += [
        f" mean  {mean_s:>9.2f}  {performance.samples_per_second:>11,.1f}",
        *(["samples by the processes' CPU time, which other programs do not change"] if by_cpu_time else []),
        "",
        f"peak GPU memory {_shown(memory_gb, 'GB', 3)}, GPU utilisation {_shown(use_pct, '%', 1)}, "
        f"MFU {_shown(performance.mfu_pct, '%', 1)}",
    ]
    return "\n".join(lines) + "\n"


def _shown(value: float | None, unit: str, digits: int) -> str:
    return "unknown" if value is None else f"{value:.{digits}f} {unit}"
