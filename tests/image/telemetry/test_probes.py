"""The probes where there is no GPU; what they measure on one is a result, not a test."""

from __future__ import annotations

import math

import pytest
import torch

from bench_image.telemetry import probes
from bench_image.telemetry.probes import h2d_gb_per_s, matmul_tflops

CPU = torch.device("cpu")


def test_nothing_is_copied_to_a_cpu() -> None:
    assert h2d_gb_per_s(CPU) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn])
def test_a_matmul_rate_is_a_finite_positive_number(dtype: torch.dtype) -> None:
    rate = matmul_tflops(CPU, dtype)

    assert rate > 0
    assert math.isfinite(rate)


def test_the_bus_rate_of_an_all_reduce_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ranks, 2**20 bytes in 2 ms: 2 x 3/4 x 1,048,576 / 0.002 / 1e9 = 0.786432 GB/s."""
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *_, **__: None)
    monkeypatch.setattr(probes, "_median_s", lambda *_: 0.002)

    assert probes.allreduce_bus_gb_per_s(CPU) == pytest.approx(0.786432)


def test_the_rate_of_a_matmul_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 x 512 matrices in 1 ms: 2 x 512^3 / 0.001 / 1e12 = 0.268435456 TFLOP/s."""
    monkeypatch.setattr(probes, "_median_s", lambda *_, **__: 0.001)

    assert matmul_tflops(CPU, torch.float32) == pytest.approx(0.268435456)
