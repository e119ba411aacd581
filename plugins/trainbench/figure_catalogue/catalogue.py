"""The figure catalogue as a whole, and docs/figures.md, which is made from it."""

from __future__ import annotations

from itertools import groupby

from trainbench.core.formats import listing
from trainbench.core.markdown import escape
from trainbench.figure_catalogue.figure import Figure
from trainbench.figure_catalogue.run_figures import COST_FIGURES, RUN_FIGURES, SCALING_EFFICIENCY_PCT
from trainbench.figure_catalogue.table_figures import TABLE_FIGURES

_OF_A_RUN = (*RUN_FIGURES, *COST_FIGURES, SCALING_EFFICIENCY_PCT)
FIGURES = (*_OF_A_RUN, *TABLE_FIGURES)
HEAD = """\
# Where each figure comes from

Each column and label of the reports that holds a figure: the field that it is made from, in `result.json` (schema:
[run-result.v1.json](../bench_image/contract/schemas/run-result.v1.json)) unless it says otherwise, the formula, its
column of metrics.csv where it has one, the function that computes it, and the test that computes it by hand. The first
cell of a report's row links to the raw result; of a row that stands for several runs, to the one with the median
samples/s. `report.json` is the report for programs.

This page is written from `plugins/trainbench/figure_catalogue/` by
`pytest --golden tests/unit/figure_catalogue/test_catalogue.py`; the tests fail where a column, a function or a test
does not exist.

| figure | unit | field | formula | metrics.csv | function | test |
|---|---|---|---|---|---|---|
"""


def document() -> str:
    """docs/figures.md. Neighbours of one formula share a row."""
    alike = groupby(FIGURES, key=lambda each: (each.unit, each.formula, each.source, each.test))
    return HEAD + "".join(_row(tuple(figures)) for _, figures in alike)


def _row(figures: tuple[Figure, ...]) -> str:
    first = figures[0]
    labels = listing((escape(name) for each in figures for name in (each.label, *each.also)), most=20)
    fields = ", ".join(dict.fromkeys(escape(each.field) for each in figures))
    columns = listing((f"`{each.csv or each.name}`" for each in figures if each in _OF_A_RUN), most=20)
    return (
        f"| {labels} | {escape(first.unit)} | {fields} | {escape(first.formula)} | "
        f"{'' if columns == 'none' else columns} | `{first.source}` | `{first.test}` |\n"
    )
