"""The figure catalogue as a whole, and the two pages that are made from it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from trainbench.core.formats import listing
from trainbench.core.markdown import escape
from trainbench.figure_catalogue.figure import Figure
from trainbench.figure_catalogue.run_figures import RUN_FIGURES, SCALING_EFFICIENCY_PCT
from trainbench.figure_catalogue.table_figures import TABLE_FIGURES

_OF_A_RUN = (*RUN_FIGURES, SCALING_EFFICIENCY_PCT)
FIGURES = (*_OF_A_RUN, *TABLE_FIGURES)
HEAD = """\
# Figures

Each column and label of the reports that holds a figure: its unit and its formula. The first cell of a report's row
links to the raw result; of a row that stands for several runs, to the one with the median samples/s.
[internals/figures.md](internals/figures.md) has the column of metrics.csv, the field, the function and the test, and
the [figures of money](internals/figures.md#figures-of-money).

<!-- written from plugins/trainbench/figure_catalogue by pytest --golden -->

"""
TABLE = """\
| figure | unit | formula |
|---|---|---|
"""
ORIGINS_HEAD = """\
# Where each figure comes from

For each figure of [figures.md](../figures.md): its column of metrics.csv where it has one, the field that it is made
from, in `result.json` (schema: [run-result.v1.json](../../bench_image/contract/schemas/run-result.v1.json)) unless it
says otherwise, the function that computes it, and the test that computes it by hand. Written like that page; the tests
fail where a column, a function or a test does not exist.

| figure | metrics.csv | field | function | test |
|---|---|---|---|---|
"""


def document() -> str:
    """docs/figures.md. Neighbours of one formula share a row."""
    return HEAD + _formulas(of_money=False)


def origins() -> str:
    """docs/internals/figures.md: all of them, and the formulas of money, which cost.md beside it explains."""
    rows = []
    for alike in _rows():
        columns = listing((f"`{each.csv or each.name}`" for each in alike if each in _OF_A_RUN), most=20)
        fields = ", ".join(dict.fromkeys(escape(each.field) for each in alike))
        origin = f"`{alike[0].source}` | `{alike[0].test}`"
        rows.append(f"| {_labels(alike)} | {columns} | {fields} | {origin} |\n")
    return "".join([ORIGINS_HEAD, *rows, "\n## Figures of money\n", _formulas(of_money=True)])


def _formulas(*, of_money: bool) -> str:
    """A price, a cost, or what follows from them."""
    return TABLE + "".join(
        f"| {_labels(alike)} | {escape(alike[0].unit)} | {escape(alike[0].formula)} |\n"
        for alike in _rows()
        if alike[0].source.startswith(("trainbench.cost.", "trainbench.prices.")) is of_money
    )


def _rows() -> Iterator[tuple[Figure, ...]]:
    for _, alike in groupby(FIGURES, key=lambda each: (each.unit, each.formula, each.source, each.test)):
        yield tuple(alike)


def _labels(alike: tuple[Figure, ...]) -> str:
    return listing((escape(name) for each in alike for name in (each.label, *each.also)), most=20)
