"""Rows with the same names hold only their values: of 100,000 runs a dict for each would take 600 MB. On the disk they
take no memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from sys import intern
from tempfile import TemporaryFile
from typing import Any


class CompactRow(Mapping[str, Any]):
    """A read-only mapping; its names are shared with all rows that have the same ones, and so are equal texts."""

    __slots__ = ("_places", "_values")

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._places = _places(tuple(row))
        self._values = tuple(intern(value) if type(value) is str else value for value in row.values())

    def __getitem__(self, name: str) -> Any:
        return self._values[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._values)


class RowsOnDisk:
    """Rows in a temporary file of this process, read in their order as often as needed."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._file, self._num_rows = TemporaryFile(), 0  # noqa: SIM115 - closed with the rows
        for row in rows:
            pickle.dump(dict(row), self._file)
            self._num_rows += 1

    def __iter__(self) -> Iterator[CompactRow]:
        at = self._file.seek(0)
        for _ in range(self._num_rows):
            self._file.seek(at)  # another reader may have moved it
            row = pickle.load(self._file)  # noqa: S301 - written by this process, and no other can open it
            at = self._file.tell()
            yield CompactRow(row)


@lru_cache(maxsize=100)
def _places(names: tuple[str, ...]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}
