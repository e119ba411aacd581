"""Reads one file of a store up to a size, with errors that name the file, the cause and the remedy."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from trainbench.core.user_error import UserError
from trainbench.results import local_files

if TYPE_CHECKING:
    from upath import UPath

STORE_ENV = "TRAINBENCH_STORE"
CLIENTS = frozenset({"botocore", "gcsfs", "google"})  # of object stores, with errors that are no OSError
LOCAL_PROTOCOLS = frozenset({"", "file", "local"})


class StoreError(UserError, RuntimeError):
    """The store cannot be read or written; the message has the address, the cause and the remedy."""


class FileMissing(StoreError):
    """The store answers, and the file is not there."""


class FileUnusable(StoreError):
    """The store answers, and the file is none of ours: too large, a link, no regular file."""


def address(path: UPath) -> str:
    """The address of a file for people: an absolute path, or a URL."""
    return path.path if path.protocol in LOCAL_PROTOCOLS else str(path)


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


def read_bounded(path: UPath, max_bytes: int, root: UPath | None = None) -> bytes:
    """The content of a regular file. `root`: the folder below which no link is followed; None for a file that a person
    named. Raises StoreError, also for more than `max_bytes`.
    """
    with as_store_errors(path, "read"), opened(path, root) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise too_large(path, max_bytes)
    return content


def too_large(path: UPath, max_bytes: int) -> StoreError:
    return FileUnusable(f"{address(path)} is larger than the {max_bytes} bytes allowed: it is not read")


def opened(path: UPath, root: UPath | None) -> BinaryIO:
    if path.protocol in LOCAL_PROTOCOLS:
        return local_files.open_regular(Path(path.path), Path(root.path) if root is not None else None)
    return path.open("rb")  # an object store has neither links nor FIFOs


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
