"""Builds a spec's model on the device: structure, recipe, weights, activation checkpointing, preset."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from bench_image.contract.frozen import ContractError
from bench_image.contract.options import Attention, Precision
from bench_image.contract.preset_switches import compiles_whole, gathers_layers, uses_compile
from bench_image.contract.result_sections import ParameterCount
from bench_image.contract.spec import RunSpec
from bench_image.contract.weights import RANDOM
from bench_image.model.architectures import layers_of, skeleton
from bench_image.model.checkpoint import Checkpoint, open_checkpoint
from bench_image.model.compile import apply_preset, compile_layers
from bench_image.model.dtypes import model_dtypes
from bench_image.model.float8_layers import check_8bit_units, with_8bit_products
from bench_image.model.init_weights import WRAPPERS, WeightSource, init_weights, random_weights, rebuild_buffers
from bench_image.model.lora_layers import quantise_experts, with_4bit_layers, with_adapters

if TYPE_CHECKING:
    from bench_image.kernels.fused_lora import FusedLayers


class BuiltModel(NamedTuple):
    """A model ready for training. `base` is the model without the LoRA wrapper; for full training the same object.

    `fused`: the groups of its layers that are computed together (kernels/fused_lora.py). `source`: of first values.
    """

    model: nn.Module
    base: Any
    trainable: tuple[nn.Parameter, ...]
    parameters: ParameterCount
    fused: tuple[FusedLayers, ...]
    source: WeightSource

    @torch.no_grad()
    def restore(self) -> None:
        """Gives the trained parameters, which are whole on this rank, their first values again."""
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(self.source(WRAPPERS.sub("", name), parameter, parameter.device))


def build(spec: RunSpec, device: torch.device, shard: Callable[[nn.Module], object] | None = None) -> BuiltModel:
    """The spec's model in training mode, ready for its strategy.

    `shard` is called with each layer as soon as it has its values, so that a sharding strategy never has more than one
    whole layer on the device, and at the end with the whole model. Raises ContractError for unusable weights,
    and for a model that cannot be built on any machine.
    """
    choose_kernels(spec, device)
    if spec.work.precision is Precision.FP8:
        check_8bit_units(device)
    # Structure on meta, without memory.
    checkpoint, (base, model, parameters) = _structure(spec)
    source = checkpoint.values(random_weights(spec.work.seed)) if checkpoint else random_weights(spec.work.seed)
    if spec.work.gradient_checkpointing is True:  # 'auto' is decided later
        checkpoint_activations(base)
    if uses_compile(spec) and not compiles_whole(spec):
        compile_layers(base, within_hooks=gathers_layers(spec))
    # Values, layer by layer, then those of embeddings, norms and head.
    names = {module: name for name, module in model.named_modules()}
    for layer in layers_of(base):
        init_weights(layer, device, source, names[layer])
        if spec.work.quantisation:
            quantise_experts(layer, spec.work.quantisation)
        if shard:
            shard(layer)
    init_weights(model, device, source)
    rebuild_buffers(base, device)
    # Tie what the architecture ties, and shard what the layers did not cover.
    if getattr(getattr(base, "config", None), "tie_word_embeddings", False):
        base.tie_weights()
    if shard:
        shard(model)
    model.train()
    # Last, because fusing moves weights that have values.
    fused = apply_preset(base, spec)
    return BuiltModel(model, base, tuple(p for p in model.parameters() if p.requires_grad), parameters, fused, source)


def _structure(spec: RunSpec) -> tuple[Checkpoint | None, tuple[Any, Any, ParameterCount]]:
    """The opened checkpoint, and `build_on_meta`. No GPU is the cause of what is raised here: it is a ContractError."""
    try:
        checkpoint = open_checkpoint(spec) if spec.work.weights != RANDOM else None
        return checkpoint, build_on_meta(spec, checkpoint.config if checkpoint else None)
    except ContractError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise ContractError(f"model '{spec.work.model}' cannot be built: {type(error).__name__}: {said}") from error


def choose_kernels(spec: RunSpec, device: torch.device) -> None:
    """Sets for this process which kernels compute products and attention."""
    if device.type != "cuda":
        return
    torch.set_float32_matmul_precision("high" if spec.work.precision is Precision.TF32 else "highest")
    any_kernel = spec.work.attention is not Attention.FLASH
    torch.backends.cuda.enable_flash_sdp(True)
    torch.backends.cuda.enable_cudnn_sdp(any_kernel)
    torch.backends.cuda.enable_mem_efficient_sdp(any_kernel)
    torch.backends.cuda.enable_math_sdp(any_kernel)


def build_on_meta(spec: RunSpec, config: Any = None) -> tuple[Any, Any, ParameterCount]:
    """The base model, the model with adapters (the same object for full training), and the parameter counts; on meta.

    `config`: the checkpoint's configuration, where there is one.
    """
    dtypes = model_dtypes(spec)
    base = model = skeleton(spec.work.shape, dtypes.weights, config, spec.work.attention)
    if spec.work.precision is Precision.FP8:
        with_8bit_products(base)
    if spec.work.quantisation:
        base = model = with_4bit_layers(base, spec.work.quantisation, dtypes)
    if spec.work.lora:
        model = with_adapters(base, spec.work.lora, dtypes)
    return base, model, count_parameters(model)  # on meta 4-bit weights still have their logical size


def count_parameters(model: nn.Module) -> ParameterCount:
    """All parameters and the trainable ones, adapters included; call it before 4-bit weights are packed."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return ParameterCount(total=sum(n for n, _ in sizes), trainable=sum(n for n, trains in sizes if trains))


def checkpoint_activations(base: Any, num_layers: int | None = None) -> None:
    """Switches activation checkpointing on: layers keep only their inputs and run forward again in backward.

    `num_layers`: of the first so many layers alone. They run again at the end of backward, when memory is free.
    """
    settings = {"use_reentrant": False}
    # transformers 5.23 renamed the method; 5.17 has only the old name.
    if enable := getattr(base, "activation_checkpointing_enable", None):
        enable(settings)
    else:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
    if num_layers is not None:
        for number, layer in enumerate[Any](layers_of(base)):
            layer.gradient_checkpointing = number < num_layers
