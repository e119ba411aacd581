"""Parameter counts and FLOPs of a model, by formula from its shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from bench_image.contract.decoder_config import Linear
from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import EncoderDecoderShape, ModelShape
from bench_image.contract.options import Recipe
from bench_image.contract.work import Lora


class Flops(NamedTuple):
    """FLOPs per token of a training step. `model`: what the work needs; `hardware`: what the GPU computes."""

    model: float
    hardware: float


def num_parameters(shape: ModelShape) -> int:
    """All parameters, embeddings, norms and biases included; tied embeddings are counted once.

    Of a decoder of an unknown kind: a guess, as if it were a plain one. The result has what its image counted.
    """
    return shape.num_outside + num_linear(shape) + sum(layer.vectors * count for layer, count in shape.layers)


def num_linear(shape: ModelShape) -> int:
    """Matmul parameters of all layers, with every expert and the routers, without embeddings and head."""
    routed = sum((layer.experts + layer.router) * count for layer, count in shape.layers)
    return num_adaptable(shape) + routed


def num_adaptable(shape: ModelShape) -> int:
    """Matmul parameters of the linear layers, of all layers: of a decoder those that LoRA can adapt."""
    return sum(inputs * outputs * count for _, (inputs, outputs), count in _linears(shape))


def num_quantisable(shape: ModelShape) -> int:
    """Parameters that QLoRA packs into 4 bits: the linears of the layers and the experts, not the routers."""
    return num_linear(shape) - sum(layer.router * count for layer, count in shape.layers)


def num_lora_parameters(shape: ModelShape, lora: Lora) -> int:
    """Adapter parameters: rank * (in + out) per target and layer (arXiv 2106.09685). ContractError: unknown targets."""
    unknown = sorted(set(lora.targets) - shape.linears.keys())
    if unknown:
        raise ContractError(f"lora.targets {', '.join(unknown)}: choose from {', '.join(shape.linears) or 'none'}")
    return lora.rank * sum(sum(sizes) * count for name, sizes, count in _linears(shape) if name in lora.targets)


def lora_targets(shape: ModelShape, which: Literal["attention", "all"]) -> tuple[str, ...]:
    """The names of the linears to adapt: those of the attention, or all."""
    return tuple(sorted(shape.attention_linears if which == "attention" else shape.linears))


def tokens_per_sample(shape: ModelShape, seq_length: int) -> int:
    """`seq_length`; twice that for an encoder-decoder, whose encoder and decoder each read that many."""
    return 2 * seq_length if isinstance(shape, EncoderDecoderShape) else seq_length


def flops_per_token(
    shape: ModelShape, recipe: Recipe, seq_length: int, lora: Lora | None, checkpointed: float
) -> Flops | None:
    """FLOPs per token: 6N (full) or 4N + 6 N_lora (LoRA, QLoRA), plus 12 L D T for attention; None: an unknown kind.

    N: matmul parameters with the head, without the input embedding; of experts those that a token visits. L: layers,
    D: hidden size, T: sequence length. A matmul takes 2 FLOPs per parameter and token forward, 2 for the gradient of
    its input and 2 for that of its weight, which frozen weights do not need, hence 4N. Attention is not halved for
    causality, as in PaLM (arXiv 2204.02311, appendix B) and torchtitan; a sliding window below T takes its place.
    Where all heads together are not D wide, it is 6 L (Q + V) T with the widths of queries and of attention's output.
    Checkpointing repeats the forward pass of
    `checkpointed` of the layers, a share of 1 (or False and True): hardware FLOPs, not model FLOPs.
    """
    if not shape.is_known:
        return None
    # Of two tokens of an encoder-decoder one passes the encoder, the other the decoder and the head.
    passed = 0.5 if isinstance(shape, EncoderDecoderShape) else 1
    linears = passed * (num_adaptable(shape) + sum((part.visited + part.router) * n for part, n in shape.layers))
    attention = passed * sum(
        2 * (layer.query + layer.mixed) * min(seq_length, layer.window or seq_length) * count
        for layer, count in shape.layers
    )
    head = passed * shape.vocab_size * shape.hidden_size
    adapters = num_lora_parameters(shape, lora) if lora else 0
    model = (6 if recipe is Recipe.FULL else 4) * (linears + head) + 6 * adapters + 3 * attention
    recomputed = checkpointed * (2 * linears + 2 * adapters + attention)
    return Flops(float(model), float(model + recomputed))


def _linears(shape: ModelShape) -> Iterator[tuple[str, Linear, int]]:
    """Name and size of each linear layer within the layers, and of how many layers."""
    for layer, count in shape.layers:
        yield from ((name, sizes, count) for name, sizes in layer.linears.items())
