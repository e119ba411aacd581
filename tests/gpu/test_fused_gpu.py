"""Fused adapters on a GPU: the unpacking kernel against bitsandbytes' own, the compiled layers against PEFT's."""

from __future__ import annotations

import pytest
import torch

from bench_image.contract.options import Recipe
from bench_image.contract.work import Device, Lora, Preset
from bench_image.model.build import build

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("shape", [(1024, 4096), (96, 128), (4096, 14_336)])
def test_unpacked_weights_are_bitsandbytes_to_the_bit(shape: tuple[int, int], double: bool) -> None:
    import bitsandbytes.functional as bnb

    from bench_image.kernels.nf4_dequant import unpack

    weight = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    packed, state = bnb.quantize_4bit(
        weight, quant_type="nf4", compress_statistics=double, quant_storage=torch.bfloat16, blocksize=64
    )
    wide = torch.full((shape[0], shape[1] + 32), 7.0, device="cuda", dtype=torch.bfloat16)
    scales = (state.offset, state.state2.absmax, state.state2.code) if double else ()
    unpack(packed, state.absmax, scales, state.code, wide[:, : shape[1]])

    # With double quantisation the scale is one fused multiply-add here and two roundings there.
    allowed = 1e-5 if double else 0
    differing = (wide[:, : shape[1]] != bnb.dequantize_4bit(packed, state)).float().mean().item()
    assert differing <= allowed
    assert bool((wide[:, shape[1] :] == 7).all())


@pytest.mark.parametrize("rank", [16, 64])
@pytest.mark.parametrize("widths", [(4096, 1024, 1024), (300, 260), (14_336,)])
def test_one_reading_gives_both_adapter_gradients(widths: tuple[int, ...], rank: int) -> None:
    """Against fp32 products of the same numbers: what is left is the rounding of the result to bf16."""
    from bench_image.kernels import lora_grad

    tokens, members = 1000, len(widths)
    grads = [torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16) for width in widths]
    down = torch.randn(tokens, members * rank, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(sum(widths), rank, device="cuda", dtype=torch.bfloat16)
    assert lora_grad.suits(grads, down, b)
    grad_down, grad_b = lora_grad.gradients(grads, down, b, 0.5)

    pairs = list(zip(grads, torch.split(b, list(widths)), torch.split(down, rank, 1), strict=True))
    want_down = torch.cat([0.5 * grad.float() @ b_i.float() for grad, b_i, _ in pairs], 1)
    want_b = torch.cat([0.5 * grad.float().t() @ down_i.float() for grad, _, down_i in pairs])
    assert largest_error(grad_down, want_down) < 4e-3
    assert largest_error(grad_b, want_b) < 4e-3


def largest_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.float() - theirs).norm() / theirs.norm())


Seen = tuple[float, dict[str, torch.Tensor]]


def seen(recipe: Recipe, *, keep_unpacked: bool = False) -> Seen:
    """Loss and gradients of one step, with adapters that matter."""
    from tests.builders.image_processes import make_spec

    spec = make_spec(
        device=Device.CUDA, recipe=recipe, preset=Preset.TUNED, lora=Lora(targets=SEVEN), gradient_checkpointing=False
    )
    built = build(spec, torch.device("cuda", 0))
    for siblings in built.fused:
        siblings.keep_unpacked = keep_unpacked
    for name, parameter in built.model.named_parameters():
        if "lora_B" in name:
            parameter.data.fill_(0.01)
    ids = torch.arange(64, device="cuda").view(2, 32)
    loss = built.model(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.item(), {name: p.grad.float() for name, p in built.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("recipe", [Recipe.LORA, Recipe.QLORA])
def test_tuned_trains_as_peft_does(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.image.kernels.test_fused_lora import largest_difference

    loss, gradients = seen(recipe)
    monkeypatch.setattr("bench_image.model.compile.uses_fused_lora", lambda *_: False)
    pefts_loss, pefts_gradients = seen(recipe)

    assert loss == pytest.approx(pefts_loss, abs=5e-3)
    assert largest_difference(gradients, pefts_gradients) < 0.05


def test_weights_that_stay_unpacked_give_the_same_numbers() -> None:
    from tests.image.kernels.test_fused_lora import largest_difference

    (loss, gradients), (kept_loss, kept_gradients) = (seen(Recipe.QLORA, keep_unpacked=keep) for keep in (False, True))

    assert kept_loss == loss
    assert largest_difference(kept_gradients, gradients) < 0.01
