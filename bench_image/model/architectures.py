"""Model architectures: builds a transformers or torch module from a shape, on the meta device, without memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bench_image.contract.model_shapes import DecoderShape, EncoderDecoderShape, Gpt2Shape, MixtralShape, ModelShape
from bench_image.contract.options import Attention


def skeleton(shape: ModelShape, dtype: torch.dtype, config: Any = None, attention: Attention | None = None) -> Any:
    """The model on meta, in `dtype`. Called with `input_ids` and `labels` it returns an object with a `loss`.

    `config`: a transformers configuration of the same shape, whose other settings apply too; None: the defaults.
    `attention` None: sdpa.
    """
    if isinstance(shape, EncoderDecoderShape):
        from bench_image.model.encoder_decoder import EncoderDecoder

        with torch.device("meta"):
            return EncoderDecoder(shape).to(dtype)
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    implementation = "eager" if attention is Attention.EAGER else "sdpa"
    with torch.device("meta"):
        return auto.from_config(config or _config(shape), dtype=dtype, attn_implementation=implementation)


def layers_of(model: Any) -> list[nn.Module]:
    """The repeated blocks, in order. They are compiled, checkpointed and sharded one by one."""
    if hasattr(model, "transformer") and hasattr(model.transformer, "h"):  # GPT-2
        return list(model.transformer.h)
    if hasattr(model, "encoder"):
        return [*model.encoder.layers, *model.decoder.layers]
    return list(model.model.layers)


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
    sizes: dict[str, Any] = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "max_position_embeddings": shape.max_positions,
        "tie_word_embeddings": shape.tie_embeddings,
        "use_cache": False,
    }
    if isinstance(shape, MixtralShape):
        sizes |= {"num_local_experts": shape.num_experts, "num_experts_per_tok": shape.num_experts_per_token}
    if shape.family != "llama":
        sizes["sliding_window"] = None  # so that sdpa can use its causal kernel
    return AutoConfig.for_model(shape.family, **sizes)
