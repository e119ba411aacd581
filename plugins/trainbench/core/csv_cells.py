"""Values as cells of a CSV file. An unknown number is an empty cell."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from functools import lru_cache

from trainbench.core.formats import visible

Cell = str | int | float | bool | None
# A spreadsheet runs a cell that begins with one of these as a formula. Where the decimal sign is a comma, it takes a
# semicolon for the end of a cell.
_FORMULA_START = re.compile(r"(^|;)(\s*)(?=[=+\-@])")


def cell(value: Cell) -> str:
    """One cell: numbers in full precision; an apostrophe before text that a spreadsheet would run as a formula."""
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else repr(value)


@lru_cache(maxsize=10_000)  # names, days and states come again in a million rows
def _text(value: str) -> str:
    return _FORMULA_START.sub(r"\1'\2", visible(value))


def lines(rows: Iterable[Iterable[Cell]]) -> str:
    """The rows as CSV text, one line each."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()
