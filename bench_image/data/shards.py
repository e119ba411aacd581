"""Prepares a data set of shards on disk: verifies one that is there, or writes it, one writer at a time, over
processes, pods and hosts.

The manifest is the lock of the writers, empty until the shards are there. It only saves double work: all writers write
the same bytes and rename them into place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import shutil
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from pydantic import ValidationError

from bench_image.contract.parse import explain
from bench_image.data import page_cache
from bench_image.data.shard_layout import DataError, Layout, Manifest, describe

BLOCK_BYTES = 16_000_000
MANIFEST = "manifest.json"
LOG_EVERY_S = 3.0


def prepare(layout: Layout, *, local_rank: int, num_local_ranks: int) -> bool:
    """Makes sure that the data set is on disk and intact, and drops its pages from memory where the system allows it;
    whether it was written in this run.

    All ranks of a host call it. Each rank verifies its share of existing data; the first one writes missing data while
    the others wait. Raises DataError.
    """
    try:
        manifest = None
        with contextlib.suppress(DataError):  # it may be half written: it is read again under the lock
            manifest = complete(layout)
        if manifest:
            mine = range(local_rank, layout.num_shards, num_local_ranks)
            _verify(layout, manifest, mine, logs=local_rank == 0)
            return False
        layout.folder.mkdir(parents=True, exist_ok=True)
        with (layout.folder / MANIFEST).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # released however the writer ends
            if complete(layout) is None:
                _write(layout, file)
    except OSError as error:
        raise DataError(_advice(layout, error)) from error
    return True


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
    if not path.exists() or not (text := path.read_bytes()):
        return None
    try:
        manifest = Manifest.model_validate_json(text)
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


def _write(layout: Layout, manifest: TextIO) -> None:
    """Writes the shards that are missing or of the wrong size, then the manifest, which the caller has locked."""
    for leftover in layout.folder.glob(".shard_*"):  # of a writer that was killed
        leftover.unlink(missing_ok=True)
    known = read_manifest(layout)
    sizes = [layout.samples_of(index) * layout.sample_bytes for index in range(layout.num_shards)]
    keep = [known is not None and _size(layout.path(index)) == size for index, size in enumerate(sizes)]
    to_write = sum(size for size, kept in zip(sizes, keep, strict=True) if not kept)
    if to_write > (free := shutil.disk_usage(layout.folder).free):
        raise OSError(errno.ENOSPC, f"needs {to_write / 1e9:.2f} GB, {free / 1e9:.2f} GB are free")
    if known:  # shards that stay are verified, as in a run that has all of them
        _verify(layout, known, [index for index, kept in enumerate(keep) if kept])
    progress = _Progress("written", to_write, layout.folder)
    checksums = []
    for index, kept in enumerate(keep):
        if kept:
            assert known is not None
            checksums.append(known.shards[index].crc32)
        else:
            checksums.append(_write_shard(layout, index, progress))
    manifest.truncate(0)
    manifest.write(describe(layout, checksums).model_dump_json(indent=1))


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


def _verify(layout: Layout, manifest: Manifest, shards: Sequence[int], *, logs: bool = True) -> None:
    """Raises DataError for a shard whose CRC-32 is not that of the manifest."""
    total = sum(manifest.shards[index].num_bytes for index in shards)
    progress = _Progress("checked", total, layout.folder if logs else None)
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
    """Logs a line every few seconds. `folder` None: it does not."""

    def __init__(self, done: str, total_bytes: int, folder: Path | None) -> None:
        self._done, self._total, self._folder = done, total_bytes, folder
        self._bytes, self._logged_at = 0, time.monotonic()

    def add(self, num_bytes: int) -> None:
        self._bytes += num_bytes
        if self._folder and time.monotonic() - self._logged_at >= LOG_EVERY_S:
            self._logged_at = time.monotonic()
            done = f"data {self._done}_gb={self._bytes / 1e9:.2f}/{self._total / 1e9:.2f}"
            sys.stderr.write(f"{done} folder={self._folder}\n")


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
