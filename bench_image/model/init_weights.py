"""Gives meta parameters their values: drawn by name, so equal under every strategy, or read from a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench_image.data.batches import seeded

INIT_STD = 0.02
# Parts of a name that PEFT, checkpointing, compilation and quantisation add; drawn values must not depend on them.
WRAPPERS = re.compile(r"base_model\.model\.|base_layer\.|_orig_mod\.|parametrizations\.|\.original$")
ONES = re.compile(r"norm|ln_\d|ln_f")


# (name without wrappers, the meta parameter to fill, device) -> values in its shape and dtype
WeightSource = Callable[[str, torch.Tensor, torch.device], torch.Tensor]


def random_weights(seed: int) -> WeightSource:
    """A source of random weights, which depend on seed and name only, not on recipe, strategy or order.

    Weights ~ N(0, INIT_STD), norms 1, biases and LoRA B 0. Drawn in fp32 and cast, because some torch versions draw
    other numbers in bf16.
    """

    def values(bare: str, like: torch.Tensor, device: torch.device) -> torch.Tensor:
        if "lora_B" in bare or bare.endswith("bias"):
            return torch.zeros(like.shape, dtype=like.dtype, device=device)
        if ONES.search(bare):
            return torch.ones(like.shape, dtype=like.dtype, device=device)
        generator = seeded(device, seed, bare)
        return torch.empty(like.shape, device=device).normal_(0, INIT_STD, generator=generator).to(like.dtype)

    return values


@torch.no_grad()
def init_weights(root: nn.Module, device: torch.device, source: WeightSource, prefix: str = "") -> None:
    """Replaces each meta parameter below `root` by one with values on the device; quantises 4-bit ones one by one.

    `prefix`: the path of `root` in its model, so that names, and with them values, are those of the whole model.
    """
    for module_name, module in root.named_modules(prefix=prefix):
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.device.type != "meta":
                continue
            values = source(WRAPPERS.sub("", f"{module_name}.{name}"), parameter, device)
            new = nn.Parameter(values, requires_grad=parameter.requires_grad)
            if type(parameter).__name__ == "Params4bit":
                new = quantised(values, parameter, module, device)
            setattr(module, name, new)


def quantised(values: torch.Tensor, like: Any, module: nn.Module, device: torch.device) -> Any:
    """`values` (out, in) as a 4-bit parameter with the settings of `like`."""
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


def rebuild_buffers(base: Any, device: torch.device) -> None:
    """Fills the buffers that no checkpoint holds: rotary frequencies, sinusoidal positions, and others."""
    for name, module in list(base.named_modules()):
        if type(module).__name__.endswith("RotaryEmbedding"):
            parent, _, child = name.rpartition(".")
            setattr(base.get_submodule(parent), child, type(module)(base.config).to(device))
    if rebuild := getattr(base, "rebuild_positions", None):  # the encoder-decoder model
        rebuild(device)
    for module in base.modules():
        on_meta = [name for name, buffer in module.named_buffers(recurse=False) if buffer.is_meta]
        if not on_meta:
            continue
        for name in on_meta:
            module.register_buffer(name, torch.zeros_like(getattr(module, name), device=device), persistent=False)
        for parameter in module.parameters(recurse=False):
            parameter._is_hf_initialized = True  # else transformers would draw it anew
        base._init_weights(module)
