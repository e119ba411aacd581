"""Names the rank that the others wait for: a thread of each rank tells how far it has come.

Each writes to the store by which the ranks met: the steps begun, the collectives launched as PyTorch's flight recorder
counts them (https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html), and where the rank is. A rank
that has not come further for a while reads what all wrote. Who no longer writes does not answer; of those that do, who
came least far hangs. Where all came equally far no rank is at fault, and PyTorch's time limit ends the gang; within a
CUDA graph, whose communication PyTorch does not see, that of the run.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import TCPStore

from bench_image.parallel.process_group import ProcessGroup

BEAT_S = 1.0
HANG_SHARE, SILENT_SHARE = 0.75, 0.125  # of the group's time limit, after which PyTorch would end it, and name nobody
FRAMES = 5  # innermost first


class Progress(NamedTuple):
    """What a rank tells. `beat`: grows by one each time; `stood_s`: how long it has not come further."""

    beat: int
    steps: int
    collectives: int
    stood_s: float
    where: str

    @property
    def reached(self) -> tuple[int, int]:
        return self.steps, self.collectives


class Hang(NamedTuple):
    """`rank`: the first that is at fault."""

    rank: int
    message: str


def find_hang(before: Sequence[Progress], now: Sequence[Progress], hang_s: float, names: Sequence[str]) -> Hang | None:
    """What two readings some beats apart show. None: all came equally far, or who is behind still came further lately.

    `names`: of the ranks, "rank 5 (node-3)".
    """
    silent = [rank for rank, progress in enumerate(now) if progress.beat == before[rank].beat]
    answering = [rank for rank in range(len(now)) if rank not in silent]
    least = min((now[rank].reached for rank in answering), default=None)
    guilty = silent or [r for r in answering if now[r].reached == least and now[r].stood_s >= hang_s / 2]
    waiting = [rank for rank in answering if rank not in guilty]
    if not guilty or not waiting:
        return None
    first = now[guilty[0]]
    more = f" and {len(guilty) - 1} more" if len(guilty) > 1 else ""
    does = "did not answer: it was last seen" if silent else f"hung for {first.stood_s:.0f} s"
    return Hang(
        guilty[0],
        f"{names[guilty[0]]}{more} {does} in step {first.steps} after {first.collectives} collectives, at "
        f"{first.where}; {names[waiting[0]]} waited at {now[waiting[0]].where}: the log has its stack",
    )


class RankWatch:
    """The watch of this rank of a distributed group. `on_hang` has to end the process."""

    def __init__(self, group: ProcessGroup, names: Sequence[str], on_hang: Callable[[Hang], None]) -> None:
        self._group, self._names, self._on_hang = group, names, on_hang
        self._hang_s, self._silent_s = HANG_SHARE * group.timeout_s, SILENT_SHARE * group.timeout_s
        self._store = TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            wait_for_workers=False,
            timeout=timedelta(seconds=self._silent_s),
        )
        self._main, self._ended = threading.main_thread().ident, threading.Event()
        self._progress, self._moved_at = Progress(0, 0, 0, 0.0, ""), time.monotonic()
        self._tell()
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self._tell()
                hang = self._look() if self._progress.stood_s >= self._hang_s else None
            except dist.DistError:  # the store has gone with the first node, which ended, or is at fault
                if self._progress.stood_s < self._hang_s:
                    continue
                hang = Hang(
                    0, f"{self._names[0]} did not answer: the store at its node, by which the ranks met, is gone"
                )
            if hang and not self._ended.is_set():
                faulthandler.dump_traceback()
                self._on_hang(hang)

    def _tell(self) -> None:
        reached, now = (self._group.steps_begun, _num_launched()), time.monotonic()
        if reached != self._progress.reached:
            self._moved_at = now
        stood_s = now - self._moved_at
        self._progress = Progress(self._progress.beat + 1, *reached, stood_s, self._where(stood_s))
        self._store.set(f"progress/{self._group.rank}", json.dumps(self._progress))

    def _look(self) -> Hang | None:
        before, until = self._read(), time.monotonic() + self._silent_s
        while time.monotonic() < until and not self._ended.wait(BEAT_S):
            self._tell()
        return find_hang(before, self._read(), self._hang_s, self._names)

    def _read(self) -> list[Progress]:
        told = self._store.multi_get([f"progress/{rank}" for rank in range(len(self._names))])
        return [Progress(*json.loads(each)) for each in told]

    def _where(self, stood_s: float) -> str:
        """The innermost frames of the rank's main thread, and before them the newest collective that is not finished,
        which costs up to a tenth of a second: told of a rank that probably hangs.
        """
        entries = (
            entry for trace in _traces(entries=stood_s >= self._hang_s / 2) for entry in trace.get("entries", ())
        )
        frames = [entry["profiling_name"] for entry in entries if not entry["retired"]][-1:]
        frame = sys._current_frames().get(self._main or 0)
        while frame and len(frames) < FRAMES:
            frames.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
            frame = frame.f_back
        return " < ".join(frames)


def _num_launched() -> int:
    """Collectives that this rank has launched, of all groups."""
    groups = (group for trace in _traces(entries=False) for group in trace["pg_status"].values())
    return sum(max(0, group["last_enqueued_collective"]) for group in groups)


def _traces(*, entries: bool) -> Iterator[dict[str, Any]]:
    """What the flight recorders hold: gloo's and, where torch has it, NCCL's. `entries`: the collectives too, of NCCL
    those that are not finished.
    """
    for name in ("_dump_fr_trace", "_dump_nccl_trace"):
        if dump := getattr(c10d, name, None):
            yield pickle.loads(dump(entries, False, True))  # noqa: S301 - our own process wrote it
