"""LoRA with 8-bit products on one GPU: a decoder layer of Mistral-7B 8 x 2048 against bf16, its products and its casts.

    python3 studies/measure_float8_lora.py OUT

Its python must hold the training stack. OUT gets layer.json: milliseconds of forward and backward of the layer by
turns, of each product alone, and of each cast. `measure_float8.py --recipe lora` measures losses and whole runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "studies")]

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from bench_image.contract.model_shapes import MODELS  # noqa: E402
from bench_image.contract.options import Precision, Recipe  # noqa: E402
from bench_image.kernels import float8_lora, lora_linear  # noqa: E402
from bench_image.model.architectures import layers_of  # noqa: E402
from bench_image.model.build import build  # noqa: E402
from measure_float8 import HIDDEN, INNER, TOKENS, make_spec, milliseconds  # noqa: E402

KV, RANK, SCALE, TIMES, TURNS = 1024, 16, 2.0, 20, 3
# Output features of the layers that read one input, and input features: q, k, v; o; gate and up; down.
GROUPS = (((HIDDEN, KV, KV), HIDDEN), ((HIDDEN,), HIDDEN), ((INNER, INNER), HIDDEN), ((HIDDEN,), INNER))
CASTS = ((HIDDEN,), (INNER,), (INNER, INNER), (HIDDEN, KV, KV))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUT")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"layer_ms": layer_ms()}
    for rows, features in GROUPS:
        figures[f"products {rows} {features}"] = products_ms(rows, features)
    for widths in CASTS:
        parts = list(torch.split(drawn(TOKENS, sum(widths)), list(widths), 1))
        figures[f"cast {widths}"] = milliseconds(lambda: float8_lora._cast_side_by_side(parts), TIMES)  # noqa: B023
    (output / "layer.json").write_text(json.dumps(figures, indent=1) + "\n")
    for name, value in figures.items():
        print(name, value)


def layer_ms() -> dict[str, list[float]]:
    """Of forward and backward of one compiled layer with fused adapters, by turns."""
    steps = {str(precision): layer_step(precision) for precision in (Precision.BF16, Precision.FP8)}
    turns: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(TURNS):
        for name, step in steps.items():
            turns[name].append(milliseconds(step, TIMES))
    return turns


def layer_step(precision: Precision) -> Callable[[], None]:
    """One forward and backward pass of the second of two layers, whose input needs a gradient."""
    shape = MODELS["mistral-7b"].model_copy(update={"num_layers": 2})
    spec = make_spec("layer", Recipe.LORA, precision, dimensions=shape)
    base = build(spec, torch.device("cuda", 0)).base
    layer = layers_of(base)[1]
    x = drawn(spec.work.samples_per_micro_step, spec.work.seq_length, HIDDEN).requires_grad_()
    grad = drawn(*x.shape)
    positions = base.model.rotary_emb(x, torch.arange(spec.work.seq_length, device="cuda")[None])

    def step() -> None:
        out = layer(x, position_embeddings=positions)
        (out[0] if isinstance(out, tuple) else out).backward(grad)
        for tensor in (x, *layer.parameters()):
            tensor.grad = None

    return step


def products_ms(rows: tuple[int, ...], features: int) -> dict[str, float]:
    """Of each product of layers that read one input: with frozen weights in both precisions, and of their adapters."""
    each, rank = list(rows), RANK * len(rows)
    weights, x, grad = drawn(sum(rows), features), drawn(TOKENS, features), drawn(TOKENS, sum(rows))
    frozen = float8_lora.cast_weights([weights])
    x_8bit, grad_8bit = float8_lora._cast_side_by_side([x]), float8_lora._cast_side_by_side([grad])
    a, b, down = drawn(rank, features), drawn(sum(rows), RANK), drawn(TOKENS, rank)
    out, grad_x, grads = torch.empty_like(grad), torch.empty_like(x), list(torch.split(grad, each, 1))

    def add_adapters() -> None:
        shares = zip(torch.split(out, each, 1), torch.split(b, each), torch.split(down, RANK, 1), strict=True)
        for mine, b_i, down_i in shares:
            torch.addmm(mine, down_i, b_i.t(), alpha=SCALE, out=mine)

    def in_8_bits(left: tuple[Tensor, Tensor], right: Tensor, scales: Tensor) -> Callable[[], Tensor]:
        return lambda: float8_lora.product(*left, right, scales, torch.bfloat16, fast=True)

    work: dict[str, Callable[[], object]] = {
        "bf16 fwd": lambda: torch.mm(x, weights.t(), out=out),
        "bf16 bwd": lambda: torch.mm(grad, weights, out=grad_x),
        "fp8 fwd": in_8_bits(x_8bit, frozen.by_rows, frozen.row_scales),
        "fp8 bwd": in_8_bits(grad_8bit, frozen.by_columns, frozen.column_scales),
        "addmm fwd": add_adapters,
        "addmm bwd": lambda: torch.addmm(grad_x, down, a, out=grad_x),
        "adapter grads": lambda: lora_linear.adapter_gradients(grads, down, each, b, SCALE),
    }
    return {name: milliseconds(run, TIMES) for name, run in work.items()}


def drawn(*size: int) -> Tensor:
    return torch.randn(*size, device="cuda", dtype=torch.bfloat16)


if __name__ == "__main__":
    main()
