"""Reads and writes files of a store, with errors that name the file, the cause and the remedy. Reads all results below
a folder, and joins the rank files of unfinished gangs.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import parse_result
from bench_image.contract.pod_io import MAX_RESULT_BYTES, RESULT_FILE
from bench_image.contract.result import RunResult
from trainbench.core.user_error import UserError
from trainbench.pods.gangs import combine_ranks
from trainbench.results.collect import collect

if TYPE_CHECKING:
    from upath import UPath


STORE_ENV = "TRAINBENCH_STORE"
CLIENTS = frozenset({"botocore", "gcsfs", "google"})  # of object stores, with errors that are no OSError
LOCAL_PROTOCOLS = frozenset({"", "file", "local"})
DRAFT = re.compile(r"^(.*/)?\.([^/]+)\.[0-9a-f]{8}\.tmp$")  # of a file that is being written; a killed writer leaves it


class StoreError(UserError, RuntimeError):
    """The store cannot be read or written; the message has the address, the cause and the remedy."""


class FileMissing(StoreError):
    """The store answers, and the file is not there."""


class FileUnusable(StoreError):
    """The store answers, and the file is none of ours: too large, a link, no regular file."""


def address(path: UPath) -> str:
    """The address of a file for people: an absolute path, or a URL."""
    return path.path if is_local(path) else str(path)


def is_folder(name: str) -> bool:
    """Whether a person named a folder; False for an empty name, and for one that no file system takes."""
    with suppress(OSError):
        return bool(name) and Path(name).is_dir()
    return False


def is_file(name: str) -> bool:
    """Whether a person named a file; False for a name that no file system takes."""
    with suppress(OSError):
        return Path(name).is_file()
    return False


def is_local(path: UPath) -> bool:
    return path.protocol in LOCAL_PROTOCOLS


def read_bounded(path: UPath, max_bytes: int, root: UPath | None = None) -> bytes:
    """The content of a regular file. `root`: the folder below which no link is followed; None for a file that a person
    named. Raises StoreError, also for more than `max_bytes`.
    """
    with as_store_errors(path, "read"), opened(path, root) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        content = file.read(min(size, max_bytes) + 1)  # a read allocates what it may return, so not always `max_bytes`
    if len(content) > max_bytes:
        raise FileUnusable(f"{address(path)} is larger than the {max_bytes} bytes allowed: it is not read")
    return content


def opened(path: UPath, root: UPath | None) -> BinaryIO:
    """Open a regular file for reading. `root`: as in `read_bounded`. Raises OSError: ELOOP for a link, EINVAL for what
    is no regular file, since pods, users and archives write into a store, and a name in it may be an endless FIFO.
    """
    if not is_local(path):
        return path.open("rb")  # an object store has neither links nor FIFOs
    if root is not None:
        refuse_links(path.parent, root)
    descriptor = os.open(path.path, os.O_RDONLY | os.O_NONBLOCK | (0 if root is None else os.O_NOFOLLOW))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path.path)
    return os.fdopen(descriptor, "rb")


def refuse_links(folder: UPath, root: UPath) -> None:
    """Raise OSError where a link leads to a local folder below `root`, which itself may be one: its owner set it."""
    below = Path(folder.path).relative_to(root.path)
    if Path(folder.path).resolve() != Path(root.path).resolve() / below:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder.path)


def write_file(path: UPath, content: bytes, root: UPath) -> None:
    """Write `path` below `root`, with its folders; a reader sees the old content or the new, never half. Raises
    StoreError.
    """
    with as_store_errors(path, "written"):
        if not is_local(path):  # one put of a whole file: object stores show an object only when it is complete
            path.fs.pipe_file(path.path, content)
            return
        folder = Path(path.path).parent
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links(path.parent, root)
        draft = folder / f".{path.name}.{secrets.token_hex(4)}.tmp"
        try:
            with draft.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # otherwise a crash may leave an empty file under the new name
            draft.replace(path.path)
        finally:
            draft.unlink(missing_ok=True)


_LINK = "a link, or a file in place of a folder: links in a store are not followed; put the real file there"
REASONS = {
    errno.ENOSPC: f"the disk is full: free space, or set {STORE_ENV} to another place",
    errno.EDQUOT: f"the disk quota is used up: free space, or set {STORE_ENV} to another place",
    errno.EROFS: f"the file system is read-only: set {STORE_ENV} to a place that can be written",
    errno.EACCES: f"permission denied: set {STORE_ENV} to a place that this user may use",
    errno.EPERM: f"permission denied: set {STORE_ENV} to a place that this user may use",
    errno.EBUSY: "the object store is busy or away (503): try again, or clear the task when it answers",
    errno.EINVAL: "it is no regular file: move it away",
    errno.ELOOP: _LINK,
    errno.ENOTDIR: _LINK,
    errno.ENOENT: f"it does not exist: check the id, and that {STORE_ENV} is the store that was written to",
}


@contextmanager
def as_store_errors(path: UPath, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # PermissionError and FileNotFoundError of object stores come without a number
        number = error.errno or {PermissionError: errno.EACCES, FileNotFoundError: errno.ENOENT}.get(type(error), 0)
        reason = REASONS.get(number, str(error))
        kinds = {errno.ENOENT: FileMissing, errno.EINVAL: FileUnusable, errno.ELOOP: FileUnusable}
        raise kinds.get(number, StoreError)(f"{address(path)} cannot be {done}: {reason}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in CLIENTS:
            raise
        reason = f"{str(error).rstrip('.')}: check {STORE_ENV}, its credentials and the network"
        raise StoreError(f"{address(path)} cannot be {done}: {reason}") from None


RANK_FILE = re.compile(r"rank-[0-9]{1,6}\.json")
Progress = Callable[[int, int], None]  # (files read, files in all)


def no_progress(_: int, __: int) -> None:
    pass


@dataclass(frozen=True)
class BrokenFile:
    """A stored result that cannot be read, with the reason. It is reported, and the others are read."""

    address: str
    reason: str


@dataclass(frozen=True)
class StoredResults:
    results: tuple[RunResult, ...]
    broken: tuple[BrokenFile, ...]

    def readable(self, source: str) -> tuple[RunResult, ...]:
        """The results. Raises StoreError where there are none. `source`: what was read, for the message."""
        if not self.results:
            reasons = "; ".join(f"{file.address}: {file.reason}" for file in self.broken[:3])
            raise StoreError(f"'{source}' holds no readable result.json{': ' if reasons else ''}{reasons}")
        return self.results


def read_results(folder: UPath, progress: Progress = no_progress, root: UPath | None = None) -> StoredResults:
    """All `result.json` files at any depth below `folder`, ordered by path, then one result for each gang of which only
    the ranks' files are there: a rank without a result makes its run a failed one. `progress` is called after each.
    `root`: of the store that `folder` belongs to; below it, or below `folder`, no link is followed.
    """
    broken: list[BrokenFile] = []

    def read(path: UPath) -> RunResult | None:
        try:
            return parse_result(read_bounded(path, MAX_RESULT_BYTES, folder if root is None else root))
        except (ContractError, StoreError) as error:
            broken.append(BrokenFile(address(path), str(error)))
            return None

    with as_store_errors(folder, "read"):
        files = sorted(folder.rglob("*.json"), key=str) if folder.is_dir() else []
    results: list[RunResult] = []
    paths = [path for path in files if path.name == RESULT_FILE]
    for number, path in enumerate(paths, 1):
        if result := read(path):
            results.append(result)
        progress(number, len(paths))
    done = {str(path.parent) for path in paths}
    ranks: dict[str, dict[int, RunResult]] = {}
    for path in files:
        is_alone = RANK_FILE.fullmatch(path.name) and str(path.parent) not in done
        if is_alone and (result := read(path)):
            ranks.setdefault(str(path.parent), {})[int(path.stem.removeprefix("rank-"))] = result
    return StoredResults((*results, *(_joined(of_run) for _, of_run in sorted(ranks.items()))), tuple(broken))


def rank_file(rank: int) -> str:
    return f"rank-{rank}.json"


def latest_try(by_rank: Mapping[int, RunResult]) -> Mapping[int, RunResult]:
    """The ranks of the latest try: those that still ran when the last one began."""
    began = max(result.started_at for result in by_rank.values())
    return {rank: result for rank, result in by_rank.items() if result.finished_at >= began}


def _joined(by_rank: Mapping[int, RunResult]) -> RunResult:
    by_rank = latest_try(by_rank)
    results = tuple(by_rank.values())
    spec = results[0].spec
    payloads = [by_rank[rank].model_dump_json() if rank in by_rank else None for rank in range(spec.placement.nodes)]
    at = max(result.finished_at for result in results)
    return combine_ranks(spec, collect((spec,) * spec.placement.nodes, payloads, at))
