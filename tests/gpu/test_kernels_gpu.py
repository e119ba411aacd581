"""The Triton kernels of loss, MLP and optimizer against torch: what is left is the rounding of results."""

from __future__ import annotations

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
IGNORED = -100


@pytest.mark.parametrize(("vocabulary", "padded"), [(50_257, 50_304), (1000, 1024), (64, 64)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_loss_and_its_gradient_are_torchs(vocabulary: int, padded: int, dtype: torch.dtype) -> None:
    from bench_image.kernels import cross_entropy

    logits = torch.randn(37, padded, device="cuda").to(dtype)
    labels = torch.randint(vocabulary, (37,), device="cuda")
    labels[5] = IGNORED
    wide = logits[:, :vocabulary].double().requires_grad_()
    wanted = torch.nn.functional.cross_entropy(wide, labels, reduction="none")
    wanted.sum().mul(0.25).backward()
    losses, normaliser = cross_entropy.forward(logits, labels, vocabulary)
    cross_entropy.backward(logits, labels, normaliser, torch.tensor(0.25, device="cuda"), vocabulary)

    torch.testing.assert_close(losses.double(), wanted, rtol=1e-5, atol=1e-5)
    assert wide.grad is not None
    assert error(logits[:, :vocabulary], wide.grad) < (3e-3 if dtype is torch.bfloat16 else 1e-5)
    assert not logits[:, vocabulary:].any()


def test_the_gated_products_gradients_are_torchs() -> None:
    from bench_image.kernels import swiglu

    both = torch.randn(50, 2 * 3000, device="cuda", dtype=torch.bfloat16)
    grad = torch.randn(50, 3000, device="cuda", dtype=torch.bfloat16)
    gate, up = (part.double().requires_grad_() for part in both.chunk(2, 1))
    product = torch.nn.functional.silu(gate) * up
    product.backward(grad.double())
    ours = swiglu.backward(grad.clone(), *both.chunk(2, 1))

    for mine, theirs in zip(ours, (product, gate.grad, up.grad), strict=True):
        assert theirs is not None
        assert error(mine, theirs) < 3e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_clipping_within_the_update_is_torchs_adamw(dtype: torch.dtype) -> None:
    """Tensors of whole blocks and of parts of one, and one whose size is left to torch; addresses change."""
    from bench_image.optimizer.clipping_adamw import BLOCK, ClippingAdamW

    first = [torch.randn(size, device="cuda") for size in (2 * BLOCK, 3 * BLOCK + 8, 16, 1001)]
    ours, theirs = ([torch.nn.Parameter(values.to(dtype)) for values in first] for _ in range(2))
    clipping, plain = ClippingAdamW(ours, 1e-2), torch.optim.AdamW(theirs, lr=1e-2, fused=True)
    for _ in range(4):
        clipping.factor = torch.tensor(0.5, device="cuda")
        for mine, their in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            their.grad = mine.grad / 2
        wanted = sum(float(their.grad.double().square().sum()) * 4 for their in theirs if their.grad is not None)
        assert float(clipping.sum_of_squares()) == pytest.approx(wanted, rel=1e-2 if dtype is torch.bfloat16 else 1e-5)
        clipping.step()
        plain.step()
        clipping.zero_grad()

    for mine, their in zip(ours, theirs, strict=True):
        assert error(mine, their) < (1e-3 if dtype is torch.bfloat16 else 1e-6)


def error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm())
