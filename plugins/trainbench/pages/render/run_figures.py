"""One run's result as tables of name and value, with the reason where a figure is missing."""

from __future__ import annotations

from collections.abc import Iterable

from bench_image.contract.result import RunResult
from trainbench.core.formats import NA
from trainbench.core.tables import Table, make_table, text
from trainbench.figures.figure import Figure, reason
from trainbench.figures.run_figures import PERFORMANCE, STARTUP, TELEMETRY, of_section
from trainbench.results.setups import setup_of, versions

SECTIONS = (
    ("Measured", PERFORMANCE), ("GPU and host", TELEMETRY), ("Start-up, beside the measured time", STARTUP),
)  # fmt: skip


def run_figures(result: RunResult) -> tuple[Table, ...]:
    spec = result.spec.model_dump(mode="json", exclude_none=True)
    setup = {"node": result.spec.identity.node, **versions(setup_of(result.context))}
    return (
        *(
            _pairs(title, ((each.label, _value(result, each)) for each in of_section(section)))
            for title, section in SECTIONS
        ),
        _pairs("Setup", setup.items()),
        _pairs("What was asked for", ((name, _text(value)) for name, value in spec.items())),
    )


def _value(result: RunResult, figure: Figure) -> str:
    value = figure.value(result)
    return f"{NA}: {reason(result, figure.field)}" if value is None else figure.write(value)


def _pairs(title: str, pairs: Iterable[tuple[str, str]]) -> Table:
    return make_table(
        pairs,
        (text("what", lambda pair: pair[0]), text("value", lambda pair: pair[1], is_long=True)),
        name=title.split()[0].lower(),
        title=title,
    )


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_text(inner)}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
