"""Model shapes: the dimensions of each known model, from which it is built and its size follows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from bench_image.contract import decoder_config
from bench_image.contract.decoder_config import LARGEST, MOST_LAYERS, MOST_POSITIONS, Layer, Linear
from bench_image.contract.frozen import ContractError, Frozen

Size = Annotated[int, Field(ge=1, le=LARGEST)]
Layers = Annotated[int, Field(ge=1, le=MOST_LAYERS)]
Positions = Annotated[int, Field(ge=1, le=MOST_POSITIONS)]
PUBLISHED = Path(__file__).with_name("models.json")


def _check_heads(hidden_size: int, num_heads: int) -> None:
    if hidden_size % num_heads:
        raise ValueError(f"num_heads {num_heads} must divide hidden_size {hidden_size}")


class _Attention(Frozen):
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
    num_layers: Layers
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
    num_encoder_layers: Layers = 3
    num_decoder_layers: Layers = 3
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


class ConfiguredShape(Frozen):
    """A decoder as its `config.json` describes it."""

    family: Literal["config"]
    config: Annotated[dict[str, Any], AfterValidator(decoder_config.decoder_config)]

    @property
    def model_type(self) -> str:
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

    @property
    def tie_embeddings(self) -> bool:
        return bool(self.config.get("tie_word_embeddings"))

    @cached_property
    def layers(self) -> tuple[tuple[Layer, int], ...]:
        """The different layers, each with how many there are."""
        return decoder_config.layers(self.config)

    @property
    def is_mixture(self) -> bool:
        return any(layer.experts for layer, _ in self.layers)

    @property
    def attends_by_itself(self) -> bool:
        """Whether attention is no kernel of torch's: its softmax has a sink, a number besides the scores."""
        return self.model_type == "gpt_oss"

    @property
    def linears(self) -> dict[str, Linear]:
        """Those that LoRA adapts, by name the largest of all layers; none of an unknown kind. Of a mixture of experts
        those of the attention: by the others' names PEFT would adapt the experts.
        """
        if self.is_mixture:
            return self.attention_linears
        return self._largest([layer.linears for layer, _ in self.layers])

    @property
    def attention_linears(self) -> dict[str, Linear]:
        return self._largest([dict(layer.attention) for layer, _ in self.layers])

    def _size(self, name: str) -> int:
        size = decoder_config.size(self.config, name)
        assert size is not None, "decoder_config has checked it"
        return size

    def _largest(self, layers: list[dict[str, Linear]]) -> dict[str, Linear]:
        named = [item for linears in layers for item in linears.items()] if self.is_known else []
        return dict(sorted(named, key=lambda item: item[1]))


ModelShape = Annotated[
    DecoderShape | MixtralShape | Gpt2Shape | EncoderDecoderShape | ConfiguredShape,
    Field(discriminator="family"),
]


def kind_of(shape: ModelShape) -> str:
    """The family, or transformers' name of the kind: "llama", "qwen3"."""
    return shape.model_type if isinstance(shape, ConfiguredShape) else shape.family


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
            family=config["model_type"], vocab_size=config["vocab_size"], hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"], num_layers=config["num_hidden_layers"],
            num_heads=config["num_attention_heads"], num_kv_heads=config["num_key_value_heads"],
            tie_embeddings=config["tie_word_embeddings"], max_positions=config["max_position_embeddings"],
        )  # fmt: skip
    return ConfiguredShape(family="config", config=config)


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
