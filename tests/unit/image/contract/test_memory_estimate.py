"""GPU memory by formula, against cases computed by hand and peaks measured on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.memory_estimate import USABLE_SHARE, _loss_bytes, keeps_unpacked, memory_need_bytes
from bench_image.contract.options import Optimizer, Precision, Recipe, Strategy
from bench_image.contract.work import Lora, Preset
from tests.builders import make_spec

TUNED_FULL: dict[str, Any] = {
    "recipe": Recipe.FULL, "lora": None, "quantisation": None, "preset": Preset.TUNED,
    "optimizer": Optimizer.ADAMW_TORCH, "gradient_checkpointing": False,
}  # fmt: skip
ALL_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
ADAMW, ON_ALL = {"optimizer": Optimizer.ADAMW_TORCH}, {"lora": Lora(targets=ALL_LINEARS)}


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


def test_4_bit_weights_stay_unpacked_where_the_run_fits_with_them() -> None:
    """32 layers of 218,103,808 numbers, two bytes each: 13,958,643,712. At the loss they lie beside the logits."""
    spec = make_spec(preset=Preset.TUNED, gradient_checkpointing=False, optimizer=Optimizer.ADAMW_TORCH)
    kept = memory_need_bytes(spec)
    just_fits = int(kept.total / USABLE_SHARE) + 1
    anew = memory_need_bytes(spec, just_fits - 10**6)

    assert kept.activations - anew.activations == 13_958_643_712
    assert kept.total - anew.total == 13_958_643_712
    assert memory_need_bytes(spec, just_fits) == kept
    assert (keeps_unpacked(spec, just_fits), keeps_unpacked(spec, just_fits - 10**6)) == (True, False)


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": Preset.AS_USERS_RUN},
        {"recipe": Recipe.LORA},
        {"gradient_checkpointing": True},
        {"gradient_checkpointing": "auto"},
        {"lora": Lora(targets=("q_proj",), dropout=0.1)},
    ],
)
def test_nothing_stays_unpacked_otherwise(changes: dict[str, Any]) -> None:
    """Nothing is packed, layers run twice, or bitsandbytes' own layers do the work."""
    tuned: dict[str, Any] = {"preset": Preset.TUNED, "gradient_checkpointing": False}

    assert not keeps_unpacked(make_spec(**tuned | changes), None)


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
        (21.01, {"micro_batch_size": 16, "seq_length": 1024} | ON_ALL | ADAMW),
        (45.55, {"gradient_checkpointing": False} | ON_ALL),
        (45.21, {"recipe": Recipe.LORA, "gradient_checkpointing": False} | ON_ALL | ADAMW),
        (58.55, {"recipe": Recipe.FULL} | ADAMW),
        (
            43.77,
            {"recipe": Recipe.FULL, "micro_batch_size": 4, "gradient_checkpointing": False, "optimizer": "adamw_8bit"},
        ),
    ],
)
def test_the_memory_need_is_within_5_pct_of_peaks_measured_on_an_h200(measured_gb: float, work: dict[str, Any]) -> None:
    """This program's own peaks for mistral-7b, batch 8 x 512 unless said (torch 2.11, bitsandbytes 0.50.2)."""
    assert memory_need_bytes(make_spec(**work)).total / 1e9 == pytest.approx(measured_gb, rel=0.05)


@pytest.mark.parametrize(
    ("measured_gb", "changes"),
    [
        (119.27, {}),
        (109.62, {"precision": Precision.FP8}),
        (112.00, {"strategy": Strategy.FSDP, "gpus_per_node": 2}),
        (102.34, {"strategy": Strategy.FSDP, "gpus_per_node": 2, "precision": Precision.FP8}),
    ],
)
def test_8_bit_products_save_memory_as_measured(measured_gb: float, changes: dict[str, Any]) -> None:
    """Mistral-7B full 8 x 2048 on H200s: docs/results/float8-h200-2026-11-22.

    Its head and loss were two operations then, with a second tensor of logits: 1.0 GB.
    """
    spec = make_spec(micro_batch_size=8, seq_length=2048, **TUNED_FULL | changes)

    assert memory_need_bytes(spec, 141 * 2**30).total / 1e9 == pytest.approx(measured_gb - 1.0, rel=0.01)


def test_the_fused_head_holds_one_tensor_of_logits_and_its_own_gradients() -> None:
    """GPT-2, 8,192 tokens in bf16: 50,257 logits each; the gradients of 768 numbers each and of the weight, which has a
    padded copy, because 50,257 is no multiple of 64.
    """
    spec = make_spec(model="gpt2", micro_batch_size=8, seq_length=1024, **TUNED_FULL)

    assert memory_need_bytes(spec).logits == 8192 * 50_257 * 2
    assert _loss_bytes(spec, spec.work.shape, 8192)[1] == (8192 * 768 + 2 * 50_257 * 768) * 2
    assert not _loss_bytes(spec.changed(work={"preset": Preset.AS_USERS_RUN}), spec.work.shape, 8192)[1]


def test_a_layer_of_an_encoder_decoder_sees_half_of_the_tokens() -> None:
    """128 wide, 512 within, 3 + 3 layers, 64 samples of 128 + 128 tokens: (14 * 128 + 512) numbers of half of them."""
    spec = make_spec(model="encoder-decoder", micro_batch_size=64, seq_length=128, **TUNED_FULL)

    assert memory_need_bytes(spec).activations == 6 * 8192 * (14 * 128 + 512) * 2


FULL = {"recipe": Recipe.FULL, "lora": None, "quantisation": None}
TUNED_LORA = {"recipe": Recipe.LORA, "quantisation": None, "preset": Preset.TUNED, "gradient_checkpointing": False}


@pytest.mark.parametrize(
    ("work", "one", "other", "part", "more_bytes"),
    [
        # Eager attention keeps all scores: per token, of 32 layers with 32 heads, 512 scores in fp32 and again in bf16.
        (
            FULL | {"gradient_checkpointing": False}, {}, {"attention": "eager"}, "activations",
            8 * 512 * 32 * 32 * 512 * (4 + 2),
        ),
        # Its backward pass holds four matrices of one layer in fp32: 32 heads x 512 x 512 scores, their gradient, the
        # product of both and the result.
        (FULL | {"micro_batch_size": 1}, {}, {"attention": "eager"}, "total", 32 * 512 * 512 * 4 * 4),
        # 8-bit products, of 8 x 512 tokens and 32 layers: a byte less for each number of two norms and of the MLP's
        # product, one more for each of the attention's output.
        (TUNED_FULL, {"precision": "fp8"}, {}, "total", 8 * 512 * 32 * (2 * 4096 + 14_336 - 4096)),
        # Frozen weights have two forms of one byte for each number; the adapters' inputs stay in bf16.
        (TUNED_LORA, {"precision": "fp8"}, {}, "total", 0),
        # Layers compiled by another preset count as eager ones: the plan may leave a run out, but promises no fit.
        ({"preset": Preset.AS_USERS_RUN}, {"compile": True}, {}, "total", 0),
        # A product that is made anew is not kept: 14,336 numbers of each of 4,096 tokens in each of 32 layers.
        (
            TUNED_LORA, {"lora": Lora(targets=MLP)}, {"lora": Lora(targets=MLP[:2])}, "activations",
            32 * 4096 * 14_336 * 2,
        ),
    ],
)  # fmt: skip
def test_what_a_setting_adds_by_hand(
    work: dict[str, Any], one: dict[str, Any], other: dict[str, Any], part: str, more_bytes: int
) -> None:
    less, more = (getattr(memory_need_bytes(make_spec(**work | changes)), part) for changes in (one, other))

    assert more - less == more_bytes


def test_autocasts_copies_of_checkpointed_layers_end_with_forward() -> None:
    """fp32 weights, gradients and AdamW states: 16 bytes per parameter. In fp16 the head and the layer that is computed
    again, one of 32: 2 bytes each. The layer saves 49 * 4096 bytes per token, and 16 * 4096 for fp32 between layers.
    """
    parameters, linear = 7_241_732_096, 6_979_321_856
    work: dict[str, Any] = {"precision": "fp16", "optimizer": Optimizer.ADAMW_TORCH}
    need = memory_need_bytes(make_spec(recipe=Recipe.FULL, micro_batch_size=1, seq_length=512, **work))

    assert need.weights == 4 * parameters + 2 * (linear + 32_000 * 4096)
    assert need.total == 16 * parameters + 2 * (linear // 32 + 32_000 * 4096) + (49 + 16) * 4096 * 512


@pytest.mark.parametrize("recipe", list(Recipe))
@pytest.mark.parametrize("preset", list(Preset))
def test_an_independent_gpu_needs_what_a_single_one_needs(recipe: Recipe, preset: Preset) -> None:
    """Neighbours share nothing: neither a part of the states nor a buffer to talk through."""
    work: dict[str, Any] = {"recipe": recipe, "preset": preset, "gradient_accumulation_steps": 4}
    if recipe is not Recipe.QLORA:
        work["quantisation"] = None
    if recipe is Recipe.FULL:
        work["lora"] = None
    single, independent = make_spec(**work), make_spec(strategy=Strategy.INDEPENDENT, gpus_per_node=8, **work)

    for gpu_bytes in (24 * 2**30, 140 * 2**30):
        assert memory_need_bytes(independent, gpu_bytes) == memory_need_bytes(single, gpu_bytes)
        assert keeps_unpacked(independent, gpu_bytes) is keeps_unpacked(single, gpu_bytes)
