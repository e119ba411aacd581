"""A figure: its name, unit, place in the result, formula, the function that computes it and the test by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeVar

from bench_image.contract.result import RunResult
from trainbench.core.formats import figure
from trainbench.core.known_values import known_median, known_sum
from trainbench.core.tables import Column, Content

R = TypeVar("R")


class FigureRow(Protocol):
    """A row of a table that knows its figures."""

    def figure(self, figure: Figure) -> float | None: ...


@dataclass(frozen=True, slots=True, eq=False)
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
    section: str | None = None  # title of its table in the report and on the run's page
    csv: str | None = None  # column of metrics.csv, where it is not `name`
    # Column `name` of the history's tables: of each run, and of each work their median, or the sum of what is known.
    stored: Literal["median", "sum"] | None = None
    of: Callable[[Any], float | None] | None = None
    over: Callable[[Iterable[float | None]], float | None] | None = None  # one value for all that `*` in `field` names

    def value(self, result: Any) -> float | None:
        """The figure's value in a run's result, or its scaling efficiency."""
        if self.over:
            path, _, name = self.field.partition(".*.")
            return self.over(_at(each, name) for each in _at(result, path))
        return self.of(result) if self.of else _at(result, self.field)

    def combined(self, values: Iterable[float | None]) -> float | None:
        """One value for several runs or works; None where none is known."""
        return known_sum(values) if self.stored == "sum" else known_median(values)

    def column(self, of: Callable[[R], Content], label: str | None = None, **more: Any) -> Column[R]:
        """A column of any table that shows this figure. `label`: the heading, one of `also` or with its own text."""
        about: dict[str, Any] = {"write": self.write, "is_number": True, **more}
        return Column(name=label or self.label, of=of, unit=self.unit, field=self.field, **about)

    def own(
        self, label: str | None = None, row: Callable[[Any], FigureRow] = lambda row: row, **more: Any
    ) -> Column[Any]:
        """The column of a table whose rows know their figures. `row`: from the table's row to the one that does."""
        return self.column(lambda each: row(each).figure(self), label, **more)

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
