"""The one table: columns that know how to write a row, cells with value and text, rows with a tone.

The terminal, Markdown, HTML, CSV and the pages all render this `Table`. Nothing in it is escaped yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from operator import itemgetter
from typing import Any, Generic, TypeVar

from bench_image.contract.result import RunResult
from bench_image.contract.spec import Identity
from trainbench.core.csv_cells import Cell as CsvCell
from trainbench.core.csv_cells import lines
from trainbench.core.formats import NA, figure


class Tone(StrEnum):
    """How a row or cell is coloured; never the only carrier of a meaning."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    PLAIN = "plain"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """`text` for people, `value` for CSV: full precision, None for an unknown number. Links and bars are for pages."""

    text: str
    value: CsvCell = None
    at: datetime | None = None
    href: str | None = None
    in_airflow: bool = False  # the link leaves our frame
    tone: Tone = Tone.PLAIN
    bar: float | None = None  # percent of the column's largest


Content = Cell | str | float | None  # of one cell: a number is written by its column
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, slots=True)
class Column(Generic[R]):
    """`of` takes a row's object to the cell's content. `unit` and `field` come from the figure catalogue."""

    name: str
    of: Callable[[R], Content]
    write: Callable[[Any], str] = str
    is_number: bool = False
    key: str = ""  # heading in the CSV; the name with underscores where empty
    unit: str | None = None
    field: str | None = None  # where the figure lies in result.json or another file
    has_bar: bool = False  # bars compare the numbers of this column
    is_long: bool = False  # sentences: the cell may break

    def cell(self, row: R) -> Cell:
        content = self.of(row)
        if isinstance(content, Cell):
            return content
        return text_cell(content) if isinstance(content, str) else Cell(text=self.write(content), value=content)


def text_cell(text: str, **more: Any) -> Cell:
    """A cell whose CSV value is its text."""
    return Cell(text=text, value=text, **more)


def text(name: str, of: Callable[[R], Content], **more: Any) -> Column[R]:
    """A column of words."""
    return Column(name=name, of=of, **more)


def number(name: str, of: Callable[[R], Content], write: Callable[[Any], str] = figure, **more: Any) -> Column[R]:
    """A column of numbers that `write` turns into text."""
    return Column(name=name, of=of, write=write, is_number=True, **more)


def integer(name: str, of: Callable[[R], Content], **more: Any) -> Column[R]:
    """A column of whole numbers."""
    return number(name, of, lambda value: NA if value is None else f"{value:,}", **more)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    cells: tuple[Cell, ...]
    tone: Tone = Tone.PLAIN
    run_id: str | None = None  # the first cell may link to this run's result

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(cell.text for cell in self.cells)


def text_row(*texts: str, tone: Tone = Tone.PLAIN, run_id: str | None = None) -> Row:
    return Row(cells=tuple(map(text_cell, texts)), tone=tone, run_id=run_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """`notes` stand below; `name` is its name in addresses; `empty` is what a page says when there is no row."""

    columns: tuple[Column[Any], ...]
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    title: str = ""
    name: str = ""
    empty: str = "Nothing to show."

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def make_table(
    rows: Iterable[R],
    columns: Sequence[Column[R]],
    *,
    tone: Callable[[R], Tone] = lambda _: Tone.PLAIN,
    run_id: Callable[[R], str | None] = lambda _: None,
    more: Sequence[Row] = (),
    **about: Any,
) -> Table:
    """One row for each object, then those of `more`, filled up with empty cells. `about`: title, notes, name, empty."""
    made = tuple(
        Row(cells=tuple(column.cell(row) for column in columns), tone=tone(row), run_id=run_id(row)) for row in rows
    )
    for place, column in enumerate(columns):
        if column.has_bar:
            made = tuple(_with_bars(made, place))
    empty = text_cell("")
    filled = (replace(row, cells=(*row.cells, *[empty] * (len(columns) - len(row.cells)))) for row in more)
    return Table(columns=tuple(columns), rows=(*made, *filled), **about)


def text_columns(*names: str, numbers: Iterable[str] = (), long: str = "") -> tuple[Column[Sequence[str]], ...]:
    """The columns of rows that are texts already; those in `numbers` stand flush right, the `long` one may break."""
    return tuple(
        text(name, itemgetter(place), is_number=name in numbers, is_long=name == long)
        for place, name in enumerate(names)
    )


def _with_bars(rows: Sequence[Row], place: int) -> Iterable[Row]:
    """Bars that compare the numbers of one column: percent of the largest."""
    values = [row.cells[place].value for row in rows]
    largest = max((value for value in values if isinstance(value, int | float)), default=0.0)
    for row, value in zip(rows, values, strict=True):
        is_known = isinstance(value, int | float) and largest > 0
        bar = round(100 * float(value) / largest, 1) if is_known else None  # type: ignore[arg-type]
        cells = list(row.cells)
        cells[place] = replace(cells[place], bar=bar)
        yield replace(row, cells=tuple(cells))


def csv_text(content: Table) -> str:
    header = [column.key or column.name.replace(" ", "_") for column in content.columns]
    return lines([header, *([cell.value for cell in row.cells] for row in content.rows)])


def only(content: Table, names: Iterable[str]) -> Table:
    """The table with these columns only, in its own order."""
    wanted = set(names)
    kept = [place for place, name in enumerate(content.names) if name in wanted]
    rows = tuple(replace(row, cells=tuple(row.cells[place] for place in kept)) for row in content.rows)
    return replace(content, columns=tuple(content.columns[place] for place in kept), rows=rows)


# A summary lies in summary/, the results beside that folder.
RESULT_LINK = "../runs/{run_id}/result.json"
LOG_LINK = "../runs/{run_id}/{name}"
MAX_ROWS = 200  # nobody reads on; a page of 100,000 rows cannot even be opened
_FIRST = {Tone.BAD: 0, Tone.WARN: 1}


def shortened(content: Table, where: str = "the files of data beside this one have", most: int = MAX_ROWS) -> Table:
    """At most so many rows, marked rows first; a note says how many more there are. `where`: "--json has"."""
    left_out = len(content.rows) - most
    if left_out <= 0:
        return content
    rows = sorted(content.rows, key=lambda row: _FIRST.get(row.tone, 2))
    num_marked = sum(row.tone in _FIRST for row in rows[most:])
    marked = f", {num_marked:,} of them marked" if num_marked else ""
    note = f"And {left_out:,} more rows{marked}: {where} all of them."
    return replace(content, rows=tuple(rows[:most]), notes=(note, *content.notes))


def median_run(results: Iterable[RunResult]) -> str | None:
    """The run to show for a row that stands for several."""
    return middle_run((run.spec.identity.run_id, run.performance.samples_per_second) for run in results)


def middle_run(rates: Iterable[tuple[str, float | None]]) -> str | None:
    """The run with the median samples/s, of two the lower; the first run where none was measured."""
    runs = list(rates)
    measured = sorted((rate, run_id) for run_id, rate in runs if rate)
    if measured:
        return measured[(len(measured) - 1) // 2][1]
    return runs[0][0] if runs else None


def short_names(results: Sequence[RunResult], labels: Mapping[str, str] | None = None) -> dict[str, str]:
    """Run id -> the name of its row: with the label of its group where each has one (group id -> label); without the
    group when all runs are of one group, else without the fingerprint that ends it, where the names still differ.
    """
    runs = [result.spec.identity for result in results]
    if labels and all(run.group_id in labels for run in runs):
        return {run.run_id: f"{labels[run.group_id]}, {run.run_id.removeprefix(f'{run.group_id}-')}" for run in runs}
    if len({run.group_id for run in runs}) == 1:
        return {run.run_id: run.run_id.removeprefix(f"{run.group_id}-") for run in runs}
    readable = {group_id: re.sub(r"-[0-9a-f]{12}$", "", group_id) for group_id in {run.group_id for run in runs}}
    short = {run.run_id: _without_fingerprint(run, readable[run.group_id]) for run in runs}
    return short if len(set(short.values())) == len(short) else {run_id: run_id for run_id in short}


def _without_fingerprint(run: Identity, readable: str) -> str:
    """`readable`: the group's id without the fingerprint that ends it."""
    is_named_so = run.run_id.startswith(f"{run.group_id}-")
    return readable + run.run_id.removeprefix(run.group_id) if is_named_so else run.run_id
