"""Model architectures: builds a transformers or torch module from a shape, on the meta device, without memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import (
    IN_TRANSFORMERS,
    ConfiguredShape,
    DecoderShape,
    EncoderDecoderShape,
    Gpt2Shape,
    MixtralShape,
    ModelShape,
)
from bench_image.contract.options import Attention


def skeleton(shape: ModelShape, dtype: torch.dtype, config: Any = None, attention: Attention | None = None) -> Any:
    """The model on meta, in `dtype`. Called with `input_ids` and `labels` it returns an object with a `loss`.

    `config`: a transformers configuration of the same shape, whose other settings apply too; None: the defaults.
    `attention` None: sdpa. Raises ContractError for a configuration of which transformers makes no decoder.
    """
    if isinstance(shape, EncoderDecoderShape):
        from bench_image.model.encoder_decoder import EncoderDecoder

        with torch.device("meta"):
            return EncoderDecoder(shape).to(dtype)
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    with _refusals(shape.kind):
        config = config or (configured(shape) if isinstance(shape, ConfiguredShape) else _config(shape))
        eager = attention is Attention.EAGER or not _has_kernel(config)
        with torch.device("meta"):
            return auto.from_config(config, dtype=dtype, attn_implementation="eager" if eager else "sdpa")


def configured(shape: ConfiguredShape) -> Any:
    """The transformers configuration of a `config.json`. No code of a model's own is run."""
    from transformers import AutoConfig

    settings = {name: value for name, value in shape.config.items() if name != "model_type"}
    if shape.kind == "gemma3_text":
        settings["hidden_activation"] = settings.pop("hidden_act")
    config = AutoConfig.for_model(shape.kind, **settings, use_cache=False, pad_token_id=None)
    for name in vars(config):
        # No dropout: losses would differ between strategies.
        if name.endswith(("dropout", "_pdrop")):
            setattr(config, name, 0.0)
    return config


@contextmanager
def _refusals(kind: str) -> Iterator[None]:
    """Makes a ContractError of whatever transformers raises over a configuration from outside."""
    import transformers
    from transformers.models.auto import configuration_auto, modeling_auto

    by = f"transformers {transformers.__version__} of this image"
    if kind not in configuration_auto.CONFIG_MAPPING:
        raise ContractError(
            f"model_type '{kind}' is unknown to {by}: code that a model brings along (auto_map) is never run; choose "
            "an image with a later transformers, or another model"
        )
    if kind not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ContractError(f"model_type '{kind}' is no decoder for {by}: only those that predict the next token train")
    try:
        yield
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise ContractError(f"{by} builds no '{kind}' from this config.json: {type(error).__name__}: {said}") from error


def _has_kernel(config: Any) -> bool:
    """Whether the model of the configuration can use torch's kernels for attention."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    mapping: Any = MODEL_FOR_CAUSAL_LM_MAPPING
    return bool(getattr(mapping[type(config)], "_supports_sdpa", True))


def layers_of(model: Any) -> list[nn.Module]:
    """The repeated blocks, in order. They are compiled, checkpointed and sharded one by one."""
    if hasattr(model, "encoder"):
        return [*model.encoder.layers, *model.decoder.layers]
    num_layers = model.config.num_hidden_layers
    stacks = (module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == num_layers)
    stack = next(stacks, None)
    if stack is None:
        raise ContractError(
            f"a model of type '{model.config.model_type}' has no list of {num_layers} layers: it cannot run"
        )
    return list(stack)


def _config(shape: DecoderShape | MixtralShape | Gpt2Shape) -> Any:
    """The transformers configuration of a shape."""
    from transformers import AutoConfig, GPT2Config

    if isinstance(shape, Gpt2Shape):
        return GPT2Config(
            vocab_size=shape.vocab_size, n_embd=shape.hidden_size, n_layer=shape.num_layers, n_head=shape.num_heads,
            n_positions=shape.max_positions, bos_token_id=0, eos_token_id=0, use_cache=False,
            # No dropout: losses would differ between strategies, and the other families have none.
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
    sizes = {name: getattr(shape, ours) for ours, name in IN_TRANSFORMERS.items()}
    if isinstance(shape, MixtralShape):
        sizes |= {"num_local_experts": shape.num_experts, "num_experts_per_tok": shape.num_experts_per_token}
    if shape.family != "llama":
        sizes["sliding_window"] = None  # so that sdpa can use its causal kernel
    return AutoConfig.for_model(shape.family, **sizes, use_cache=False)
