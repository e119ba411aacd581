"""Figures of LoRA with 8-bit products: one layer, its products and its casts."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from tests.unit.published.measured import FLOAT8_LORA, document, row

TOKENS, HIDDEN, INNER, KV = 16_384, 4096, 14_336, 1024
GROUPS = {
    "q, k, v": ((HIDDEN, KV, KV), HIDDEN), "o": ((HIDDEN,), HIDDEN), "gate, up": ((INNER, INNER), HIDDEN),
    "down": ((HIDDEN,), INNER),
}  # fmt: skip
CASTS = {
    "4,096": (HIDDEN,), "4,096, 1,024 and 1,024": (HIDDEN, KV, KV), "14,336": (INNER,), "14,336 twice": (INNER, INNER),
}  # fmt: skip
TILES = ("1024 4", "2048 4", "4096 4", "4096 8", "8192 8")


def page() -> Iterator[str]:
    """What docs/performance.md says."""
    bf16, fp8 = medians_ms()
    yield f"takes {fp8:.1f} ms instead of {bf16:.1f} in bf16, medians of three turns: {bf16 / fp8:.2f} times as fast"


def note() -> Iterator[str]:
    """What the folder's README says."""
    for precision in ("bf16", "fp8"):
        turns = layer()["layer_ms"][precision]
        yield row(precision, ", ".join(f"{ms:.2f}" for ms in turns), f"{statistics.median(turns):.2f}")
    bf16, fp8 = medians_ms()
    yield f"{bf16 / fp8:.2f} times as fast"
    yield from products()
    yield from added()
    for name, widths in CASTS.items():
        yield row(name, *(f"{layer()[f'cast {widths} {tile}'][1]:,.0f}" for tile in TILES))
    (products_ms,) = (ms for kernel, _, ms in layer()["profile fp8"] if "ovscale" in kernel)
    (casts_ms,) = (ms for kernel, _, ms in layer()["profile fp8"] if kernel == "_cast_rows")
    yield f"{products_ms:.1f} ms of the layer are 8-bit products and {casts_ms:.1f} ms casts"


def products() -> Iterator[str]:
    """TFLOP/s of each product with frozen weights."""
    for name, (rows, features) in GROUPS.items():
        ms = layer()[f"products {rows} {features}"]
        tflop = 2 * TOKENS * features * sum(rows) / 1e12
        yield row(
            name, *(f"{tflop / ms[f'{precision} {way}'] * 1e3:,.0f}" for precision in ("bf16", "fp8") for way in WAYS)
        )


WAYS = ("fwd", "bwd")


def added() -> Iterator[str]:
    """Milliseconds in which the adapters' share of the outputs of all four groups is added."""
    of_groups: Sequence[Any] = [layer()[f"products {rows} {features}"] for rows, features in GROUPS.values()]
    forward, backward = (sum(ms[f"addmm {way}"] for ms in of_groups) for way in WAYS)
    ours = sum(ms["triton add (32, 256, 4)"] for ms in of_groups)
    yield f"takes {forward:.2f} ms of forward and {backward:.2f} ms of backward"
    yield f"took {ours:.2f} ms for forward"


def medians_ms() -> tuple[float, float]:
    """Of forward and backward of one layer, in bf16 and in fp8."""
    bf16, fp8 = (statistics.median(layer()["layer_ms"][precision]) for precision in ("bf16", "fp8"))
    return bf16, fp8


def layer() -> Any:
    return document(f"{FLOAT8_LORA}/layer.json")
