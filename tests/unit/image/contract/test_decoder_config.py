"""What is read of a config.json: work by hand for each kind of decoder, published sizes, files that are no model."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from bench_image.contract.decoder_config import decoder_config
from bench_image.contract.flops import flops_per_token, num_lora_parameters, num_parameters, num_quantisable
from bench_image.contract.memory_estimate import memory_need_bytes
from bench_image.contract.model_shapes import MODELS, ConfiguredShape, DecoderShape, ModelShape, shape_of_config
from bench_image.contract.options import Recipe
from bench_image.contract.preset_switches import has_narrow_window, uses_compile, uses_cuda_graph
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Lora, Preset
from tests.builders.specs import make_spec

# Two heads 8 wide on a hidden size of 8, one of keys and of values. A layer: q 8*16, k and v 8*8, o 16*8 = 384; MLP
# 3*8*16 = 384.
PAPER: dict[str, Any] = {
    "vocab_size": 10, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 32,
}  # fmt: skip
QWEN3 = PAPER | {"model_type": "qwen3"}
# 4 experts of 3*8*4 = 96, of which a token visits 2, and a router of 8*4.
MIXTURE = PAPER | {
    "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 4,
}  # fmt: skip
# Attention: q 8*12, compressed 8*(6+2), expanded 6*(2*4+2*5), o 10*8 = 348. One dense layer; 96 more for the expert
# that all tokens visit.
LATENT = PAPER | {
    "model_type": "deepseek_v3", "num_key_value_heads": 2, "kv_lora_rank": 6, "qk_rope_head_dim": 2,
    "qk_nope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 4, "first_k_dense_replace": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "flops"),
    [
        # 6 * (3 * 768 + head 80) + 3 layers * 3 * 2 * (16 + 16) wide * 4 tokens
        (QWEN3, 14_304 + 2_304),
        # Two positions in place of four.
        (PAPER | {"model_type": "mistral", "sliding_window": 2}, 14_304 + 1_152),
        # Two positions in two layers of three.
        (PAPER | {"model_type": "gemma3_text", "sliding_window": 2, "sliding_window_pattern": 3}, 14_304 + 1_536),
        # Two experts and the router: 6 * (3 * (384 + 2 * 96 + 32) + 80)
        (MIXTURE, 11_424 + 2_304),
        # ... one of the layers dense: 6 * (768 + 2 * 608 + 80)
        (MIXTURE | {"mlp_only_layers": [0]}, 12_384 + 2_304),
        # 6 * (348 + 384 + 2 * (348 + 96 + 2 * 96 + 32) + 80) + 3 layers * 3 * 2 * (12 + 10) wide * 4 tokens
        (LATENT, 12_888 + 1_584),
        # As MIXTURE, but each expert as wide as the MLP: 6 * (3 * (384 + 2 * 384 + 32) + 80)
        (PAPER | {"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2}, 21_792 + 2_304),
    ],
)
def test_flops_of_full_training_of_four_tokens(config: dict[str, Any], flops: int) -> None:
    assert flops_per_token(shape_of_config(config), Recipe.FULL, 4, None, False) == (flops, flops)


def test_flops_of_an_unknown_kind_are_not_guessed() -> None:
    shape = shape_of_config(PAPER | {"model_type": "falcon"})

    assert flops_per_token(shape, Recipe.FULL, 4, None, False) is None
    assert memory_need_bytes(make_spec(model="x", dimensions=shape, recipe="full", seq_length=8)).total > 0


@pytest.mark.parametrize(
    ("model", "count"),
    [
        # As published with the weights, or in the paper that models.json names.
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("llama-3.3-70b", 70_553_706_496),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-14b", 14_768_307_200),
        ("qwen3-32b", 32_762_123_264),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("gemma-3-1b", 999_885_952),
        ("gemma-3-4b", 3_880_263_168),
        ("gemma-3-12b", 11_766_034_176),
        ("gemma-3-27b", 27_009_346_304),
        ("phi-4", 14_659_507_200),
        ("mistral-small-24b", 23_572_403_200),
        ("deepseek-v2-lite", 15_706_484_224),
        ("deepseek-v3", 671_026_404_352),
        ("gpt-oss-20b", 20_914_757_184),
        ("gpt-oss-120b", 116_829_156_672),
    ],
)
def test_parameters_of_published_models(model: str, count: int) -> None:
    assert num_parameters(MODELS[model]) == count


def test_a_mixture_adapts_its_attention_and_packs_all_but_its_routers() -> None:
    """LoRA of rank 2 on q and o: 3 layers * 2 * (24 + 24). 3 * (384 + 4 * 96) in 4 bits."""
    shape = shape_of_config(MIXTURE)

    assert set(shape.linears) == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert num_lora_parameters(shape, Lora(rank=2, targets=("q_proj", "o_proj"))) == 288
    assert num_quantisable(shape) == 2_304


def test_memory_of_heads_wider_than_the_model() -> None:
    """A compiled layer keeps per token 4*8 + queries 16 + output 16 + keys and values 16 + MLP 3*16, and the normed
    queries and keys 24: 152 numbers of 2 bytes. One token more in each of 3 layers, and logits 10 and the gradient of
    the head's input 8 in 2 bytes.
    """
    spec = make_spec(
        model="x", dimensions=shape_of_config(QWEN3), recipe="full", preset="tuned", gradient_checkpointing=False,
        micro_batch_size=4096, seq_length=16,
    )  # fmt: skip
    one_more = memory_need_bytes(spec.changed(work={"micro_batch_size": 4097})).total - memory_need_bytes(spec).total

    assert one_more == 16 * (3 * 152 + 10 + 8) * 2


def test_what_tuned_leaves_out_follows_from_the_layers() -> None:
    def spec(config: dict[str, Any], **changes: Any) -> RunSpec:
        shape = shape_of_config(config)
        return make_spec(model="x", dimensions=shape, recipe="full", preset=Preset.TUNED, seq_length=16, **changes)

    window = PAPER | {"model_type": "mistral", "sliding_window": 8}
    graphs = [uses_cuda_graph(spec(each, optimizer="adamw_torch")) for each in (QWEN3, MIXTURE, window)]

    assert graphs == [True, False, False]
    assert has_narrow_window(spec(window))
    assert not has_narrow_window(spec(window | {"sliding_window": 16}))
    assert (uses_compile(spec(QWEN3)), uses_compile(spec(PAPER | {"model_type": "falcon"}))) == (True, False)


def test_equal_work_has_one_form() -> None:
    """A published file says much that is no work, and leaves out what is transformers' default."""
    published = QWEN3 | {"architectures": ["Qwen3ForCausalLM"], "torch_dtype": "bfloat16", "rope_theta": 1e6,
                         "auto_map": {"AutoModel": "evil.Evil"}, "attention_bias": False}  # fmt: skip
    seeing = {"model_type": "mistral3", "text_config": PAPER | {"model_type": "mistral"}, "vision_config": {}}
    gemma = shape_of_config(PAPER | {"model_type": "gemma3_text", "sliding_window": 2})

    assert shape_of_config(published) == shape_of_config(QWEN3)
    assert hash(shape_of_config(published)) == hash(shape_of_config(QWEN3))
    assert shape_of_config(seeing) == shape_of_config(PAPER | {"model_type": "mistral"})
    assert isinstance(gemma, ConfiguredShape)
    assert decoder_config(gemma.config) == gemma.config
    assert TypeAdapter(ModelShape).validate_json(gemma.model_dump_json()) == gemma


def test_a_plain_llama_is_the_family_that_tuned_was_measured_with() -> None:
    plain = PAPER | {"model_type": "llama", "head_dim": None}
    shape = shape_of_config(plain)

    assert isinstance(shape, DecoderShape)
    assert (shape.num_kv_heads, shape.tie_embeddings) == (1, False)
    assert isinstance(shape_of_config(plain | {"mlp_bias": True}), ConfiguredShape)


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "is a JSON object, not list"),
        ({}, "has no model_type"),
        ({"model_type": "../evil"}, "has no model_type"),
        ({"name": "package", "version": "1"}, "has no model_type"),
        (PAPER | {"model_type": "bert"}, "'bert' is no decoder"),
        (PAPER | {"model_type": "t5", "is_encoder_decoder": True}, "'t5' is no decoder"),
        (PAPER | {"model_type": "x", "architectures": ["XForMaskedLM"]}, r"'x' \(XForMaskedLM\) is no decoder"),
        ({"model_type": "qwen3"}, "has no vocab_size"),
        ({"model_type": "of-my-own", "vocab_size": 10}, "has no hidden_size"),
        (QWEN3 | {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000: a whole number from 1 to 4,096"),
        (PAPER | {"model_type": "falcon", "num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        (QWEN3 | {"hidden_size": -1}, "hidden_size is -1: a whole number from 1 to 16,777,216"),
        (QWEN3 | {"vocab_size": "many"}, "vocab_size is 'many': a whole number"),
        (QWEN3 | {"vocab_size": True}, "vocab_size is True: a whole number"),
        (QWEN3 | {"hidden_size": 1e300}, r"hidden_size is 1e\+300: a whole number"),
        (QWEN3 | {"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes': true or false"),
        (QWEN3 | {"num_attention_heads": 3, "num_key_value_heads": 2}, "num_key_value_heads 2 must divide"),
        (PAPER | {"model_type": "llama", "head_dim": None, "hidden_size": 9}, "must divide hidden_size 9"),
        (MIXTURE | {"num_experts_per_tok": 5}, "num_experts_per_tok is 5, but there are 4 experts"),
        (MIXTURE | {"mlp_only_layers": ["0"]}, "a list of layers' numbers"),
        (PAPER | {"model_type": "gemma3_text", "layer_types": ["full_attention"]}, "for each of the 3 layers"),
        (QWEN3 | {"rope_scaling": "x" * 70_000}, "a model's config.json has 65,536 at most"),
        (QWEN3 | {"rope_scaling": float("nan")}, "is plain JSON"),
        (QWEN3 | {"rope_scaling": nested(5000)}, "is plain JSON"),
    ],
)
def test_what_is_no_decoder_is_one_sentence(config: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shape_of_config(config)
