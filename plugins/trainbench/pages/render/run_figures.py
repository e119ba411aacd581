"""One run's result as tables: each GPU, then figures with the reason where one is missing, then setup and spec."""

from __future__ import annotations

from collections.abc import Iterable

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import GpuTelemetry
from trainbench.core.formats import NA
from trainbench.core.tables import Column, Table, make_table, text, text_columns
from trainbench.figure_catalogue.figure import Figure, reason
from trainbench.figure_catalogue.run_figures import (
    PERFORMANCE,
    PROBES,
    SAMPLES_PER_SECOND,
    STARTUP,
    TELEMETRY,
    of_section,
)
from trainbench.results.setups import setup_of, versions

SECTIONS = (
    ("Measured", PERFORMANCE), ("Probes of the GPU before the loop", PROBES), ("GPU and host", TELEMETRY),
    ("Start-up, beside the measured time", STARTUP),
)  # fmt: skip


def run_figures(result: RunResult) -> tuple[Table, ...]:
    spec = result.spec.model_dump(mode="json", exclude_none=True)
    setup = {"node": result.spec.identity.node, **versions(setup_of(result.context))}
    return (
        *((gpu_table(result),) if len(result.telemetry.gpus) > 1 else ()),
        *(
            _pairs(title, ((each.label, _value(result, each)) for each in of_section(section)))
            for title, section in SECTIONS
        ),
        _pairs("Setup", setup.items()),
        _pairs("Settings of the run", ((name, _text(value)) for name, value in spec.items())),
    )


def gpu_table(result: RunResult) -> Table:
    """One row for each GPU of a run: its telemetry, and its own rate where the GPUs measured independently."""
    rates = {rank.gpu_uuid: rank.performance.samples_per_second for rank in result.ranks if rank.performance}
    measured: tuple[Column[RunResult], ...] = ()
    if rates:
        measured = (SAMPLES_PER_SECOND.column(lambda run: rates.get(_only_gpu(run).uuid)),)
    return make_table(
        [_with_one_gpu(result, gpu) for gpu in result.telemetry.gpus],
        (
            text("GPU", lambda run: str(_only_gpu(run).index)),
            text("UUID", lambda run: _only_gpu(run).uuid or NA),
            *measured,
            *(figure.column(figure.value) for figure in of_section(TELEMETRY) if ".gpus." in figure.field),
        ),
        name="gpus",
        title="Each GPU",
    )


def _with_one_gpu(result: RunResult, gpu: GpuTelemetry) -> RunResult:
    """The same run as if it had this GPU only: a figure over the GPUs is then this GPU's own."""
    return result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": (gpu,)})})


def _only_gpu(result: RunResult) -> GpuTelemetry:
    return result.telemetry.gpus[0]


def _value(result: RunResult, figure: Figure) -> str:
    value = figure.value(result)
    return f"{NA}: {reason(result, figure.field)}" if value is None else figure.write(value)


def _pairs(title: str, pairs: Iterable[tuple[str, str]]) -> Table:
    return make_table(pairs, text_columns("what", "value", long="value"), name=title.split()[0].lower(), title=title)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_text(inner)}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
