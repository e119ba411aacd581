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
        """Replaces the layers' forward; they are in the order in which their parent calls them."""
        self.layers = list(layers)
        self.bases = [_base(layer) for layer in layers]
        # bitsandbytes' tensors beside a packed weight: scales, levels; for 8-bit scales also offset, scales, code.
        self.scales: list[list[Tensor]] = [[] for _ in layers]
        for mine, state in zip(self.scales, map(_quant_state, self.bases), strict=True):
            if state:
                mine += [state.absmax, state.code]
            if state and state.state2:
                mine += [state.offset, state.state2.absmax, state.state2.code]
        self.rows = tuple(_matrix(base).shape[0] if _is_plain(base) else base.out_features for base in self.bases)
        self.adapted = hasattr(layers[0], "lora_A")
        self.scale = float(layers[0].scaling["default"]) if self.adapted else 0.0
        self.cast = self._cast_to_8bit() if _is_8bit(self.bases[0]) else None
        self.waiting: list[Tensor] = []
        # Sharded weights stay where they are: their strategy gathers each into memory of its own.
        sharded = any(hasattr(base.weight, "to_local") for base in self.bases)
        if len(layers) > 1 and _is_plain(self.bases[0]) and not sharded:
            # Side by side in memory, so that one matrix product can read them all.
            self._set_weights(torch.cat([base.weight.detach() for base in self.bases]))
        for layer in layers[1:]:
            layer.forward = self.next
        layers[0].forward = self.first

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

    def _cast_to_8bit(self) -> FrozenWeights:
        """Of each weight only its rows in 8 bits remain, under its name."""
        cast = cast_weights([base.weight for base in self.bases])
        self._set_weights(cast.by_rows)
        return cast

    def _set_weights(self, stacked: Tensor) -> None:
        for base, part in zip(self.bases, torch.split(stacked, list(self.rows)), strict=True):
            base.weight.data = part

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
            together = fusible == layers and _alike(layers)
            fused += [FusedLayers(group) for group in ([layers] if together else [[each] for each in fusible]) if group]
        # An MLP that computes down(silu(gate) up), with adapters on down.
        gated: Any = parent if {"gate_proj", "up_proj", "down_proj", "act_fn"} <= children.keys() else None
        is_silu = gated is not None and type(gated.act_fn).__name__ in SILU
        if is_silu and fused and fused[-1].layers == [gated.down_proj] and fused[-1].adapted and not fused[-1].cast:
            fused[-1].mlp = gated
            gated.forward = fused[-1].of_mlp  # a method: torch would compile each layer anew for a partial
    return tuple(fused)


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
