"""The bench file of an encoder-decoder benchmark, `bench_{GPU_MODEL}_{N}gpu_{TIMESTAMP}.json`, from a result.

Format `trainbench-encoder-decoder`, version 1; a golden file in the tests shows a whole one:

    format, format_version, trainbench_result     the last one names the result file within the folder of this file
    status, started_at, finished_at               UTC; only runs that ended "ok" get a file
    hardware        gpu_model ("CPU" without a GPU), num_gpus (0 on the CPU), num_processes, gpus, driver, hostname,
                    cpu, num_cpus, kernel
    software        python, cuda (of the driver), image, libraries
    configuration   every setting by its flag's name, and what follows: parameters, strategy, steps and samples of an
                    epoch, warm-up steps, where the data came from, notes where the run differs from the flags
    epochs          per measured epoch, a window of the result: wall_time_s, num_steps, num_samples, samples_per_second
                    (by result.performance.clock), mean_loss, loader_wait_s (of the rank that waited longest)
    summary         over all epochs: wall_time_per_epoch_mean_s, samples_per_second and tokens_per_second of all GPUs,
                    peak_gpu_memory_gb (1e9 bytes, torch's allocated bytes, maximum over GPUs), gpu_utilisation_mean_pct
                    (NVML, mean over GPUs, within the epochs), temperature_max_c, mfu_pct, loader_wait_pct, startup_s
    result          the whole RunResult (bench_image/contract/schemas), with each step's time, `missing` and
                    what was probed

A figure that is not known is null, and `result.missing` or `not_known` says why.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench_image.contract.flops import tokens_per_sample
from bench_image.contract.model_shapes import EncoderDecoderShape
from bench_image.contract.options import Precision
from bench_image.contract.result import RunResult
from bench_image.contract.work import Device

FORMAT, FORMAT_VERSION = "trainbench-encoder-decoder", 1
AMP_NAMES = {Precision.FP16: "fp16", Precision.BF16: "bf16", Precision.FP32: "off", Precision.TF32: "off"}


@dataclass(frozen=True, kw_only=True)
class BeyondResult:
    """The facts of the file that a result does not hold; None where only the result is left."""

    num_samples: int | None
    warmup_epochs: int | None
    mean_losses: Sequence[float | None]  # of each epoch
    loader_waits_s: Sequence[float | None]  # likewise
    notes: Sequence[str]


def bench_document(result: RunResult, beyond: BeyondResult, result_path: str) -> dict[str, Any]:
    """The content of the file of a run that ended ok and whose model is an encoder-decoder."""
    document = result.model_dump(mode="json")
    context = document["context"]
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "trainbench_result": result_path,
        "status": result.status.value,
        "started_at": result.started_at.isoformat(),
        "finished_at": result.finished_at.isoformat(),
        "hardware": {
            "gpu_model": gpu_model(result),
            "num_gpus": num_gpus(result),
            "num_processes": result.spec.placement.world_size,
            **{name: context[name] for name in ("hostname", "gpus", "driver", "kernel", "cpu", "num_cpus")},
        },
        "software": {name: context[name] for name in ("image", "cuda", "python", "libraries")},
        "configuration": _configuration(result, beyond),
        "epochs": _epochs(result, beyond),
        "summary": _summary(result),
        "result": document,
    }


def bench_name(result: RunResult) -> str:
    """The file's name without its ending; a CPU run has 0 GPUs."""
    return f"bench_{gpu_model(result)}_{num_gpus(result)}gpu_{result.started_at:%Y%m%dT%H%M%SZ}"


def gpu_model(result: RunResult) -> str:
    """The GPU's name without its maker, in letters, digits and hyphens: 'A100-SXM4-80GB'; 'CPU' for a CPU run."""
    if result.spec.work.device is Device.CPU:
        return "CPU"
    names = {gpu.name for gpu in result.context.gpus} if result.context else set()
    name = re.sub(r"^(NVIDIA|Tesla)\s+", "", " + ".join(sorted(names)))
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "unknown"


def num_gpus(result: RunResult) -> int:
    return 0 if result.spec.work.device is Device.CPU else result.spec.placement.world_size


def _configuration(result: RunResult, beyond: BeyondResult) -> dict[str, Any]:
    spec, windows = result.effective_spec, result.performance.windows
    shape = spec.work.shape
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
        "epochs": len(windows),
        "warmup_epochs": beyond.warmup_epochs,
        "amp": AMP_NAMES[spec.work.precision],
        "seed": spec.work.seed,
        "device": spec.work.device.value,
        "num_samples": beyond.num_samples,
        "data_dir": disk.folder if disk else None,
        "num_shards": disk.num_shards if disk else None,
        "data": result.chosen.execution.get("data") if result.chosen else None,
        "num_parameters": result.parameters.total,
        "strategy": spec.placement.strategy.value,
        "optimizer": spec.work.optimizer.value,
        "global_batch_size": spec.samples_per_step,
        "tokens_per_sample": tokens_per_sample(shape, spec.work.seq_length),
        "steps_per_epoch": windows[0].num_steps,
        "samples_per_epoch": windows[0].num_steps * spec.samples_per_step,
        "warmup_steps": spec.measurement.warmup_steps,
        "notes": list(beyond.notes),
    }


def _epochs(result: RunResult, beyond: BeyondResult) -> list[dict[str, Any]]:
    known = zip(result.performance.windows, beyond.mean_losses, beyond.loader_waits_s, strict=True)
    return [
        {
            "epoch": number,
            "wall_time_s": window.wall_s,
            "num_steps": window.num_steps,
            "num_samples": window.num_steps * result.effective_spec.samples_per_step,
            "samples_per_second": window.samples_per_second,
            "mean_loss": mean_loss,
            "loader_wait_s": loader_wait_s,
        }
        for number, (window, mean_loss, loader_wait_s) in enumerate(known, 1)
    ]


def _summary(result: RunResult) -> dict[str, Any]:
    gpus, startup = result.telemetry.gpus, result.startup
    utilisation = [gpu.utilisation_mean_pct for gpu in gpus if gpu.utilisation_mean_pct is not None]
    temperatures = [gpu.temperature_max_c for gpu in gpus if gpu.temperature_max_c is not None]
    before = (
        startup.launch_s, startup.import_s, startup.build_s, startup.probe_s, startup.autotune_s, startup.warmup_s,
    )  # fmt: skip
    return {
        "wall_time_per_epoch_mean_s": statistics.fmean(window.wall_s for window in result.performance.windows),
        "samples_per_second": result.performance.samples_per_second,
        "tokens_per_second": result.performance.tokens_per_second,
        "peak_gpu_memory_gb": result.memory.peak_during_training if result.memory.kind == "cuda_allocated" else None,
        "gpu_utilisation_mean_pct": statistics.fmean(utilisation) if gpus and len(utilisation) == len(gpus) else None,
        "temperature_max_c": max(temperatures, default=None),
        "mfu_pct": result.performance.mfu_pct,
        "loader_wait_pct": result.performance.loader_wait_pct,
        "startup_s": sum(part for part in before if part is not None),
    }
