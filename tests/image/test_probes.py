"""The probes where there is no GPU; what they measure on one is a result, not a test."""

from __future__ import annotations

import math

import torch

from bench_image.telemetry.probes import h2d_gb_per_s, matmul_tflops

CPU = torch.device("cpu")


def test_nothing_is_copied_to_a_cpu() -> None:
    assert h2d_gb_per_s(CPU) is None


def test_a_matmul_rate_is_a_finite_positive_number() -> None:
    rate = matmul_tflops(CPU, torch.float32)

    assert rate > 0
    assert math.isfinite(rate)
