"""Reads and writes files `bench_{GPU}_{N}gpu_{TIMESTAMP}.json` of encoder-decoder benchmarks.

Two formats are known: `trainbench-encoder-decoder`, version 1, which holds a whole RunResult (docs/encoder-decoder.md),
and that of `benchmark.py`: metadata, config, summary and epochs, memory in MB, without the other parts of a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import EncoderDecoderShape
from bench_image.contract.parse import explain, strict_json
from bench_image.contract.result import RunResult, Status
from bench_image.contract.seq2seq_file import FORMAT, FORMAT_VERSION, BeyondResult, bench_document
from trainbench.core.user_error import UserError
from trainbench.results.collect import parse_payload

MAX_EPOCHS = 10_000
NOT_IN_A_RESULT = "a result sums the losses and the loader's waits of all epochs up"
_BATCH = ("batch_size", "batch-size")


class BenchFileError(UserError, ValueError):
    """The file has neither format, or an impossible figure; the message names it."""


class _Outside(BaseModel):
    """A part of another program's file: further fields are allowed, but the fields read here must be valid."""

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
    """A file of `benchmark.py`. Memory in MB = 1e6 bytes."""

    metadata: _Metadata
    config: dict[str, Any] = Field(max_length=200)
    summary: _OldSummary
    epochs: tuple[Epoch, ...] = Field((), max_length=MAX_EPOCHS)

    @property
    def batch_size(self) -> int | None:
        size = next((self.config[name] for name in _BATCH if name in self.config), None)
        return size if isinstance(size, int) and size > 0 else None

    @property
    def job(self) -> dict[str, Any]:
        """The configuration without the batch."""
        return {name: value for name, value in self.config.items() if name not in _BATCH}


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
    """A file of trainbench's encoder-decoder benchmark."""

    result: RunResult
    samples_per_epoch: int
    epoch_mean_s: float
    utilisation_mean_pct: float | None
    epochs: tuple[Epoch, ...]


def parse_json(content: bytes) -> dict[str, Any]:
    """The JSON object in a file. Raises only BenchFileError, for any content. The caller bounds the size."""
    try:
        document = strict_json(content)
    except (ValueError, RecursionError) as error:
        raise BenchFileError(f"no JSON (truncated?): {error}") from None
    if not isinstance(document, dict):
        raise BenchFileError("no benchmark: its JSON is not an object")
    return document


def parse_bench_file(content: bytes) -> OwnFile | OldFile:
    """Parse a file of either format. Raises only BenchFileError, for any content. The caller bounds the size."""
    document = parse_json(content)
    try:
        return _own(document) if "format" in document else OldFile.model_validate(document)
    except ValidationError as error:
        raise BenchFileError(f"no benchmark file of a known format: {explain(error)}") from None
    except ContractError as error:
        raise BenchFileError(str(error)) from None


def _own(document: Mapping[str, Any]) -> OwnFile:
    if document["format"] != FORMAT or document.get("format_version") != FORMAT_VERSION:
        version = f"{document['format']!r:.60} version {document.get('format_version')!r:.20}"
        raise BenchFileError(f"format {version}; this version reads {FORMAT} version {FORMAT_VERSION}")
    file = _OwnFile.model_validate(document)
    return OwnFile.model_construct(
        result=parse_payload(file.result),
        samples_per_epoch=file.configuration.samples_per_epoch,
        epoch_mean_s=file.summary.wall_time_per_epoch_mean_s,
        utilisation_mean_pct=file.summary.gpu_utilisation_mean_pct,
        epochs=file.epochs,
    )


def bench_file_content(result: RunResult) -> dict[str, Any]:
    """A run of the encoder-decoder model in the format of its own program, each window as an epoch. Figures that the
    result lacks are null, with the reason in `not_known`. Raises BenchFileError for another model's run.
    """
    spec, windows = result.effective_spec, result.performance.windows
    if not isinstance(spec.work.shape, EncoderDecoderShape):
        raise BenchFileError(
            f"run {spec.identity.run_id} is of {spec.work.model}: the bench_ format is the encoder-decoder's own"
        )
    if result.status is not Status.OK or result.context is None:
        raise BenchFileError(
            f"run {spec.identity.run_id} ended as {result.status.value}: only runs that ended ok have a file"
        )
    beyond = BeyondResult(
        num_samples=None if spec.work.data == "memory" else spec.work.data.num_samples,
        warmup_epochs=None,
        mean_losses=[None] * len(windows),
        loader_waits_s=[None] * len(windows),
        notes=("written from a result: an epoch is one of its measured windows",),
    )
    not_known = {"epochs.mean_loss": NOT_IN_A_RESULT, "epochs.loader_wait_s": NOT_IN_A_RESULT}
    return bench_document(result, beyond, f"runs/{spec.identity.run_id}/result.json") | {"not_known": not_known}
