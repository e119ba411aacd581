"""Files of a store on a local disk. Below its root no link is followed, and only regular files are read.

Pods, users and archives write into a store, so a name in it may be a link to any file of this machine, or an endless
FIFO. Each folder of a path is opened relative to its parent.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_DRAFT = re.compile(r"^(.*/)?\.([^/]+)\.[0-9a-f]{8}\.tmp$")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def open_regular(path: Path, root: Path | None = None) -> BinaryIO:
    """Open for reading. `root`: the folder below which no link is followed; None for a file that a person named, whose
    links are that person's. Raises OSError: ELOOP or ENOTDIR for a link, EINVAL for what is not a regular file.
    """
    if root is None:
        return _regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK), path)
    with _folder(root, path.parent) as folder:
        return _regular(os.open(path.name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder), path)


def open_lock(path: Path) -> BinaryIO:
    """Open a lock's file, which is made if need be and never written. Raises OSError as `open_regular` does."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    return _regular(os.open(path, flags, 0o666), path)


def write_file(path: Path, content: Iterable[bytes], root: Path) -> None:
    """Write `path` below `root`, with its folders; a reader sees the old content or the new, never half."""
    root.mkdir(parents=True, exist_ok=True)
    with _folder(root, path.parent, create=True) as folder:
        draft = draft_name(path.name)
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(content)
                file.flush()
                os.fsync(file.fileno())  # otherwise a crash may leave an empty file under the new name
            os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)


def draft_name(name: str) -> str:
    """Name of the file that is written before it is renamed to `name`; a killed writer leaves it."""
    return f".{name}.{secrets.token_hex(4)}.tmp"


def final_name(name: str) -> str:
    """The final name of a draft; `name` itself where it is no draft."""
    return _DRAFT.sub(r"\1\2", name)


def sizes_and_times(folder: Path) -> dict[str, os.stat_result]:
    """Relative name -> status of every file below `folder`, of a link its own. No link is followed."""
    return {
        str(Path(place, name).relative_to(folder)): Path(place, name).lstat()
        for place, folders, files in os.walk(folder)
        for name in (*files, *(each for each in folders if Path(place, each).is_symlink()))
    }


def delete_tree(path: Path, root: Path) -> None:
    """Delete the folder `path` below `root`, and all in it; links in it are deleted, never followed."""
    with _folder(root, path.parent) as folder:
        shutil.rmtree(path.name, dir_fd=folder)


def _regular(descriptor: int, path: Path) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
    return os.fdopen(descriptor, "rb")


@contextmanager
def _folder(root: Path, folder: Path, *, create: bool = False) -> Iterator[int]:
    """A descriptor of `folder`, which is `root` or lies below it. `root` itself may be a link, as its owner set it."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in folder.relative_to(root).parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
            inner = os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)
