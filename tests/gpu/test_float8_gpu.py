"""8-bit products on a GPU: the casts against those of the CPU, the products against bf16's."""

from __future__ import annotations

import pytest
import torch

from bench_image.kernels import float8_linear
from bench_image.kernels.float8_linear import Float8Linear
from tests.builders.linear_layers import products

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9), reason="needs units for float8"
    ),
]


@pytest.mark.parametrize("shape", [(128, 128), (48, 4096), (1000, 336), (16, 14_336)])
@pytest.mark.parametrize(("by_row", "by_column"), [(True, True), (True, False), (False, True)])
def test_casts_are_those_of_the_cpu_to_the_bit(shape: tuple[int, int], by_row: bool, by_column: bool) -> None:
    matrix = torch.randn(shape) * torch.logspace(-9, 4, shape[0])[:, None]
    matrix[3] = 0
    wide = torch.full((shape[0], shape[1] + 64), 1e9, dtype=torch.bfloat16)
    wide[:, : shape[1]] = matrix
    ours = wide.cuda()[:, : shape[1]]

    made = float8_linear._cast(ours, by_row=by_row, by_column=by_column)
    wanted = float8_linear._cast(wide[:, : shape[1]], by_row=by_row, by_column=by_column)

    assert len(made) == len(wanted) == 2 * (by_row + by_column)
    for mine, theirs in zip(made, wanted, strict=True):
        assert torch.equal(mine.cpu().float(), theirs.float())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_stays_visible(value: float) -> None:
    linear = Float8Linear(64, 32, bias=False, device="cuda", dtype=torch.bfloat16)
    x = torch.ones(32, 64, device="cuda", dtype=torch.bfloat16)
    x[5, 7] = value

    out = linear(x)

    assert out[5].isnan().all()
    assert out[:5].isfinite().all()


@pytest.mark.parametrize("compiled", [False, True])
def test_products_are_those_of_bf16_within_the_formats_rounding(compiled: bool) -> None:
    """e4m3 has 3 bits of mantissa: a number is rounded by up to 6 %, by about 2.6 % in the root of mean squares."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(4096, 1024, bias=False, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(8, 2048, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    grad = torch.randn(8, 2048, 1024, device="cuda", dtype=torch.bfloat16)

    wanted = products(linear, x, grad)
    linear.__class__ = Float8Linear
    if compiled:
        linear.compile(dynamic=False)
    for ours, theirs in zip(products(linear, x, grad), wanted, strict=True):
        assert 0.01 < float((ours - theirs).norm() / theirs.norm()) < 0.05
