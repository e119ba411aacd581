"""What the history tells, as tables of the pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainbench.core.csv_cells import lines
from trainbench.core.formats import NA, degrees, figure, percent, share, signed, usd
from trainbench.core.tables import Tone
from trainbench.core.verdicts import RED, State
from trainbench.judging.limits import NAMES, UNITS
from trainbench.pages.reads.rows import BreachRow, CostRow, HeatMap, NodeEvent, NodeSeries, RunRow, RunSort, StrategyRow
from trainbench.pages.render.links import Links
from trainbench.pages.render.page_tables import WHEN, Cell, Column, PageTable, moment, number, with_bars

MAX_POINT_ROWS = 60
WORK_COLUMNS = tuple(Column(name=name) for name in ("GPU", "model", "recipe", "strategy"))
SORTS = {
    RunSort.NEWEST: ("started (UTC)", "descending"),
    RunSort.OLDEST: ("started (UTC)", "ascending"),
    RunSort.SLOWEST: ("samples/s", "ascending"),
    RunSort.FASTEST: ("samples/s", "descending"),
    RunSort.DEAREST: ("cost", "descending"),
}


def words(value: str | None) -> str:
    return (value or "").replace("_", " ")


def tone_of(state: State | None) -> Tone:
    return Tone.BAD if state in RED else Tone.WARN if state in (State.NOTICE, State.INSUFFICIENT) else Tone.PLAIN


def deviation(breach: BreachRow) -> str:
    """ "samples/s -7.3 %", or "" for a node that failed or was missing."""
    if breach.metric is None or breach.deviation is None:
        return ""
    sign = percent(breach.deviation).removesuffix(" %")
    return f"{NAMES[breach.metric]} {sign}{UNITS[breach.metric]}"


def breaches_table(rows: Sequence[BreachRow], links: Links, name: str, title: str) -> PageTable:
    columns = ("node", "state", "deviation", "since", "until", *(c.name for c in WORK_COLUMNS), "likely cause", "next")
    more = ("acknowledged by", "DAG run")
    return PageTable(
        name=name,
        title=title,
        columns=(*(Column(name=column) for column in columns), *(Column(name=column) for column in more)),
        rows=tuple(_breach(row, links) for row in rows),
        empty="No breach.",
    )


def _breach(row: BreachRow, links: Links) -> tuple[Cell, ...]:
    seen = row.acknowledgement
    state = f"{'drill: ' if row.is_drill else ''}{words(row.state)}"
    return (
        Cell(text=row.node, href=links.breach(row.breach_id)),
        Cell(text=state, tone=Tone.PLAIN if row.closed_at else tone_of(row.state)),
        Cell(text=deviation(row)),
        moment(row.opened_at),
        moment(row.closed_at),
        *_work(row.gpu_name, row.model, row.recipe, row.strategy),
        Cell(text=row.cause or row.reason),
        Cell(text=row.resolution or ""),
        Cell(text=f"{seen.who}: {seen.reason}" if seen else ""),
        _dag_run(row.dag_id, row.dag_run_id, links),
    )


def events_table(events: Sequence[NodeEvent]) -> PageTable:
    return PageTable(
        name="events",
        title="What happened to it",
        columns=(WHEN, Column(name="kind"), Column(name="what", is_long=True)),
        rows=tuple(
            (moment(event.at), Cell(text=words(event.kind), tone=_event_tone(event)), Cell(text=event.text))
            for event in events
        ),
        empty="No change of its setup and no breach in this time.",
    )


def _event_tone(event: NodeEvent) -> Tone:
    return {"breach_opened": Tone.BAD, "breach_closed": Tone.GOOD}.get(event.kind.value, Tone.PLAIN)


def points_table(series: NodeSeries, number_of_series: int, links: Links, *, cut: bool) -> PageTable:
    """Newest first. `cut`: the first rows only, for the page; the CSV has all."""
    points = list(reversed(series.points))
    shown = points[:MAX_POINT_ROWS] if cut else points
    left_out = len(points) - len(shown)
    names = ("samples/s", "own median", "against peers", "against own past", "memory", "temperature")
    rows = tuple(
        (
            moment(point.at),
            Cell(text=words(point.state), tone=tone_of(point.state)),
            number(point.samples_per_second, figure(point.samples_per_second)),
            number(point.own_median_samples_per_second, figure(point.own_median_samples_per_second)),
            number(point.deviation_pct, percent(point.deviation_pct)),
            number(point.history_deviation_pct, percent(point.history_deviation_pct)),
            number(point.memory_deviation_pct, percent(point.memory_deviation_pct)),
            number(point.temperature_deviation_c, signed_degrees(point.temperature_deviation_c)),
            Cell(text=point.reason or ""),
            _run(point.campaign_id, point.run_id, links),
            _dag_run(point.dag_id, point.dag_run_id, links),
        )
        for point in shown
    )
    return PageTable(
        name=f"points-{number_of_series}",
        title=f"Figures of {series.label or series.group_id}",
        columns=(
            WHEN,
            Column(name="state"),
            *(Column(name=name, numeric=True) for name in names),
            Column(name="reason", is_long=True),
            *(Column(name=name) for name in ("run", "DAG run")),
        ),
        rows=rows,
        notes=(f"{left_out} older rows are in the CSV.",) if left_out else (),
    )


def signed_degrees(value: float | None) -> str:
    return NA if value is None else signed(value, " °C", 0)


def strategies_table(rows: Sequence[StrategyRow], name: str = "strategies", title: str = "Strategies") -> PageTable:
    """Of one work the fastest first; bars compare the tokens/s."""
    measures = ("samples/s", "tokens/s", "memory GB", "MFU", "efficiency", "$ per 1K samples", "$ per 1M tokens")
    tokens = tuple(with_bars([number(row.tokens_per_second, figure(row.tokens_per_second)) for row in rows]))
    return PageTable(
        name=name,
        title=title,
        columns=(
            Column(name="strategy"),
            Column(name="GPUs", numeric=True),
            *(Column(name=measure, numeric=True) for measure in measures),
            Column(name="place", numeric=True),
            *(Column(name=counted, numeric=True) for counted in ("campaigns", "runs", "failed")),
        ),
        rows=tuple(
            (
                Cell(text=row.strategy),
                number(row.world_size, str(row.world_size or NA)),
                number(row.samples_per_second, figure(row.samples_per_second)),
                bar,
                number(row.memory_gb, figure(row.memory_gb)),
                number(row.mfu_pct, share(row.mfu_pct)),
                number(row.efficiency_pct, share(row.efficiency_pct)),
                number(row.usd_per_1000_samples, usd(row.usd_per_1000_samples)),
                number(row.usd_per_1m_tokens, usd(row.usd_per_1m_tokens)),
                number(row.place, str(row.place or NA)),
                number(row.num_campaigns, f"{row.num_campaigns:,}"),
                number(row.num_runs, f"{row.num_runs:,}"),
                number(row.num_failed, f"{row.num_failed:,}", tone=Tone.BAD if row.num_failed else Tone.PLAIN),
            )
            for row, bar in zip(rows, tokens, strict=True)
        ),
        empty="Nothing was measured.",
    )


def strategies_csv(rows: Sequence[StrategyRow]) -> str:
    names = [name for name in StrategyRow.__slots__ if name != "work_key"]
    return lines([names, *([getattr(row, name) for name in names] for row in rows)])


def costs_table(rows: Sequence[CostRow], name: str, title: str, what: str) -> PageTable:
    dollars = tuple(with_bars([number(row.usd, usd(row.usd)) for row in rows]))
    return PageTable(
        name=name,
        title=title,
        columns=(
            Column(name=what),
            *(Column(name=column, numeric=True) for column in ("cost", "GPU-hours", "runs", "without price")),
        ),
        rows=tuple(
            (
                Cell(text=row.name or "CPU"),
                bar,
                number(row.gpu_hours, figure(row.gpu_hours)),
                number(row.num_runs, f"{row.num_runs:,}"),
                number(row.num_unpriced, f"{row.num_unpriced:,}"),
            )
            for row, bar in zip(rows, dollars, strict=True)
        ),
        empty="Nothing ran in this time.",
    )


def runs_table(rows: Sequence[RunRow], sort: RunSort, links: Links) -> PageTable:
    measures = ("samples/s", "tokens/s", "memory GB", "temperature", "MFU", "cost")
    sorted_by, order = SORTS[sort]
    columns = (
        Column(name="started (UTC)", key="started"),
        Column(name="node"),
        Column(name="state"),
        Column(name="status"),
        *WORK_COLUMNS,
        Column(name="GPUs", numeric=True),
        *(Column(name=measure, numeric=True) for measure in measures),
        Column(name="run"),
        Column(name="DAG run"),
        Column(name="raw"),
    )
    return PageTable(
        name="runs",
        title="Runs",
        columns=tuple(_sortable(column, sort, sorted_by, order, links) for column in columns),
        rows=tuple(_run_row(row, links) for row in rows),
        empty="No run in this time with these filters.",
    )


def _sortable(column: Column, sort: RunSort, sorted_by: str, order: str, links: Links) -> Column:
    """A second click turns the order round."""
    choices = [choice for choice, (name, _) in SORTS.items() if name == column.name]
    if not choices:
        return column
    other = next((choice for choice in choices if choice is not sort), choices[0])
    is_sorted = column.name == sorted_by
    return Column(
        name=column.name,
        key=column.key,
        numeric=column.numeric,
        href=links.runs(sort=(other if is_sorted else choices[0]).value),
        order=order if is_sorted else None,
    )


def _run_row(row: RunRow, links: Links) -> tuple[Cell, ...]:
    node = row.node + (f" + {len(row.peers)}" if row.peers else "")
    return (
        moment(row.started_at),
        Cell(text=node, href=links.node(row.node)),
        Cell(text=("drill: " if row.is_drill else "") + words(row.state), tone=tone_of(row.state)),
        Cell(text=row.status, tone=Tone.PLAIN if row.status == "ok" else Tone.BAD),
        *_work(row.gpu_name, row.model, row.recipe, row.strategy),
        number(row.world_size, str(row.world_size or NA)),
        number(row.samples_per_second, figure(row.samples_per_second)),
        number(row.tokens_per_second, figure(row.tokens_per_second)),
        number(row.memory_gb, figure(row.memory_gb)),
        number(row.temperature_c, degrees(row.temperature_c)),
        number(row.mfu_pct, share(row.mfu_pct)),
        number(row.run_usd, usd(row.run_usd)),
        _run(row.campaign_id, row.run_id, links),
        _dag_run(row.dag_id, row.dag_run_id, links),
        Cell(text="JSON", value=row.run_id, href=links.result(row.campaign_id, row.run_id)),
    )


def heat_csv(heat: HeatMap) -> Iterator[str]:
    """A row for each node and day that has a verdict; without the header."""
    for row in heat.rows:
        found = [cell for cell in row.cells if cell is not None]
        yield lines(
            [row.node, row.gpu_name, c.day, c.condition.value, c.deviation_pct, c.num_verdicts,
              c.campaign_id, c.dag_id, c.dag_run_id]
            for c in found
        )  # fmt: skip


HEAT_COLUMNS = (
    "node", "gpu_name", "day", "condition", "deviation_pct", "num_verdicts", "campaign_id",
    "dag_id", "dag_run_id",
)  # fmt: skip


def _work(*names: str | None) -> tuple[Cell, ...]:
    return tuple(Cell(text=name or "") for name in names)


def _run(campaign_id: str, run_id: str | None, links: Links) -> Cell:
    if run_id is None:
        return Cell(text="")
    return Cell(text="figures", value=run_id, href=links.run(campaign_id, run_id))


def _dag_run(dag_id: str, dag_run_id: str | None, links: Links) -> Cell:
    if dag_run_id is None:
        return Cell(text=dag_id)
    href = links.airflow_run(dag_id, dag_run_id)
    return Cell(text=dag_id, value=f"{dag_id}/{dag_run_id}", href=href, in_airflow=True)
