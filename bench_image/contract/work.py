"""`Work`: one training job, by what an optimizer step computes on each rank."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    FailFast,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bench_image.contract.fingerprint import Part
from bench_image.contract.frozen import ContractError, Frozen, setting
from bench_image.contract.model_shapes import MODELS, SAME_SHAPE, ModelShape, known_name, shape_of
from bench_image.contract.options import (
    FLOAT8_MULTIPLE,
    WIDE,
    Attention,
    Optimizer,
    Precision,
    Recipe,
    Strategy,
    unsupported_reason,
)
from bench_image.contract.own_job import OwnJob
from bench_image.contract.result_bounds import MAX_COUNT
from bench_image.contract.weights import RANDOM, normal_folder, normal_weights

AUTO: Literal["auto"] = "auto"
MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
# A name, the path of a config.json, or a hub id with its revision; the last two have a slash or an @.
MODEL_REFERENCE = r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63}|[A-Za-z0-9._~+ -]{0,255}[/@][A-Za-z0-9._/@+~ -]{0,744})$"
ModelName = Annotated[str, StringConstraints(pattern=MODEL_NAME), BeforeValidator(known_name)]
ModelReference = Annotated[str, StringConstraints(pattern=MODEL_REFERENCE), BeforeValidator(known_name)]
SeqLength = Annotated[int, Field(ge=8, le=1_048_576)]
DataFolder = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(normal_folder)]


def is_reference(model: object) -> bool:
    """Whether it is a path or an id of the hub, whose `config.json` is still to be read."""
    return isinstance(model, str) and ("/" in model or "@" in model)


class Preset(StrEnum):
    """`as_users_run`: the defaults of HF, PEFT, bitsandbytes. `tuned`: no needless fp32 copies, fused and compiled."""

    AS_USERS_RUN = "as_users_run"
    TUNED = "tuned"


class Device(StrEnum):
    CUDA = "cuda"
    CPU = "cpu"

    @property
    def rank_noun(self) -> str:
        """The noun for what one rank of a run occupies: "GPU"; "process" on a CPU."""
        return "process" if self is Device.CPU else "GPU"


# The values of a preset for fields that a job leaves empty.
PRESET_SETTINGS: Mapping[Preset, Mapping[str, Any]] = {
    Preset.AS_USERS_RUN: {"optimizer": Optimizer.PAGED_ADAMW_8BIT, "gradient_checkpointing": True, "compile": False},
    Preset.TUNED: {"optimizer": Optimizer.ADAMW_TORCH, "gradient_checkpointing": AUTO, "compile": True},
}


def _by_preset(name: str) -> str:
    """A sentence of the form's help: what each preset decides for this setting."""
    switch = {True: "on", False: "off"}
    own = (f"`{preset}`: {switch.get(decided[name], decided[name])}" for preset, decided in PRESET_SETTINGS.items())
    return f"Empty: the preset's own ({', '.join(own)})."


class Lora(Frozen):
    rank: int = setting(16, "Work", "LoRA rank", "Ignored for full fine-tuning.", ge=1, le=1024)
    alpha: int = setting(32, "Work", "LoRA alpha", "Ignored for full fine-tuning.", ge=1, le=4096)
    dropout: float = setting(0.0, "Work", "LoRA dropout", "Ignored for full fine-tuning.", ge=0, lt=1)
    targets: Annotated[tuple[str, ...], FailFast()] = Field(("k_proj", "o_proj", "q_proj", "v_proj"), min_length=1)

    @field_validator("targets")
    @classmethod
    def _one_order(cls, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Order and repetition change nothing about the work, so they must not change the fingerprint."""
        return tuple(sorted(set(targets)))


class Quantisation(Frozen):
    kind: Literal["nf4"] = "nf4"
    double: bool = setting(
        True, "Work", "Double quantisation", "QLoRA only: quantise the scales as well.", form_name="double_quantisation"
    )


class Shards(Frozen):
    """Samples in numbered files; those that are there already and match are used again."""

    num_samples: int = setting(65_536, "Work", "Samples on disk", "Only with a data folder.", ge=1, le=MAX_COUNT)
    num_shards: int | None = setting(
        None, "Work", "Shards on disk", "Only with a data folder. Empty: shards of about 128 MB.", ge=1, le=100_000
    )


class DiskData(Shards):
    """Shards in a folder on any path: a local disk, NFS, a mounted volume."""

    folder: DataFolder


class WorkSettings(Frozen):
    """The settings that a job has in the form and in a spec. A new one is declared here and nowhere else."""

    device: Device = setting(
        Device.CUDA, "Nodes", "Device", "`cpu`: a trial without a GPU, timed by CPU time, without a price."
    )
    model: ModelReference = setting(
        "mistral-7b",
        "Work",
        "Model",
        "A name, such as `mistral-7b`, `llama-3.1-8b`, `qwen3-8b`, `gemma-3-12b`, `phi-4`, `deepseek-v2-lite`, "
        "`gpt-oss-20b` or `gpt2`, and `tiny` for a trial; the path of a `config.json`, with a slash in it; a hub id "
        "with its revision, `organisation/name@commit`; or any name together with dimensions.",
        examples=[*MODELS, *SAME_SHAPE],
    )
    dimensions: ModelShape | None = setting(
        None,
        "Work",
        "Dimensions",
        'Empty: those of the model. Else a JSON object with its `family` ("llama", "mistral", "mixtral", "gpt2", '
        '"encoder-decoder") and sizes, for example `{"family": "gpt2", "hidden_size": 768, "num_layers": 12, '
        '"num_heads": 12}`; or `{"family": "config", "config": ...}` with the content of a `config.json`.',
    )
    weights: Annotated[str, AfterValidator(normal_weights)] = setting(
        RANDOM,
        "Work",
        "Weights",
        "`random`: drawn on the GPU, no download. Else the folder of a checkpoint as the pod sees it, or a hub id with "
        "its revision: `org/name@commit`.",
        min_length=1,
        max_length=1000,
    )
    recipe: Recipe = setting(
        Recipe.QLORA, "Work", "Recipe", "Full fine-tuning, LoRA, or LoRA on 4-bit weights (QLoRA)."
    )
    preset: Preset = setting(
        Preset.AS_USERS_RUN,
        "Work",
        "Preset",
        "`tuned`: fused and compiled; the GPU sets the pace, so runs differ little. `as_users_run`: library defaults "
        "with gradient checkpointing and paged 8-bit AdamW, unless the fields below set them.",
    )
    micro_batch_size: Annotated[int, Field(ge=1, le=65536)] | Literal["auto"] = setting(
        8, "Work", "Micro-batch", "Samples per GPU and forward pass. `auto`: the fastest size that fits."
    )
    gradient_accumulation_steps: int = setting(
        1, "Work", "Gradient accumulation", "Forward passes per optimizer step.", ge=1, le=4096
    )
    seq_length: SeqLength = setting(512, "Work", "Sequence length", "Tokens per sample, no padding.")
    precision: Precision = setting(
        Precision.BF16,
        "Work",
        "Precision",
        "tf32: fp32 with products of fewer bits. fp16 is not possible with `zero2` and `zero3`. fp8: bf16 with 8-bit "
        "products, for full fine-tuning and LoRA of Llama and Mistral models with `tuned`, on one GPU or by `ddp`; "
        "full fine-tuning also by `fsdp`.",
    )
    optimizer: Optimizer | None = setting(None, "Work", "Optimizer", f"{_by_preset('optimizer')} 8-bit: bitsandbytes.")
    gradient_checkpointing: bool | Literal["auto"] | None = setting(
        None,
        "Work",
        "Gradient checkpointing",
        "Less memory, more computing. `auto`: only if it does not fit without; under `tuned` and a given micro-batch "
        f"in as few layers as fit. {_by_preset('gradient_checkpointing')}",
    )
    compile: bool | None = setting(
        None,
        "Work",
        "Compile",
        "Layers and loss by torch.compile, on GPUs. Off: `tuned` also goes without what it builds on "
        f"it, fused adapters and CUDA graphs. {_by_preset('compile')}",
    )
    attention: Attention | None = setting(
        None,
        "Work",
        "Attention",
        "Empty, or `sdpa`: the fused kernel that torch chooses. `flash`: torch's flash kernel, on GPUs, in 16 bits. "
        "`eager`: products and softmax one by one, with all scores in memory, and no CUDA graph.",
    )
    seed: int = setting(0, "Measurement", "Seed", "Seed of weights and data.", ge=0, lt=2**31)

    @property
    def shape(self) -> ModelShape:
        """Raises ContractError for an unknown model without dimensions."""
        return self.dimensions or shape_of(self.model)

    @property
    def known_shape(self) -> ModelShape | None:
        """None for an unknown model without dimensions."""
        return self.dimensions or MODELS.get(self.model)

    @property
    def is_compiled(self) -> bool:
        """Whether compilation is chosen, where it is possible."""
        return bool(PRESET_SETTINGS[self.preset]["compile"] if self.compile is None else self.compile)

    def unsupported(self, strategy: Strategy) -> str | None:
        """Why this job cannot run by `strategy`, with its remedy; None if it can."""
        if strategy is Strategy.OWN:
            return None
        if self.compile and self.device is Device.CPU:
            return "compile 'on' on the CPU, where layers are not compiled: choose off, or leave it empty"
        if self.attention and (reason := self._no_such_attention(self.attention)):
            return reason
        if self.precision is Precision.FP8 and (self.preset is not Preset.TUNED or not self.is_compiled):
            return "precision 'fp8' pays off only compiled: choose preset 'tuned' with compile on, or bf16"
        if self.precision is Precision.FP8 and self.seq_length % FLOAT8_MULTIPLE:
            return (
                f"precision 'fp8' with seq_length {self.seq_length}: 8-bit products take their numbers by "
                f"{FLOAT8_MULTIPLE}: choose a multiple of {FLOAT8_MULTIPLE}, or bf16"
            )
        shape = self.known_shape
        if shape and not shape.is_known and self.recipe is not Recipe.FULL:
            return (
                f"recipe '{self.recipe}' with a model of type '{shape.kind}', whose linear layers are not known: "
                "choose full"
            )
        return unsupported_reason(strategy, self.recipe, self.precision, shape.kind if shape else None)

    def _no_such_attention(self, attention: Attention) -> str | None:
        """Why the model cannot compute its attention so, with its remedy; None if it can."""
        if self.known_shape and self.known_shape.family == "encoder-decoder":
            return f"attention '{attention}' with an encoder-decoder model, which has torch's own: leave it empty"
        if attention is Attention.FLASH and (self.device is Device.CPU or self.precision in WIDE):
            where = "on the CPU" if self.device is Device.CPU else f"with precision '{self.precision}'"
            return f"attention 'flash' {where}, for which torch has no such kernel: choose eager, or leave it empty"
        return None


class Work(WorkSettings, Part):
    """Two runs did equal work when these are equal."""

    model: ModelName
    optimizer: Optimizer = PRESET_SETTINGS[Preset.AS_USERS_RUN]["optimizer"]
    gradient_checkpointing: bool | Literal["auto"] = PRESET_SETTINGS[Preset.AS_USERS_RUN]["gradient_checkpointing"]
    lora: Lora | None = None
    quantisation: Quantisation | None = None
    data: Literal["memory"] | DiskData = "memory"
    own_job: OwnJob | None = Field(
        None,
        description="a command of the user's own in place of our loop; of the fields above it has `device` and "
        "`micro_batch_size`, the samples of one step over all GPUs",
    )

    @field_validator("compile")
    @classmethod
    def _left_to_the_preset(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        """Store an explicit value that equals the preset's as None: it is equal work, with the same fingerprint."""
        preset = info.data.get("preset")
        return None if preset and value is PRESET_SETTINGS[preset]["compile"] else value

    @field_validator("attention")
    @classmethod
    def _left_to_torch(cls, value: Attention | None) -> Attention | None:
        """Store an explicit value that equals torch's choice as None: it is equal work."""
        return None if value is Attention.SDPA else value

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
    def name(self) -> str:
        """What is trained: "mistral-7b qlora"; of a job of the user's own its script."""
        return self.model if self.own_job else f"{self.model} {self.recipe}"

    @property
    def size(self) -> str:
        """What a step takes: "batch 8 x 512 tokens"; empty for a job of the user's own whose log tells it later."""
        return self.size_with(self.micro_batch_size)

    def size_with(self, batch: object) -> str:
        if not self.own_job:
            return f"batch {batch} x {self.seq_length} tokens"
        return "" if batch == AUTO else f"{batch} {'sample' if batch == 1 else 'samples'} a step"

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
        dimensions under two names. A recipe without LoRA or 4-bit weights is hashed as such.
        """
        fields = dict.fromkeys(("dimensions", "lora", "quantisation")) | super().canonical()
        if self.own_job:
            own = {name: fields[name] for name in ("device", "micro_batch_size")}
            return own | {"own_job": self.own_job.canonical()}
        if self.dimensions is None:
            return fields
        known = next((name for name, shape in MODELS.items() if shape == self.dimensions), None)
        return fields | {"model": known, "dimensions": None if known else fields["dimensions"]}
