"""Every figure of every report: its field, unit, formula, function and test. docs/figures.md shows them."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from pydantic import Field

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import listing
from trainbench.core.markdown import escape

FIGURES_FILE = Path(__file__).with_name("figures.toml")
HEAD = """\
# Where each figure comes from

Each column and label of the reports that holds a figure: the field that it is made from, in `result.json` (schema:
[run-result.v2.json](../bench_image/contract/schemas/run-result.v2.json)) unless it says otherwise, the formula, the
function that computes it, and the test that computes it by hand. The first cell of a report's row links to the raw
result; of a row that stands for several runs, to the one with the median samples/s. `report.json` is the report for
programs.

This page is written from `plugins/trainbench/reporting/figures.toml` by
`pytest --golden tests/unit/reporting/test_figures.py`; the tests fail where a column, a function or a test does not
exist.

| figure | unit | field | formula | function | test |
|---|---|---|---|---|---|
"""


class Figure(Frozen):
    """`names`: column headings or labels, '*' for anything. `where`: file:function; `test`: file::function."""

    names: tuple[str, ...] = Field(min_length=1)
    unit: str
    field: str
    formula: str
    where: str
    test: str
    read: str | None = None  # for "How to read this"; None: the name says it


class Figures(Frozen):
    figure: tuple[Figure, ...]
    label: tuple[_Labels, ...]

    def of(self, column: str) -> Figure | None:
        """The figure that a column shows; None for a label."""
        return next((figure for figure in self.figure if _fits(column, figure.names)), None)

    def is_label(self, column: str) -> bool:
        return any(_fits(column, labels.names) for labels in self.label)


class _Labels(Frozen):
    names: tuple[str, ...]


@cache
def load_figures() -> Figures:
    return Figures.model_validate(tomllib.loads(FIGURES_FILE.read_text(encoding="utf-8")))


def document() -> str:
    """docs/figures.md."""
    rows = [
        f"| {listing(map(escape, figure.names), most=20)} | {escape(figure.unit)} | {escape(figure.field)} | "
        f"{escape(figure.formula)} | `{figure.where}` | `{figure.test}` |\n"
        for figure in load_figures().figure
    ]
    return HEAD + "".join(rows)


def _fits(column: str, names: tuple[str, ...]) -> bool:
    """An exact name wins over one with '*' by standing first; brackets are no wildcards."""
    return any(fnmatchcase(column, name.replace("[", "[[]")) for name in names)
