"""The backward pass of a gated product, by hand and against autograd."""

from __future__ import annotations

import torch

from bench_image.kernels import swiglu


def test_a_case_by_hand() -> None:
    """gate 0: sigmoid 1/2, silu 0, d silu 1/2. With up 3 and gradient 2: gate's is 2 * 3 / 2, up's 0, the product 0."""
    product, gate, up = swiglu.backward(torch.tensor([[2.0]]), torch.tensor([[0.0]]), torch.tensor([[3.0]]))

    assert (product.item(), gate.item(), up.item()) == (0, 3, 0)


def test_the_gradients_are_autograds() -> None:
    gate, up, grad = (torch.randn(5, 7) for _ in range(3))
    ours = swiglu.backward(grad.clone(), gate, up)
    gate.requires_grad_()
    up.requires_grad_()
    product = torch.nn.functional.silu(gate) * up
    product.backward(grad)

    for mine, theirs in zip(ours, (product, gate.grad, up.grad), strict=True):
        torch.testing.assert_close(mine, theirs)
