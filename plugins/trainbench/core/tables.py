"""A table before it is Markdown, HTML or terminal text: plain words, nothing escaped yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from trainbench.core.formats import NA


class Tone(StrEnum):
    """How a row wants to be read; never the only carrier of a meaning."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    PLAIN = "plain"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    cells: tuple[str, ...]
    tone: Tone = Tone.PLAIN
    run_id: str | None = None  # the first cell may link to this run's result


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """`numeric` names the columns to set flush right; `notes` stand below."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    numeric: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Measure:
    """One column of a table of runs: where the number is, how it is written, and the path that explains its absence."""

    name: str
    value: Callable[[RunResult], float | None]
    text: Callable[[float | None], str]
    path: str


# A summary lies in summary/, the results beside that folder.
RESULT_LINK = "../runs/{run_id}/result.json"
MAX_ROWS = 200  # nobody reads on; a page of 100,000 rows cannot even be opened
_FIRST = {Tone.BAD: 0, Tone.WARN: 1}


def shortened(content: Table, most: int = MAX_ROWS) -> Table:
    """At most so many rows, those to look at first; a note tells how many more there are, and where."""
    left_out = len(content.rows) - most
    if left_out <= 0:
        return content
    rows = sorted(content.rows, key=lambda row: _FIRST.get(row.tone, 2))
    marked = sum(row.tone in _FIRST for row in rows[most:])
    told = f", {marked:,} of them marked" if marked else ""
    note = f"And {left_out:,} more rows{told}: report.json and metrics.csv have all of them."
    return replace(content, rows=tuple(rows[:most]), notes=(note, *content.notes))


def runs_table(
    results: Sequence[RunResult], measures: Sequence[Measure], title: str = "", labels: Mapping[str, str] | None = None
) -> Table:
    """One row for each run. Columns that no run filled are left out, and the notes say which and why."""
    filled = [m for m in measures if any(m.value(result) is not None for result in results)]
    names = short_names(results, labels)
    rows = tuple(
        Row(cells=(names[r.spec.run_id], *(m.text(m.value(r)) for m in filled)), run_id=r.spec.run_id)
        for r in results[:MAX_ROWS]
    )
    more = len(results) - len(rows)
    return Table(
        columns=("run", *(m.name for m in filled)),
        rows=rows,
        numeric=frozenset(m.name for m in filled),
        notes=(
            *((f"And {more:,} more runs: metrics.csv has all of them.",) if more else ()),
            *_absences(results, measures),
        ),
        title=title,
    )


def median_run(results: Iterable[RunResult]) -> str | None:
    """The run to show for a row that stands for several: that with the median samples/s, else the first."""
    runs = list(results)
    measured = sorted(
        (run.performance.samples_per_second, run.spec.run_id) for run in runs if run.performance.samples_per_second
    )
    if measured:
        return measured[(len(measured) - 1) // 2][1]
    return runs[0].spec.run_id if runs else None


def short_names(results: Sequence[RunResult], labels: Mapping[str, str] | None = None) -> dict[str, str]:
    """Run id -> the name of its row: with the label of its group where each has one (group id -> label); without the
    group when all runs are of one group, else without the fingerprint that ends it, where the names still differ.
    """
    specs = [result.spec for result in results]
    if labels and all(spec.group_id in labels for spec in specs):
        return {s.run_id: f"{labels[s.group_id]}, {s.run_id.removeprefix(f'{s.group_id}-')}" for s in specs}
    if len({spec.group_id for spec in specs}) == 1:
        return {spec.run_id: spec.run_id.removeprefix(f"{spec.group_id}-") for spec in specs}
    readable = {group_id: re.sub(r"-[0-9a-f]{12}$", "", group_id) for group_id in {spec.group_id for spec in specs}}
    short = {spec.run_id: _without_fingerprint(spec, readable[spec.group_id]) for spec in specs}
    return short if len(set(short.values())) == len(short) else {run_id: run_id for run_id in short}


def _without_fingerprint(spec: RunSpec, readable: str) -> str:
    """`readable`: the group's id without the fingerprint that ends it."""
    is_named_so = spec.run_id.startswith(f"{spec.group_id}-")
    return readable + spec.run_id.removeprefix(spec.group_id) if is_named_so else spec.run_id


def reason(result: RunResult, path: str) -> str:
    """Why the number at the dotted `path` is missing, as the result itself says."""
    parts = path.split(".")
    prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((result.missing[p] for p in prefixes if p in result.missing), "not reported")


def _absences(results: Sequence[RunResult], measures: Sequence[Measure]) -> tuple[str, ...]:
    names_by_reason: dict[str, dict[str, None]] = {}
    for measure in measures:
        for result in results:
            if measure.value(result) is None:
                names_by_reason.setdefault(reason(result, measure.path), {})[measure.name] = None
    return tuple(f"{NA} – {', '.join(names)}: {why}." for why, names in names_by_reason.items())
