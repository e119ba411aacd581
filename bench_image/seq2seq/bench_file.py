"""One run's bench file, and its table for a terminal. The format: bench_image.contract.seq2seq_file."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Clock
from bench_image.contract.seq2seq_file import BeyondResult, bench_document, bench_name
from bench_image.process.rank_report import WindowRecord
from bench_image.seq2seq.flags import Plan


def document(plan: Plan, result: RunResult, windows: Sequence[WindowRecord], result_path: str) -> dict[str, Any]:
    """The file's content. `windows`: those of rank 0, one per epoch, with its losses, which a result does not hold."""
    beyond = BeyondResult(
        num_samples=plan.num_samples,
        warmup_epochs=plan.warmup_epochs,
        mean_losses=[statistics.fmean(loss for loss in window.losses if loss is not None) for window in windows],
        loader_waits_s=[window.loader_wait_s for window in windows],
        notes=plan.notes,
    )
    return bench_document(result, beyond, result_path)


def free_path(folder: Path, result: RunResult) -> Path:
    """The path of a new file; a number is added where a file of the same second exists, which is never overwritten."""
    name = bench_name(result)
    path, number = folder / f"{name}.json", 2
    while path.exists():
        path, number = folder / f"{name}-{number}.json", number + 1
    return path


def text_of(content: dict[str, Any]) -> str:
    """Indented JSON, with each list of numbers on one line."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    return re.sub(r"\[[\d\s.,e+-]*\]", lambda match: re.sub(r"\s+", " ", match[0]), text) + "\n"


def table(content: dict[str, Any]) -> str:
    """The epochs and the summary as text for a terminal."""
    summary, hardware, setting = content["summary"], content["hardware"], content["configuration"]
    count = f"{hardware['num_gpus']} x {hardware['gpu_model']}" if hardware["num_gpus"] else hardware["cpu"]
    by_cpu_time = content["result"]["performance"]["clock"] == Clock.PROCESS_CPU
    rate = "per CPU s" if by_cpu_time else "samples/s"
    lines = [
        f"{setting['num_parameters']:,} parameters, {setting['strategy']} on {count}, amp {setting['amp']}, "
        f"batch {setting['batch_size']} x {hardware['num_processes']}, sequence {setting['seq_len']}",
        f"data: {setting['data']}",
        *(f"note: {note}" for note in setting["notes"]),
        "",
        f"{'epoch':>5}  {'wall s':>9}  {rate:>11}  {'mean loss':>9}  {'loader wait s':>13}",
    ]
    lines += [
        f"{epoch['epoch']:>5}  {epoch['wall_time_s']:>9.2f}  {epoch['samples_per_second']:>11,.1f}  "
        f"{epoch['mean_loss']:>9.4f}  {epoch['loader_wait_s']:>13.2f}"
        for epoch in content["epochs"]
    ]
    lines += [
        f" mean  {summary['wall_time_per_epoch_mean_s']:>9.2f}  {summary['samples_per_second']:>11,.1f}",
        *(["samples by the processes' CPU time, which other programs do not change"] if by_cpu_time else []),
        "",
        f"peak GPU memory {_shown(summary['peak_gpu_memory_gb'], 'GB', 3)}, "
        f"GPU utilisation {_shown(summary['gpu_utilisation_mean_pct'], '%', 1)}, "
        f"MFU {_shown(summary['mfu_pct'], '%', 1)}",
    ]
    return "\n".join(lines) + "\n"


def _shown(value: float | None, unit: str, digits: int) -> str:
    return "unknown" if value is None else f"{value:.{digits}f} {unit}"
