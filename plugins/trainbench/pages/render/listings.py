"""The tables of the pages: made from the rows of the history, from the result of one run, and from the glossary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import GpuTelemetry
from trainbench.core.formats import NA, figure, listing, one_line, percent, signed
from trainbench.core.states import AGAINST, STATE_WORDS, TRAITS, NodeState, word
from trainbench.core.tables import (
    Cell,
    Column,
    Table,
    Tone,
    integer,
    make_table,
    text,
    text_cell,
    text_columns,
)
from trainbench.core.verdicts import Against, State, Why
from trainbench.figure_catalogue import run_figures as figures
from trainbench.figure_catalogue.figure import Figure, reason
from trainbench.figure_catalogue.table_figures import DEVIATION
from trainbench.history.notices import Notice
from trainbench.history.spending import Spend
from trainbench.pages.reads.rows import EventKind, NodeEvent, NodePoint, RunRow
from trainbench.pages.render.links import Links
from trainbench.reporting.run_tables import facts, in_your_script, settings


def run_figures(result: RunResult) -> tuple[Table, ...]:
    def told(figure: Figure) -> str:
        value = figure.value(result)
        return f"{NA}: {reason(result, figure.field)}" if value is None else figure.write(value)

    of_sections = {
        title: tuple((each.label, told(each)) for each in figures.of_section(title)) for title in figures.SECTIONS
    }
    steps_s = [rank.step_time_median_s for rank in result.ranks if rank.step_time_median_s is not None]
    of_ranks = listing(map(figures.milliseconds, steps_s), 8) if len(steps_s) > 1 else ""
    profiled, of_gpus = result.communication.profiled_steps, result.telemetry.gpus
    errors = [gpu.ecc_corrected_in_run for gpu in of_gpus if gpu.ecc_corrected_in_run is not None]
    beside: dict[str, dict[str, str | None]] = {
        figures.PERFORMANCE: {
            "profiled steps": str(profiled) if profiled else None,
            "median step of each rank": of_ranks,
        },
        figures.TELEMETRY: {"corrected memory errors (ECC)": f"{sum(errors):,}" if errors else None},
    }
    for title, known in beside.items():
        of_sections[title] += tuple((label, value) for label, value in known.items() if value)
    setup = {"node": result.spec.identity.node, **facts(result.context)}
    told_settings = (*settings(result.spec), *in_your_script(result))
    pairs = of_sections | {"Software and hardware": setup.items(), "Settings of the run": told_settings}
    return (*((gpu_table(result),) if len(result.telemetry.gpus) > 1 else ()), *map(_pairs, pairs, pairs.values()))


def stored_figures(run: RunRow) -> Table:
    """What the history keeps of a run whose file has expired."""
    known = ((each.label, each.write(value)) for each in figures.STORED if (value := run.figure(each)) is not None)
    return _pairs(figures.PERFORMANCE, known)


def gpu_table(result: RunResult) -> Table:
    """One row for each GPU of a run: its telemetry, and its own rate where the GPUs measured independently."""
    rates = {rank.gpu_uuid: rank.performance.samples_per_second for rank in result.ranks if rank.performance}
    measured: tuple[Column[RunResult], ...] = ()
    if rates:
        measured = (figures.SAMPLES_PER_SECOND.column(lambda run: rates.get(_only_gpu(run).uuid)),)
    return make_table(
        # The same run as if it had this GPU only: a figure over the GPUs is then this GPU's own.
        [
            result.model_copy(update={"telemetry": result.telemetry.model_copy(update={"gpus": (gpu,)})})
            for gpu in result.telemetry.gpus
        ],
        (
            text("GPU", lambda run: str(_only_gpu(run).index)),
            text("UUID", lambda run: _only_gpu(run).uuid or NA),
            *measured,
            *(
                figure.column(figure.value)
                for figure in figures.of_section(figures.TELEMETRY)
                if ".gpus." in figure.field
            ),
        ),
        name="gpus",
        title="Each GPU",
    )


def _only_gpu(result: RunResult) -> GpuTelemetry:
    return result.telemetry.gpus[0]


def _pairs(title: str, pairs: Iterable[tuple[str, str]]) -> Table:
    """The first of them, which has a name, is shown; the others are closed."""
    name = "measured" if title == figures.PERFORMANCE else ""
    return make_table(pairs, text_columns("what", "value", long="value"), name=name, title=title)


WHEN = "when (UTC)"


def tone_of(state: State | None) -> Tone:
    """Well is plain in a table: most cells are."""
    return {None: Tone.PLAIN, State.WELL: Tone.PLAIN, State.RED: Tone.BAD}.get(state, Tone.WARN)


def next_step(node: NodeState | NodePoint, notice: Notice | None) -> str:
    """What the open notice says, which knows the node; else what helps with the reason."""
    if notice:
        return notice.finding.resolution
    return TRAITS[Why.DRILL if node.state is State.DRILL else node.why].next_step


def likely_cause(node: NodeState, notice: Notice | None) -> str | None:
    """What the open notice says, where it tells of the same night: else two nights' figures would stand together."""
    is_same = notice and one_line(notice.reason) == one_line(node.reason)
    return notice.finding.cause if notice and is_same else None


def states_table(nodes: Sequence[NodeState], notices: Sequence[Notice], links: Links) -> Table:
    """Every node as it is now, the worst first."""
    of_node = {notice.node: notice for notice in reversed(notices)}
    return make_table(
        sorted(nodes, key=NodeState.urgency),
        (
            text("node", lambda row: text_cell(row.node, href=links.node(row.node))),
            text("state", lambda row: text_cell(word(row), tone=tone_of(row.state))),
            text("reason", lambda row: row.reason, is_long=True),
            text("since", lambda row: moment(row.since)),
            text("next", lambda row: next_step(row, of_node.get(row.node)), is_long=True),
        ),
        name="nodes",
        title="Nodes now",
    )


def changes(opened: Iterable[Notice], closed: Iterable[Notice], now: datetime) -> str:
    """What is new since this time yesterday: notices that opened, and those that ended; drills are no news."""
    since = now - timedelta(days=1)
    new = [f"{each.name} ({each.word})" for each in opened if each.opened_at >= since and not each.is_drill]
    over = [each.name for each in closed if each.closed_at and each.closed_at >= since and not each.is_drill]
    told = [f"new: {listing(new)}"] * bool(new) + [f"ended: {listing(over)}"] * bool(over)
    return f"Since yesterday: {'; '.join(told) or 'no change'}."


def events_table(events: Sequence[NodeEvent]) -> Table:

    def tone(event: NodeEvent) -> Tone:
        if event.kind is EventKind.OPENED:
            return Tone.BAD if event.what.startswith(STATE_WORDS[State.RED]) else Tone.WARN
        return Tone.GOOD if event.kind is EventKind.CLOSED else Tone.PLAIN

    return make_table(
        events,
        (
            text(WHEN, lambda event: moment(event.at), key="when"),
            text("kind", lambda event: text_cell(event.kind, tone=tone(event))),
            text("what", lambda event: event.text, is_long=True),
        ),
        name="events",
        title="Events",
        empty="No change of its setup and no notice in this time.",
    )


# Against what, column of the CSV, and the fields of a point: deviation, expected samples/s
COMPARED = (
    (Against.PEERS, "against_peers", "deviation_pct", "peers_expected"),
    (Against.PAST, "against_own_past", "past_deviation_pct", "past_expected"),
    (Against.LEVEL, "against_level", "level_deviation_pct", "level_expected"),
)


def verdicts_table(
    points: Sequence[NodePoint],
    links: Links,
    name: str,
    title: str,
    *,
    of_several_works: bool = False,
    has_reasons: bool = True,
) -> Table:
    """The verdicts on a node, with their figures beside what it should have made; without columns that none fills."""

    def against(deviation: str, expected: str, point: NodePoint) -> Cell:
        value, of = getattr(point, deviation), getattr(point, expected)
        beside = "" if of is None else f" of {figure(of)}"
        return Cell(text="none" if value is None else f"{percent(value)}{beside}", value=value)

    work: Column[NodePoint] = text("work", lambda point: point.work_name)
    reason: Column[NodePoint] = text("reason", lambda point: point.reason or "", is_long=True)
    return make_table(
        points,
        (
            *((work,) if of_several_works else ()),
            text(WHEN, lambda point: moment(point.at), key="when"),
            text("state", lambda point: text_cell(point.word, tone=tone_of(point.state))),
            figures.SAMPLES_PER_SECOND.column(lambda point: point.samples_per_second),
            *(
                DEVIATION.column(partial(against, deviation, expected), f"against {AGAINST[of]}", key=key)
                for of, key, deviation, expected in COMPARED
                if any(getattr(point, deviation) is not None for point in points)
            ),
            DEVIATION.column(lambda point: point.memory_deviation_pct, "memory"),
            DEVIATION.column(
                lambda point: point.temperature_deviation_c,
                "temperature",
                write=lambda value: NA if value is None else signed(value, " °C", 0),
            ),
            *((reason,) if has_reasons and any(point.reason for point in points) else ()),
            text("run", lambda point: _run(point.campaign_id, point.run_id, links)),
            text("DAG run", lambda point: _dag_run(point.dag_id, point.dag_run_id, links)),
        ),
        name=name,
        title=title,
    )


def costs_table(rows: Sequence[Spend], name: str, title: str, what: str) -> Table:
    return make_table(
        rows,
        (
            text(what, lambda row: row.what or "CPU"),
            figures.RUN_USD.column(lambda row: row.usd, has_bar=True),
            figures.GPU_HOURS.column(lambda row: row.gpu_hours, write=figure),
            integer("runs", lambda row: row.num_runs),
            integer("without cost", key="without_price", of=lambda row: row.num_unknown),
        ),
        name=name,
        title=title,
        empty="Nothing ran in this time.",
    )


def runs_table(rows: Sequence[RunRow], links: Links) -> Table:
    def started(row: RunRow) -> Cell:
        return replace(moment(row.started_at), href=links.run(row.campaign_id, row.run_id))

    def node(row: RunRow) -> Cell:
        name = f"{row.node} + {len(row.peers)}" if row.peers else row.node
        return text_cell(name, href=None if row.is_imported else links.node(row.node))

    return make_table(
        rows,
        (
            text("started (UTC)", started),
            text("node", node),
            text("run ended", lambda row: text_cell(row.status, tone=Tone.PLAIN if row.status == "ok" else Tone.BAD)),
            text("node's state", lambda row: text_cell(row.word, tone=tone_of(row.state)), key="state"),
            text("GPUs", lambda row: f"{row.world_size or 1} × {(row.gpu_name or 'CPU').removeprefix('NVIDIA ')}"),
            text("work", lambda row: " · ".join((row.model, row.recipe, row.strategy))),
            figures.SAMPLES_PER_SECOND.own(),
            figures.TOKENS_PER_SECOND.own(),
            figures.PEAK_MEMORY_GB.own(),
            figures.TEMPERATURE_MEAN_C.own("temp."),
            figures.MFU_PCT.own(),
            figures.RUN_USD.own(),
            text("DAG run", lambda row: _dag_run(row.dag_id, row.dag_run_id, links)),
        ),
        name="runs",
        title="Runs",
        empty="No run in this time with these filters.",
    )


def moment(at: datetime | None) -> Cell:
    """A time in UTC, to the minute."""
    return Cell(text=f"{at:%Y-%m-%d %H:%M}", value=at.isoformat(), at=at) if at else text_cell("")


def _run(campaign_id: str, run_id: str | None, links: Links) -> Cell:
    if run_id is None:
        return text_cell("")
    return Cell(text="figures", value=run_id, href=links.run(campaign_id, run_id))


def _dag_run(dag_id: str, dag_run_id: str | None, links: Links) -> Cell:
    if dag_run_id is None:
        return text_cell(dag_id)
    href = links.airflow_run(dag_id, dag_run_id)
    return Cell(text=dag_id, value=f"{dag_id}/{dag_run_id}", href=href, in_airflow=True)
