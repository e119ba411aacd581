"""Model shapes: the dimensions of each known model, from which it is built and its size follows."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bench_image.contract.frozen import ContractError, Frozen

Size = Annotated[int, Field(ge=1, le=2**24)]  # far beyond any model; products of such sizes are still exact
Positions = Annotated[int, Field(ge=1, le=2**30)]
Linear = tuple[int, int]  # (inputs, outputs)


def _check_heads(hidden_size: int, num_heads: int) -> None:
    if hidden_size % num_heads:
        raise ValueError(f"num_heads {num_heads} must divide hidden_size {hidden_size}")


class _Attention(Frozen):
    """The shape common to the Llama-like families: rotary positions, grouped-query attention, RMS norms, no biases."""

    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    num_layers: Size
    num_heads: Size
    num_kv_heads: Size
    tie_embeddings: bool = False
    max_positions: Positions

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        _check_heads(self.hidden_size, self.num_heads)
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads {self.num_kv_heads} must divide num_heads {self.num_heads}")
        return self

    @property
    def kv_size(self) -> int:
        """Width of the key and of the value projection."""
        return self.hidden_size // self.num_heads * self.num_kv_heads

    @property
    def attention_linears(self) -> dict[str, Linear]:
        hidden, kv = self.hidden_size, self.kv_size
        return {"q_proj": (hidden, hidden), "k_proj": (hidden, kv), "v_proj": (hidden, kv), "o_proj": (hidden, hidden)}


class DecoderShape(_Attention):
    """A dense decoder with a gated MLP."""

    family: Literal["mistral", "llama"]

    @property
    def linears(self) -> dict[str, Linear]:
        """The linear layers of one decoder layer: those that LoRA can adapt and QLoRA quantises."""
        hidden, inner = self.hidden_size, self.intermediate_size
        return self.attention_linears | {
            "gate_proj": (hidden, inner),
            "up_proj": (hidden, inner),
            "down_proj": (inner, hidden),
        }


class MixtralShape(_Attention):
    """A decoder whose MLP is a choice of experts. The experts of a layer are one tensor, which LoRA does not adapt."""

    family: Literal["mixtral"]
    num_experts: Size = Field(ge=2)
    num_experts_per_token: Size

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if self.num_experts_per_token > self.num_experts:
            raise ValueError(f"num_experts_per_token {self.num_experts_per_token} > num_experts {self.num_experts}")
        return self

    @property
    def linears(self) -> dict[str, Linear]:
        return self.attention_linears


class Gpt2Shape(Frozen):
    """A decoder with layer norms, learned positions, one fused attention projection, biases and a tied head."""

    family: Literal["gpt2"]
    vocab_size: Size = 50_257
    hidden_size: Size
    num_layers: Size
    num_heads: Size
    max_positions: Positions = 1024

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        _check_heads(self.hidden_size, self.num_heads)
        return self

    @property
    def linears(self) -> dict[str, Linear]:
        """The linears, named by path because both the attention and the MLP have a `c_proj`."""
        hidden = self.hidden_size
        return {
            "attn.c_attn": (hidden, 3 * hidden),
            "attn.c_proj": (hidden, hidden),
            "mlp.c_fc": (hidden, 4 * hidden),
            "mlp.c_proj": (4 * hidden, hidden),
        }

    @property
    def attention_linears(self) -> dict[str, Linear]:
        return {name: size for name, size in self.linears.items() if name.startswith("attn.")}


class EncoderDecoderShape(Frozen):
    """The encoder-decoder Transformer of torch.nn: pre-norm, sinusoidal positions, one embedding, a head of its own."""

    family: Literal["encoder-decoder"]
    vocab_size: Size = Field(8000, ge=2)
    hidden_size: Size = Field(128, description="d-model")
    intermediate_size: Size = Field(512, description="dim-feedforward")
    num_encoder_layers: Size = 3
    num_decoder_layers: Size = 3
    num_heads: Size = 4
    max_positions: Positions = 4096

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        _check_heads(self.hidden_size, self.num_heads)
        return self

    @property
    def linears(self) -> dict[str, Linear]:
        """Empty: LoRA adapts no layer of a model that is trained from scratch."""
        return {}

    @property
    def attention_linears(self) -> dict[str, Linear]:
        return {}


ModelShape = Annotated[
    DecoderShape | MixtralShape | Gpt2Shape | EncoderDecoderShape,
    Field(discriminator="family"),
]


def _llama(hidden: int, inner: int, layers: int, heads: int, kv_heads: int, vocab: int = 32_000) -> DecoderShape:
    return DecoderShape(
        family="llama", vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_layers=layers,
        num_heads=heads, num_kv_heads=kv_heads, max_positions=4096,
    )  # fmt: skip


def _gpt2(hidden: int, layers: int, heads: int) -> Gpt2Shape:
    return Gpt2Shape(family="gpt2", hidden_size=hidden, num_layers=layers, num_heads=heads)


MODELS: dict[str, ModelShape] = {
    # Small enough for a step of some tens of milliseconds on one CPU core; the widths suit 4-bit blocks of 64.
    "tiny": DecoderShape(
        family="mistral", vocab_size=1024, hidden_size=128, intermediate_size=384, num_layers=2, num_heads=4,
        num_kv_heads=2, max_positions=4096,
    ),
    "mistral-7b": DecoderShape(
        family="mistral", vocab_size=32_000, hidden_size=4096, intermediate_size=14_336, num_layers=32, num_heads=32,
        num_kv_heads=8, max_positions=32_768,
    ),
    # v0.3, base and instruct, has a larger vocabulary: mistralai/Mistral-7B-v0.3, config.json. See SAME_SHAPE.
    "mistral-7b-v0.3": DecoderShape(
        family="mistral", vocab_size=32_768, hidden_size=4096, intermediate_size=14_336, num_layers=32, num_heads=32,
        num_kv_heads=8, max_positions=32_768,
    ),
    "llama2-7b": _llama(4096, 11_008, 32, 32, 32),
    "llama2-13b": _llama(5120, 13_824, 40, 40, 40),
    "llama2-70b": _llama(8192, 28_672, 80, 64, 8),
    "yi-34b": _llama(7168, 20_480, 60, 56, 8, vocab=64_000),
    "mixtral-8x7b": MixtralShape(
        family="mixtral", vocab_size=32_000, hidden_size=4096, intermediate_size=14_336, num_layers=32, num_heads=32,
        num_kv_heads=8, max_positions=32_768, num_experts=8, num_experts_per_token=2,
    ),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    # The tiers of the strategy comparison; the gated MLP has the size of an ungated one of four times the width.
    "tier-a": _llama(1024, 2816, 16, 16, 16),
    "tier-b": _llama(2048, 5632, 32, 32, 32),
    "encoder-decoder": EncoderDecoderShape(family="encoder-decoder"),
}  # fmt: skip

# Other names of the same shape: the instruct model has the base model's config.json, so it is the same work.
SAME_SHAPE = {"mistral-7b-instruct-v0.3": "mistral-7b-v0.3"}


def known_name(model: object) -> object:
    """The name in MODELS for another name of the same shape, in any case of letters; else `model` as it is."""
    return SAME_SHAPE.get(model.lower(), model) if isinstance(model, str) else model


def shape_of(model: str) -> ModelShape:
    """Raises ContractError for an unknown model, naming the known ones."""
    try:
        return MODELS[model]
    except KeyError:
        known = ", ".join(MODELS)
        raise ContractError(f"model '{model}' is not known: choose one of {known}, or give its `dimensions`") from None
