"""CPU and memory use of the host during the measured windows."""

from __future__ import annotations

import contextlib
import statistics
from typing import Any, NamedTuple

import psutil

from bench_image.contract.parse import implausible_reason
from bench_image.contract.result_sections import HostTelemetry


class CpuTimes(NamedTuple):
    """Seconds over all CPUs since boot; `steal_s` is None where the platform does not count it."""

    total_s: float
    idle_s: float
    steal_s: float | None

    def since(self, earlier: CpuTimes) -> CpuTimes:
        steal = None if self.steal_s is None or earlier.steal_s is None else self.steal_s - earlier.steal_s
        return CpuTimes(self.total_s - earlier.total_s, self.idle_s - earlier.idle_s, steal)


def cpu_times(times: Any = None) -> CpuTimes:
    """CPU times from psutil. Guest time is left out, because Linux counts it in user time; I/O wait is idle time."""
    times = times or psutil.cpu_times()
    counted = {name: value for name, value in times._asdict().items() if not name.startswith("guest")}
    idle = counted["idle"] + counted.get("iowait", 0.0)
    return CpuTimes(sum(counted.values()), idle, counted.get("steal"))


class HostRecord:
    """Collects figures of the whole machine, also from inside a container, so that busy neighbours show."""

    def __init__(self) -> None:
        self._before: CpuTimes | None = None
        self._windows: list[CpuTimes] = []
        self._memory_pct: list[float] = []
        self._num_before = 0  # values before this window

    def open_window(self) -> None:
        self._before = _cpu_times_or_none()
        self._num_before = len(self._memory_pct)

    def forget_window(self) -> None:
        del self._memory_pct[self._num_before :]

    def sample(self) -> None:
        with contextlib.suppress(OSError, psutil.Error):
            self._memory_pct.append(float(psutil.virtual_memory().percent))

    def close_window(self) -> None:
        now = _cpu_times_or_none()
        if self._before is not None and now is not None:
            self._windows.append(now.since(self._before))

    def summary(self, missing: dict[str, str]) -> HostTelemetry:
        """The summary over all windows. Adds a reason for each null field to `missing`."""
        total_s = sum(window.total_s for window in self._windows)
        steals = [window.steal_s for window in self._windows if window.steal_s is not None]
        fields = {
            "cpu_utilisation_mean_pct": (
                100 * (1 - sum(window.idle_s for window in self._windows) / total_s) if total_s > 0 else None
            ),
            "cpu_steal_pct": 100 * sum(steals) / total_s if total_s > 0 and steals else None,
            "memory_used_pct": statistics.fmean(self._memory_pct) if self._memory_pct else None,
        }
        for name, value in fields.items():
            if value is None:
                missing[f"host.{name}"] = "no measured window, or the platform does not report it"
            elif reason := implausible_reason(HostTelemetry, name, value):
                fields[name] = None
                missing[f"host.{name}"] = f"the system returned an impossible value: {reason}"
        return HostTelemetry(**fields)


def _cpu_times_or_none() -> CpuTimes | None:
    try:
        return cpu_times()
    except (OSError, psutil.Error):
        return None
