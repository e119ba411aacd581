"""Rows with the same names hold only their values: of 100,000 runs a dict for each would take 600 MB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any


class CompactRow(Mapping[str, Any]):
    """A read-only mapping; its names are shared with all rows that have the same ones."""

    __slots__ = ("_places", "_values")

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._places = _places(tuple(row))
        self._values = tuple(row.values())

    def __getitem__(self, name: str) -> Any:
        return self._values[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._values)


@lru_cache(maxsize=100)
def _places(names: tuple[str, ...]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}
