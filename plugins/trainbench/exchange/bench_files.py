"""Files `bench_{GPU}_{N}gpu_{TIMESTAMP}.json` of encoder-decoder benchmarks: read, whoever wrote them, and written.

Two formats are known: `trainbench-encoder-decoder`, version 1, which holds a whole RunResult (docs/encoder-decoder.md),
and the older one of `benchmark.py`: metadata, config, summary and epochs, memory in MB, and nothing else of a result.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from bench_image.contract.flops import tokens_per_sample
from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import EncoderDecoderShape
from bench_image.contract.options import Precision
from bench_image.contract.parse import explain
from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import Context, Startup
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from trainbench.core.user_error import UserError
from trainbench.results.collect import parse_payload

FORMAT, FORMAT_VERSION = "trainbench-encoder-decoder", 1
AMP_NAMES = {Precision.FP16: "fp16", Precision.BF16: "bf16", Precision.FP32: "off"}
MAX_EPOCHS = 10_000
NOT_IN_A_RESULT = "a result sums the losses and the loader's waits of all epochs up"
_BATCH = ("batch_size", "batch-size")


class BenchFileError(UserError, ValueError):
    """The file is not one of the two formats, or a figure in it cannot be; the message names it."""


class _Outside(BaseModel):
    """Of a file from elsewhere: what we do not know may stand beside, but what we read must be a number."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())


class Epoch(_Outside):
    wall_time_s: float = Field(gt=0, validation_alias=AliasChoices("wall_time_s", "wall_time", "time_s"))
    samples_per_second: float | None = Field(
        None, gt=0, validation_alias=AliasChoices("samples_per_second", "throughput_samples_per_s", "throughput")
    )


class _Metadata(_Outside):
    gpu_name: str = Field(min_length=1, max_length=500)
    gpu_count: int = Field(ge=0, le=65_536)
    timestamp: str | None = Field(None, max_length=100)


class _OldSummary(_Outside):
    avg_wall_time_per_epoch_s: float = Field(gt=0)
    avg_throughput_samples_per_s: float = Field(gt=0)
    peak_gpu_memory_mb: float | None = Field(None, ge=0)
    avg_gpu_utilisation_pct: float | None = Field(
        None, ge=0, le=100, validation_alias=AliasChoices("avg_gpu_utilisation_pct", "avg_gpu_utilization_pct")
    )


class OldFile(_Outside):
    """What `benchmark.py` wrote. Memory is MB = 1e6 bytes."""

    metadata: _Metadata
    config: dict[str, Any] = Field(max_length=200)
    summary: _OldSummary
    epochs: tuple[Epoch, ...] = Field((), max_length=MAX_EPOCHS)

    @property
    def batch_size(self) -> int | None:
        found = next((self.config[name] for name in _BATCH if name in self.config), None)
        return found if isinstance(found, int) and found > 0 else None

    @property
    def job(self) -> dict[str, str]:
        """The configuration but for the batch, as text."""
        return {name: json.dumps(value, sort_keys=True) for name, value in self.config.items() if name not in _BATCH}


class _Summary(_Outside):
    wall_time_per_epoch_mean_s: float = Field(gt=0)
    gpu_utilisation_mean_pct: float | None = Field(None, ge=0, le=100)


class _OwnConfiguration(_Outside):
    samples_per_epoch: int = Field(ge=1)


class _OwnFile(_Outside):
    format: Literal["trainbench-encoder-decoder"]
    format_version: Literal[1]
    configuration: _OwnConfiguration
    summary: _Summary
    epochs: tuple[Epoch, ...] = Field(min_length=1, max_length=MAX_EPOCHS)
    result: dict[str, Any]


class OwnFile(_Outside):
    """What the encoder-decoder benchmark of trainbench wrote."""

    result: RunResult
    samples_per_epoch: int
    epoch_mean_s: float
    utilisation_mean_pct: float | None
    epochs: tuple[Epoch, ...]


def parse_bench_file(content: bytes) -> OwnFile | OldFile:
    """Raises BenchFileError, whatever the content is. The caller has bounded its size."""
    try:
        document = json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BenchFileError(f"no JSON (truncated?): {error}") from None
    if not isinstance(document, dict):
        raise BenchFileError("no benchmark: its JSON is not an object")
    try:
        return _own(document) if "format" in document else OldFile.model_validate(document)
    except ValidationError as error:
        raise BenchFileError(f"no benchmark file of a known format: {explain(error)}") from None
    except ContractError as error:
        raise BenchFileError(str(error)) from None


def _own(document: Mapping[str, Any]) -> OwnFile:
    if document["format"] != FORMAT or document.get("format_version") != FORMAT_VERSION:
        said = f"{document['format']!r:.60} version {document.get('format_version')!r:.20}"
        raise BenchFileError(f"format {said}; this version reads {FORMAT} version {FORMAT_VERSION}")
    file = _OwnFile.model_validate(document)
    return OwnFile.model_construct(
        result=parse_payload(file.result),
        samples_per_epoch=file.configuration.samples_per_epoch,
        epoch_mean_s=file.summary.wall_time_per_epoch_mean_s,
        utilisation_mean_pct=file.summary.gpu_utilisation_mean_pct,
        epochs=file.epochs,
    )


def bench_document(result: RunResult) -> dict[str, Any]:
    """A run of the encoder-decoder model in the format of its own program; each window is an epoch. Figures that a
    result does not hold are null, and `not_known` says why. Raises BenchFileError for any other run.
    """
    spec, context = result.effective_spec, result.context
    if not isinstance(shape := spec.work.shape, EncoderDecoderShape):
        raise BenchFileError(
            f"run {spec.identity.run_id} is of {spec.work.model}: the bench_ format is the encoder-decoder's own"
        )
    if result.status is not Status.OK or context is None:
        raise BenchFileError(
            f"run {spec.identity.run_id} ended as {result.status.value}: only runs that ended ok have a file"
        )
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "trainbench_result": f"runs/{spec.identity.run_id}/result.json",
        "status": result.status.value,
        "started_at": result.started_at.isoformat(),
        "finished_at": result.finished_at.isoformat(),
        "hardware": _hardware(result, context),
        "software": context.model_dump(include={"python", "cuda", "image", "libraries"}),
        "configuration": _configuration(result, spec, shape),
        "epochs": _epochs(result),
        "summary": _summary(result),
        "result": result.model_dump(mode="json"),
        "not_known": {"epochs.mean_loss": NOT_IN_A_RESULT, "epochs.loader_wait_s": NOT_IN_A_RESULT},
    }


def bench_name(result: RunResult) -> str:
    """`bench_{GPU_MODEL}_{N}gpu_{TIMESTAMP}.json`; a CPU run has 0 GPUs."""
    return f"bench_{gpu_model(result)}_{_num_gpus(result)}gpu_{result.started_at:%Y%m%dT%H%M%SZ}.json"


def gpu_model(result: RunResult) -> str:
    """As in the file's name: without the maker, in letters, digits and hyphens."""
    if result.spec.work.device is Device.CPU:
        return "CPU"
    names = {gpu.name for gpu in result.context.gpus} if result.context else set()
    name = re.sub(r"^(NVIDIA|Tesla)\s+", "", " + ".join(sorted(names)))
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "unknown"


def _num_gpus(result: RunResult) -> int:
    return 0 if result.spec.work.device is Device.CPU else result.spec.placement.world_size


def _hardware(result: RunResult, context: Context) -> dict[str, Any]:
    return {
        "gpu_model": gpu_model(result),
        "num_gpus": _num_gpus(result),
        "num_processes": result.spec.placement.world_size,
        **context.model_dump(mode="json", include={"gpus", "driver", "hostname", "cpu", "num_cpus", "kernel"}),
    }


def _configuration(result: RunResult, spec: RunSpec, shape: EncoderDecoderShape) -> dict[str, Any]:
    disk = None if spec.work.data == "memory" else spec.work.data
    steps = result.performance.windows[0].num_steps
    return {
        "d_model": shape.hidden_size,
        "nhead": shape.num_heads,
        "num_encoder_layers": shape.num_encoder_layers,
        "num_decoder_layers": shape.num_decoder_layers,
        "dim_feedforward": shape.intermediate_size,
        "vocab_size": shape.vocab_size,
        "seq_len": spec.work.seq_length,
        "batch_size": spec.work.micro_batch_size,
        "epochs": len(result.performance.windows),
        "warmup_epochs": None,
        "amp": AMP_NAMES[spec.work.precision],
        "seed": spec.work.seed,
        "device": spec.work.device.value,
        "num_samples": disk.num_samples if disk else None,
        "data_dir": disk.folder if disk else None,
        "num_shards": disk.num_shards if disk else None,
        "data": result.chosen.execution.get("data") if result.chosen else None,
        "num_parameters": result.parameters.total,
        "strategy": spec.placement.strategy.value,
        "optimizer": spec.work.optimizer.value,
        "global_batch_size": spec.samples_per_step,
        "tokens_per_sample": tokens_per_sample(shape, spec.work.seq_length),
        "steps_per_epoch": steps,
        "samples_per_epoch": steps * spec.samples_per_step,
        "warmup_steps": spec.measurement.warmup_steps,
        "notes": ["written from a result: an epoch is one of its measured windows"],
    }


def _epochs(result: RunResult) -> list[dict[str, Any]]:
    return [
        {
            "epoch": number,
            "wall_time_s": window.wall_s,
            "num_steps": window.num_steps,
            "num_samples": window.num_steps * result.effective_spec.samples_per_step,
            "samples_per_second": window.samples_per_second,
            "mean_loss": None,
            "loader_wait_s": None,
        }
        for number, window in enumerate(result.performance.windows, 1)
    ]


def _summary(result: RunResult) -> dict[str, Any]:
    utilisation = [gpu.utilisation_mean_pct for gpu in result.telemetry.gpus]
    temperatures = [gpu.temperature_max_c for gpu in result.telemetry.gpus if gpu.temperature_max_c is not None]
    known = [value for value in utilisation if value is not None]
    return {
        "wall_time_per_epoch_mean_s": statistics.fmean(window.wall_s for window in result.performance.windows),
        "samples_per_second": result.performance.samples_per_second,
        "tokens_per_second": result.performance.tokens_per_second,
        "peak_gpu_memory_gb": result.memory.peak_during_training if result.memory.kind == "cuda_allocated" else None,
        "gpu_utilisation_mean_pct": statistics.fmean(known) if known and len(known) == len(utilisation) else None,
        "temperature_max_c": max(temperatures, default=None),
        "mfu_pct": result.performance.mfu_pct,
        "loader_wait_pct": result.performance.loader_wait_pct,
        "startup_s": _before_measuring_s(result.startup),
    }


def _before_measuring_s(startup: Startup) -> float:
    parts: Sequence[float | None] = (
        startup.launch_s, startup.import_s, startup.build_s, startup.probe_s, startup.autotune_s, startup.warmup_s,
    )  # fmt: skip
    return sum(part for part in parts if part is not None)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
