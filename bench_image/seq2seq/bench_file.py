"""The bench file of an encoder-decoder benchmark, `bench_{GPU_MODEL}_{N}gpu_{TIMESTAMP}.json`, and its table.

Format `trainbench-encoder-decoder`, version 1; a golden file in the tests shows a whole one:

    format, format_version, trainbench_result     the last one names the result file within the folder of this file
    status, started_at, finished_at               UTC; only runs that ended "ok" get a file
    hardware        gpu_model ("CPU" without a GPU), num_gpus (0 on the CPU), num_processes, gpus, driver, hostname,
                    cpu, num_cpus, kernel
    software        python, cuda (of the driver), image, libraries
    configuration   every setting by its flag's name, and what follows: parameters, strategy, steps and samples of an
                    epoch, warm-up steps, where the data came from, notes where the run differs from the flags
    epochs          per measured epoch: wall_time_s, num_steps, num_samples, samples_per_second (on the CPU: of the
                    process' CPU time, result.performance.clock), mean_loss, loader_wait_s (of the rank that waited
                    longest)
    summary         over all epochs: wall_time_per_epoch_mean_s, samples_per_second and tokens_per_second of all GPUs,
                    peak_gpu_memory_gb (1e9 bytes, torch's allocated bytes, maximum over GPUs), gpu_utilisation_mean_pct
                    (NVML, mean over GPUs, within the epochs), temperature_max_c, mfu_pct, loader_wait_pct, startup_s
    result          the whole RunResult (bench_image/contract/schemas), with each step's time, `missing` and
                    what was probed

A figure that is not known is null, and `result.missing` says why.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_image.contract.flops import tokens_per_sample
from bench_image.contract.model_shapes import EncoderDecoderShape
from bench_image.contract.options import Precision
from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import Clock, Context
from bench_image.contract.step_stats import window_s
from bench_image.contract.work import Device
from bench_image.process.rank_report import WindowRecord
from bench_image.seq2seq.flags import Plan

AMP_NAMES = {Precision.FP16: "fp16", Precision.BF16: "bf16", Precision.FP32: "off"}


def document(plan: Plan, result: RunResult, windows: Sequence[WindowRecord], result_path: str) -> dict[str, Any]:
    """The file's content. `windows`: those of rank 0, one per epoch, with its losses, which a result does not hold."""
    assert result.status is Status.OK
    assert result.context is not None
    return {
        "format": "trainbench-encoder-decoder",
        "format_version": 1,
        "trainbench_result": result_path,
        "status": result.status.value,
        "started_at": result.started_at.isoformat(),
        "finished_at": result.finished_at.isoformat(),
        "hardware": _hardware(result, result.context),
        "software": {
            "python": result.context.python,
            "cuda": result.context.cuda,
            "image": result.context.image,
            "libraries": result.context.libraries,
        },
        "configuration": _configuration(plan, result),
        "epochs": [_epoch(plan, number, window) for number, window in enumerate(windows, 1)],
        "summary": _summary(result, windows),
        "result": result.model_dump(mode="json"),
    }


def gpu_model(result: RunResult) -> str:
    """The GPU's name without its maker, in letters, digits and hyphens: 'A100-SXM4-80GB'; 'CPU' for a CPU run."""
    if result.spec.work.device is Device.CPU:
        return "CPU"
    names = {gpu.name for gpu in result.context.gpus} if result.context else set()
    name = re.sub(r"^(NVIDIA|Tesla)\s+", "", " + ".join(sorted(names)))
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "unknown"


def num_gpus(result: RunResult) -> int:
    return 0 if result.spec.work.device is Device.CPU else result.spec.placement.world_size


def free_path(folder: Path, result: RunResult) -> Path:
    """The path of a new file; a number is added where a file of the same second exists, which is never overwritten."""
    name = f"bench_{gpu_model(result)}_{num_gpus(result)}gpu_{result.started_at:%Y%m%dT%H%M%SZ}"
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
    lines = [
        f"{setting['num_parameters']:,} parameters, {setting['strategy']} on {count}, amp {setting['amp']}, "
        f"batch {setting['batch_size']} x {hardware['num_processes']}, sequence {setting['seq_len']}",
        f"data: {setting['data']}",
        *(f"note: {note}" for note in setting["notes"]),
        "",
        f"{'epoch':>5}  {'wall s':>9}  {'samples/s':>11}  {'mean loss':>9}  {'loader wait s':>13}",
    ]
    lines += [
        f"{epoch['epoch']:>5}  {epoch['wall_time_s']:>9.2f}  {epoch['samples_per_second']:>11,.1f}  "
        f"{epoch['mean_loss']:>9.4f}  {epoch['loader_wait_s']:>13.2f}"
        for epoch in content["epochs"]
    ]
    lines += [
        f" mean  {summary['wall_time_per_epoch_mean_s']:>9.2f}  {summary['samples_per_second']:>11,.1f}",
        "",
        f"peak GPU memory {_shown(summary['peak_gpu_memory_gb'], 'GB', 3)}, "
        f"GPU utilisation {_shown(summary['gpu_utilisation_mean_pct'], '%', 1)}, "
        f"MFU {_shown(summary['mfu_pct'], '%', 1)}",
    ]
    return "\n".join(lines) + "\n"


def _shown(value: float | None, unit: str, digits: int) -> str:
    return "unknown" if value is None else f"{value:.{digits}f} {unit}"


def _hardware(result: RunResult, context: Context) -> dict[str, Any]:
    return {
        "gpu_model": gpu_model(result),
        "num_gpus": num_gpus(result),
        "num_processes": result.spec.placement.world_size,
        "gpus": [gpu.model_dump(mode="json") for gpu in context.gpus],
        "driver": context.driver,
        "hostname": context.hostname,
        "cpu": context.cpu,
        "num_cpus": context.num_cpus,
        "kernel": context.kernel,
    }


def _configuration(plan: Plan, result: RunResult) -> dict[str, Any]:
    spec, shape = plan.spec, plan.spec.work.shape
    assert isinstance(shape, EncoderDecoderShape)
    disk = None if spec.work.data == "memory" else spec.work.data
    return {
        "d_model": shape.hidden_size,
        "nhead": shape.num_heads,
        "num_encoder_layers": shape.num_encoder_layers,
        "num_decoder_layers": shape.num_decoder_layers,
        "dim_feedforward": shape.intermediate_size,
        "vocab_size": shape.vocab_size,
        "seq_len": spec.work.seq_length,
        "batch_size": spec.work.micro_batch_size,
        "epochs": spec.measurement.repeats,
        "warmup_epochs": plan.warmup_epochs,
        "amp": AMP_NAMES[spec.work.precision],
        "seed": spec.work.seed,
        "device": spec.work.device.value,
        "num_samples": plan.num_samples,
        "data_dir": disk.folder if disk else None,
        "num_shards": disk.num_shards if disk else None,
        "data": result.chosen.execution.get("data") if result.chosen else None,
        "num_parameters": result.parameters.total,
        "strategy": spec.placement.strategy.value,
        "optimizer": spec.work.optimizer.value,
        "global_batch_size": spec.samples_per_step,
        "tokens_per_sample": tokens_per_sample(shape, spec.work.seq_length),
        "steps_per_epoch": spec.measurement.measured_steps,
        "samples_per_epoch": plan.samples_per_epoch,
        "warmup_steps": spec.measurement.warmup_steps,
        "notes": list(plan.notes),
    }


def _epoch(plan: Plan, number: int, window: WindowRecord) -> dict[str, Any]:
    losses = [loss for loss in window.losses if loss is not None]
    num_samples = len(window.step_times_s) * plan.spec.samples_per_step
    return {
        "epoch": number,
        "wall_time_s": window.wall_s,
        "num_steps": len(window.step_times_s),
        "num_samples": num_samples,
        "samples_per_second": num_samples
        / window_s(Clock.of(plan.spec.work.device), window.wall_s, window.step_times_s),
        "mean_loss": statistics.fmean(losses),
        "loader_wait_s": window.loader_wait_s,
    }


def _summary(result: RunResult, windows: Sequence[WindowRecord]) -> dict[str, Any]:
    utilisation = [gpu.utilisation_mean_pct for gpu in result.telemetry.gpus]
    temperature = [gpu.temperature_max_c for gpu in result.telemetry.gpus]
    known = [value for value in utilisation if value is not None]
    on_gpu = result.memory.kind == "cuda_allocated"
    startup = result.startup
    parts = (startup.launch_s, startup.import_s, startup.build_s, startup.probe_s, startup.autotune_s, startup.warmup_s)
    return {
        "wall_time_per_epoch_mean_s": statistics.fmean(window.wall_s for window in windows),
        "samples_per_second": result.performance.samples_per_second,
        "tokens_per_second": result.performance.tokens_per_second,
        "peak_gpu_memory_gb": result.memory.peak_during_training if on_gpu else None,
        "gpu_utilisation_mean_pct": statistics.fmean(known) if known and len(known) == len(utilisation) else None,
        "temperature_max_c": max((value for value in temperature if value is not None), default=None),
        "mfu_pct": result.performance.mfu_pct,
        "loader_wait_pct": result.performance.loader_wait_pct,
        "startup_s": sum(part for part in parts if part is not None),
    }
