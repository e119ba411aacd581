"""cuBLASLt, as torch has loaded it: products in bf16 with fp32 sums, each by an algorithm that the caller names.

out = left right, or out + left right; left (m, k), right (k, n), out (m, n). cuBLASLt stores matrices by columns, so it
computes the transposed product: its A is right, its B is left. Constants are those of cublasLt.h and library_types.h
(https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api).
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

WORKSPACE_BYTES = 32 << 20
R_32F, R_16BF, COMPUTE_32F = 0, 14, 68  # types of data and of sums
TRANS_A, TRANS_B = 3, 4  # attributes of an operation


class Product(NamedTuple):
    """The sizes of one product, whether left and right are transposes of row-major matrices, whether it adds to out."""

    m: int
    n: int
    k: int
    left_transposed: bool
    right_transposed: bool
    adds: bool


class Strides(NamedTuple):
    """Elements between the rows of the three row-major matrices."""

    left: int
    right: int
    out: int


class Configuration(NamedTuple):
    """An algorithm of cuBLASLt: its id, and its attributes, which ATTRIBUTES numbers."""

    id: int
    tile: int
    splitk: int
    reduction: int
    swizzle: int
    custom: int
    stages: int
    inner: int
    cluster: int


# Name, number and C type (cublasLtMatmulAlgoConfigAttributes_t). The id is given when an algorithm is initialised.
ATTRIBUTES: tuple[tuple[str, int, Any], ...] = (
    ("id", 0, ctypes.c_int32), ("tile", 1, ctypes.c_uint32), ("splitk", 2, ctypes.c_int32),
    ("reduction", 3, ctypes.c_uint32), ("swizzle", 4, ctypes.c_uint32), ("custom", 5, ctypes.c_uint32),
    ("stages", 6, ctypes.c_uint32), ("inner", 7, ctypes.c_uint16), ("cluster", 8, ctypes.c_uint16),
)  # fmt: skip


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", Algorithm), ("workspace_bytes", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    ]  # fmt: skip


class Layouts(NamedTuple):
    """cuBLASLt's descriptions of one operation and its matrices."""

    operation: ctypes.c_void_p
    right: ctypes.c_void_p
    left: ctypes.c_void_p
    out: ctypes.c_void_p


def product_of(left: Tensor, right: Tensor, out: Tensor, *, adds: bool) -> tuple[Product, Strides] | None:
    """The product; None where cuBLASLt cannot take the matrices as they are, or not in bf16."""
    (left_is_turned, left_stride), (right_is_turned, right_stride) = _layout(left), _layout(right)
    strides = Strides(left_stride, right_stride, out.stride(0))
    if not left.dtype == right.dtype == out.dtype == torch.bfloat16 or 0 in strides or out.stride(1) != 1:
        return None
    return Product(left.shape[0], right.shape[1], left.shape[1], left_is_turned, right_is_turned, adds), strides


def _layout(matrix: Tensor) -> tuple[bool, int]:
    """Whether the matrix is the transpose of a row-major one, and that one's stride; 0: it is neither."""
    rows, columns = matrix.stride()
    if columns == 1:
        return False, rows
    return True, columns if rows == 1 else 0


class CublasLt:
    """The library on one device. Methods raise RuntimeError with cuBLASLt's status where a call fails."""

    def __init__(self, device: torch.device) -> None:
        torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]  # loads the library
        self.library = ctypes.CDLL(loaded_path(Path("/proc/self/maps").read_text()))
        self.library.cublasLtGetVersion.restype = ctypes.c_size_t
        self.version = int(self.library.cublasLtGetVersion())
        self.handle = ctypes.c_void_p()
        self.call("Create", ctypes.byref(self.handle))
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls cublasLt<name>."""
        if status := getattr(self.library, f"cublasLt{name}")(*arguments):
            raise RuntimeError(f"cublasLt{name} failed with cublasStatus_t {status}")

    def layouts(self, product: Product, strides: Strides) -> Layouts:
        """cuBLASLt's descriptions of a product and of its matrices."""
        operation = ctypes.c_void_p()
        self.call("MatmulDescCreate", ctypes.byref(operation), COMPUTE_32F, R_32F)
        for attribute, transposed in ((TRANS_A, product.right_transposed), (TRANS_B, product.left_transposed)):
            value = ctypes.c_int32(transposed)
            self.call("MatmulDescSetAttribute", operation, attribute, ctypes.byref(value), ctypes.sizeof(value))
        right, left = (product.n, product.k), (product.k, product.m)
        return Layouts(
            operation,
            self._matrix(*(right[::-1] if product.right_transposed else right), strides.right),
            self._matrix(*(left[::-1] if product.left_transposed else left), strides.left),
            self._matrix(product.n, product.m, strides.out),
        )

    def _matrix(self, rows: int, columns: int, stride: int) -> ctypes.c_void_p:
        """A matrix stored by columns, which lie `stride` elements apart."""
        layout = ctypes.c_void_p()
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(stride)
        self.call("MatrixLayoutCreate", ctypes.byref(layout), R_16BF, *sizes)
        return layout

    def build(self, layouts: Layouts, configuration: Configuration) -> Algorithm | None:
        """The configured algorithm; None if cuBLASLt does not offer it for this product within the workspace."""
        algorithm, result = Algorithm(), Heuristic()
        refused = self.library.cublasLtMatmulAlgoInit(
            self.handle, COMPUTE_32F, R_32F, *[R_16BF] * 4, configuration.id, ctypes.byref(algorithm)
        )
        for name, attribute, kind in ATTRIBUTES[1:]:
            value = kind(getattr(configuration, name))
            refused = refused or self.library.cublasLtMatmulAlgoConfigSetAttribute(
                ctypes.byref(algorithm), attribute, ctypes.byref(value), ctypes.sizeof(value)
            )
        refused = refused or self.library.cublasLtMatmulAlgoCheck(
            self.handle, *layouts, layouts.out, ctypes.byref(algorithm), ctypes.byref(result)
        )
        return None if refused or result.state or result.workspace_bytes > WORKSPACE_BYTES else algorithm

    def multiply(
        self, layouts: Layouts, algorithm: Algorithm, left: Tensor, right: Tensor, out: Tensor, *, adds: bool
    ) -> None:
        """Launches the product on the current stream."""
        one, beta, address = ctypes.c_float(1), ctypes.c_float(adds), ctypes.c_void_p(out.data_ptr())
        self.call(
            "Matmul", self.handle, layouts.operation, ctypes.byref(one), ctypes.c_void_p(right.data_ptr()),
            layouts.right, ctypes.c_void_p(left.data_ptr()), layouts.left, ctypes.byref(beta), address, layouts.out,
            address, layouts.out, ctypes.byref(algorithm), ctypes.c_void_p(self._workspace.data_ptr()),
            ctypes.c_size_t(WORKSPACE_BYTES), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )  # fmt: skip


def loaded_path(maps: str) -> str:
    """The file of cuBLASLt that a process has loaded, by its /proc/self/maps. Raises RuntimeError unless it is one."""
    paths = {line.split()[-1] for line in maps.splitlines() if "libcublasLt.so" in line}
    if len(paths) != 1:
        raise RuntimeError(f"cuBLASLt is loaded from {sorted(paths) or 'no file'}; it must be one file")
    return paths.pop()
