"""Parameter counts and FLOPs of a model, by formula from its shape."""

from __future__ import annotations

from typing import Literal, NamedTuple

from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import DecoderShape, EncoderDecoderShape, Gpt2Shape, MixtralShape, ModelShape
from bench_image.contract.options import Recipe
from bench_image.contract.work import Lora


class Flops(NamedTuple):
    """FLOPs per token of a training step. `model`: what the work needs; `hardware`: what the GPU computes."""

    model: float
    hardware: float


def num_parameters(shape: ModelShape) -> int:
    """All parameters, embeddings, norms and biases included; tied embeddings are counted once."""
    vocab, hidden = shape.vocab_size, shape.hidden_size
    match shape:
        case Gpt2Shape():
            norms_and_biases = shape.num_layers * 13 * hidden + 2 * hidden
            return (vocab + shape.max_positions) * hidden + num_linear(shape) + norms_and_biases
        case EncoderDecoderShape():
            encoder, decoder = _stack_parameters(shape)
            return vocab * hidden + encoder + decoder + vocab * hidden + vocab
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
            return shape.num_layers * (_per_layer(shape) + experts)
        case _:
            return shape.num_layers * _per_layer(shape)


def num_quantisable(shape: ModelShape) -> int:
    """Parameters that QLoRA packs into 4 bits: the linears of the layers and the experts, not the routers."""
    routers = shape.num_layers * shape.num_experts * shape.hidden_size if isinstance(shape, MixtralShape) else 0
    return num_linear(shape) - routers


def num_lora_parameters(shape: ModelShape, lora: Lora) -> int:
    """Adapter parameters: rank * (in + out) per target and layer (arXiv 2106.09685). ContractError: unknown targets."""
    unknown = sorted(set(lora.targets) - shape.linears.keys())
    if unknown:
        raise ContractError(f"lora.targets {', '.join(unknown)}: choose from {', '.join(shape.linears) or 'none'}")
    assert not isinstance(shape, EncoderDecoderShape), "it has no targets, so each one is unknown"
    per_layer = sum(sum(shape.linears[target]) for target in set(lora.targets))
    return shape.num_layers * lora.rank * per_layer


def lora_targets(shape: ModelShape, which: Literal["attention", "all"]) -> tuple[str, ...]:
    """The names of the linears to adapt: those of the attention, or all."""
    return tuple(sorted(shape.attention_linears if which == "attention" else shape.linears))


def tokens_per_sample(shape: ModelShape, seq_length: int) -> int:
    """`seq_length`; twice that for an encoder-decoder, whose encoder and decoder each read that many."""
    return 2 * seq_length if isinstance(shape, EncoderDecoderShape) else seq_length


def flops_per_token(
    shape: ModelShape, recipe: Recipe, seq_length: int, lora: Lora | None, checkpointed: float
) -> Flops:
    """FLOPs per token: 6N (full) or 4N + 6 N_lora (LoRA, QLoRA), plus 12 L D T for attention.

    N: matmul parameters with the head, without the input embedding; of experts those that a token visits. L: layers,
    D: hidden size, T: sequence length. A matmul takes 2 FLOPs per parameter and token forward, 2 for the gradient of
    its input and 2 for that of its weight, which frozen weights do not need, hence 4N. Attention is not halved for
    causality, as in PaLM (arXiv 2204.02311, appendix B) and torchtitan. Checkpointing repeats the forward pass of
    `checkpointed` of the layers, a share of 1 (or False and True): hardware FLOPs, not model FLOPs.
    """
    layers, attention = _active_linear(shape), _attention_forward(shape, seq_length)
    head = shape.vocab_size * shape.hidden_size
    if isinstance(shape, EncoderDecoderShape):
        head //= 2  # only the decoder's half of the tokens reaches it
    adapters = num_lora_parameters(shape, lora) if lora else 0
    model = (6 if recipe is Recipe.FULL else 4) * (layers + head) + 6 * adapters + 3 * attention
    recomputed = checkpointed * (2 * layers + 2 * adapters + attention)
    return Flops(float(model), float(model + recomputed))


def _per_layer(shape: DecoderShape | MixtralShape | Gpt2Shape) -> int:
    """Matmul parameters of one layer, without experts and router."""
    return sum(inputs * outputs for inputs, outputs in shape.linears.values())


def _active_linear(shape: ModelShape) -> float:
    """Matmul parameters of the layers that one token passes; for an encoder-decoder the mean of both kinds of token."""
    match shape:
        case EncoderDecoderShape():
            return num_linear(shape) / 2
        case MixtralShape():
            expert = 3 * shape.hidden_size * shape.intermediate_size
            routed = shape.num_experts_per_token * expert + shape.num_experts * shape.hidden_size
            return shape.num_layers * (_per_layer(shape) + routed)
        case _:
            return num_linear(shape)


def _attention_forward(shape: ModelShape, seq_length: int) -> float:
    """FLOPs per token of scores and weighted sums in the forward pass, 4 L D T; backward takes twice that."""
    one = 4 * shape.hidden_size * seq_length
    if isinstance(shape, EncoderDecoderShape):
        # Of two tokens one passes the encoder, the other self- and cross-attention in each decoder layer.
        return one * (shape.num_encoder_layers + 2 * shape.num_decoder_layers) / 2
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
