"""Which pods of a campaign run at the same time on this machine: nodes of a trial on the CPU do, and take turns there.

So what slows the machine for a minute slows all of them alike. Every other pod has the machine to itself. Groups follow
one another in the order of the plan.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

from bench_image.contract.frozen import Frozen
from bench_image.contract.spec import RunSpec
from bench_image.contract.turns import MEMBER_FILE, TURNS_ENV, Turns
from bench_image.contract.work import Device

AT_ONCE = 4  # each of them imports torch, and takes its memory
POLL_S = 0.1
STARTED = b" "  # in a member's file: its pod was let in


class Slot(Frozen):
    """A run's place on this machine: in the group of that number, as `member` 0, 1, ... of `num_members`."""

    group: int
    member: int = 0
    num_members: int = 1


def slots(specs: Sequence[RunSpec]) -> tuple[Slot, ...]:
    """The slot of each run, in the order of `specs`; groups are as even as AT_ONCE allows."""
    made: list[Slot] = []
    group = 0
    for shared, members in groupby(specs, key=_shared_by):
        left = len(list(members))
        for parts in range(math.ceil(left / AT_ONCE) if shared else left, 0, -1):
            size = math.ceil(left / parts)
            made += [Slot(group=group, member=member, num_members=size) for member in range(size)]
            left, group = left - size, group + 1
    return tuple(made)


def _shared_by(spec: RunSpec) -> tuple[str, int] | None:
    """What the runs of a group have in common: work and round. None for a run that shares the machine with none."""
    alone = spec.work.device is not Device.CPU or spec.placement.world_size > 1 or spec.work.own_job
    return None if alone else (spec.identity.group_id, spec.identity.round)


class MachineTurns:
    """The slot of one pod in the campaign's folder, which the first pod makes and the last one removes."""

    def __init__(self, store: str | None, campaign_id: str, slot: Slot) -> None:
        key = hashlib.sha256(f"{store} {campaign_id}".encode()).hexdigest()[:16]
        self._folder = Path(tempfile.gettempdir()) / f"trainbench-turns-{os.getuid()}" / key
        self._slot = slot

    @property
    def environment(self) -> dict[str, str]:
        """What the pod must know to take turns."""
        if self._slot.num_members == 1:
            return {}
        turns = Turns(folder=str(self._group), member=self._slot.member, num_members=self._slot.num_members)
        return {TURNS_ENV: turns.model_dump_json()}

    @contextmanager
    def admitted(self, is_stopped: Callable[[], bool]) -> Iterator[int]:
        """Waits until the pod may start, or is stopped. Gives the descriptor that the pod must inherit: its lock tells
        the others that the pod lives.
        """
        with self._gate():
            self._group.mkdir(parents=True, exist_ok=True)
            own = os.open(self._group / MEMBER_FILE.format(self._slot.member), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
            fcntl.flock(own, fcntl.LOCK_EX)
            os.ftruncate(own, 0)
        try:
            while not self._starts(own) and not is_stopped():
                time.sleep(POLL_S)
            yield own
        finally:
            os.close(own)
            with self._gate():
                if not any(_is_alive(path) for path in self._members()):
                    shutil.rmtree(self._folder, ignore_errors=True)  # the other of two last ones may have

    @property
    def _group(self) -> Path:
        return self._folder / f"{self._slot.group:06d}"

    def _members(self) -> Iterator[Path]:
        return self._folder.glob(f"*/{MEMBER_FILE.format('*')}")

    def _starts(self, own: int) -> bool:
        """Marks the pod as started, unless a pod of another group runs, or one of an earlier group waits."""
        with self._gate():
            for path in self._members():
                is_ahead = path.parent < self._group or (path.parent != self._group and path.stat().st_size > 0)
                if is_ahead and _is_alive(path):
                    return False
            os.pwrite(own, STARTED, 0)
            return True

    @contextmanager
    def _gate(self) -> Iterator[None]:
        """One launcher of this user at a time, by a lock on the user's folder, which stays."""
        folder = self._folder.parent
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to another user")
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _is_alive(path: Path) -> bool:
    """Whether a launcher or its pod holds the file's lock."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
