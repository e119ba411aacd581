"""Prepares a data set of shards on disk: verifies one that is there, or writes it, one writer at a time, over
processes, pods and hosts.

Creating a lock file with O_EXCL is atomic on NFS too, where flock may not work. The lock only saves double work: all
writers write the same bytes and rename them into place, so a lock that is taken over too early does no harm.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from pydantic import ValidationError

from bench_image.contract.parse import explain
from bench_image.data import page_cache
from bench_image.data.atomic_file import write_atomic
from bench_image.data.shard_layout import DataError, Layout, Manifest, describe

STALE_S = 90.0  # longer than NFS clients cache a file's times (60 s)
BEAT_S = 1.0
POLL_S = 0.2


class WriteLock:
    """The file holds 'host pid time'; its owner touches it while at work."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._token = f"{socket.gethostname()} {os.getpid()} {time.time_ns()}"
        self._beaten_at = 0.0
        self._seen: tuple[str, int] | None = None
        self._seen_at = time.monotonic()

    def take(self) -> bool:
        """Whether this process got the lock. Raises OSError where the file cannot be created."""
        with contextlib.suppress(FileExistsError):
            with os.fdopen(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "w") as file:
                file.write(self._token)
            return True
        return False

    def beat(self) -> None:
        """Shows that the owner is alive, at most once a second; does nothing when the lock was taken over."""
        if time.monotonic() - self._beaten_at >= BEAT_S:
            self._beaten_at = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def release(self) -> None:
        state = self._state()
        if state and state[0] == self._token:
            self.path.unlink(missing_ok=True)

    def wait(self) -> float:
        """Sleeps POLL_S. Returns the seconds for which the lock file has not changed."""
        time.sleep(POLL_S)
        state = self._state()
        if state != self._seen:
            self._seen, self._seen_at = state, time.monotonic()
        return time.monotonic() - self._seen_at

    def break_if_dead(self, silent_s: float) -> None:
        """Removes the lock of an owner that no longer runs on this host, or that did not touch it for STALE_S."""
        state = self._state()
        if state and (silent_s >= STALE_S or _is_gone(state[0])):
            self.path.unlink(missing_ok=True)

    def _state(self) -> tuple[str, int] | None:
        """Content and modification time of the file, None without one. Opening it makes NFS query the server."""
        try:
            with self.path.open() as file:
                return file.read(), os.fstat(file.fileno()).st_mtime_ns
        except OSError:
            return None


def _is_gone(token: str) -> bool:
    """Whether the owner was a process of this host that no longer runs."""
    host, _, rest = token.partition(" ")
    pid = rest.partition(" ")[0]
    return host == socket.gethostname() and pid.isdigit() and not psutil.pid_exists(int(pid))


BLOCK_BYTES = 16_000_000
MANIFEST, LOCK = "manifest.json", ".writing"
LOG_EVERY_S = 3.0

Log = Callable[[str], None]


class Prepared(NamedTuple):
    """A data set ready to be read. `written`: in this run, by this process or another one."""

    layout: Layout
    written: bool


def prepare(layout: Layout, *, local_rank: int, num_local_ranks: int, log: Log) -> Prepared:
    """Makes sure that the data set is on disk and intact, and drops its pages from memory where the system allows it.

    All ranks of a host call it. Each rank verifies its share of existing data; missing data is written by local rank 0
    while the others wait. `log` gets progress lines. Raises DataError.
    """
    try:
        if manifest := complete(layout):
            mine = range(local_rank, layout.num_shards, num_local_ranks)
            _verify(layout, manifest, mine, log)
            return Prepared(layout, written=False)
        if local_rank == 0:
            layout.folder.mkdir(parents=True, exist_ok=True)
        _write_or_wait(layout, writes=local_rank == 0, log=log)
    except OSError as error:
        raise DataError(_advice(layout, error)) from error
    return Prepared(layout, written=True)


def complete(layout: Layout) -> Manifest | None:
    """The manifest, if every shard exists and has the right size. Raises DataError for a manifest of other data."""
    manifest = read_manifest(layout)
    if manifest is None or any(
        _size(layout.path(index)) != shard.num_bytes for index, shard in enumerate(manifest.shards)
    ):
        return None
    return manifest


def read_manifest(layout: Layout) -> Manifest | None:
    """The manifest, None without one. Raises DataError for one that is invalid or describes other data."""
    path = layout.folder / MANIFEST
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise DataError(f"{path} is not a manifest of this version: {explain(error)}; delete {layout.folder}") from None
    written = [shard.crc32 for shard in manifest.shards]
    if len(written) != layout.num_shards or manifest != describe(layout, written):
        raise DataError(f"{path} describes other data than its folder's name: delete {layout.folder}")
    return manifest


def blocks(layout: Layout, shard: int) -> Iterator[np.ndarray[Any, np.dtype[Any]]]:
    """The shard's tokens in order, in blocks of at most 16 MB; they depend on (seed, shard) only."""
    generator = np.random.default_rng((layout.seed, shard))
    left = layout.samples_of(shard) * layout.length
    while left:
        count = min(left, BLOCK_BYTES // layout.stored_dtype.itemsize)
        tokens = generator.integers(layout.vocab_size, size=count, dtype=layout.dtype)
        yield tokens.astype(layout.stored_dtype, copy=False)
        left -= count


def _write_or_wait(layout: Layout, *, writes: bool, log: Log) -> None:
    """Writes the data or waits until another process has written it. Raises DataError when the writer went silent."""
    lock = WriteLock(layout.folder / LOCK)
    while complete(layout) is None:
        if writes and lock.take():
            try:
                _write(layout, lock, log)
            finally:
                lock.release()
            return
        silent_s = lock.wait()
        if writes:
            lock.break_if_dead(silent_s)
        elif silent_s > 2 * STALE_S:
            raise DataError(
                f"waited {silent_s:.0f} s for local rank 0 to write {layout.folder}, which showed no progress"
            )


def _write(layout: Layout, lock: WriteLock, log: Log) -> None:
    """Writes the shards that are missing or of the wrong size, then the manifest. The caller holds the lock."""
    for leftover in layout.folder.glob(".shard_*"):  # of a writer that was killed
        leftover.unlink(missing_ok=True)
    known = read_manifest(layout)
    sizes = [layout.samples_of(index) * layout.sample_bytes for index in range(layout.num_shards)]
    keep = [known is not None and _size(layout.path(index)) == size for index, size in enumerate(sizes)]
    to_write = sum(size for size, kept in zip(sizes, keep, strict=True) if not kept)
    if to_write > (free := shutil.disk_usage(layout.folder).free):
        raise OSError(errno.ENOSPC, f"needs {to_write / 1e9:.2f} GB, {free / 1e9:.2f} GB are free")
    if known:  # shards that stay are verified, as in a run that has all of them
        _verify(layout, known, [index for index, kept in enumerate(keep) if kept], log, lock)
    progress = _Progress(to_write, layout.folder, log, "written", lock)
    checksums = []
    for index, kept in enumerate(keep):
        if kept:
            assert known is not None
            checksums.append(known.shards[index].crc32)
        else:
            checksums.append(_write_shard(layout, index, progress))
    write_atomic(layout.folder / MANIFEST, describe(layout, checksums).model_dump_json(indent=1))


def _write_shard(layout: Layout, shard: int, progress: _Progress) -> str:
    """Writes one shard and returns its CRC-32. The file gets its name when it is on the disk (fsync)."""
    path = layout.path(shard)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.time_ns()}")
    checksum = 0
    try:
        with temporary.open("wb") as file:
            for block in blocks(layout, shard):
                view = block.data.cast("B")
                checksum = zlib.crc32(view, checksum)
                file.write(view)
                progress.add(len(view))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    page_cache.drop(path)
    return f"{checksum:08x}"


def _verify(layout: Layout, manifest: Manifest, shards: Sequence[int], log: Log, lock: WriteLock | None = None) -> None:
    """Raises DataError for a shard whose CRC-32 is not that of the manifest."""
    total = sum(manifest.shards[index].num_bytes for index in shards)
    progress = _Progress(total, layout.folder, log, "checked", lock)
    for index in shards:
        checksum = 0
        with layout.path(index).open("rb", buffering=0) as file:
            for block in iter(functools.partial(file.read, BLOCK_BYTES), b""):
                checksum = zlib.crc32(block, checksum)
                progress.add(len(block))
        page_cache.drop(layout.path(index))
        if f"{checksum:08x}" != manifest.shards[index].crc32:
            raise DataError(
                f"{layout.path(index)} is corrupt: CRC-32 {checksum:08x}, written as {manifest.shards[index].crc32}; "
                "delete this file, and the next run writes it again"
            )


class _Progress:
    """Logs a line every few seconds, and touches the lock so that waiting processes see progress."""

    def __init__(self, total_bytes: int, folder: Path, log: Log, done: str, lock: WriteLock | None) -> None:
        self._total, self._folder, self._log, self._done, self._lock = total_bytes, folder, log, done, lock
        self._bytes, self._logged_at = 0, time.monotonic()

    def add(self, num_bytes: int) -> None:
        self._bytes += num_bytes
        if self._lock:
            self._lock.beat()
        if time.monotonic() - self._logged_at >= LOG_EVERY_S:
            self._logged_at = time.monotonic()
            self._log(f"{self._done}_gb={self._bytes / 1e9:.2f}/{self._total / 1e9:.2f} folder={self._folder}")


def _advice(layout: Layout, error: OSError) -> str:
    """An error message with its remedy."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(layout.root).free
            return (
                f"no space left for {layout.folder}: the data set takes {layout.num_bytes / 1e9:.2f} GB, "
                f"{free / 1e9:.2f} GB are free ({error}); fewer samples, or another folder"
            )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{layout.folder} cannot be written or read: {error}; change its permissions, or take another folder"
    return f"the data in {layout.folder} cannot be written or read: {error}"


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
