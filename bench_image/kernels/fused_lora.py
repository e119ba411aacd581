"""Fuses LoRA layers, 4-bit and frozen 8-bit ones: those that read the same input become one operation, in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bench_image.kernels.float8_linear import Float8Linear
from bench_image.kernels.float8_lora import Float8LoraLinear, FrozenWeights, cast_weights
from bench_image.kernels.lora_linear import NF4_BLOCK, SCALE_BLOCK, GatedLoraLinear, LoraLinear

# Linear layers of one parent that read the same input, in the order in which the parent calls them.
SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
SILU = ("SiLU", "SiLUActivation")  # torch's, and that of later transformers
_apply: Callable[..., list[Tensor]] = LoraLinear.apply
_apply_gated: Callable[..., Tensor] = GatedLoraLinear.apply
_apply_8bit: Callable[..., list[Tensor]] = Float8LoraLinear.apply


class FusedLayers:
    """PEFT or frozen 4-bit or 8-bit layers that read the same input: the first one called computes the outputs of all.

    `keep_unpacked`: whether 4-bit weights stay unpacked from forward to backward. `rows`: output features of each
    layer. `cast`: the weights of layers with 8-bit products, else None. `mlp`: the MLP whose last layer this is, where
    that is gated.
    """

    keep_unpacked = False
    mlp: Any = None

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers = list(layers)
        self.bases = [_base(layer) for layer in layers]
        self.scales = [_scales(base) for base in self.bases]
        self.rows = tuple(_matrix(base).shape[0] if _is_plain(base) else base.out_features for base in self.bases)
        self.adapted = hasattr(layers[0], "lora_A")
        self.scale = float(layers[0].scaling["default"]) if self.adapted else 0.0
        self.cast = _drop_wide_weights(self.bases) if _is_8bit(self.bases[0]) else None
        self.waiting: list[Tensor] = []

    def first(self, x: Tensor) -> Tensor:
        """The first layer's forward: computes all outputs from x (..., in), returns its own (..., out)."""
        a = b = None
        if self.adapted:
            a = torch.cat([layer.lora_A["default"].weight for layer in self.layers])
            b = torch.cat([layer.lora_B["default"].weight for layer in self.layers])
        if self.cast:
            mine, *self.waiting = _apply_8bit(x, a, b, self.scale, self.rows, *self.cast)
        else:
            mine, *self.waiting = _apply(x, a, b, self.scale, self.rows, self.keep_unpacked, *self._weights())
        return mine if self.bases[0].bias is None else mine + self.bases[0].bias

    def of_mlp(self, x: Tensor) -> Tensor:
        """The forward of the layer's MLP: the layer's output of silu(gate) up, which is not kept for backward."""
        a, b = self.layers[0].lora_A["default"].weight, self.layers[0].lora_B["default"].weight
        gate, up = self.mlp.gate_proj(x), self.mlp.up_proj(x)
        out = _apply_gated(gate, up, a, b, self.scale, self.keep_unpacked, *self._weights())
        return out if self.bases[0].bias is None else out + self.bases[0].bias

    def _weights(self) -> list[Tensor]:
        each = zip(self.bases, self.scales, strict=True)
        return [tensor for base, scales in each for tensor in (_matrix(base), *scales)]

    def next(self, _x: Tensor) -> Tensor:
        """The forward of each other layer: returns its output, which `first` has computed."""
        mine, *self.waiting = self.waiting
        return mine


def fuse(model: nn.Module) -> tuple[FusedLayers, ...]:
    """Replaces the forward of all layers that can be fused; returns the groups. Parameters and their names stay.

    A layer keeps PEFT's own forward where the fused operation would not compute the same: with dropout, mixed dtypes or
    several adapters. Siblings that differ from each other are fused one by one.
    """
    fused: list[FusedLayers] = []
    for parent in model.modules():
        children = dict(parent.named_children())
        grouped = [[children[name] for name in names if name in children] for names in SIBLINGS]
        others = [name for name in children if not any(name in names for names in SIBLINGS)]
        alone = [[children[name]] for name in others if name != "base_layer"]
        for layers in [*grouped, *alone]:
            fusible = [layer for layer in layers if _fusible(layer)]
            for group in [layers] if fusible == layers and _alike(layers) else [[layer] for layer in fusible]:
                fused += _switch(group)
        if _is_gated(parent) and fused and fused[-1].layers == [parent.down_proj] and not fused[-1].cast:
            fused[-1].mlp = parent
            parent.forward = fused[-1].of_mlp  # a method: torch would compile each layer anew for a partial
    return tuple(fused)


def _is_gated(parent: Any) -> bool:
    """Whether the module is an MLP that computes down(silu(gate) up), with adapters on down."""
    named = all(hasattr(parent, name) for name in ("gate_proj", "up_proj", "down_proj", "act_fn"))
    return named and type(parent.act_fn).__name__ in SILU and hasattr(parent.down_proj, "lora_A")


def _switch(layers: Sequence[Any]) -> list[FusedLayers]:
    """Fuses one group, in the order in which its parent calls the layers."""
    if not layers:
        return []
    siblings = FusedLayers(layers)
    if len(layers) > 1 and _is_plain(siblings.bases[0]):
        _lay_side_by_side(siblings.bases)
    calls: list[Callable[[Tensor], Tensor]] = [siblings.first] + [siblings.next] * (len(layers) - 1)
    for layer, call in zip(layers, calls, strict=True):
        layer.forward = call
    return [siblings]


@torch.no_grad()
def _lay_side_by_side(bases: Sequence[Any]) -> None:
    """Moves the weights into one block of memory, so that one matrix product can read them all.

    Sharded weights stay: their strategy gathers each into memory of its own.
    """
    if any(hasattr(base.weight, "to_local") for base in bases):
        return
    block = torch.cat([base.weight for base in bases])
    for base, part in zip(bases, torch.split(block, [base.out_features for base in bases]), strict=True):
        base.weight.data = part


@torch.no_grad()
def _drop_wide_weights(bases: Sequence[Any]) -> FrozenWeights:
    """Casts the weights to 8 bits; of each weight only its rows in 8 bits remain, under its name."""
    cast = cast_weights([base.weight for base in bases])
    rows = [base.out_features for base in bases]
    for base, part in zip(bases, torch.split(cast.by_rows, rows), strict=True):
        base.weight.data = part
    return cast


def _base(layer: Any) -> Any:
    """The frozen layer inside of a PEFT layer; a layer without adapters itself."""
    return layer.base_layer if hasattr(layer, "base_layer") else layer


def _is_plain(base: Any) -> bool:
    return type(base) is nn.Linear or type(base).__name__ == "Conv1D"


def _is_8bit(base: Any) -> bool:
    """Whether the layer is frozen and has 8-bit products."""
    return type(base) is Float8Linear and not base.weight.requires_grad


def _matrix(base: Any) -> Tensor:
    """The weight as (out, in), or the packed one; GPT-2's Conv1D stores (in, out)."""
    weight: Tensor = base.weight
    return weight.t() if type(base).__name__ == "Conv1D" else weight


def _scales(base: Any) -> list[Tensor]:
    """bitsandbytes' tensors beside a packed weight: scales, levels; for 8-bit scales also offset, scales, code."""
    state = _quant_state(base)
    if state is None:
        return []
    nested = state.state2
    return [state.absmax, state.code, *((state.offset, nested.absmax, nested.code) if nested else ())]


def _quant_state(base: Any) -> Any:
    """bitsandbytes' QuantState, None for a plain weight. A sharded parameter loses it; the module keeps it."""
    return getattr(base.weight, "quant_state", None) or getattr(base, "quant_state", None)


def _fusible(layer: Any) -> bool:
    """Whether the fused operation computes the same as the layer: no dropout, one adapter, one dtype, nf4."""
    base, lora = _base(layer), hasattr(layer, "lora_A")
    state = _quant_state(base) if type(base).__name__ == "Linear4bit" else None
    if state is None and not (lora and _is_plain(base)) and not _is_8bit(base):
        return False
    if state is not None:
        # The kernels read nf4 with bitsandbytes' default block sizes.
        blocks = (state.blocksize, state.state2.blocksize if state.state2 else SCALE_BLOCK)
        if state.quant_type != "nf4" or blocks != (NF4_BLOCK, SCALE_BLOCK):
            return False
    if not lora:
        return True
    if list(layer.lora_A) != ["default"] or layer.lora_variant or layer.merged:
        return False
    a, b = layer.lora_A["default"], layer.lora_B["default"]
    dtype = base.weight.dtype if state is None else state.dtype
    no_dropout = isinstance(layer.lora_dropout["default"], nn.Identity)
    return bool(no_dropout and b.bias is None and a.weight.dtype == b.weight.dtype == dtype)


def _alike(layers: Sequence[Any]) -> bool:
    """Whether one operation can compute all layers: one kind, adapters of one rank and scale or none, no biases."""
    kinds = {
        (type(_base(layer)), (layer.r["default"], layer.scaling["default"]) if hasattr(layer, "lora_A") else None)
        for layer in layers
    }
    return len(kinds) == 1 and all(_base(layer).bias is None for layer in layers)
