"""Result files of other programs, as rows of a comparison. Fields that are not read may be there; those that are, are
checked.

`benchmark.py` of an encoder-decoder: metadata, config, summary and epochs, memory in MB = 1e6 bytes.

The flat result.json of a published comparison of strategies, one for each run: `tokens_per_sec` of all GPUs, memory in
GB of 1e9 bytes. Two of its fields are not read: `mean_step_time_sec` counts one micro-step as a step where gradients
accumulate, and `h2d_gbps_per_gpu` is bytes of the batches over the run's time, not a copy's rate.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import explain, strict_json
from bench_image.contract.result import RunResult
from bench_image.contract.seq2seq_file import FORMAT, FORMAT_VERSION
from trainbench.core.user_error import UserError
from trainbench.exchange.comparison_rows import ComparisonRow, apart, compared_figures, flattened
from trainbench.figure_catalogue.run_figures import (
    GPU_UTILISATION_MEAN_PCT,
    PEAK_MEMORY_GB,
    SAMPLES_PER_SECOND,
    TOKENS_PER_SECOND,
)
from trainbench.results.collect import parse_payload

MAX_EPOCHS, MAX_COUNT = 10_000, 1_000_000
BATCH = ("batch_size", "batch-size")


class BenchFileError(UserError, ValueError):
    """The file has no known format, or an impossible figure; the message names it."""


class Foreign(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())


class Epoch(Foreign):
    wall_time_s: float = Field(gt=0, validation_alias=AliasChoices("wall_time_s", "wall_time", "time_s"))
    samples_per_second: float | None = Field(
        None, gt=0, validation_alias=AliasChoices("samples_per_second", "throughput_samples_per_s", "throughput")
    )


class Metadata(Foreign):
    gpu_name: str = Field(min_length=1, max_length=500)
    gpu_count: int = Field(ge=0, le=65_536)


class Summary(Foreign):
    avg_wall_time_per_epoch_s: float = Field(gt=0)
    avg_throughput_samples_per_s: float = Field(gt=0)
    peak_gpu_memory_mb: float | None = Field(None, ge=0)
    avg_gpu_utilisation_pct: float | None = Field(
        None, ge=0, le=100, validation_alias=AliasChoices("avg_gpu_utilisation_pct", "avg_gpu_utilization_pct")
    )


class BenchmarkPyFile(Foreign):
    metadata: Metadata
    config: dict[str, Any] = Field(max_length=200)
    summary: Summary
    epochs: tuple[Epoch, ...] = Field((), max_length=MAX_EPOCHS)

    def row(self, name: str, address: str) -> ComparisonRow:
        batch = next((self.config[key] for key in BATCH if key in self.config), None)
        memory_mb = self.summary.peak_gpu_memory_mb
        return ComparisonRow(
            name=name,
            addresses=(address,),
            program="benchmark.py",
            label="encoder-decoder",
            job=flattened({key: value for key, value in self.config.items() if key not in BATCH}),
            hardware=self.metadata.gpu_name,
            num_gpus=self.metadata.gpu_count,
            num_ranks=max(1, self.metadata.gpu_count),
            batch_per_rank=batch if isinstance(batch, int) and batch > 0 else None,
            figures=compared_figures(
                {
                    SAMPLES_PER_SECOND: self.summary.avg_throughput_samples_per_s,
                    PEAK_MEMORY_GB: None if memory_mb is None else memory_mb / 1000,
                    GPU_UTILISATION_MEAN_PCT: self.summary.avg_gpu_utilisation_pct,
                }
            ),
            epoch_s=self.summary.avg_wall_time_per_epoch_s,
            **apart([epoch.samples_per_second for epoch in self.epochs], "epochs"),
        )


class FlatResult(Foreign):
    """The run of rank 0, whose figures are those of all ranks."""

    model_config = Foreign.model_config | ConfigDict(strict=True)

    strategy: str = Field(min_length=1, max_length=50)
    world_size: int = Field(ge=1, le=MAX_COUNT)
    rank: Literal[0] = 0
    seq_len: int = Field(ge=1, le=MAX_COUNT)
    tier: str = Field(min_length=1, max_length=50)
    per_device_batch: int = Field(ge=1, le=MAX_COUNT)
    grad_accum: int = Field(1, ge=1, le=MAX_COUNT)
    tokens_per_sec: float = Field(gt=0)
    peak_vram_gb: float | None = Field(None, ge=0)

    def row(self, name: str, address: str) -> ComparisonRow:
        return ComparisonRow(
            name=name,
            addresses=(address,),
            program="a flat result.json",
            label=f"tier {self.tier}, {self.seq_len} tokens",
            job={"tier": self.tier, "seq_length": str(self.seq_len)},
            strategy=self.strategy,
            hardware="GPU unknown",
            num_gpus=self.world_size,
            num_ranks=self.world_size,
            batch_per_rank=self.per_device_batch * self.grad_accum,
            figures=compared_figures(
                {
                    SAMPLES_PER_SECOND: self.tokens_per_sec / self.seq_len,
                    TOKENS_PER_SECOND: self.tokens_per_sec,
                    PEAK_MEMORY_GB: self.peak_vram_gb,
                }
            ),
            epoch_s=None,
            apart_pct=None,
            apart_from=None,
        )


def is_flat(content: bytes) -> bool:
    """Whether a JSON document has the fields of a flat result and no schema of ours."""
    try:
        document = parse_json(content)
    except BenchFileError:
        return False
    return "schema_version" not in document and {"strategy", "tokens_per_sec"} <= document.keys()


def parse_json(content: bytes) -> dict[str, Any]:
    """The JSON object in a file. Raises only BenchFileError, for any content. The caller bounds the size."""
    try:
        document = strict_json(content)
    except (ValueError, RecursionError) as error:
        raise BenchFileError(f"no JSON (truncated?): {error}") from None
    if not isinstance(document, dict):
        raise BenchFileError("no benchmark: its JSON is not an object")
    return document


def parse_flat(content: bytes) -> FlatResult:
    """Raises BenchFileError, which names the wrong field."""
    try:
        return FlatResult.model_validate(parse_json(content))
    except ValidationError as error:
        raise BenchFileError(f"no flat result of a strategy comparison: {explain(error)}") from None


def parse_bench_file(content: bytes) -> RunResult | BenchmarkPyFile:
    """A file bench_*.json: of the encoder-decoder's own program, which holds a whole result, or of `benchmark.py`.
    Raises only BenchFileError, for any content.
    """
    document = parse_json(content)
    try:
        if "format" not in document:
            return BenchmarkPyFile.model_validate(document)
        if document["format"] != FORMAT or document.get("format_version") != FORMAT_VERSION:
            version = f"{document['format']!r:.60} version {document.get('format_version')!r:.20}"
            raise BenchFileError(f"format {version}; this version reads {FORMAT} version {FORMAT_VERSION}")
        return parse_payload(document.get("result"))
    except ValidationError as error:
        raise BenchFileError(f"no benchmark file of a known format: {explain(error)}") from None
    except ContractError as error:
        raise BenchFileError(str(error)) from None
