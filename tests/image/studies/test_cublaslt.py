"""Binding of cuBLASLt: how products are described to it, without the library, which needs a GPU."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cublaslt import (
    ATTRIBUTES,
    WORKSPACE_BYTES,
    Algorithm,
    Configuration,
    CublasLt,
    Heuristic,
    Layouts,
    Product,
    Strides,
    loaded_path,
    product_of,
)

CHOICE = Configuration(id=66, tile=201, splitk=1, reduction=0, swizzle=1, custom=2, stages=35, inner=3, cluster=5)
NO_LAYOUTS = Layouts(*[ctypes.c_void_p()] * 4)


def bf16(rows: int, columns: int) -> torch.Tensor:
    return torch.zeros(rows, columns, dtype=torch.bfloat16)


def with_library(**functions: Any) -> CublasLt:
    """The binding with these functions for the library's, each without its prefix."""
    lt = CublasLt.__new__(CublasLt)
    lt.library = SimpleNamespace(**{f"cublasLt{name}": function for name, function in functions.items()})  # type: ignore[assignment]
    lt.handle = ctypes.c_void_p(1)
    return lt


def test_the_structs_are_as_large_as_the_headers() -> None:
    """cublasLt.h: 8 words of 64 bits; beside them 8 bytes of workspace, status, waves and 4 reserved numbers of 4."""
    assert ctypes.sizeof(Algorithm) == 64
    assert ctypes.sizeof(Heuristic) == 64 + 8 + 6 * 4
    assert tuple(name for name, _, _ in ATTRIBUTES) == Configuration._fields


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (bf16(5, 3), bf16(3, 7), (Product(5, 7, 3, False, False, True), Strides(3, 7, 7))),
        (bf16(5, 3), bf16(7, 3).t(), (Product(5, 7, 3, False, True, True), Strides(3, 3, 7))),
        (bf16(3, 5).t(), bf16(3, 7), (Product(5, 7, 3, True, False, True), Strides(5, 7, 7))),
        (bf16(5, 9)[:, :3], bf16(7, 8)[:, :3].t(), (Product(5, 7, 3, False, True, True), Strides(9, 8, 7))),
    ],
    ids=["forward of a turned weight", "forward", "gradient of a weight", "within wider matrices"],
)
def test_a_product_is_known_by_its_sizes_and_layouts(left: torch.Tensor, right: torch.Tensor, expected: Any) -> None:
    assert product_of(left, right, bf16(5, 7), adds=True) == expected


@pytest.mark.parametrize(
    ("left", "out"),
    [(bf16(5, 6)[:, ::2], bf16(5, 7)), (bf16(5, 3), bf16(7, 5).t()), (bf16(5, 3).float(), bf16(5, 7))],
    ids=["numbers apart", "turned output", "fp32"],
)
def test_what_cublaslt_cannot_take_is_no_product(left: torch.Tensor, out: torch.Tensor) -> None:
    assert product_of(left, bf16(3, 7), out, adds=False) is None


def test_layouts_are_those_of_the_transposed_product() -> None:
    """x (5, 3) times the transpose of W (7, 3) within rows of 8: by columns W is 3 x 7, x is 3 x 5, y is 7 x 5."""
    operations: list[tuple[int, int]] = []
    matrices: list[tuple[int, int, int]] = []

    def set_attribute(_operation: Any, number: int, value: Any, size: int) -> int:
        operations.append((number, value._obj.value))
        return 0 if size == 4 else 7

    def create(_layout: Any, _kind: int, rows: Any, columns: Any, stride: Any) -> int:
        matrices.append((rows.value, columns.value, stride.value))
        return 0

    lt = with_library(MatmulDescCreate=lambda *_: 0, MatmulDescSetAttribute=set_attribute, MatrixLayoutCreate=create)
    lt.layouts(Product(5, 7, 3, False, True, False), Strides(left=3, right=8, out=7))

    assert operations == [(3, 1), (4, 0)]  # right is transposed, left is not
    assert matrices == [(3, 7, 8), (3, 5, 3), (7, 5, 7)]


def test_an_algorithm_is_built_from_its_configuration() -> None:
    given: dict[int, tuple[int, int]] = {}

    def init(*arguments: Any) -> int:
        given[0] = (arguments[-2], 4)
        return 0

    def set_attribute(_algorithm: Any, number: int, value: Any, size: int) -> int:
        given[number] = (value._obj.value, size)
        return 0

    lt = with_library(MatmulAlgoInit=init, MatmulAlgoConfigSetAttribute=set_attribute, MatmulAlgoCheck=lambda *_: 0)
    assert lt.build(NO_LAYOUTS, CHOICE) is not None
    assert {number: value for number, (value, _) in given.items()} == dict(enumerate(CHOICE))
    assert [size for _, size in given.values()] == [4, 4, 4, 4, 4, 4, 4, 2, 2]


@pytest.mark.parametrize(("status", "workspace"), [(7, 0), (0, WORKSPACE_BYTES + 1)], ids=["refused", "too large"])
def test_an_algorithm_that_cublaslt_refuses_is_none(status: int, workspace: int) -> None:
    def check(*arguments: Any) -> int:
        arguments[-1]._obj.workspace_bytes = workspace
        return status

    lt = with_library(MatmulAlgoInit=lambda *_: 0, MatmulAlgoConfigSetAttribute=lambda *_: 0, MatmulAlgoCheck=check)
    assert lt.build(NO_LAYOUTS, CHOICE) is None


def test_a_failed_call_names_itself_and_the_status() -> None:
    with pytest.raises(RuntimeError, match="cublasLtMatmul failed with cublasStatus_t 13"):
        with_library(Matmul=lambda: 13).call("Matmul")


def test_the_library_is_the_one_that_the_process_has_loaded() -> None:
    maps = "7f00-7f01 r-xp 0 08:01 12 /lib/libcublasLt.so.13\n7f01-7f02 r--p 0 08:01 12 /lib/libcublasLt.so.13\n"

    assert loaded_path(maps) == "/lib/libcublasLt.so.13"
    with pytest.raises(RuntimeError, match="from no file"):
        loaded_path("7f00-7f01 r-xp 0 08:01 12 /lib/libc.so\n")
