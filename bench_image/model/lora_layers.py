"""LoRA and QLoRA layers: 4-bit linears (bitsandbytes) and adapters (PEFT)."""

from __future__ import annotations

from typing import Any

import torch

from bench_image.contract.work import Lora, Quantisation
from bench_image.model.dtypes import ModelDtypes


def with_4bit_layers(base: Any, quantisation: Quantisation, dtypes: ModelDtypes) -> Any:
    """Replaces the linears of all layers by 4-bit ones, still on meta; the head keeps its dtype."""
    from transformers import BitsAndBytesConfig
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear

    settings: Any = BitsAndBytesConfig
    config = settings(
        load_in_4bit=True,
        bnb_4bit_quant_type=quantisation.kind,
        bnb_4bit_use_double_quant=quantisation.double,
        bnb_4bit_compute_dtype=dtypes.weights,
        bnb_4bit_quant_storage=torch.bfloat16,  # FSDP cannot shard other storage types
    )
    base = replace_with_bnb_linear(base, ["lm_head"], config)
    base.is_loaded_in_4bit = True  # else PEFT uses its generic layer
    for parameter in base.parameters():
        # A 4-bit weight is dequantised to the dtype it had when it was quantised; bitsandbytes starts with fp32.
        packed = type(parameter).__name__ == "Params4bit"
        parameter.data = parameter.data.to(dtypes.weights if packed else dtypes.unquantised)
    return base


def with_adapters(base: Any, lora: Lora, dtypes: ModelDtypes) -> Any:
    """A PEFT model around the frozen base, with its adapters in `dtypes.adapters`."""
    from peft import LoraConfig, get_peft_model

    base.requires_grad_(False)
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.targets),
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(base, config, low_cpu_mem_usage=True, autocast_adapter_dtype=False)
    # PEFT leaves adapters on meta in fp32 whatever dtype is set.
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(dtypes.adapters)
    return model


def quantise_experts(layer: Any, quantisation: Quantisation) -> None:
    """Packs one layer's experts, if any, into 4 bits: plain tensors, which `with_4bit_layers` does not replace."""
    if not hasattr(getattr(layer, "mlp", None), "experts"):
        return
    from bitsandbytes.nn.parametrize import replace_parameter_4bit

    experts = layer.mlp.experts
    for name in ("gate_up_proj", "down_proj"):
        replace_parameter_4bit(
            experts, name, compress_statistics=quantisation.double, quant_type=quantisation.kind, blocksize=64
        )
        packed = experts.parametrizations[name].original
        packed.data = packed.data.view(-1, 2).view(torch.bfloat16)  # the same bits: torch 2.11 cannot shard bytes
