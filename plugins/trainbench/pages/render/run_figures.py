"""One run's result as tables of name and value, with the reason where a figure is missing."""

from __future__ import annotations

from collections.abc import Sequence

from bench_image.contract.result import RunResult
from trainbench.core.formats import NA
from trainbench.core.tables import Measure, reason
from trainbench.pages.render.page_tables import Cell, Column, PageTable
from trainbench.reporting.run_tables import PERFORMANCE, STARTUP, TELEMETRY
from trainbench.results.setups import setup_of, versions

GROUPS = (("Measured", PERFORMANCE), ("GPU and host", TELEMETRY), ("Start-up, beside the measured time", STARTUP))
TWO = (Column(name="what"), Column(name="value", is_long=True))


def run_figures(result: RunResult) -> tuple[PageTable, ...]:
    asked = result.spec.model_dump(mode="json", exclude_none=True)
    setup = {"node": result.spec.node, **versions(setup_of(result.context))}
    return (
        *(_measures(result, title, measures) for title, measures in GROUPS),
        _settings("Setup", setup),
        _settings("What was asked for", {name: _text(value) for name, value in asked.items()}),
    )


def _measures(result: RunResult, title: str, measures: Sequence[Measure]) -> PageTable:
    rows = tuple((Cell(text=m.name), Cell(text=_value(result, m))) for m in measures)
    return PageTable(name=title.split()[0].lower(), title=title, columns=TWO, rows=rows)


def _value(result: RunResult, measure: Measure) -> str:
    value = measure.value(result)
    return f"{NA}: {reason(result, measure.path)}" if value is None else measure.text(value)


def _settings(title: str, values: dict[str, str]) -> PageTable:
    rows = tuple((Cell(text=name), Cell(text=value)) for name, value in values.items())
    return PageTable(name=title.split()[0].lower(), title=title, columns=TWO, rows=rows)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_text(inner)}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
