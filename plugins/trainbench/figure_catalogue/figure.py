"""A figure: its name, unit, place in the result, formula, the function that computes it and the test by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from bench_image.contract.result import RunResult
from trainbench.core.formats import figure
from trainbench.core.tables import Column, Content

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Figure:
    """One entry of the catalogue. A figure of a run is read from its result at the path `field`, or by `of`.

    `also`: other headings of the same figure, '*' for any text. `read`: one sentence for "How to read this" in reports.
    """

    name: str  # ends in its unit; the column of metrics.csv
    label: str  # heading in tables
    unit: str
    field: str  # in result.json unless it names another file
    formula: str
    source: str  # dotted path of the function
    test: str  # file::function, the case computed by hand
    write: Callable[[float | None], str] = figure
    also: tuple[str, ...] = ()
    read: str | None = None
    section: str | None = None  # of the report and the run's page: a table with one row for each run
    csv: str | None = None  # column of metrics.csv, where it is not `name`
    stored: str | None = None  # column of the history's table of runs
    of: Callable[[Any], float | None] | None = None

    def value(self, result: Any) -> float | None:
        """Of one run's result; of a cost for figures of costs."""
        return self.of(result) if self.of else _at(result, self.field)

    def column(self, of: Callable[[R], Content], label: str | None = None, **more: Any) -> Column[R]:
        """A column of any table that shows this figure. `label`: the heading, one of `also` or with its own text."""
        about: dict[str, Any] = {"write": self.write, "is_number": True, **more}
        return Column(name=label or self.label, of=of, unit=self.unit, field=self.field, **about)

    def names(self, heading: str) -> bool:
        """Whether a column with this heading shows the figure. Brackets are no wildcards."""
        return any(fnmatchcase(heading, name.replace("[", "[[]")) for name in (self.label, *self.also))


def _at(value: Any, path: str) -> Any:
    """The value at a dotted path; None where a section on the way is missing."""
    for name in path.split("."):
        if value is None:
            return None
        value = getattr(value, name)
    return value


def reason(result: RunResult, path: str) -> str:
    """Why the number at the dotted `path` is missing, as the result itself says."""
    parts = path.split(".")
    prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((result.missing[p] for p in prefixes if p in result.missing), "not reported")
