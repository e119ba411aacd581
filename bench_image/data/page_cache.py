"""The page cache: drops and counts the cached pages of files, so that reads come from the disk."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


def drop(path: Path) -> None:
    """Asks the system to drop the file's pages from memory. A file system in memory cannot."""
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def resident_pct(paths: Iterable[Path]) -> float | None:
    """Percent of the files' pages that are cached now; None where the system does not report it."""
    if sys.platform != "linux":
        return None
    pages = resident = 0
    for path in paths:
        if not os.access(path, os.W_OK):  # for a file that the caller cannot write the kernel reports all pages
            return None
        states = _page_states(path)
        if states is None:
            return None
        pages, resident = pages + len(states), resident + int(states.sum())
    return 100 * resident / pages


def _page_states(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """1 for each page in memory, 0 for the others. mincore does not load pages. None if it fails."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        states = np.zeros(-(-len(view) // mmap.PAGESIZE), np.uint8)
        first = ctypes.c_char.from_buffer(view)  # requires a writable mapping, hence ACCESS_COPY
        try:
            address, length = ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(len(view))
            failed = ctypes.CDLL(None).mincore(address, length, ctypes.c_void_p(states.ctypes.data))
        finally:
            del first  # else the mapping cannot be closed
    return None if failed else states & np.uint8(1)
