"""Decoders by their configuration: one of each kind in miniature, built, counted and trained on the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from bench_image.contract.decoder_config import KINDS, decoder_config
from bench_image.contract.flops import flops_per_token, lora_targets, num_lora_parameters, num_parameters
from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import MODELS, ConfiguredShape, ModelShape
from bench_image.contract.options import Recipe
from bench_image.contract.preset_switches import attends_eagerly, needs_mask
from bench_image.contract.result_sections import ParameterCount
from bench_image.contract.work import Lora, Preset
from bench_image.kernels.fused_lora import fuse
from bench_image.model.architectures import configured, layers_of, skeleton
from bench_image.model.build import build
from bench_image.model.compile import leave_masks_out, with_fused_head
from bench_image.parallel.process_group import ProcessGroup
from bench_image.training.execution import left_out
from bench_image.training.train_step import TrainStep
from tests.builders.image_processes import make_spec
from tests.image.contract.test_flops_against_transformers import TINY_GPT2, TINY_MIXTRAL, built_model

CPU = torch.device("cpu")
TOKENS, VOCABULARY = 32, 256
PLAIN = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
WIDE_HEADS = PLAIN | {"head_dim": 32}
LATENT = PLAIN | {
    "num_key_value_heads": 4, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
    "first_k_dense_replace": 1,
}  # fmt: skip
TINY: dict[str, dict[str, Any]] = {
    "llama": WIDE_HEADS | {"attention_bias": True, "mlp_bias": True},
    "mistral": WIDE_HEADS | {"sliding_window": 16},
    "qwen2": PLAIN | {
        "tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1,
    },
    "qwen3": WIDE_HEADS,
    "qwen3_moe": WIDE_HEADS | {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "mlp_only_layers": [0],
    },
    "gemma3_text": WIDE_HEADS | {"sliding_window": 16, "sliding_window_pattern": 2},
    "phi3": PLAIN,
    "deepseek_v2": LATENT | {"q_lora_rank": None},
    "deepseek_v3": LATENT | {"q_lora_rank": 24, "n_group": 2, "topk_group": 1},
    "gpt_oss": WIDE_HEADS | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16},
}  # fmt: skip
FALCON = {
    "model_type": "falcon", "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4,
}  # fmt: skip


def shape_of(kind: str) -> ConfiguredShape:
    return ConfiguredShape(family="config", config={"model_type": kind} | TINY[kind])


def step_of(shape: ConfiguredShape, recipe: Recipe, **changes: Any) -> tuple[TrainStep, ParameterCount]:
    if recipe is not Recipe.FULL:
        changes["lora"] = Lora(targets=lora_targets(shape, "all"))
    spec = make_spec(model="mine", dimensions=shape, recipe=recipe, seq_length=TOKENS, **changes)
    built = build(spec, CPU)
    return TrainStep(spec, built, ProcessGroup(CPU)), built.parameters


def test_each_known_kind_is_tried() -> None:
    assert set(TINY) == set(KINDS)


@pytest.mark.parametrize("kind", TINY)
def test_each_kind_trains_from_random_weights(kind: str) -> None:
    """The loss begins at that of a guess, ln(vocabulary), and a step moves each weight. LoRA has the formula's size."""
    shape = shape_of(kind)
    full, of_full = step_of(shape, Recipe.FULL, precision="fp32")  # bf16 rounds small steps away
    lora, of_lora = step_of(shape, Recipe.LORA, preset=Preset.TUNED)
    before = {name: weight.detach().clone() for name, weight in full.base.named_parameters()}

    assert float(full()) == pytest.approx(math.log(VOCABULARY), abs=0.5)
    assert not [name for name, weight in full.base.named_parameters() if torch.equal(weight, before[name])]
    assert math.isfinite(float(lora()))
    assert of_full == ParameterCount(total=num_parameters(shape), trainable=num_parameters(shape))
    assert of_lora.trainable == num_lora_parameters(shape, Lora(targets=lora_targets(shape, "all")))
    assert attends_eagerly(full.spec) == (full.base.config._attn_implementation == "eager")


@pytest.mark.parametrize("kind", TINY)
def test_what_tuned_fuses_computes_the_same(kind: str) -> None:
    """Head and loss as one, no masks where none is needed, and adapters within the frozen weights."""
    shape = shape_of(kind)
    losses, gradients = [], []
    for tuned in (False, True):
        step, _ = step_of(shape, Recipe.LORA, preset=Preset.TUNED, precision="fp32")
        for name, weight in step.base.named_parameters():
            if "lora_B" in name:
                torch.nn.init.constant_(weight, 0.02)  # else the gradients of A are 0
        if tuned:
            step.base.forward = with_fused_head(step.base)
            if not needs_mask(step.spec):
                leave_masks_out(step.base, TOKENS)
            assert fuse(step.base)
        ids = torch.arange(2 * TOKENS).view(2, TOKENS)
        loss = step.base(input_ids=ids, labels=ids).loss
        loss.backward()
        losses.append(loss.detach())
        gradients.append({name: weight.grad for name, weight in step.base.named_parameters() if weight.requires_grad})

    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("kind", TINY)
def test_a_file_that_transformers_saved_is_the_same_work(kind: str) -> None:
    assert decoder_config(configured(shape_of(kind)).to_dict()) == shape_of(kind).config


@pytest.mark.parametrize(
    "shape", [MODELS["tiny"], TINY_GPT2, TINY_MIXTRAL, *map(shape_of, TINY)], ids=lambda shape: shape.kind
)
def test_flops_are_those_that_torch_counts(shape: ModelShape) -> None:
    """With eager attention and experts, which torch can count; within the window, since it computes what is masked."""
    model = built_model(shape, "cpu").train()
    ids = torch.randint(shape.vocab_size, (1, 16))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids).loss.backward()
    flops = flops_per_token(shape, Recipe.FULL, 16, None, False)

    assert flops is not None
    assert counter.get_total_flops() == 16 * flops.model


@pytest.mark.parametrize("kind", TINY)
def test_buffers_are_those_that_transformers_makes(kind: str) -> None:
    ours = dict(built_model(shape_of(kind), "cpu").named_buffers())
    theirs = dict(AutoModelForCausalLM.from_config(configured(shape_of(kind))).named_buffers())

    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name].float(), theirs[name].float()) for name in ours)


def test_execution_says_what_tuned_leaves_out() -> None:
    tuned = {"preset": Preset.TUNED, "model": "mine", "recipe": Recipe.FULL, "seq_length": TOKENS}
    whys = [left_out(make_spec(dimensions=shape_of(kind), **tuned)) for kind in ("qwen3", "gemma3_text", "gpt_oss")]
    unknown = left_out(make_spec(dimensions=ConfiguredShape(family="config", config=FALCON), **tuned))

    assert whys == [
        None,
        "CUDA graph: a sliding window needs its mask",
        "CUDA graph: a mixture of experts counts its tokens, and a softmax with a sink is no kernel of torch's, and a "
        "sliding window needs its mask",
    ]
    assert unknown
    assert "'falcon' is not known to work with them" in unknown


def test_a_kind_of_which_no_formula_is_known_trains_all_the_same() -> None:
    step, _ = step_of(ConfiguredShape(family="config", config=FALCON), Recipe.FULL)

    assert float(step()) == pytest.approx(math.log(VOCABULARY), abs=0.5)
    assert len(layers_of(step.base)) == 2
    assert flops_per_token(step.spec.work.shape, Recipe.FULL, TOKENS, None, False) is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "of-my-own", "auto_map": {"AutoConfig": "evil.Evil"}}, "unknown to transformers .* never run"),
        ({"model_type": "vit"}, "no decoder for transformers"),
        ({"model_type": "falcon", "alibi": "perhaps", "multi_query": 7}, "builds no 'falcon' from this config.json"),
    ],
)
def test_what_transformers_cannot_build_is_one_sentence(config: dict[str, Any], message: str) -> None:
    shape = ConfiguredShape(family="config", config=FALCON | config)
    with pytest.raises(ContractError, match=message):
        skeleton(shape, torch.float32)
