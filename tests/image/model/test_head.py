"""Head and loss as one operation: the loss and gradients of transformers' own, and of a case by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from bench_image.contract.options import Precision, Recipe
from bench_image.contract.work import Preset
from bench_image.model.build import build
from bench_image.model.compile import with_fused_head
from bench_image.model.head import IGNORED, head_loss, next_tokens
from tests.builders.distributed_runs import GPT2, SEQ2SEQ
from tests.builders.image_processes import make_spec

CPU = torch.device("cpu")
ODD = 500  # no multiple of 64


def test_a_case_by_hand() -> None:
    """Logits 0 and ln 3 have the shares 1/4 and 3/4: a label 1 costs ln(4/3); its gradients are -1/4 and 1/4.

    The second position has no label, so the mean is over one.
    """
    head = nn.Linear(1, 2)
    head.weight.data, head.bias.data = torch.tensor([[0.0], [math.log(3)]]), torch.zeros(2)
    hidden = torch.ones(1, 2, 1, requires_grad=True)
    loss = head_loss(hidden, head, torch.tensor([[1, IGNORED]])).loss
    loss.backward()

    assert loss.item() == pytest.approx(math.log(4 / 3))
    assert head.bias.grad is not None
    assert head.weight.grad is not None
    assert hidden.grad is not None
    assert head.bias.grad.tolist() == pytest.approx([0.25, -0.25])
    assert head.weight.grad.flatten().tolist() == pytest.approx([0.25, -0.25])
    assert hidden.grad.flatten().tolist() == pytest.approx([-0.25 * math.log(3), 0])


def test_each_token_is_predicted_from_those_before_it() -> None:
    assert next_tokens(torch.tensor([[5, 6, 7]])).tolist() == [[6, 7, IGNORED]]


def model_of(fields: dict[str, Any]) -> Any:
    return build(make_spec(recipe=Recipe.FULL, gradient_checkpointing=False, **fields), CPU).base


def trained(base: Any, scale: float = 1.0) -> tuple[float, dict[str, torch.Tensor]]:
    ids = torch.randint(ODD, (2, 32), generator=torch.Generator().manual_seed(3))
    loss = base(input_ids=ids, labels=ids).loss
    (scale * loss).backward()
    return loss.item(), {name: parameter.grad / scale for name, parameter in base.named_parameters()}


@pytest.mark.parametrize("model", [{}, GPT2, SEQ2SEQ], ids=["llama", "gpt2", "encoder-decoder"])
@pytest.mark.parametrize("vocabulary", [512, ODD])
def test_the_loss_and_its_gradients_are_those_of_the_model(model: dict[str, Any], vocabulary: int) -> None:
    dimensions = {"dimensions": model["dimensions"] | {"vocab_size": vocabulary}} if model else {}
    plain, fused = (model_of({"precision": Precision.FP32} | model | dimensions) for _ in range(2))
    fused.forward = with_fused_head(fused)
    (loss, gradients), (fused_loss, fused_gradients) = trained(plain), trained(fused, scale=0.5)

    assert fused_loss == pytest.approx(loss, rel=1e-6)
    for name, gradient in gradients.items():
        torch.testing.assert_close(fused_gradients[name], gradient, rtol=1e-4, atol=1e-6)


def test_a_whole_model_is_one_graph() -> None:
    """Of an encoder-decoder: without a break, or torch would compile its pieces."""
    from torch._dynamo.utils import counters

    plain, whole = (model_of({"precision": Precision.FP32, "preset": Preset.TUNED} | SEQ2SEQ) for _ in range(2))
    compiled = torch.compile(whole.decoded, backend="aot_eager", fullgraph=True)
    counters.clear()
    whole.decoded = compiled
    whole.forward = with_fused_head(whole)

    assert trained(whole)[0] == pytest.approx(trained(plain)[0], rel=1e-6)
    assert counters["stats"]["unique_graphs"] == 1


def test_under_autocast_the_product_is_narrow_and_gradients_are_wide() -> None:
    head, hidden = nn.Linear(8, ODD), torch.randn(1, 4, 8, requires_grad=True)
    labels = torch.tensor([[1, 2, 3, 4]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = head_loss(hidden, head, labels).loss
    narrow.backward()

    assert narrow.item() != head_loss(hidden, head, labels).loss.item()
    assert narrow.item() == pytest.approx(head_loss(hidden, head, labels).loss.item(), abs=0.02)
    assert head.weight.grad is not None
    assert head.weight.grad.dtype == torch.float32
