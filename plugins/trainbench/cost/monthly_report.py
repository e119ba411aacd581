"""The cost report of a month: figures, sentences, tables and files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import AwareDatetime

from bench_image.contract.frozen import Frozen
from trainbench.core import markdown
from trainbench.core.formats import NA, count, figure, listing, moment, percent, sentence, usd
from trainbench.core.tables import Column, Table, integer, make_table, text
from trainbench.core.verdicts import Finding
from trainbench.cost.monthly_cost import (
    MonthSpend,
    OtherPrice,
    WorkCost,
    by_month,
    other_prices,
    paid_runs,
    signed_usd,
    work_costs,
)
from trainbench.figure_catalogue.run_figures import (
    GPU_HOURS,
    RUN_USD,
    SAMPLES_PER_SECOND,
    USD_PER_1M_TOKENS,
    USD_PER_1000_SAMPLES,
    USD_PER_GPU_HOUR,
)
from trainbench.figure_catalogue.table_figures import (
    CHANGE_PARTS,
    MONTH_CHANGE,
    OTHER_PRICE,
    time_columns,
)
from trainbench.history.history import History
from trainbench.history.spending import Spend
from trainbench.params.cost_params import SpendParams, months_until, start_of
from trainbench.prices.price_tables import Price, stale_price_findings, usable_prices
from trainbench.prices.quote import JOULES_PER_KWH, Basis, energy_usd
from trainbench.reporting import document
from trainbench.reporting.document import Lines, Section, document_html
from trainbench.results.artefacts import Store
from trainbench.settings.environment import read_settings

if TYPE_CHECKING:
    from pandas import DataFrame

R = TypeVar("R")
MAX_MOVERS = 3
MOVED_PCT = 0.5  # percent of the cost of 1K samples; smaller changes get no sentence
MAX_ROWS = 100  # of a table


class Energy(Frozen):
    """Energy of the measured windows, from GPUs with a counter; `usd` None: no tariff."""

    kwh: float
    usd: float | None
    num_runs: int
    num_unknown: int


class SpendReport(Frozen):
    report_id: str
    made_at: AwareDatetime
    month: str
    before: str
    is_over: bool  # the month
    params: SpendParams
    spend: tuple[MonthSpend, ...]  # oldest first; the last one is `month`
    works: tuple[WorkCost, ...]
    prices: tuple[OtherPrice, ...]
    energy: Energy | None
    findings: tuple[Finding, ...]
    summary: tuple[str, ...]


def report_on(params: SpendParams, history: History, report_id: str, now: datetime) -> SpendReport:
    """The report on `params.month`, else on the month of `now`. Raises HistoryError, and PriceError for our table."""
    month = params.month or f"{now:%Y-%m}"
    months = months_until(month, params.months)
    runs = paid_runs(history, start_of(months[-2]), start_of(month, after=1))
    table, findings = usable_prices(read_settings().prices)
    spent = by_month(history, months)
    report = make_report(runs, spent, params, report_id=report_id, made_at=now, table=table, findings=findings)
    tried = {price.label for price in report.prices}
    old = stale_price_findings((price for price in table if price.offer in tried), now.date())
    return report.model_copy(update={"findings": (*report.findings, *old)})


def make_report(
    runs: DataFrame,
    spent: Sequence[MonthSpend],
    params: SpendParams,
    *,
    report_id: str,
    made_at: datetime,
    table: Sequence[Price],
    findings: Sequence[Finding] = (),
) -> SpendReport:
    """`spent`: the months that the report covers, oldest first; `runs`: the table of the last two, see `paid_runs`."""
    month, before = spent[-1].month, spent[-2].month
    of_month = runs[runs.month == month]
    works = work_costs(runs, month, before)
    joules, energy = of_month.energy_j.dropna(), None
    if len(joules):
        total = float(joules.sum())
        energy = Energy(
            kwh=total / JOULES_PER_KWH,
            usd=energy_usd(total, params.usd_per_kwh, params.pue) if params.usd_per_kwh else None,
            num_runs=len(joules),
            num_unknown=len(of_month) - len(joules),
        )
    draft = SpendReport(
        report_id=report_id,
        made_at=made_at,
        month=month,
        before=before,
        is_over=f"{made_at:%Y-%m}" > month,
        params=params,
        spend=tuple(spent),
        works=works,
        prices=other_prices(works, of_month, table, params, made_at.date()),
        energy=energy,
        findings=tuple(findings),
        summary=(),
    )
    return draft.model_copy(update={"summary": tuple(_summary(draft))})


def _summary(report: SpendReport) -> Iterator[str]:
    this, last = report.spend[-1].total, report.spend[-2].total
    if not any(of.total.num_runs for of in report.spend):
        yield (
            f"No run was recorded from {report.spend[0].month} to {report.month}: there is nothing to report yet. A "
            "run is recorded when its benchmark publishes; trainbench reindex records the campaigns of the store."
        )
        return
    when = report.month if report.is_over else f"{report.month} so far"
    hours = f", {figure(this.gpu_hours, 3)} GPU-hours" if this.gpu_hours is not None else ""
    runs = f"{count(this.num_runs, 'run')}{hours}"
    against = f"; in {report.before} it was {usd(last.usd)} ({count(last.num_runs, 'run')})" if last.usd else ""
    if not this.num_runs:
        yield f"No run was recorded in {when}."
    elif this.usd is None:
        yield f"The cost of benchmarking in {when} is unknown: no run has a price ({runs})."
    else:
        yield f"Benchmarking cost {usd(this.usd)} in {when}: {runs}{against}."
    if unknown := report.spend[-1].unknown:
        yield f"Not included: {listing(unknown)}."
    # Works whose cost of 1K samples changed, the largest change first, with reasons.
    compared = [(work, work.change, work.last, work.this) for work in report.works if work.change]
    moved = sorted((row for row in compared if abs(row[1].pct) >= MOVED_PCT), key=lambda row: -abs(row[1].pct))
    works = count(len(compared), "work")
    if not compared:
        yield f"No work has a price in both {report.before} and {report.month}: no trend yet."
    elif not moved:
        yield f"{works} cost the same per sample as in {report.before}, within {MOVED_PCT:g} %."
    else:
        yield f"{len(moved)} of {works} changed in cost per sample since {report.before}."
    for work, change, before, now in moved[:MAX_MOVERS]:
        rates = " to ".join(figure(month.samples_per_s) for month in (before, now) if month)
        parts = f"{signed_usd(change.by_price_usd)} by price, {signed_usd(change.by_throughput_usd)} by samples/s"
        yield f"{work.work}, {work.gpu_name or 'CPU'}: {percent(change.pct)} – {parts} (from {rates})."
    priced = {price.gpu_name for price in report.prices if price.basis is not Basis.GIVEN}
    gpus = dict.fromkeys(work.gpu_name for work in report.works if work.this and work.gpu_name)
    if unpriced := [gpu for gpu in gpus if gpu not in priced]:
        yield f"The price table has no price for {listing(unpriced)}."
    if energy := report.energy:
        missing = f"; {count(energy.num_unknown, 'run')} did not report it" if energy.num_unknown else ""
        cost = f", {usd(energy.usd)} of electricity" if energy.usd is not None else ""
        yield (
            f"The GPUs took {figure(energy.kwh, 3)} kWh within the measured windows{cost} "
            f"({count(energy.num_runs, 'run')}{missing})."
        )


def spend_tables(report: SpendReport) -> tuple[Table, ...]:
    """The tables with rows, in the report's order."""
    return tuple(made for make in (_months, _works, _trend, _prices) if (made := make(report)).rows)


def _table(rows: Sequence[R], columns: Sequence[Column[R]], title: str, *notes: str, **more: Any) -> Table:
    """At most MAX_ROWS of the rows."""
    if len(rows) > MAX_ROWS:
        notes = (*notes, f"The first {MAX_ROWS} of {len(rows):,} rows. costs.json has all of them.")
    return make_table(rows[:MAX_ROWS], columns, title=title, notes=notes, **more)


def _months(report: SpendReport) -> Table:
    rows: list[tuple[str, Spend]] = []
    for month in report.spend:
        if month.total.num_runs:
            rows += [(month.month, line) for line in month.by_dag]
            if len(month.by_dag) > 1:
                rows.append((month.month, month.total.model_copy(update={"what": "all"})))
    return _table(
        rows,
        (
            text("month", lambda row: row[0]),
            text("DAG", lambda row: row[1].what),
            integer("runs", lambda row: row[1].num_runs),
            GPU_HOURS.column(lambda row: row[1].gpu_hours),
            RUN_USD.column(lambda row: row[1].usd),
            integer("not known", lambda row: row[1].num_unknown),
        ),
        "What benchmarking cost",
        "Not known: runs without a known cost. The sums leave them out, and the time in which a node waited for a pod.",
    )


def _work_columns(of: Callable[[Any], WorkCost]) -> tuple[Column[Any], ...]:
    return (text("work", lambda row: of(row).work), text("GPU", lambda row: of(row).gpu_name or "CPU"))


def _works(report: SpendReport) -> Table:
    rows = [(work, work.this) for work in report.works if work.this]
    notes = ["Medians of the valid runs, drills left out; each links to its last run. All GPUs of a gang are paid for."]
    if any(len(now.price_sources) > 1 for _, now in rows):
        notes.append("Where several prices were paid in the month, their median over the runs counts.")
    return _table(
        rows,
        (
            *_work_columns(lambda row: row[0]),
            integer("GPUs", lambda row: row[0].num_gpus),
            integer("runs", lambda row: row[1].num_runs),
            SAMPLES_PER_SECOND.column(lambda row: row[1].samples_per_s),
            USD_PER_GPU_HOUR.column(lambda row: row[1].usd_per_gpu_hour),
            USD_PER_1000_SAMPLES.column(lambda row: row[1].usd_per_1000_samples),
            USD_PER_1M_TOKENS.column(lambda row: row[1].usd_per_1m_tokens),
        ),
        f"What the work costs in {report.month}",
        *notes,
        run_id=lambda row: row[1].last_run,
    )


def _trend(report: SpendReport) -> Table:
    return _table(
        [(work, work.last, work.this, work.change) for work in report.works if work.last],
        (
            *_work_columns(lambda row: row[0]),
            MONTH_CHANGE.column(lambda row: row[1].usd_per_1000_samples, f"per 1K in {report.before}"),
            MONTH_CHANGE.column(lambda row: row[2] and row[2].usd_per_1000_samples, f"in {report.month}"),
            MONTH_CHANGE.column(lambda row: row[3] and row[3].pct, "change", write=percent),
            CHANGE_PARTS.column(lambda row: row[3] and row[3].by_price_usd, write=signed_usd),
            CHANGE_PARTS.column(lambda row: row[3] and row[3].by_throughput_usd, "by throughput", write=signed_usd),
            text("why", lambda row: row[0].why),
        ),
        f"Against {report.before}, per 1K samples",
        "The two parts add up to the change: each is weighted with the mean of the other over both months.",
    )


def _prices(report: SpendReport) -> Table:
    return _table(
        report.prices,
        (
            text("GPU", lambda price: price.gpu_name or "CPU"),
            text("price", lambda price: price.label),
            text("basis", lambda price: price.basis),
            text("as of", lambda price: str(price.as_of or NA)),
            USD_PER_GPU_HOUR.column(lambda price: price.usd_per_gpu_hour),
            *time_columns(lambda price: price.usd_per_gpu_hour),
            OTHER_PRICE.column(lambda price: price.against_paid_pct, write=percent),
            OTHER_PRICE.column(lambda price: price.usd, "the month at this price", write=usd),
        ),
        "What if: other prices",
        "The GPU-hours of the month's runs on that kind of GPU at another price; none for GPUs that did not run.",
    )


TITLE = "Cost report"
# The report lies in cost/<id>/, the results in campaigns/<id>/runs/.
RESULT = "../../campaigns/{}/runs/{}/result.json"
FORMULAS = (
    "Cost of a run: GPU-hours from process start to result, every GPU of the run, x price per GPU-hour of that run.",
    "Per 1K samples: price per GPU-hour x GPUs / (samples/s x 3600) x 1000, start-up left out; per 1M tokens likewise.",
    "Change by price: (new - old price) x mean of both months' GPU-hours per 1K samples; by throughput: the change of "
    "those GPU-hours x mean of both prices.",
    "Owned: purchase price x (1 - worth at the end) / (life in hours x use) + running costs per hour of work.",
    "Spot: no interruption is counted; trainbench estimate counts them.",
    "Electricity: kWh x PUE x tariff.",
)


def publish(report: SpendReport, store: Store) -> Mapping[str, str]:
    """Write the report's files; file name -> address. An earlier report with this id is replaced."""
    return store.write_cost_report(report.report_id, report_files(report, store.campaign_ids()))


def report_files(report: SpendReport, campaign_ids: Collection[str]) -> dict[str, str]:
    """File name -> content. `campaign_ids`: campaigns with results in the store; only these are linked."""
    runs = [work.this.last_run for work in report.works if work.this]
    links = {run: RESULT.format(*run.split("/", 1)) for run in runs if run.split("/", 1)[0] in campaign_ids}
    sections = [Section(table.title, [table], f"part-{n}") for n, table in enumerate(spend_tables(report), start=1)]
    if report.findings:
        doubts = [f"{sentence(finding.headline)} {sentence(finding.resolution)}" for finding in report.findings]
        sections.append(Section("Doubts about prices", [Lines(doubts)], "doubts"))
    sections.append(Section("How it is computed", [Lines(FORMULAS)], "reading"))
    title, made = f"{TITLE}: {report.month}", f"made {moment(report.made_at)}"
    head = [f"# {title}", markdown.bullets(report.summary).rstrip("\n")]
    foot = f"{markdown.escape(report.report_id)}, {made}. Months are in UTC."
    page = document_html(
        title,
        report.summary[0],
        sections,
        word=title,
        more=report.summary[1:],
        facts=(report.report_id, made, "months in UTC"),
        links=links,
    )
    return {
        "COST_REPORT.md": "\n\n".join([*head, *document.markdown(sections, links), foot]) + "\n",
        "cost_report.html": page,
        "costs.json": report.model_dump_json(indent=1) + "\n",
    }
