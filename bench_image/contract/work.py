"""One training job as a pod runs it: model, recipe, batch, precision, data."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from bench_image.contract.bounds import MAX_COUNT
from bench_image.contract.frozen import Frozen
from bench_image.contract.weights import normal_folder

AUTO: Literal["auto"] = "auto"


class Preset(StrEnum):
    """`as_users_run`: the defaults of HF, PEFT, bitsandbytes. `tuned`: no needless fp32 copies, fused and compiled."""

    AS_USERS_RUN = "as_users_run"
    TUNED = "tuned"


class Device(StrEnum):
    CUDA = "cuda"
    CPU = "cpu"


class Lora(Frozen):
    rank: int = Field(16, ge=1, le=1024)
    alpha: int = Field(32, ge=1, le=4096)
    dropout: float = Field(0.0, ge=0, lt=1)
    targets: tuple[str, ...] = Field(("k_proj", "o_proj", "q_proj", "v_proj"), min_length=1)

    @field_validator("targets")
    @classmethod
    def _one_order(cls, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Order and repetition change nothing about the work, so they must not change the fingerprint."""
        return tuple(sorted(set(targets)))


class Quantisation(Frozen):
    kind: Literal["nf4"] = "nf4"
    double: bool = True


class DiskData(Frozen):
    """Samples in numbered shard files; those that are there already and match are used again."""

    folder: Annotated[str, AfterValidator(normal_folder)] = Field(
        min_length=1, max_length=1000, description="any path: local disk, NFS, a mounted volume"
    )
    num_samples: int = Field(65_536, ge=1, le=MAX_COUNT)
    num_shards: int | None = Field(None, ge=1, le=100_000, description="null: shards of about 128 MB")
