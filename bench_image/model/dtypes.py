"""The dtype of each part of a model, by recipe, precision and preset."""

from __future__ import annotations

from typing import NamedTuple

import torch

from bench_image.contract.model_shapes import EncoderDecoderShape
from bench_image.contract.options import WIDE, Precision, Recipe
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Preset

# With fp8 all tensors are bf16: each product casts its operands (kernels/float8_linear.py).
DTYPES = {
    Precision.FP32: torch.float32, Precision.TF32: torch.float32, Precision.FP16: torch.float16,
    Precision.BF16: torch.bfloat16, Precision.FP8: torch.bfloat16,
}  # fmt: skip
PRODUCTS = DTYPES | {Precision.FP8: torch.float8_e4m3fn}  # the dtype of what the layers multiply


class ModelDtypes(NamedTuple):
    """Dtypes of a model's parts.

    `unquantised`: embeddings, norms and head of a QLoRA model. `autocast` None: no autocast. `scaled`: loss scaling.
    """

    weights: torch.dtype
    unquantised: torch.dtype
    adapters: torch.dtype
    autocast: torch.dtype | None
    scaled: bool


def model_dtypes(spec: RunSpec) -> ModelDtypes:
    """The dtypes of the spec's model.

    `as_users_run` follows the defaults of PEFT and the Hugging Face Trainer: fp32 adapters, fp32 copies of what
    `prepare_model_for_kbit_training` upcasts, and autocast; an encoder-decoder model, which is trained from scratch,
    has fp32 weights then. `tuned` keeps everything in the run's precision. fp16 trains fp32 weights under autocast with
    a gradient scaler, because gradients of fp16 weights cannot be unscaled.
    """
    dtype = DTYPES[spec.work.precision]
    fp16 = spec.work.precision is Precision.FP16
    as_users_run = spec.work.preset is Preset.AS_USERS_RUN
    if isinstance(spec.work.shape, EncoderDecoderShape) and as_users_run:
        wide, mixed = torch.float32, spec.work.precision not in WIDE
        return ModelDtypes(wide, wide, wide, autocast=dtype if mixed else None, scaled=fp16)
    autocast = fp16 or (as_users_run and spec.work.precision is Precision.BF16)
    upcast = spec.work.recipe is Recipe.QLORA and as_users_run
    return ModelDtypes(
        weights=torch.float32 if fp16 and spec.work.recipe is Recipe.FULL else dtype,
        unquantised=torch.float32 if upcast else dtype,
        adapters=torch.float32 if fp16 or as_users_run else dtype,
        autocast=dtype if autocast else None,
        scaled=fp16,
    )
