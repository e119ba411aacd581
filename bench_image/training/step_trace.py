"""Keeps a profiler's timeline of a few steps as a file, for whoever wants to see what a step consists of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from bench_image.training.stopwatch import synchronize

STEPS = 3


def keep_trace(step: Callable[[], object], device: torch.device, path: Path) -> None:
    """Runs steps under a profiler, which writes the file (https://ui.perfetto.dev reads it). All ranks at once."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    with profile(activities=activities) as profiler:
        for _ in range(STEPS):
            step()
        synchronize(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(path))
