"""Parameter counts and FLOPs of a model, by formula from its shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from bench_image.contract.decoder_config import Linear
from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import (
    ConfiguredShape,
    DecoderShape,
    EncoderDecoderShape,
    Gpt2Shape,
    MixtralShape,
    ModelShape,
)
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
    vocab, hidden = shape.vocab_size, shape.hidden_size
    match shape:
        case Gpt2Shape():
            norms_and_biases = shape.num_layers * 13 * hidden + 2 * hidden
            return (vocab + shape.max_positions) * hidden + num_linear(shape) + norms_and_biases
        case EncoderDecoderShape():
            encoder, decoder = _stack_parameters(shape)
            return vocab * hidden + encoder + decoder + vocab * hidden + vocab
        case ConfiguredShape():
            vectors = sum(layer.vectors * count for layer, count in shape.layers) + hidden
            return vocab * hidden * (1 if shape.tie_embeddings else 2) + vectors + num_linear(shape)
        case DecoderShape() | MixtralShape():
            norms = (2 * shape.num_layers + 1) * hidden
            return vocab * hidden * (1 if shape.tie_embeddings else 2) + norms + num_linear(shape)


def num_linear(shape: ModelShape) -> int:
    """Matmul parameters of all layers, with every expert and the routers, without embeddings and head."""
    hidden = shape.hidden_size
    match shape:
        case EncoderDecoderShape():
            return _encoder_linear(shape) + _decoder_linear(shape)
        case MixtralShape():
            experts = shape.num_experts * (3 * hidden * shape.intermediate_size + hidden)
            return num_adaptable(shape) + shape.num_layers * experts
        case ConfiguredShape():
            return num_adaptable(shape) + sum((layer.experts + layer.router) * count for layer, count in shape.layers)
        case _:
            return num_adaptable(shape)


def num_adaptable(shape: ModelShape) -> int:
    """Matmul parameters of the linear layers that LoRA can adapt, of all layers."""
    return sum(inputs * outputs * count for _, (inputs, outputs), count in _linears(shape))


def num_quantisable(shape: ModelShape) -> int:
    """Parameters that QLoRA packs into 4 bits: the linears of the layers and the experts, not the routers."""
    match shape:
        case MixtralShape():
            return num_linear(shape) - shape.num_layers * shape.num_experts * shape.hidden_size
        case ConfiguredShape():
            return num_linear(shape) - sum(layer.router * count for layer, count in shape.layers)
        case _:
            return num_linear(shape)


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
    if isinstance(shape, ConfiguredShape) and not shape.is_known:
        return None
    layers, attention = _active_linear(shape), _attention_forward(shape, seq_length)
    head = shape.vocab_size * shape.hidden_size
    if isinstance(shape, EncoderDecoderShape):
        head //= 2  # only the decoder's half of the tokens reaches it
    adapters = num_lora_parameters(shape, lora) if lora else 0
    model = (6 if recipe is Recipe.FULL else 4) * (layers + head) + 6 * adapters + 3 * attention
    recomputed = checkpointed * (2 * layers + 2 * adapters + attention)
    return Flops(float(model), float(model + recomputed))


def _linears(shape: ModelShape) -> Iterator[tuple[str, Linear, int]]:
    """Name and size of each linear layer within the layers, and of how many layers."""
    if isinstance(shape, ConfiguredShape):
        for layer, count in shape.layers:
            yield from ((name, sizes, count) for name, sizes in layer.linears.items())
    elif not isinstance(shape, EncoderDecoderShape):
        yield from ((name, sizes, shape.num_layers) for name, sizes in shape.linears.items())


def _active_linear(shape: ModelShape) -> float:
    """Matmul parameters of the layers that one token passes; for an encoder-decoder the mean of both kinds of token."""
    match shape:
        case EncoderDecoderShape():
            return num_linear(shape) / 2
        case MixtralShape():
            expert = 3 * shape.hidden_size * shape.intermediate_size
            routed = shape.num_experts_per_token * expert + shape.num_experts * shape.hidden_size
            return num_adaptable(shape) + shape.num_layers * routed
        case ConfiguredShape():
            visited = sum((layer.visited + layer.router) * count for layer, count in shape.layers)
            return num_adaptable(shape) + visited
        case _:
            return num_linear(shape)


def _attention_forward(shape: ModelShape, seq_length: int) -> float:
    """FLOPs per token of scores and weighted sums in the forward pass, 4 L D T; backward takes twice that."""
    one = 4 * shape.hidden_size * seq_length
    if isinstance(shape, EncoderDecoderShape):
        # Of two tokens one passes the encoder, the other self- and cross-attention in each decoder layer.
        return one * (shape.num_encoder_layers + 2 * shape.num_decoder_layers) / 2
    if isinstance(shape, ConfiguredShape):
        return sum(
            2 * (layer.query + layer.mixed) * min(seq_length, layer.window or seq_length) * count
            for layer, count in shape.layers
        )
    return one * shape.num_layers


def _encoder_linear(shape: EncoderDecoderShape) -> int:
    """Self-attention (4 D^2) and MLP (2 D F) of all encoder layers."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    return shape.num_encoder_layers * (4 * hidden**2 + 2 * hidden * inner)


def _decoder_linear(shape: EncoderDecoderShape) -> int:
    """Self- and cross-attention (8 D^2) and MLP (2 D F) of all decoder layers."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    return shape.num_decoder_layers * (8 * hidden**2 + 2 * hidden * inner)


def _stack_parameters(shape: EncoderDecoderShape) -> tuple[int, int]:
    """Parameters of the encoder and of the decoder, with biases and norms, the final norms included."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    mlp_biases = inner + hidden
    encoder = _encoder_linear(shape) + shape.num_encoder_layers * (4 * hidden + mlp_biases + 4 * hidden)
    decoder = _decoder_linear(shape) + shape.num_decoder_layers * (8 * hidden + mlp_biases + 6 * hidden)
    return encoder + 2 * hidden, decoder + 2 * hidden
