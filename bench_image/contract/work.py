"""`Work`: one training job, by what an optimizer step computes on each rank."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from bench_image.contract.bounds import MAX_COUNT
from bench_image.contract.fingerprint import Part
from bench_image.contract.frozen import ContractError, Frozen
from bench_image.contract.model_shapes import MODELS, ModelShape, shape_of
from bench_image.contract.options import Optimizer, Precision, Recipe
from bench_image.contract.weights import RANDOM, normal_folder, normal_weights

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


class Work(Part):
    """Two runs did equal work when these are equal."""

    model: str = Field(min_length=1, max_length=200, description="a known model, or any name with `dimensions`")
    dimensions: ModelShape | None = Field(None, description="null: those of the known model")
    weights: Annotated[str, AfterValidator(normal_weights)] = Field(
        RANDOM,
        min_length=1,
        max_length=1000,
        description="'random', the path of a checkpoint's folder, or a hub id with its revision: org/name@revision",
    )
    recipe: Recipe = Recipe.QLORA
    device: Device = Device.CUDA
    micro_batch_size: Annotated[int, Field(ge=1, le=65536)] | Literal["auto"] = Field(
        8, description="samples per rank and micro-step; auto: of the sizes that fit, the fastest"
    )
    gradient_accumulation_steps: int = Field(1, ge=1, le=4096)
    seq_length: int = Field(512, ge=8, le=1_048_576)
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer.PAGED_ADAMW_8BIT
    gradient_checkpointing: bool | Literal["auto"] = Field(True, description="auto: only if it does not fit without")
    lora: Lora | None = None
    quantisation: Quantisation | None = None
    preset: Preset = Preset.AS_USERS_RUN
    data: Literal["memory"] | DiskData = "memory"
    seed: int = Field(0, ge=0, lt=2**31)

    @model_validator(mode="after")
    def _recipe_has_its_settings(self) -> Work:
        if (self.recipe is Recipe.FULL) != (self.lora is None):
            raise ValueError(
                f"recipe '{self.recipe}' with lora={self.lora!r}: LoRA settings go with lora and qlora only"
            )
        if (self.recipe is Recipe.QLORA) != (self.quantisation is not None):
            raise ValueError(f"recipe '{self.recipe}' with quantisation={self.quantisation!r}: it goes with qlora only")
        return self

    @property
    def shape(self) -> ModelShape:
        """Raises ContractError for an unknown model without dimensions."""
        return self.dimensions or shape_of(self.model)

    @property
    def known_shape(self) -> ModelShape | None:
        """None for an unknown model without dimensions."""
        return self.dimensions or MODELS.get(self.model)

    @property
    def needs_hub(self) -> bool:
        """Whether the weights are downloaded: they are neither random nor a path."""
        return self.weights != RANDOM and not self.weights.startswith(("/", "."))

    @property
    def samples_per_micro_step(self) -> int:
        """The micro-batch of one rank. Raises ContractError while it is 'auto'."""
        if self.micro_batch_size == AUTO:
            raise ContractError("micro_batch_size is 'auto': only the run's result knows it (RunResult.effective_spec)")
        return self.micro_batch_size

    def canonical(self) -> dict[str, Any]:
        """The model by its shape: a known model and its dimensions written out are equal work, and so are equal
        dimensions under two names.
        """
        fields = super().canonical()
        if self.dimensions is None:
            return fields
        known = next((name for name, shape in MODELS.items() if shape == self.dimensions), None)
        return fields | {"model": known, "dimensions": None if known else fields["dimensions"]}
