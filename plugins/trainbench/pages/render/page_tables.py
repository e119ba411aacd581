"""The tables of the pages as values, so that one definition makes the HTML and the CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainbench.core.csv_cells import Cell as CsvCell
from trainbench.core.csv_cells import lines
from trainbench.core.tables import Tone


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """`text` for people, `value` for the CSV (the text, where it is None and `exact` is not set)."""

    text: str
    value: CsvCell = None
    exact: bool = False  # `value` is what the CSV gets, also when it is None: an unknown number is an empty cell
    at: datetime | None = None
    href: str | None = None
    in_airflow: bool = False  # the link leaves our frame
    tone: Tone = Tone.PLAIN
    bar: float | None = None  # percent of the column's largest


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    name: str
    numeric: bool = False
    key: str = ""  # of the CSV; the name with underscores where empty
    href: str | None = None  # sorts by this column
    is_long: bool = False  # sentences: the cell may break
    order: str | None = None  # ascending or descending, where the table is sorted by it


@dataclass(frozen=True, kw_only=True, slots=True)
class PageTable:
    """`name` is its name in addresses."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    empty: str = "Nothing to show."


def number(value: float | None, text: str, **more: object) -> Cell:
    return Cell(text=text, value=value, exact=True, **more)  # type: ignore[arg-type]  # fields of Cell


def moment(at: datetime | None, **more: object) -> Cell:
    """To the minute, in UTC."""
    if at is None:
        return Cell(text="", **more)  # type: ignore[arg-type]
    return Cell(text=f"{at:%Y-%m-%d %H:%M}", value=at.isoformat(), at=at, **more)  # type: ignore[arg-type]


WHEN = Column(name="when (UTC)", key="when")


def csv(table: PageTable) -> str:
    return lines([[column.key or column.name.replace(" ", "_") for column in table.columns], *_values(table.rows)])


def with_bars(cells: Sequence[Cell]) -> Iterator[Cell]:
    """Numbers of one column with bars that compare them."""
    largest = max((cell.value for cell in cells if isinstance(cell.value, int | float)), default=0.0)
    for cell in cells:
        known = isinstance(cell.value, int | float) and largest > 0
        yield Cell(
            text=cell.text,
            value=cell.value,
            exact=True,
            bar=round(100 * float(cell.value) / largest, 1) if known else None,  # type: ignore[arg-type]
        )


def _values(rows: Iterable[Sequence[Cell]]) -> Iterator[list[CsvCell]]:
    for row in rows:
        yield [cell.value if cell.exact or cell.value is not None else cell.text for cell in row]
