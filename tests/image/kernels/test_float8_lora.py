"""LoRA whose frozen weights are multiplied in 8 bits, on the CPU; tests/gpu/test_float8_lora_gpu.py has the kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bench_image.contract.options import Precision, Recipe
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Lora
from bench_image.kernels import float8_lora
from bench_image.kernels.float8_linear import Float8Linear
from bench_image.kernels.float8_lora import Float8LoraLinear, cast_weights
from bench_image.kernels.fused_lora import fuse
from bench_image.kernels.lora_linear import LoraLinear
from tests.image.kernels.test_fused_lora import SEVEN, TARGETS, largest_difference, make_model, num_layers, trained
from tests.image.kernels.test_fused_lora import tuned as tuned_spec

ROWS, RANK, SCALE = (64, 32, 48), 16, 2.0


def tuned(targets: tuple[str, ...] = SEVEN, precision: Precision = Precision.FP8, dropout: float = 0.0) -> RunSpec:
    return tuned_spec(Recipe.LORA, precision=precision, lora=Lora(targets=targets, dropout=dropout))


def group() -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Three frozen weights; x and the adapters of all three, which get gradients; the gradients of the outputs."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(size, generator=generator) for size in ((32, 128), (3 * RANK, 128), (sum(ROWS), RANK))]
    weights = [torch.randn(rows, 128, generator=generator) for rows in ROWS]
    grads = [torch.randn(32, rows, generator=generator) for rows in ROWS]
    return weights, [tensor.requires_grad_() for tensor in drawn], grads


def seen(outs: Any, inputs: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    """The outputs side by side, then the gradients of x, A and B."""
    return [torch.cat(outs, 1).detach(), *torch.autograd.grad(list(outs), inputs, grads)]


def test_products_with_frozen_weights_are_rounded_and_those_of_the_adapters_are_not() -> None:
    weights, inputs, grads = group()
    x, a, b = inputs
    wanted = seen(LoraLinear.apply(x, a, b, SCALE, ROWS, False, *weights), inputs, grads)
    got = seen(Float8LoraLinear.apply(x, a, b, SCALE, ROWS, *cast_weights(weights)), inputs, grads)

    errors = [float((mine - theirs).norm() / theirs.norm()) for mine, theirs in zip(got, wanted, strict=True)]
    # The adapters' share of the outputs dilutes the error: B x A x has 16 times the numbers' size.
    assert 0.001 < errors[0] < 0.05
    assert 0.001 < errors[1] < 0.05
    assert max(errors[2:]) < 1e-5


def test_without_adapters_outputs_and_gradient_by_hand() -> None:
    """Numbers that 8 bits hold exactly: y = [1 2; 3 4] [5 6; 7 8]^T, and grad_x = [1 1; 2 0] [5 6; 7 8]."""
    x, weight, grad = torch.zeros(3, 16, 16).unbind()
    x[:2, :2] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    weight[:2, :2] = torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    grad[:2, :2] = torch.tensor([[1.0, 1.0], [2.0, 0.0]])
    x.requires_grad_()
    (out,) = Float8LoraLinear.apply(x, None, None, 0.0, (16,), *cast_weights([weight]))
    out.backward(grad)

    assert out[:2, :2].tolist() == [[17.0, 23.0], [39.0, 53.0]]
    assert x.grad is not None
    assert x.grad[:2, :2].tolist() == [[12.0, 14.0], [10.0, 12.0]]


@pytest.mark.parametrize("targets", list(TARGETS.values()), ids=list(TARGETS))
def test_losses_and_gradients_are_nearly_those_of_bf16(targets: tuple[str, ...]) -> None:
    loss, gradients = trained(make_model(tuned(targets, Precision.BF16)))
    narrow = make_model(tuned(targets))
    assert num_layers(fuse(narrow)) == 2 * 7  # also layers without adapters
    narrow_loss, narrow_gradients = trained(narrow)

    assert narrow_loss != loss
    assert narrow_loss == pytest.approx(loss, rel=0.01)
    assert largest_difference(narrow_gradients, gradients) < 0.2


def test_what_is_not_fused_multiplies_in_8_bits_too() -> None:
    """As on the CPU, and with dropout. Frozen weights get no gradient."""
    loss, gradients = trained(make_model(tuned()))
    fused = make_model(tuned())
    fuse(fused)
    fused_loss, fused_gradients = trained(fused)

    assert fused_loss == pytest.approx(loss, rel=0.002)
    assert largest_difference(fused_gradients, gradients) < 0.15
    dropping = make_model(tuned(dropout=0.1))
    assert fuse(dropping) == ()
    trained(dropping)
    frozen = [module.weight for module in dropping.modules() if isinstance(module, Float8Linear)]
    assert len(frozen) == 2 * 7
    assert all(weight.grad is None for weight in frozen)


def test_layers_that_read_one_input_share_its_cast_and_that_of_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four groups in a layer: q, k, v; o; gate and up; down. The first layer's input needs no gradient."""
    casts: list[list[int]] = []
    cast_side_by_side = float8_lora._cast_side_by_side

    def counted(matrices: list[Tensor]) -> Any:
        casts.append([matrix.shape[1] for matrix in matrices])
        return cast_side_by_side(matrices)

    model = make_model(tuned())
    fuse(model)
    monkeypatch.setattr(float8_lora, "_cast_side_by_side", counted)
    trained(model)

    assert [len(widths) for widths in casts] == [1] * 8 + [1, 2, 1, 3] + [1, 2, 1]


def test_a_frozen_weight_stays_as_two_forms_of_8_bits_and_keeps_its_name() -> None:
    names = [name for name, _ in make_model(tuned(precision=Precision.BF16)).named_parameters()]
    model = make_model(tuned())
    groups = fuse(model)
    frozen = {name: p for name, p in model.named_parameters() if p.dtype is torch.float8_e4m3fn}
    before = {name: weight.float() for name, weight in frozen.items()}
    trained(model)

    assert [name for name, _ in model.named_parameters()] == names
    assert len(frozen) == 2 * 7
    assert all(name.endswith("base_layer.weight") and not weight.requires_grad for name, weight in frozen.items())
    assert all(torch.equal(weight.float(), before[name]) for name, weight in frozen.items())
    for each in groups:
        assert each.cast
        assert (
            each.cast.by_rows.shape == each.cast.by_columns.t().shape == (sum(each.rows), each.cast.by_columns.shape[0])
        )
        start = each.cast.by_rows.untyped_storage().data_ptr()
        assert {base.weight.untyped_storage().data_ptr() for base in each.bases} == {start}  # no third copy


def test_with_checkpointing_the_layers_run_twice() -> None:
    plain, checkpointed = make_model(tuned()), make_model(tuned().changed(work={"gradient_checkpointing": True}))
    fuse(plain)
    fuse(checkpointed)

    loss, gradients = trained(plain)
    again_loss, again_gradients = trained(checkpointed)
    assert again_loss == loss
    assert largest_difference(again_gradients, gradients) == 0
