"""Reads the `config.json` of a decoder as transformers writes it, without transformers: its kind, its layers' sizes.

Of a kind in KINDS only what changes the work of a step is kept: neither tokens' ids nor dtypes, nor the numbers of
rotary positions. Of any other kind all is kept for transformers, but no formula is known.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

Linear = tuple[int, int]  # (inputs, outputs)
LARGEST = 2**24  # of any size: far beyond any model; products of such sizes are still exact
MOST_POSITIONS = 2**30
MOST_LAYERS = 4096  # each is a module of its own, which takes time to build
MOST_BYTES = 65_536  # of a configuration as JSON
MODEL_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,64}")

REQUIRED = object()
_PLAIN: dict[str, Any] = {
    "vocab_size": REQUIRED, "hidden_size": REQUIRED, "intermediate_size": REQUIRED, "num_hidden_layers": REQUIRED,
    "num_attention_heads": REQUIRED, "num_key_value_heads": None, "head_dim": None,
    "max_position_embeddings": REQUIRED, "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip
_WINDOWS: dict[str, Any] = {"sliding_window": None, "layer_types": None}
_QWEN: dict[str, Any] = _WINDOWS | {"use_sliding_window": False, "max_window_layers": 0}
_MLA: dict[str, Any] = {
    **{name: value for name, value in _PLAIN.items() if name != "head_dim"},
    "q_lora_rank": None, "kv_lora_rank": REQUIRED, "qk_rope_head_dim": REQUIRED, "qk_nope_head_dim": REQUIRED,
    "v_head_dim": REQUIRED, "n_routed_experts": REQUIRED, "n_shared_experts": 0, "num_experts_per_tok": REQUIRED,
    "moe_intermediate_size": REQUIRED, "first_k_dense_replace": 0, "n_group": None, "topk_group": None,
    "norm_topk_prob": False, "attention_bias": False,
}  # fmt: skip
# model_type -> each setting that is kept, with transformers' default: published files leave such out. None: none, or as
# many as follow from others. tests/image/model/test_configured.py compares parameters and FLOPs with transformers'.
KINDS: dict[str, dict[str, Any]] = {
    "llama": _PLAIN | {"attention_bias": False, "mlp_bias": False},
    "mistral": _PLAIN | {"sliding_window": None},
    "qwen2": _PLAIN | _QWEN,
    "qwen3": _PLAIN | _QWEN | {"head_dim": 128, "attention_bias": False},
    "qwen3_moe": _PLAIN | {
        "use_sliding_window": False, "sliding_window": None, "attention_bias": False, "num_experts": REQUIRED,
        "num_experts_per_tok": REQUIRED, "moe_intermediate_size": REQUIRED, "decoder_sparse_step": 1,
        "mlp_only_layers": None, "norm_topk_prob": False,
    },
    "gemma3_text": _PLAIN | {
        "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131_072, "tie_word_embeddings": True, "sliding_window": 4096, "layer_types": None,
        "sliding_window_pattern": 6, "attention_bias": False, "hidden_act": "gelu_pytorch_tanh",
    },
    "phi3": _PLAIN | {"sliding_window": None},
    "deepseek_v2": _MLA | {"topk_method": "greedy"},
    "deepseek_v3": _MLA | {"n_group": 8, "topk_group": 4, "norm_topk_prob": True},
    "gpt_oss": _PLAIN | {
        "num_local_experts": REQUIRED, "num_experts_per_tok": 4, "head_dim": 64, "sliding_window": 128,
        "layer_types": None, "attention_bias": True,
    },
}  # fmt: skip
# Names of a size in older files of kinds that are not in KINDS.
OTHER_NAMES: Mapping[str, Sequence[str]] = {
    "hidden_size": ("n_embd", "d_model"), "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"), "intermediate_size": ("n_inner", "ffn_dim", "d_inner"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length"),
}  # fmt: skip
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # one number; versions of transformers name it so
# What other files say of a checkpoint or of a run, not of the model.
NOT_OF_THE_MODEL = (
    "_name_or_path", "architectures", "auto_map", "transformers_version", "torch_dtype", "dtype", "use_cache",
    "quantization_config", "bos_token_id", "eos_token_id", "pad_token_id", "initializer_range",
)  # fmt: skip
MAY_BE_ZERO = ("n_shared_experts", "first_k_dense_replace", "max_window_layers")
DECODER_NAMES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "LMHead")
ENCODERS = ("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet",
            "roberta", "xlm-roberta")  # fmt: skip


class Layer(NamedTuple):
    """The sizes of one decoder layer.

    `attention`, `mlp`: its linear layers by name. `experts`, `visited`, `router`: matmul parameters of all experts, of
    those that a token visits, and of their choice; they are no linear layers. `vectors`: parameters of norms and
    biases. `query`, `mixed`: widths of queries and of what attention puts out, all heads together; `kv`: of keys and
    values together. `inner`: width of the MLP that a token passes. `saved`: numbers per token that a layer keeps for
    backward beyond a plain one of these sizes. `window`: positions that a token attends to at most; None: all.
    """

    attention: tuple[tuple[str, Linear], ...]
    query: int
    kv: int
    mixed: int
    mlp: tuple[tuple[str, Linear], ...] = ()
    experts: int = 0
    visited: int = 0
    router: int = 0
    vectors: int = 0
    inner: int = 0
    saved: int = 0
    window: int | None = None

    @property
    def linears(self) -> dict[str, Linear]:
        return dict(self.attention + self.mlp)


class Config(dict[str, Any]):
    """A configuration in one form, which can be hashed; nobody changes it."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(json.dumps(self, sort_keys=True))


def decoder_config(value: object) -> Config:
    """The configuration of a decoder in one form; of a model that sees or hears as well, that of its language model.

    Raises ValueError, which says what is wrong, for anything else.
    """
    if not isinstance(value, dict):
        raise ValueError(f"a model's config.json is a JSON object, not {type(value).__name__}")
    _check_size(value)
    if isinstance(text := value.get("text_config"), dict):
        value = {name: value[name] for name in ("architectures", "is_encoder_decoder") if name in value} | text
    kind = value.get("model_type")
    if not isinstance(kind, str) or not MODEL_TYPE.fullmatch(kind):
        raise ValueError("it has no model_type: is it the config.json of a model for transformers?")
    _check_decoder(kind, value)
    if kind not in KINDS:
        kept = {name: item for name, item in value.items() if name not in NOT_OF_THE_MODEL}
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
            _size(kept, _named(kept, name))
        return Config(kept)
    return _resolved(kind, value)


def is_known(config: Mapping[str, Any]) -> bool:
    """Whether the formulas know this kind."""
    return config["model_type"] in KINDS


def size(config: Mapping[str, Any], name: str) -> int | None:
    """A size by transformers' name, or by an older one of its kind; None: the configuration does not say."""
    value: int | None = config.get(_named(config, name))
    return value


def layers(config: Mapping[str, Any]) -> tuple[tuple[Layer, int], ...]:
    """The different layers, each with how many there are. Of an unknown kind: plain ones of its sizes, a guess."""
    if not is_known(config):
        return ((_guessed(config), size(config, "num_hidden_layers") or 1),)
    return tuple(Counter(_layer(config, number) for number in range(config["num_hidden_layers"])).items())


# --- checks


def _check_size(value: Mapping[str, Any]) -> None:
    try:
        length = len(json.dumps(value, allow_nan=False))
    except (RecursionError, TypeError, ValueError):
        raise ValueError("a model's config.json is plain JSON, nested a few levels deep at most") from None
    if length > MOST_BYTES:
        raise ValueError(f"it has {length:,} bytes: a model's config.json has {MOST_BYTES:,} at most")


def _check_decoder(kind: str, value: Mapping[str, Any]) -> None:
    names = value.get("architectures")
    known = [str(name)[:80] for name in names] if isinstance(names, list) else []
    encodes = kind in ENCODERS and not value.get("is_decoder")
    if encodes or value.get("is_encoder_decoder") or (known and not any(n.endswith(DECODER_NAMES) for n in known)):
        what = f" ({known[0]})" if known else ""
        raise ValueError(
            f"model_type '{kind}'{what} is no decoder: only models that predict the next token are trained; for an "
            "encoder-decoder there is the model 'encoder-decoder'"
        )


def _named(config: Mapping[str, Any], name: str) -> str:
    return next((other for other in (name, *OTHER_NAMES.get(name, ())) if other in config), name)


def _size(config: Mapping[str, Any], name: str) -> int:
    """Raises ValueError for what is no whole number of a possible size."""
    if name not in config:
        raise ValueError(f"it has no {name}: give the whole config.json")
    value, least, most = config[name], int(name not in MAY_BE_ZERO), LARGEST
    if name in ("num_hidden_layers", *OTHER_NAMES["num_hidden_layers"]):
        most = MOST_LAYERS
    if name == "max_position_embeddings":
        most = MOST_POSITIONS
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {value!r:.60}: a whole number from {least} to {most:,}")
    return value


def _resolved(kind: str, value: Mapping[str, Any]) -> Config:
    """The settings of KINDS with their values: equal work has equal settings, whatever the file leaves out."""
    given = {name: item for name, item in value.items() if item is not None}
    if "hidden_activation" in given:
        given["hidden_act"] = given.pop("hidden_activation")
    if num_experts := next((given[name] for name in EXPERTS if name in given), None):
        given = dict.fromkeys(EXPERTS, num_experts) | given
    config = Config(model_type=kind)
    for name, default in KINDS[kind].items():
        config[name] = _value(given, name, default) if name in given or default is REQUIRED else default
    heads = config["num_attention_heads"]
    config["num_key_value_heads"] = config["num_key_value_heads"] or heads
    if heads % config["num_key_value_heads"]:
        raise ValueError(f"num_key_value_heads {config['num_key_value_heads']} must divide num_attention_heads {heads}")
    if "head_dim" in config and config["head_dim"] is None:
        if config["hidden_size"] % heads:
            raise ValueError(f"num_attention_heads {heads} must divide hidden_size {config['hidden_size']}")
        config["head_dim"] = config["hidden_size"] // heads
    _resolve_windows(config)
    if (chosen := config.get("num_experts_per_tok")) and chosen > (num := _num_experts(config)):
        raise ValueError(f"num_experts_per_tok is {chosen}, but there are {num} experts")
    if "mlp_only_layers" in config:
        numbers = config["mlp_only_layers"] or []
        if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
            raise ValueError(f"mlp_only_layers is {numbers!r:.60}: a list of layers' numbers")
        config["mlp_only_layers"] = sorted(set(numbers))
    return config


def _value(given: Mapping[str, Any], name: str, default: object) -> Any:
    """A value of the default's type; where there is none, a size."""
    if name in ("layer_types", "mlp_only_layers"):
        return given[name]
    if isinstance(default, bool) and not isinstance(given[name], bool):
        raise ValueError(f"{name} is {given[name]!r:.60}: true or false")
    if isinstance(default, bool):
        return given[name]
    return str(given[name])[:64] if isinstance(default, str) else _size(given, name)


def _resolve_windows(config: Config) -> None:
    """`sliding_window`, and where not all layers have it `layer_types`; None where no layer is narrower."""
    if config.get("use_sliding_window") is False:
        config |= {name: None for name in _WINDOWS if name in config}
    pattern, first = config.pop("sliding_window_pattern", 6), config.pop("max_window_layers", 0)
    window, types, num = config.get("sliding_window"), config.get("layer_types"), config["num_hidden_layers"]
    if window is None or "layer_types" not in config:
        return
    if types is None:
        match config["model_type"]:
            case "gemma3_text":
                narrow = [(number + 1) % pattern > 0 for number in range(num)]
            case "gpt_oss":
                narrow = [number % 2 == 0 for number in range(num)]
            case _:
                narrow = [number >= first for number in range(num)]
        types = ["sliding_attention" if is_narrow else "full_attention" for is_narrow in narrow]
    if (
        not isinstance(types, list)
        or len(types) != num
        or set(map(str, types)) - {"sliding_attention", "full_attention"}
    ):
        raise ValueError(f"layer_types must name for each of the {num} layers 'sliding_attention' or 'full_attention'")
    config["layer_types"] = types


# --- layers


def _layer(config: Mapping[str, Any], number: int) -> Layer:
    hidden, types = config["hidden_size"], config.get("layer_types")
    layer = _with_mlp((_latent if "kv_lora_rank" in config else _grouped)(config), config, number)
    vectors, saved = layer.vectors + 2 * hidden, layer.saved  # the norms before attention and MLP
    if config["model_type"] == "gemma3_text":
        vectors, saved = vectors + 2 * hidden, saved + 2 * hidden  # those after them, and what they norm
    narrow = types is None or types[number] == "sliding_attention"
    return layer._replace(vectors=vectors, saved=saved, window=config.get("sliding_window") if narrow else None)


def _grouped(config: Mapping[str, Any]) -> Layer:
    """With grouped-query attention, without MLP and the norms of every layer."""
    kind, hidden = config["model_type"], config["hidden_size"]
    query = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    output = ("o_proj", (query, hidden))
    layer = Layer(
        (("q_proj", (hidden, query)), ("k_proj", (hidden, kv)), ("v_proj", (hidden, kv)), output),
        query=query, kv=2 * kv, mixed=query,
    )  # fmt: skip
    vectors = 0
    if kind == "phi3":
        return layer._replace(attention=(("qkv_proj", (hidden, query + 2 * kv)), output))
    if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
        vectors = 2 * config["head_dim"]  # norms of query and key
        layer = layer._replace(saved=query + kv)
    if kind == "qwen2":
        vectors += query + 2 * kv
    if config.get("attention_bias"):
        vectors += query + 2 * kv + hidden
    if kind == "gpt_oss":
        vectors += config["num_attention_heads"]  # sinks
    return layer._replace(vectors=vectors)


def _latent(config: Mapping[str, Any]) -> Layer:
    """As `_grouped`, with multi-head latent attention (arXiv 2405.04434, section 2.1)."""
    hidden, heads, bias = config["hidden_size"], config["num_attention_heads"], config["attention_bias"]
    rank, rope, nope = config["kv_lora_rank"], config["qk_rope_head_dim"], config["qk_nope_head_dim"]
    query, value = heads * (nope + rope), heads * config["v_head_dim"]
    of_query: tuple[tuple[str, Linear], ...] = (("q_proj", (hidden, query)),)
    vectors, latents = rank + (rank + rope + hidden if bias else 0), 2 * rank + rope
    if low := config["q_lora_rank"]:
        of_query = (("q_a_proj", (hidden, low)), ("q_b_proj", (low, query)))
        vectors, latents = vectors + low + (low if bias else 0), latents + 2 * low
    linears = (
        *of_query,
        ("kv_a_proj_with_mqa", (hidden, rank + rope)),
        ("kv_b_proj", (rank, heads * nope + value)),
        ("o_proj", (value, hidden)),
    )
    return Layer(linears, query=query, kv=query + value, mixed=value, vectors=vectors, saved=latents)


def _with_mlp(layer: Layer, config: Mapping[str, Any], number: int) -> Layer:
    kind, hidden, num = config["model_type"], config["hidden_size"], _num_experts(config)
    if not num or _is_dense(config, number):
        inner = config["intermediate_size"]
        biases = 2 * inner + hidden if config.get("mlp_bias") else 0
        fused = (("gate_up_proj", (hidden, 2 * inner)), ("down_proj", (inner, hidden)))
        mlp = fused if kind == "phi3" else _gated(hidden, inner)
        return layer._replace(mlp=mlp, inner=inner, vectors=layer.vectors + biases)
    chosen, inner = config["num_experts_per_tok"], config.get("moe_intermediate_size", config["intermediate_size"])
    shared = config.get("n_shared_experts", 0) * inner
    one = 3 * hidden * inner
    biases = num * (2 * inner + hidden) + num if kind == "gpt_oss" else 0
    return layer._replace(
        mlp=_gated(hidden, shared) if shared else (),
        experts=num * one,
        visited=chosen * one,
        router=num * hidden,
        inner=chosen * inner + shared,
        vectors=layer.vectors + biases,
        # The exchange with the experts keeps a token's input and output for each that it visits.
        saved=layer.saved + 2 * chosen * hidden,
    )


def _gated(hidden: int, inner: int) -> tuple[tuple[str, Linear], ...]:
    return ("gate_proj", (hidden, inner)), ("up_proj", (hidden, inner)), ("down_proj", (inner, hidden))


def _num_experts(config: Mapping[str, Any]) -> int:
    return next((config[name] for name in EXPERTS if name in config), 0)


def _is_dense(config: Mapping[str, Any], number: int) -> bool:
    """Whether this layer of a mixture of experts has a plain MLP."""
    if number < config.get("first_k_dense_replace", 0) or number in config.get("mlp_only_layers", ()):
        return True
    step: int = config.get("decoder_sparse_step", 1)
    return (number + 1) % step > 0


@lru_cache
def plain_layer(hidden: int, heads: int, kv_heads: int, head_dim: int, inner: int) -> Layer:
    """A layer as Llama has it."""
    sizes = {"hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim}
    return _layer({"model_type": "llama", "intermediate_size": inner} | sizes, 0)


def _guessed(config: Mapping[str, Any]) -> Layer:
    hidden, heads = size(config, "hidden_size") or 1, size(config, "num_attention_heads") or 1
    return plain_layer(
        hidden,
        heads,
        _sized(config.get("num_key_value_heads")) or heads,
        _sized(config.get("head_dim")) or max(1, hidden // heads),
        _sized(size(config, "intermediate_size")) or 4 * hidden,
    )


def _sized(value: object) -> int | None:
    return value if type(value) is int and 1 <= value <= LARGEST else None
