"""A model with random weights, straight onto the device: no hub, no checkpoint, one full-width weight at a time."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import torch
from torch import nn

from bench_image.contract import Lora, Optimizer, ParameterCount, Preset, Quantisation, Recipe, RunSpec
from bench_image.data import seeded
from bench_image.recipes import Numerics, numerics
from bench_image.sizing import DecoderShape, shape_of

LEARNING_RATE = 1e-4
INIT_STD = 0.02
# What PEFT puts around a weight; the drawn values must not depend on it.
WRAPPERS = re.compile(r"^base_model\.model\.|base_layer\.")


class Built(NamedTuple):
    model: nn.Module
    trainable: tuple[nn.Parameter, ...]
    parameters: ParameterCount


def build(spec: RunSpec, device: torch.device) -> Built:
    """The spec's model in training mode, ready for its strategy."""
    shape, dtypes = shape_of(spec.model), numerics(spec)
    base = model = _skeleton(shape, dtypes.weights)
    if spec.quantisation:
        base = model = _with_4bit_layers(base, spec.quantisation, dtypes)
    if spec.recipe is not Recipe.FULL:
        assert spec.lora is not None
        model = _with_adapters(base, spec.lora, dtypes)
    parameters = count_parameters(model)  # on meta, where packed 4-bit weights still have their logical size
    materialise(model, device, spec.seed)
    _rebuild_rotary(base, device)
    if shape.tie_embeddings:
        base.tie_weights()
    model.train()
    if spec.gradient_checkpointing:
        _checkpoint_activations(base)
    if compiles(spec, device):
        _compile_layers(base)
    return Built(model, tuple(p for p in model.parameters() if p.requires_grad), parameters)


def compiles(spec: RunSpec, device: torch.device) -> bool:
    return spec.preset is Preset.TUNED and device.type == "cuda"


def make_optimizer(spec: RunSpec, trainable: tuple[nn.Parameter, ...], device: torch.device) -> torch.optim.Optimizer:
    """AdamW in the spec's variant; fused where torch has a kernel for it."""
    if spec.optimizer is Optimizer.ADAMW_TORCH:
        return torch.optim.AdamW(trainable, lr=LEARNING_RATE, fused=device.type == "cuda")
    from bitsandbytes.optim.adamw import AdamW8bit, PagedAdamW8bit

    kind: Any = PagedAdamW8bit if spec.optimizer is Optimizer.PAGED_ADAMW_8BIT else AdamW8bit
    optimizer: torch.optim.Optimizer = kind(trainable, lr=LEARNING_RATE)
    return optimizer


def count_parameters(model: nn.Module) -> ParameterCount:
    """All parameters and the trainable ones, adapters included; to be called before 4-bit weights are packed."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return ParameterCount(total=sum(n for n, _ in sizes), trainable=sum(n for n, trains in sizes if trains))


def draw(name: str, like: torch.Tensor, shape: torch.Size, device: torch.device, seed: int) -> torch.Tensor:
    """The weight of that name: the same whatever the recipe, strategy or order of drawing.

    Drawn in fp32 and cast, because some torch versions draw other numbers in bf16.
    """
    bare = WRAPPERS.sub("", name)
    if "norm" in bare:
        return torch.ones(shape, dtype=like.dtype, device=device)
    if "lora_B" in bare or bare.endswith("bias"):
        return torch.zeros(shape, dtype=like.dtype, device=device)
    generator = seeded(device, seed, bare)
    return torch.empty(shape, device=device).normal_(0, INIT_STD, generator=generator).to(like.dtype)


@torch.no_grad()
def materialise(model: nn.Module, device: torch.device, seed: int) -> None:
    """Replaces each meta parameter by a drawn one on the device; 4-bit ones are quantised as soon as they are drawn."""
    for module_name, module in model.named_modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.device.type != "meta":
                continue
            values = draw(f"{module_name}.{name}", parameter, parameter.shape, device, seed)
            new = nn.Parameter(values, requires_grad=parameter.requires_grad)
            if type(parameter).__name__ == "Params4bit":
                new = _quantised(values, parameter, module, device)
            setattr(module, name, new)


def _skeleton(shape: DecoderShape, dtype: torch.dtype) -> Any:
    """The model on the meta device: structure without memory."""
    from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig

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
    # Without a sliding window sdpa may take its causal kernel.
    config = MistralConfig(**sizes, sliding_window=None) if shape.family == "mistral" else LlamaConfig(**sizes)
    auto: Any = AutoModelForCausalLM
    with torch.device("meta"):
        return auto.from_config(config, dtype=dtype, attn_implementation="sdpa")


def _with_4bit_layers(base: Any, quantisation: Quantisation, dtypes: Numerics) -> Any:
    from transformers import BitsAndBytesConfig
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear

    settings: Any = BitsAndBytesConfig
    config = settings(
        load_in_4bit=True,
        bnb_4bit_quant_type=quantisation.kind,
        bnb_4bit_use_double_quant=quantisation.double,
        bnb_4bit_compute_dtype=dtypes.weights,
        bnb_4bit_quant_storage=torch.bfloat16,  # other storage types cannot be sharded
    )
    base = replace_with_bnb_linear(base, ["lm_head"], config)
    base.is_loaded_in_4bit = True  # otherwise PEFT takes its generic layer
    for parameter in base.parameters():
        # A 4-bit weight is dequantised to the dtype it had when it was quantised; bitsandbytes starts with fp32.
        packed = type(parameter).__name__ == "Params4bit"
        parameter.data = parameter.data.to(dtypes.weights if packed else dtypes.unquantised)
    return base


def _with_adapters(base: Any, lora: Lora, dtypes: Numerics) -> Any:
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
    # PEFT leaves adapters on meta in fp32 whatever it is asked for.
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(dtypes.adapters)
    return model


def _quantised(values: torch.Tensor, like: Any, module: nn.Module, device: torch.device) -> Any:
    from bitsandbytes.nn.modules import Params4bit

    packed: Any = Params4bit
    return packed(
        values,
        requires_grad=False,
        module=module,
        blocksize=like.blocksize,
        compress_statistics=like.compress_statistics,
        quant_type=like.quant_type,
        quant_storage=like.quant_storage,
    ).to(device)


def _rebuild_rotary(base: Any, device: torch.device) -> None:
    """Its frequencies are buffers that are not saved, so nothing has filled them."""
    base.model.rotary_emb = type(base.model.rotary_emb)(base.config).to(device)


def _checkpoint_activations(base: Any) -> None:
    settings = {"use_reentrant": False}
    # transformers 5.23 renamed it; 5.17 knows only the old name.
    if enable := getattr(base, "activation_checkpointing_enable", None):
        enable(settings)
    else:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)


def _compile_layers(base: Any) -> None:
    from torch._dynamo import config as dynamo

    # DDP would split each layer's graph at its buckets, and cannot where the graph holds a checkpoint; the layers'
    # borders already let communication overlap.
    dynamo.optimize_ddp = False
    for layer in base.model.layers:
        layer.compile()
