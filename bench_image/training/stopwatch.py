"""Clocks of a run: CUDA events or wall time on a GPU, the process's CPU time on the CPU (Performance.clock)."""

from __future__ import annotations

import time
from itertools import pairwise, takewhile
from typing import Any

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


class Stopwatch:
    """Marks step borders: on a GPU by events in its stream, without waiting; on the CPU by the process's CPU time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[Any] = []

    def mark(self) -> None:
        if self._device.type != "cuda":
            self._marks.append(clock_seconds(self._device))
            return
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._marks.append(event)

    def intervals(self) -> list[float]:
        """The seconds between those marks that the device has reached."""
        if self._device.type != "cuda":
            return [end - begin for begin, end in pairwise(self._marks)]
        passed = takewhile(lambda event: event.query(), self._marks)  # recorded in order, so they pass in order
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairwise(passed)]  # milliseconds to seconds
