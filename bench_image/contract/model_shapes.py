"""Model shapes: the dimensions of each known model, from which it is built and its size follows."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from bench_image.contract import decoder_config
from bench_image.contract.decoder_config import LARGEST, MOST_LAYERS, MOST_POSITIONS, Layer, Linear, plain_layer
from bench_image.contract.frozen import ContractError, Frozen

Size = Annotated[int, Field(ge=1, le=LARGEST)]
Layers = Annotated[int, Field(ge=1, le=MOST_LAYERS)]
Positions = Annotated[int, Field(ge=1, le=MOST_POSITIONS)]
PUBLISHED = Path(__file__).with_name("models.json")


# Each size of a plain decoder by its name in transformers.
IN_TRANSFORMERS = {
    "vocab_size": "vocab_size", "hidden_size": "hidden_size", "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers", "num_heads": "num_attention_heads", "num_kv_heads": "num_key_value_heads",
    "tie_embeddings": "tie_word_embeddings", "max_positions": "max_position_embeddings",
}  # fmt: skip


class _Shape(Frozen):
    """What the formulas of flops.py and memory_estimate.py ask of a model, by the sizes of its layers."""

    @property
    @abstractmethod
    def layers(self) -> tuple[tuple[Layer, int], ...]:
        """The different layers, each with how many there are."""

    @property
    @abstractmethod
    def num_outside(self) -> int:
        """Parameters outside of the layers: embeddings, head, last norms."""

    @property
    def kind(self) -> str:
        """The family, or transformers' name of the kind: "llama", "qwen3"."""
        return str(getattr(self, "family"))  # noqa: B009 - each shape declares it

    @property
    def is_known(self) -> bool:
        """Whether the formulas know this kind of model."""
        return True

    @property
    def is_mixture(self) -> bool:
        """Whether a token visits a choice of experts."""
        return any(layer.experts for layer, _ in self.layers)

    @property
    def attends_by_itself(self) -> bool:
        """Whether attention is no kernel of torch's: its softmax has a sink, a number besides the scores."""
        return False

    @property
    def linears(self) -> dict[str, Linear]:
        """Those that LoRA adapts, by name the largest of all layers; none of an unknown kind. Of a mixture of experts
        those of the attention: by the others' names PEFT would adapt the experts.
        """
        return self.attention_linears if self.is_mixture else self._largest([layer.linears for layer, _ in self.layers])

    @property
    def attention_linears(self) -> dict[str, Linear]:
        return self._largest([dict(layer.attention) for layer, _ in self.layers])

    def _largest(self, layers: list[dict[str, Linear]]) -> dict[str, Linear]:
        largest: dict[str, Linear] = {}
        for name, linear in [item for linears in layers for item in linears.items()] if self.is_known else []:
            largest[name] = max(linear, largest.get(name, linear))
        return largest


class _SizedShape(_Shape):
    """One whose sizes are fields of their own."""

    if TYPE_CHECKING:  # in each shape's own order
        hidden_size: int
        num_heads: int

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"num_heads {self.num_heads} must divide hidden_size {self.hidden_size}")
        return self


class _Attention(_SizedShape):
    """The shape common to the Llama-like families: rotary positions, grouped-query attention, RMS norms, no biases."""

    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    num_layers: Layers
    num_heads: Size
    num_kv_heads: Size
    tie_embeddings: bool = False
    max_positions: Positions

    @model_validator(mode="after")
    def _kv_heads_divide(self) -> Self:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads {self.num_kv_heads} must divide num_heads {self.num_heads}")
        return self

    @property
    def layers(self) -> tuple[tuple[Layer, int], ...]:
        head_dim = self.hidden_size // self.num_heads
        sizes = (self.hidden_size, self.num_heads, self.num_kv_heads, head_dim, self.intermediate_size)
        return ((plain_layer(*sizes), self.num_layers),)

    @property
    def num_outside(self) -> int:
        return self.vocab_size * self.hidden_size * (1 if self.tie_embeddings else 2) + self.hidden_size


class DecoderShape(_Attention):
    """A dense decoder with a gated MLP."""

    family: Literal["mistral", "llama"]


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
    def layers(self) -> tuple[tuple[Layer, int], ...]:
        ((dense, count),) = super().layers
        expert = sum(inputs * outputs for _, (inputs, outputs) in dense.mlp)
        chosen = self.num_experts_per_token
        routed = dense._replace(
            mlp=(),
            experts=self.num_experts * expert,
            visited=chosen * expert,
            router=self.num_experts * self.hidden_size,
            inner=chosen * dense.inner,
        )
        return ((routed, count),)


class Gpt2Shape(_SizedShape):
    """A decoder with layer norms, learned positions, one fused attention projection, biases and a tied head."""

    family: Literal["gpt2"]
    vocab_size: Size = 50_257
    hidden_size: Size
    num_layers: Layers
    num_heads: Size
    max_positions: Positions = 1024

    @property
    def layers(self) -> tuple[tuple[Layer, int], ...]:
        """The linears are named by path because both the attention and the MLP have a `c_proj`."""
        hidden = self.hidden_size
        layer = plain_layer(hidden, self.num_heads, self.num_heads, hidden // self.num_heads, 4 * hidden)
        attention = (("attn.c_attn", (hidden, 3 * hidden)), ("attn.c_proj", (hidden, hidden)))
        mlp = (("mlp.c_fc", (hidden, 4 * hidden)), ("mlp.c_proj", (4 * hidden, hidden)))
        return ((layer._replace(attention=attention, mlp=mlp, vectors=13 * hidden), self.num_layers),)

    @property
    def num_outside(self) -> int:
        return (self.vocab_size + self.max_positions) * self.hidden_size + 2 * self.hidden_size


class EncoderDecoderShape(_SizedShape):
    """The encoder-decoder Transformer of torch.nn: pre-norm, sinusoidal positions, one embedding, a head of its own."""

    family: Literal["encoder-decoder"]
    vocab_size: Size = Field(8000, ge=2)
    hidden_size: Size = Field(128, description="d-model")
    intermediate_size: Size = Field(512, description="dim-feedforward")
    num_encoder_layers: Layers = 3
    num_decoder_layers: Layers = 3
    num_heads: Size = 4
    max_positions: Positions = 4096

    @property
    def num_layers(self) -> int:
        return self.num_encoder_layers + self.num_decoder_layers

    @property
    def layers(self) -> tuple[tuple[Layer, int], ...]:
        """A layer of the encoder, and one of the decoder, which attends twice."""
        hidden, inner = self.hidden_size, self.intermediate_size
        layer = plain_layer(hidden, self.num_heads, self.num_heads, hidden // self.num_heads, inner)
        mlp = (("linear1", (hidden, inner)), ("linear2", (inner, hidden)))
        encoder = layer._replace(mlp=mlp, vectors=9 * hidden + inner)
        decoder = encoder._replace(
            attention=layer.attention + tuple((f"cross.{name}", size) for name, size in layer.attention),
            vectors=15 * hidden + inner,
            query=2 * hidden,
            mixed=2 * hidden,
        )
        return (encoder, self.num_encoder_layers), (decoder, self.num_decoder_layers)

    @property
    def num_outside(self) -> int:
        return 2 * self.vocab_size * self.hidden_size + self.vocab_size + 4 * self.hidden_size

    @property
    def linears(self) -> dict[str, Linear]:
        """Empty: LoRA adapts no layer of a model that is trained from scratch."""
        return {}

    @property
    def attention_linears(self) -> dict[str, Linear]:
        return {}


class ConfiguredShape(_Shape):
    """A decoder as its `config.json` describes it."""

    family: Literal["config"]
    config: Annotated[dict[str, Any], AfterValidator(decoder_config.decoder_config)]

    @property
    def kind(self) -> str:
        return str(self.config["model_type"])

    @property
    def is_known(self) -> bool:
        """Whether the formulas know this kind of decoder; else its layers are a guess, for the memory estimate only."""
        return decoder_config.is_known(self.config)

    @property
    def vocab_size(self) -> int:
        return self._size("vocab_size")

    @property
    def hidden_size(self) -> int:
        return self._size("hidden_size")

    @property
    def num_layers(self) -> int:
        return self._size("num_hidden_layers")

    @property
    def num_heads(self) -> int:
        return self._size("num_attention_heads")

    @property
    def max_positions(self) -> int:
        """Where the configuration does not say, as many as a sample may have."""
        return decoder_config.size(self.config, "max_position_embeddings") or MOST_POSITIONS

    @cached_property
    def layers(self) -> tuple[tuple[Layer, int], ...]:
        return decoder_config.layers(self.config)

    @property
    def num_outside(self) -> int:
        tables = 1 if self.config.get("tie_word_embeddings") else 2
        return tables * self.vocab_size * self.hidden_size + self.hidden_size

    @property
    def attends_by_itself(self) -> bool:
        return self.kind == "gpt_oss"

    def _size(self, name: str) -> int:
        size = decoder_config.size(self.config, name)
        assert size is not None, "decoder_config has checked it"
        return size


ModelShape = Annotated[
    DecoderShape | MixtralShape | Gpt2Shape | EncoderDecoderShape | ConfiguredShape, Field(discriminator="family")
]


def shape_of_config(value: object) -> ModelShape:
    """The shape of a `config.json`. Raises ValueError, which says what is wrong with it."""
    config = decoder_config.decoder_config(value)
    plain = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "sliding_window": None}
    if (
        config["model_type"] in ("llama", "mistral")
        and all(config.get(name, value) == value for name, value in plain.items())
        and config["head_dim"] * config["num_attention_heads"] == config["hidden_size"]
    ):
        return DecoderShape(
            family=config["model_type"], **{ours: config[name] for ours, name in IN_TRANSFORMERS.items()}
        )
    return ConfiguredShape(family="config", config=config)


def _decoder(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, *, vocab: int = 32_000, positions: int = 4096,
    family: Literal["llama", "mistral"] = "llama",
) -> DecoderShape:  # fmt: skip
    return DecoderShape(
        family=family, vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_layers=layers,
        num_heads=heads, num_kv_heads=kv_heads, max_positions=positions,
    )  # fmt: skip


def _gpt2(hidden: int, layers: int, heads: int) -> Gpt2Shape:
    return Gpt2Shape(family="gpt2", hidden_size=hidden, num_layers=layers, num_heads=heads)


MODELS: dict[str, ModelShape] = {
    # Small enough for a step of some tens of milliseconds on one CPU core; the widths suit 4-bit blocks of 64.
    "tiny": _decoder(128, 384, 2, 4, 2, vocab=1024, family="mistral"),
    "mistral-7b": _decoder(4096, 14_336, 32, 32, 8, positions=32_768, family="mistral"),
    # v0.3, base and instruct, has a larger vocabulary: mistralai/Mistral-7B-v0.3, config.json. See SAME_SHAPE.
    "mistral-7b-v0.3": _decoder(4096, 14_336, 32, 32, 8, vocab=32_768, positions=32_768, family="mistral"),
    "llama2-7b": _decoder(4096, 11_008, 32, 32, 32),
    "llama2-13b": _decoder(5120, 13_824, 40, 40, 40),
    "llama2-70b": _decoder(8192, 28_672, 80, 64, 8),
    "yi-34b": _decoder(7168, 20_480, 60, 56, 8, vocab=64_000),
    "mixtral-8x7b": MixtralShape(
        family="mixtral", vocab_size=32_000, hidden_size=4096, intermediate_size=14_336, num_layers=32, num_heads=32,
        num_kv_heads=8, max_positions=32_768, num_experts=8, num_experts_per_token=2,
    ),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    # The tiers of the strategy comparison; the gated MLP has the size of an ungated one of four times the width.
    "tier-a": _decoder(1024, 2816, 16, 16, 16),
    "tier-b": _decoder(2048, 5632, 32, 32, 32),
    "encoder-decoder": EncoderDecoderShape(family="encoder-decoder"),
}  # fmt: skip
# Name -> source, date and config.json of models that were published since.
SOURCES: Mapping[str, Mapping[str, Any]] = json.loads(PUBLISHED.read_bytes())
MODELS |= {name: shape_of_config(published["config"]) for name, published in SOURCES.items()}

# Other names of the same shape: the instruct model has the base model's config.json, so it is the same work.
SAME_SHAPE = {"mistral-7b-instruct-v0.3": "mistral-7b-v0.3"}


def known_name(model: object) -> object:
    """The name in MODELS for another name of the same shape, in any case of letters; else `model` as it is."""
    if not isinstance(model, str):
        return model
    lower = SAME_SHAPE.get(model.lower(), model.lower())
    return lower if lower in MODELS else model


def shape_of(model: str) -> ModelShape:
    """Raises ContractError for an unknown model, naming the known ones."""
    try:
        return MODELS[model]
    except KeyError:
        known = ", ".join(MODELS)
        raise ContractError(f"model '{model}' is not known: choose one of {known}, or give its `dimensions`") from None
