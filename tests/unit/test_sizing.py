"""Parameters, FLOPs and memory by formula, against cases computed by hand and peaks measured on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract import ContractError, Lora, Optimizer, Preset, Recipe, Strategy
from bench_image.sizing import (
    MODELS,
    DecoderShape,
    flops_per_token,
    memory_need_bytes,
    num_lora_parameters,
    num_parameters,
    shape_of,
)
from tests.builders import make_spec

ALL_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MISTRAL_7B = MODELS["mistral-7b"]

# Small enough to count on paper: head width 4, so keys and values are 4 wide.
# One layer: q 8*8 + k 8*4 + v 8*4 + o 8*8 + gate 8*16 + up 8*16 + down 16*8 = 576 matmul parameters.
PAPER = DecoderShape(
    family="llama", vocab_size=10, hidden_size=8, intermediate_size=16, num_layers=3, num_heads=2, num_kv_heads=1,
    max_positions=32,
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "count"),
    [
        ("mistral-7b", 7_241_732_096),
        ("llama2-7b", 6_738_415_616),
        ("llama2-13b", 13_015_864_320),
        ("llama2-70b", 68_976_648_192),
        ("yi-34b", 34_388_917_248),
    ],
)
def test_parameter_counts_are_those_of_the_published_models(model: str, count: int) -> None:
    assert num_parameters(MODELS[model]) == count


def test_parameters_of_the_paper_model() -> None:
    """2 embeddings of 10*8, 3 layers of 576, and 3*2 + 1 norms of 8: 160 + 1728 + 56."""
    assert num_parameters(PAPER) == 1944


def test_tied_embeddings_count_once() -> None:
    assert num_parameters(PAPER.model_copy(update={"tie_embeddings": True})) == 1944 - 80


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ContractError, match=r"model 'mistral-8b' is not known: choose one of tiny, mistral-7b, llama2-7b"
    ):
        shape_of("mistral-8b")


def test_every_model_has_heads_that_fit() -> None:
    for name, shape in MODELS.items():
        assert shape.hidden_size % shape.num_heads == 0, name
        assert shape.num_heads % shape.num_kv_heads == 0, name


@pytest.mark.parametrize(
    ("targets", "count"),
    [
        # r * 32 layers * (2 * (4096 + 4096) + 2 * (4096 + 1024)): 16 * 32 * 26,624
        (("q_proj", "k_proj", "v_proj", "o_proj"), 13_631_488),
        # ... and 3 * (4096 + 14336) more per layer: 16 * 32 * 81,920
        (ALL_LINEARS, 41_943_040),
        (("q_proj", "q_proj"), 16 * 32 * 8192),
    ],
)
def test_lora_parameters_of_mistral_7b_at_rank_16(targets: tuple[str, ...], count: int) -> None:
    assert num_lora_parameters(MISTRAL_7B, Lora(rank=16, targets=targets)) == count


def test_an_unknown_lora_target_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ContractError, match=r"lora\.targets c_attn: choose from q_proj, k_proj"):
        num_lora_parameters(MISTRAL_7B, Lora(targets=("q_proj", "c_attn")))


def test_flops_of_full_training() -> None:
    """6 * (1728 + head 80) + 12 * 3 layers * 8 wide * 4 tokens = 10,848 + 1,152."""
    assert flops_per_token(PAPER, Recipe.FULL, 4, None, False) == (12_000, 12_000)


def test_flops_of_checkpointed_training() -> None:
    """The layers' forward pass comes again: 2 * 1728 + 4 * 3 * 8 * 4 = 3,840 more, but for the hardware only."""
    assert flops_per_token(PAPER, Recipe.FULL, 4, None, True) == (12_000, 15_840)


@pytest.mark.parametrize("recipe", [Recipe.LORA, Recipe.QLORA])
def test_frozen_weights_need_no_weight_gradient(recipe: Recipe) -> None:
    """Adapters on q at rank 2: 3 * 2 * 16 = 96. 4 * 1808 + 6 * 96 + 1152 = 8,960; again 3456 + 192 + 384 = 4,032."""
    assert flops_per_token(PAPER, recipe, 4, Lora(rank=2, targets=("q_proj",)), True) == (8_960, 12_992)


def test_mistral_7b_flops() -> None:
    """At 2048 tokens: 6 * 7,110,393,856 + 12 * 32 * 4096 * 2048 = 45.88e9; with recomputation 60.92e9."""
    flops = flops_per_token(MISTRAL_7B, Recipe.FULL, 2048, None, True)

    assert flops.model == 45_883_588_608
    assert flops.hardware == 60_915_974_144


def test_the_memory_of_full_training_adds_up() -> None:
    """bf16 weights, gradients and AdamW states: 2, 2 and 4 bytes per parameter.

    Checkpoints: 2 bytes * 32 layers * 4096 wide * 512 tokens. One layer at work: (20 + 8 * 3.5 + 4 / 4) * 4096 bytes
    per token. Logits: 12 bytes * 32,000 * 512 tokens. The peak is in the backward pass: all but logits and checkpoints.
    """
    parameters, layer = 7_241_732_096, 49 * 4096 * 512
    need = memory_need_bytes(
        make_spec(recipe=Recipe.FULL, micro_batch_size=1, seq_length=512, optimizer=Optimizer.ADAMW_TORCH)
    )

    assert need.weights == 2 * parameters
    assert need.gradients == 2 * parameters
    assert need.optimizer == 4 * parameters
    assert need.activations == 2 * 32 * 4096 * 512 + layer
    assert need.logits == 12 * 32_000 * 512
    assert need.total == 8 * parameters + layer


def test_the_memory_of_4_bit_weights() -> None:
    """Double quantisation: 1/2 + 1/64 + 4/16384 bytes for each of 6,979,321,856; the rest and the adapters in bf16.

    3,489,660,928 + 109,051,904 + 1,703,936 + 2 * (262,144,000 embedding and head + 266,240 norms) + 2 * 13,631,488.
    """
    spec = make_spec(preset=Preset.TUNED)

    assert memory_need_bytes(spec).weights == 3_489_660_928 + 109_051_904 + 1_703_936 + 524_820_480 + 27_262_976


@pytest.mark.parametrize(
    "persists", [{"strategy": Strategy.DDP, "gpus_per_node": 2}, {"gradient_accumulation_steps": 2}]
)
def test_gradients_that_live_on_add_to_the_peak(persists: dict[str, Any]) -> None:
    work: dict[str, Any] = {"recipe": Recipe.FULL, "micro_batch_size": 4}
    once, kept = memory_need_bytes(make_spec(**work)), memory_need_bytes(make_spec(**work, **persists))

    assert kept.total > once.total
    assert kept[:5] == once[:5]


@pytest.mark.parametrize(
    ("measured_gb", "work"),
    [
        (8.86, {}),
        (6.99, {"preset": Preset.TUNED, "optimizer": Optimizer.ADAMW_TORCH}),
        (
            21.01,
            {
                "micro_batch_size": 16,
                "seq_length": 1024,
                "lora": Lora(targets=ALL_LINEARS),
                "optimizer": Optimizer.ADAMW_TORCH,
            },
        ),
        (45.55, {"gradient_checkpointing": False, "lora": Lora(targets=ALL_LINEARS)}),
        (
            45.21,
            {
                "recipe": Recipe.LORA,
                "gradient_checkpointing": False,
                "lora": Lora(targets=ALL_LINEARS),
                "optimizer": Optimizer.ADAMW_TORCH,
            },
        ),
        (58.55, {"recipe": Recipe.FULL, "optimizer": Optimizer.ADAMW_TORCH}),
        (
            43.77,
            {
                "recipe": Recipe.FULL,
                "micro_batch_size": 4,
                "gradient_checkpointing": False,
                "optimizer": Optimizer.ADAMW_8BIT,
            },
        ),
    ],
)
def test_the_memory_need_is_within_5_pct_of_peaks_measured_on_an_h200(measured_gb: float, work: dict[str, Any]) -> None:
    """This program's own peaks for mistral-7b, batch 8 x 512 unless said (torch 2.11, bitsandbytes 0.50.2)."""
    assert memory_need_bytes(make_spec(**work)).total / 1e9 == pytest.approx(measured_gb, rel=0.05)
