"""Reads a text file that a person named: a regular one, up to a size. A FIFO would be waited for without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def outside_text(path: Path, max_bytes: int) -> str:
    """The UTF-8 text of the file, without a byte order mark. Raises OSError, and ValueError for too large a file and
    for one that is no UTF-8.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it is larger than the {max_bytes:,} bytes allowed")
    return content.decode("utf-8-sig")
