"""LoRA with 8-bit products on a GPU: the casts against those of the CPU, losses and gradients against bf16's."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

from bench_image.contract.options import Precision, Recipe
from bench_image.contract.work import Device, Lora, Preset
from bench_image.kernels import float8_lora
from bench_image.model.build import BuiltModel, build
from tests.builders.image_processes import make_spec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9), reason="needs units for float8"
    ),
]
SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.mark.parametrize("widths", [(4096,), (14_336, 14_336), (4096, 1024, 1024), (48, 336)])
def test_casts_side_by_side_are_those_of_the_cpu_to_the_bit(widths: tuple[int, ...]) -> None:
    matrices = [(torch.randn(96, width) * torch.logspace(-9, 4, 96)[:, None]).bfloat16() for width in widths]
    for matrix in matrices:
        matrix[3] = 0
    apart = [torch.cat([matrix, torch.full((96, 64), 1e9)], 1).bfloat16().cuda()[:, :-64] for matrix in matrices]

    made = float8_lora._cast_side_by_side(apart)
    for mine, wanted in zip(made, float8_lora._cast_side_by_side(matrices), strict=True):
        assert torch.equal(mine.cpu().float(), wanted.float())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_stays_visible(value: float) -> None:
    weights = float8_lora.cast_weights([torch.randn(32, 64, device="cuda", dtype=torch.bfloat16)])
    x = torch.ones(32, 64, device="cuda", dtype=torch.bfloat16)
    x[5, 7] = value
    (out,) = float8_lora.Float8LoraLinear.apply(x, None, None, 0.0, (32,), *weights)

    assert out[5].isnan().all()
    assert out[:5].isfinite().all()


@pytest.mark.parametrize("targets", [SEVEN, SEVEN[:4]], ids=["all", "attention"])
def test_losses_and_gradients_are_nearly_those_of_bf16(targets: tuple[str, ...]) -> None:
    """A frozen weight and its input are rounded by 2.6 % each, as the root of mean squares; the tiny model has two
    layers, through which the errors of the gradients add up.
    """
    (loss, gradients), (wide_loss, wide_gradients) = (
        trained(precision, targets) for precision in (Precision.FP8, Precision.BF16)
    )

    assert loss != wide_loss
    assert loss == pytest.approx(wide_loss, rel=0.01)
    assert set(gradients) == set(wide_gradients)
    for name, wide in wide_gradients.items():
        assert 0.001 < float((gradients[name] - wide).norm() / wide.norm()) < 0.25, name


def test_with_dropout_nothing_is_fused_and_frozen_weights_get_no_gradient() -> None:
    built = built_model(Precision.FP8, SEVEN, dropout=0.1)
    ids = torch.arange(64, device="cuda").view(2, 32)
    built.model(input_ids=ids, labels=ids).loss.backward()

    assert built.fused == ()
    with_gradient = {name for name, parameter in built.model.named_parameters() if parameter.grad is not None}
    assert len(with_gradient) == 2 * 7 * 2
    assert all("lora_" in name for name in with_gradient)


def built_model(precision: Precision, targets: tuple[str, ...], dropout: float = 0.0) -> BuiltModel:
    spec = make_spec(
        device=Device.CUDA, recipe=Recipe.LORA, precision=precision, preset=Preset.TUNED, gradient_checkpointing=False,
        lora=Lora(targets=targets, dropout=dropout),
    )  # fmt: skip
    return build(spec, torch.device("cuda", 0))


def trained(precision: Precision, targets: tuple[str, ...]) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of one compiled step, with adapters that matter."""
    built = built_model(precision, targets)
    generator = torch.Generator("cuda").manual_seed(1)
    for name, parameter in built.model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.02, generator=generator)
    ids = torch.randint(1024, (2, 64), device="cuda", generator=generator)
    counters.clear()
    loss = built.model(input_ids=ids, labels=ids).loss
    loss.backward()
    assert not counters["graph_break"]  # a layer is one graph
    return loss.item(), {name: p.grad.float() for name, p in built.model.named_parameters() if p.grad is not None}
