"""8-bit products on the CPU, which emulates them; tests/gpu/test_float8_gpu.py compares the kernels with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bench_image.contract.frozen import ContractError
from bench_image.contract.options import Precision, Recipe
from bench_image.contract.work import Preset
from bench_image.kernels.float8_linear import Float8Linear, cast_both, cast_columns, cast_rows
from bench_image.model.build import BuiltModel, build
from bench_image.model.float8_layers import check_8bit_units, with_8bit_products
from tests.builders.image_processes import make_spec
from tests.builders.linear_layers import products

CPU = torch.device("cpu")


def model(precision: Precision) -> BuiltModel:
    spec = make_spec(recipe=Recipe.FULL, precision=precision, preset=Preset.TUNED, gradient_checkpointing=False)
    return build(spec, CPU)


def test_a_cast_by_hand() -> None:
    """The largest number of a row is 3.5: 448 / 3.5 = 128 is a power of two. For 5, 64 is the next lower one."""
    rows, scales = cast_rows(torch.tensor([[1.0, -3.5], [5.0, 0.3]]))

    assert scales.tolist() == [[1 / 128], [1 / 64]]
    assert rows.float().tolist() == [[128.0, -448.0], [320.0, 20.0]]  # 19.2 lies between 18 and 20


def test_columns_are_the_rows_of_the_transposed_matrix() -> None:
    matrix = torch.randn(48, 32, dtype=torch.bfloat16)
    both = cast_both(matrix)

    for mine, theirs in zip(both, (*cast_rows(matrix), *cast_rows(matrix.t())), strict=True):
        assert torch.equal(mine.float(), theirs.float())
    for mine, theirs in zip(cast_columns(matrix), both[2:], strict=True):
        assert torch.equal(mine.float(), theirs.float())


def test_products_are_those_of_bf16_within_the_formats_rounding() -> None:
    linear = torch.nn.Linear(256, 64, bias=False, dtype=torch.bfloat16)
    x = torch.randn(4, 32, 256, dtype=torch.bfloat16, requires_grad=True)
    grad = torch.randn(4, 32, 64, dtype=torch.bfloat16)

    wide = products(linear, x, grad)
    linear.__class__ = Float8Linear
    for narrow, wanted in zip(products(linear, x, grad), wide, strict=True):
        assert 0.01 < float((narrow - wanted).norm() / wanted.norm()) < 0.05


def test_only_the_linears_of_the_layers_have_8_bit_products() -> None:
    built = model(Precision.FP8)

    linears = {name for name, module in built.model.named_modules() if isinstance(module, Float8Linear)}
    assert len(linears) == 2 * 7
    assert all(".layers." in name for name in linears)


def test_weights_and_loss_are_nearly_those_of_bf16() -> None:
    ids = torch.arange(64).view(2, 32)
    narrow, wide = (model(precision) for precision in (Precision.FP8, Precision.BF16))

    for (name, mine), (same, theirs) in zip(
        narrow.model.named_parameters(), wide.model.named_parameters(), strict=True
    ):
        assert name == same
        assert torch.equal(mine, theirs)
    losses = [built.model(input_ids=ids, labels=ids).loss.item() for built in (narrow, wide)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)


def test_layers_that_read_one_input_share_its_cast_and_keep_only_8_bits_of_it() -> None:
    """Four inputs in a layer: of q, k, v; of o; of gate and up; of down. A weight's cast is never kept."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    graphs: list[Any] = []

    def collect(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    backend: Any = aot_autograd(
        fw_compiler=collect, bw_compiler=collect, partition_fn=min_cut_rematerialization_partition
    )
    built = model(Precision.FP8)
    layer = built.base.model.layers[1]
    layer.compile(dynamic=False, backend=backend)
    ids = torch.arange(64).view(2, 32)
    built.model(input_ids=ids, labels=ids).loss.backward()

    forward = graphs[0].graph
    assert sum("cast_both" in str(node.target) for node in forward.nodes) == 4
    (output,) = (node for node in forward.nodes if node.op == "output")
    saved = [node.meta["val"] for node in output.args[0] if getattr(node, "meta", {}).get("val") is not None]
    hidden, inner = built.base.config.hidden_size, built.base.config.intermediate_size
    eight_bit = [tuple(each.shape) for each in saved if getattr(each, "dtype", None) is torch.float8_e4m3fn]
    assert eight_bit == [(hidden, 64), (hidden, 64), (hidden, 64), (inner, 64)]


def test_a_gpu_without_units_for_8_bits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100-SXM4-80GB")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    with pytest.raises(ContractError, match=r"A100-SXM4-80GB of compute capability 8\.0: it needs 8\.9"):
        check_8bit_units(torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    check_8bit_units(torch.device("cuda", 0))


def test_a_size_that_is_no_multiple_of_16_is_refused() -> None:
    built = model(Precision.BF16)
    built.base.model.layers[0].mlp.up_proj = torch.nn.Linear(64, 100)

    with pytest.raises(ContractError, match="up_proj of 64 x 100: both must be multiples of 16"):
        with_8bit_products(built.base)
