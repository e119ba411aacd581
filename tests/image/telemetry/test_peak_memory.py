"""Peaks of memory: in GB of 1e9 bytes, and of the windows alone. On a machine without a GPU, by counted calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench_image.contract.options import Recipe
from bench_image.process import phases
from bench_image.telemetry.peak_memory import read_peak_memory
from bench_image.training.loop import Timing
from tests.builders.image_processes import make_spec

CUDA = torch.device("cuda")


class FakeJournal(SimpleNamespace):
    def enter(self, phase: object) -> None:
        self.phase = phase

    def log(self, **_: object) -> None: ...

    def has_waited(self, seconds: float) -> None: ...


def journal() -> Any:
    return FakeJournal(timings=[], missing={})


@pytest.mark.parametrize(("replay", "bytes_", "gb"), [(0, 2_000_000_000, 2.0), (3_000_000_000, 3_000_000_000, 3.0)])
def test_a_gb_is_1e9_bytes_and_a_captured_graph_counts(
    monkeypatch: pytest.MonkeyPatch, replay: int, bytes_: int, gb: float
) -> None:
    """2,000,000,000 bytes are 2 GB, not 1.86 GiB. A graph's own peak of 3 GB lies outside of the allocator's count."""
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda _: 2_000_000_000)
    monkeypatch.setattr("torch.cuda.max_memory_reserved", lambda _: 2_500_000_000)
    monkeypatch.setattr("torch.cuda.memory_stats", lambda _: {"num_alloc_retries": 4, "num_ooms": 1})
    memory, _ = read_peak_memory(CUDA, replay)

    assert (memory.peak_during_training, memory.peak_allocated_bytes) == (gb, bytes_)
    assert (memory.peak_reserved_bytes, memory.alloc_retries, memory.num_ooms) == (2_500_000_000, 4, 1)


def test_the_memory_of_a_process_is_in_gb_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,500,000 KiB are 3.584 GB."""
    monkeypatch.setattr("resource.getrusage", lambda _: SimpleNamespace(ru_maxrss=3_500_000))
    memory, _ = read_peak_memory(torch.device("cpu"))

    assert (memory.kind, memory.peak_during_training) == ("process_rss", 3.584)


def test_the_peak_is_that_of_the_windows_not_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building and warming up may take more than a step does: the count begins anew right before the first window."""
    done: list[str] = []
    timing = Timing(
        started_at=0.0, wall_s=1.0, loader_wait_s=0.0, step_times_s=(0.5, 0.5), own_step_times_s=(0.5, 0.5),
        losses=(1.0, 1.0), own_losses=(1.0, 1.0),
    )  # fmt: skip
    monkeypatch.setattr("torch.cuda.reset_peak_memory_stats", lambda device: done.append(f"reset {device}"))
    monkeypatch.setattr("bench_image.process.phases.measure_window", lambda *_: done.append("window") or timing)
    monkeypatch.setattr("gc.freeze", lambda: None)
    spec = make_spec(recipe=Recipe.FULL, repeats=2)
    group: Any = SimpleNamespace(device=CUDA)

    assert phases.measure(spec, journal(), group, step=None, sampler=None, expected_step_s=None) is None  # type: ignore[arg-type]
    assert done == ["reset cuda", "window", "window"]
