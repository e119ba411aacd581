"""Recipes, strategies, precisions and optimizers, and which of them cannot be combined."""

from __future__ import annotations

from enum import StrEnum


class Recipe(StrEnum):
    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"


class Strategy(StrEnum):
    """How ranks share the work. fsdp is FSDP2; zero2 and zero3 are DeepSpeed's ZeRO stages.

    independent: each GPU of one node does the work of `single`, at the same time as its neighbours and without
    communication, so that every GPU is measured under the heat, power draw and host load of a node at work.
    own: a command of the user's own, which shares its work as it likes.
    """

    SINGLE = "single"
    INDEPENDENT = "independent"
    DDP = "ddp"
    FSDP = "fsdp"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    OWN = "own"


class Precision(StrEnum):
    """Dtype of weights, activations and LoRA adapters (`tuned`); fp16 trains under autocast with a gradient scaler.

    tf32: fp32, but products round their operands to 10 bits of mantissa. fp8: bf16, but the products of the layers'
    linears have 8-bit operands (e4m3), with a scale for each row; the products of LoRA adapters stay in bf16.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"


class Attention(StrEnum):
    """sdpa: the kernel that torch chooses. flash: torch's flash kernel. eager: two products and a softmax."""

    SDPA = "sdpa"
    FLASH = "flash"
    EAGER = "eager"


class Optimizer(StrEnum):
    ADAMW_TORCH = "adamw_torch"
    ADAMW_8BIT = "adamw_8bit"
    PAGED_ADAMW_8BIT = "paged_adamw_8bit"


SINGLE_GPU = (Strategy.SINGLE, Strategy.INDEPENDENT, Strategy.OWN)  # a rank of ours needs no other
DEEPSPEED = (Strategy.ZERO2, Strategy.ZERO3)
WIDE = (Precision.FP32, Precision.TF32)  # tensors have 4 bytes a number
FLOAT8_MULTIPLE = 16  # all dimensions of an 8-bit product are multiples of it
FLOAT8_FAMILIES = ("llama", "mistral")  # others are not tried, or multiply with more than torch.nn.Linear


def unsupported_reason(strategy: Strategy, recipe: Recipe, precision: Precision, family: str | None) -> str | None:
    """Why this combination cannot run, with its remedy; None if it can. `family` None: not checked."""
    if strategy in DEEPSPEED and precision is Precision.FP16:
        return (
            f"precision 'fp16' with strategy '{strategy}': DeepSpeed turns all weights into fp16 and scales the loss "
            "by its own rules, so its work would not equal that of other strategies: choose bf16, or ddp or fsdp"
        )
    if precision is Precision.FP8 and (reason := _not_in_float8(strategy, recipe, family)):
        return f"precision '{precision}' with {reason}"
    if family == "encoder-decoder" and recipe is not Recipe.FULL:
        return f"recipe '{recipe}' with an encoder-decoder model, which is trained from scratch: choose full"
    return None


def _not_in_float8(strategy: Strategy, recipe: Recipe, family: str | None) -> str | None:
    """The reason why the products of the layers cannot have 8-bit operands, with a remedy; None: they can."""
    if recipe is Recipe.QLORA:
        return f"recipe '{recipe}', whose weights have 4 bits: choose lora or full, or bf16"
    if recipe is Recipe.LORA and strategy is Strategy.FSDP:
        return (
            f"recipe '{recipe}' and strategy '{strategy}', which shards weights by rows: a frozen weight needs its "
            "8-bit rows and columns: choose single or ddp, or bf16"
        )
    if strategy in DEEPSPEED:
        return f"strategy '{strategy}': not tried with DeepSpeed: choose ddp or fsdp, or bf16"
    if family not in (*FLOAT8_FAMILIES, None):
        return (
            f"a model of the family '{family}', with which 8-bit products are not tried: choose bf16, or a model "
            f"of the families {' and '.join(FLOAT8_FAMILIES)}"
        )
    return None
