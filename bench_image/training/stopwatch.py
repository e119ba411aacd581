"""Clocks of a run: CUDA events or wall time on a GPU, the process's CPU time on the CPU (Performance.clock)."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Protocol

import torch

from bench_image.contract.result_sections import Clock
from bench_image.contract.work import Device


def clock_seconds(device: torch.device) -> float:
    """The time in seconds of the clock by which this device's runs are measured (Performance.clock)."""
    on_cpu = Clock.of(Device(device.type)) is Clock.PROCESS_CPU
    return time.process_time() if on_cpu else time.perf_counter()


def synchronize(device: torch.device) -> None:
    """Waits for the GPU to finish all launched work; does nothing on the CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Stopwatch(Protocol):
    """Marks step borders. `intervals` gives the seconds between those marks that the device has reached."""

    def mark(self) -> None: ...

    def intervals(self) -> list[float]: ...


class CpuStopwatch:
    """CPU time of this process, all threads."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        self._marks.append(clock_seconds(torch.device("cpu")))

    def intervals(self) -> list[float]:
        return [end - begin for begin, end in pairwise(self._marks)]


class CudaStopwatch:
    """Events in the compute stream: the GPU's own time of each border, without waiting for the GPU."""

    def __init__(self) -> None:
        self._marks: list[torch.cuda.Event] = []

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._marks.append(event)

    def intervals(self) -> list[float]:
        passed = []
        for event in self._marks:  # recorded in order, so they pass in order
            if not event.query():  # type: ignore[no-untyped-call]
                break
            passed.append(event)
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairwise(passed)]  # milliseconds to seconds


def stopwatch(device: torch.device) -> Stopwatch:
    """A CUDA-event stopwatch for a GPU, a CPU-time stopwatch otherwise."""
    return CudaStopwatch() if device.type == "cuda" else CpuStopwatch()
