"""Where a run's bench file goes (its format: `bench_image.contract.seq2seq_file`), and the run as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Clock
from bench_image.contract.seq2seq_file import bench_name, gpu_model
from bench_image.contract.work import Device
from bench_image.process.rank_report import WindowRecord
from bench_image.seq2seq.flags import AMP, Plan


def free_path(folder: Path, result: RunResult) -> Path:
    """The path of a new file; a number is added where a file of the same second exists, which is never overwritten."""
    name = bench_name(result)
    path, number = folder / f"{name}.json", 2
    while path.exists():
        path, number = folder / f"{name}-{number}.json", number + 1
    return path


def table(plan: Plan, result: RunResult, windows: Sequence[WindowRecord]) -> str:
    """The epochs and their mean. `windows`: those of rank 0, which have each epoch's losses and its wait for data."""
    work, placement, performance = plan.spec.work, plan.spec.placement, result.performance
    assert result.context is not None  # of a run that ended well, as the next two
    assert result.chosen is not None
    assert performance.samples_per_second is not None
    where = result.context.cpu if work.device is Device.CPU else f"{placement.world_size} x {gpu_model(result)}"
    amp = next(name for name, precision in AMP.items() if precision is work.precision)
    by_cpu_time = performance.clock is Clock.PROCESS_CPU
    rate = "per CPU s" if by_cpu_time else "samples/s"
    gpus = [gpu.utilisation_mean_pct for gpu in result.telemetry.gpus]
    known = [utilisation for utilisation in gpus if utilisation is not None]
    peak_gb = result.memory.peak_during_training if result.memory.kind == "cuda_allocated" else None
    lines = [
        f"{result.parameters.total:,} parameters, {placement.strategy} on {where}, amp {amp}, "
        f"batch {work.micro_batch_size} x {placement.world_size}, sequence {work.seq_length}",
        f"data: {result.chosen.execution.get('data')}",
        *(f"note: {note}" for note in plan.notes),
        "",
        f"{'epoch':>5}  {'wall s':>9}  {rate:>11}  {'mean loss':>9}  {'loader wait s':>13}",
    ]
    for number, (epoch, of_rank) in enumerate(zip(performance.windows, windows, strict=True), 1):
        mean_loss = statistics.fmean(loss for loss in of_rank.losses if loss is not None)
        lines.append(
            f"{number:>5}  {epoch.wall_s:>9.2f}  {epoch.samples_per_second:>11,.1f}  {mean_loss:>9.4f}  "
            f"{of_rank.loader_wait_s:>13.2f}"
        )
    mean_wall_s = statistics.fmean(epoch.wall_s for epoch in performance.windows)
    lines += [
        f" mean  {mean_wall_s:>9.2f}  {performance.samples_per_second:>11,.1f}",
        *(["samples by the processes' CPU time, which other programs do not change"] if by_cpu_time else []),
        "",
        f"peak GPU memory {_shown(peak_gb, 'GB', 3)}, "
        f"GPU utilisation {_shown(statistics.fmean(known) if gpus and len(known) == len(gpus) else None, '%', 1)}, "
        f"MFU {_shown(performance.mfu_pct, '%', 1)}",
    ]
    return "\n".join(lines) + "\n"


def _shown(value: float | None, unit: str, digits: int) -> str:
    return "unknown" if value is None else f"{value:.{digits}f} {unit}"
