"""Reads the flat result.json that a published comparison of training strategies writes for each run.

strategy, world_size, rank, seq_len, tier, steps, per_device_batch, grad_accum    integers and names
tokens_per_sec            tokens/s of all GPUs
mean_step_time_sec        s; not read: with accumulation its files count one micro-step as a step
peak_vram_gb              GB of 1e9 bytes
h2d_gbps_per_gpu          GB/s; not read: it is bytes of the batches over the run's time, not a copy's rate
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench_image.contract.parse import explain
from trainbench.exchange.seq2seq_files import BenchFileError

PROGRAM = "a flat result.json"
MAX_COUNT = 1_000_000


class FlatResult(BaseModel):
    """The run of rank 0, whose figures are those of all ranks. Fields that are not read may be there."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=True)

    strategy: str = Field(min_length=1, max_length=50)
    world_size: int = Field(ge=1, le=MAX_COUNT)
    rank: Literal[0] = 0
    seq_len: int = Field(ge=1, le=MAX_COUNT)
    tier: str = Field(min_length=1, max_length=50)
    per_device_batch: int = Field(ge=1, le=MAX_COUNT)
    grad_accum: int = Field(1, ge=1, le=MAX_COUNT)
    tokens_per_sec: float = Field(gt=0)
    peak_vram_gb: float | None = Field(None, ge=0)

    @property
    def samples_per_s(self) -> float:
        return self.tokens_per_sec / self.seq_len

    @property
    def job(self) -> dict[str, str]:
        """The settings that must be equal to rank, as text; the batch apart."""
        return {"tier": self.tier, "seq_length": str(self.seq_len)}


def is_flat(document: object) -> bool:
    """Whether a JSON document has the fields of this format and no schema of ours."""
    return (
        isinstance(document, dict)
        and "schema_version" not in document
        and {"strategy", "tokens_per_sec"} <= document.keys()
    )


def parse_flat(document: Mapping[str, Any]) -> FlatResult:
    """Raises BenchFileError, which names the wrong field."""
    try:
        return FlatResult.model_validate(document)
    except ValidationError as error:
        raise BenchFileError(f"no flat result of a strategy comparison: {explain(error)}") from None
