"""Turns of several pods on one machine: they measure window by window in turn, so that what slows it slows them all.

Turn k of every member runs on the same core, and the next turn on the next one: a member that stayed on the core that
another program keeps busy would be slower than the others by up to a tenth.

Each member has a file in a shared folder. Its launcher locks the file (flock) for as long as the pod lives, so that the
kernel releases it however the pod ends; the member writes the number of turns it took into it. The turn is that of the
member with the fewest turns, the lowest number first. Nobody waits for a member that has ended, nor for long for one
that is late or hangs.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench_image.contract.turns import MEMBER_FILE, TURNS_ENV, Turns

POLL_S = 0.01
ARRIVAL_LIMIT_S = 30.0  # from the own arrival until all have arrived
STUCK_LIMIT_S = 10.0  # of another member's turn: a window takes a tenth of a second
ENDED = -1
WIDTH = 10  # characters of a count, written in place: a reader never sees a part of it


class Turnstile:
    """The turns of a pod that has the machine to itself."""

    def arrive(self) -> float:
        """Waits for the other members, once, before the first turn; returns for how many seconds."""
        return 0.0

    @contextmanager
    def turn(self) -> Iterator[float]:
        """The time in which the other members sleep; gives the seconds waited for it."""
        yield 0.0

    def leave(self) -> None:
        """The others go on without this member."""


class SharedTurnstile(Turnstile):
    def __init__(self, turns: Turns) -> None:
        self._folder, self._number = Path(turns.folder), turns.member
        self._others = [number for number in range(turns.num_members) if number != turns.member]
        self._count = 0
        self._cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []  # macOS: none

    def arrive(self) -> float:
        self._take_place(0)
        begin = time.monotonic()
        while late := [number for number in self._others if self._count_of(number) is None]:
            if time.monotonic() - begin > ARRIVAL_LIMIT_S:
                sys.stderr.write(f"of the pods that take turns, {len(late)} did not come: the others begin\n")
                break
            time.sleep(POLL_S)
        return time.monotonic() - begin

    @contextmanager
    def turn(self) -> Iterator[float]:
        own, begin = (self._count, self._number), time.monotonic()
        before, since, stuck = own, begin, set[tuple[int, int]]()
        while (now := min({*self._places(), own} - stuck)) != own:
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > STUCK_LIMIT_S:
                stuck.add(now)
            time.sleep(POLL_S)
        if self._cores:
            os.sched_setaffinity(0, {self._cores[self._count % len(self._cores)]})
        try:
            yield time.monotonic() - begin
        finally:
            if self._cores:
                os.sched_setaffinity(0, self._cores)
        self._take_place(self._count + 1)

    def leave(self) -> None:
        self._write(ENDED)

    def _take_place(self, count: int) -> None:
        """After `count` turns, or as many as another has had: who was late or stuck does not catch up."""
        self._count = max([count, *(others for others, _ in self._places())])
        self._write(self._count)

    def _write(self, count: int) -> None:
        descriptor = os.open(self._folder / MEMBER_FILE.format(self._number), os.O_WRONLY | os.O_NOFOLLOW)
        os.pwrite(descriptor, f"{count:{WIDTH}d}".encode(), 0)
        os.close(descriptor)

    def _places(self) -> list[tuple[int, int]]:
        """Turns and number of each other member that takes part."""
        counts = ((self._count_of(number), number) for number in self._others)
        return [(count, number) for count, number in counts if count is not None and count != ENDED]

    def _count_of(self, number: int) -> int | None:
        """Turns of a member; ENDED, or None for one that has not arrived."""
        try:
            descriptor = os.open(self._folder / MEMBER_FILE.format(number), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return ENDED  # nobody holds the lock of a pod that has ended
        except BlockingIOError:
            text = os.pread(descriptor, WIDTH, 0)
            return int(text) if text.strip() else None
        finally:
            os.close(descriptor)


def turnstile_of(environ: Mapping[str, str]) -> Turnstile:
    """The turnstile that the launcher names in the environment."""
    named = environ.get(TURNS_ENV)
    return SharedTurnstile(Turns.model_validate_json(named)) if named else Turnstile()
