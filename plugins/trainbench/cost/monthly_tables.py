"""The tables of a cost report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from trainbench.core.formats import NA, count, figure, percent, share, usd
from trainbench.core.grouping import grouped
from trainbench.core.tables import Column, Table, integer, make_table, only, text
from trainbench.cost.cost_trend import WorkCost, WorkMonth
from trainbench.cost.monthly_cost import Spend
from trainbench.cost.monthly_report import SpendReport, change_texts
from trainbench.cost.other_prices import OtherPrice, WhatIf
from trainbench.figure_catalogue.run_figures import (
    ENERGY_PER_SAMPLE_J,
    GPU_HOURS,
    RUN_USD,
    SAMPLES_PER_SECOND,
    USD_PER_1M_TOKENS,
    USD_PER_1000_SAMPLES,
    USD_PER_GPU_HOUR,
    figure_3,
)
from trainbench.figure_catalogue.table_figures import (
    CHANGE_PARTS,
    ELECTRICITY,
    MEDIAN_INTERVAL,
    MONTH_CHANGE,
    OF_CHEAPEST,
    OTHER_PRICE,
    WHAT_IF,
    time_columns,
)
from trainbench.params.cost_params import PriceBasis
from trainbench.prices.quote import JOULES_PER_KWH, energy_usd_per_1000_samples

R = TypeVar("R")
MAX_NODES = 50
NO_INTERVAL = "under 6 runs"  # see cost_trend.median_interval
MAX_WORKS = 100
MAX_ON_SCREEN = 8
SCREEN_COLUMNS = ("work", "GPU", "runs", SAMPLES_PER_SECOND.label, USD_PER_1000_SAMPLES.label)
MAX_PRICES = 12  # of one kind of GPU
FILES = "costs.csv and costs.json have all of them."


def spend_tables(report: SpendReport) -> tuple[Table, ...]:
    """The tables with rows, in the report's order."""
    every = (_months, _nodes, _works, _trend, _prices, _what_if, _energy)
    return tuple(made for make in every if (made := make(report)).rows)


def screen_table(report: SpendReport) -> Table:
    """The month's works with the most runs, in few columns: what fits a terminal without scrolling."""
    works = [work for work in report.works if work.this]
    most = sorted(works, key=lambda work: -(work.this.num_runs if work.this else 0))[:MAX_ON_SCREEN]
    whole = _works(report.model_copy(update={"works": tuple(most)}))
    title = whole.title if len(most) == len(works) else f"{whole.title}: the {len(most)} of {len(works)} with most runs"
    return replace(only(whole, SCREEN_COLUMNS), title=title, notes=())


def _spend_columns(of: Callable[[R], Spend]) -> tuple[Column[R], ...]:
    return (
        integer("runs", lambda row: of(row).num_runs),
        GPU_HOURS.column(lambda row: of(row).gpu_hours),
        RUN_USD.column(lambda row: of(row).usd),
        integer("not known", lambda row: of(row).num_unknown),
    )


def _months(report: SpendReport) -> Table:
    rows: list[tuple[str, Spend]] = []
    for month in report.spend:
        if month.total.num_runs:
            lines = (*month.by_dag, *((month.total,) if len(month.by_dag) > 1 else ()))
            rows += [(month.month, line) for line in lines]
    return make_table(
        rows,
        (text("month", lambda row: row[0]), text("DAG", lambda row: row[1].what), *_spend_columns(lambda row: row[1])),
        title="What benchmarking cost",
        notes=(UNKNOWN,),
    )


UNKNOWN = "Unknown: runs without a known cost. The sums leave them out, and the time in which a node waited for a pod."


def _nodes(report: SpendReport) -> Table:
    shown = report.nodes[:MAX_NODES]
    notes = ["A gang's cost is shared evenly by its nodes."]
    if len(report.nodes) > len(shown):
        notes.append(f"The {len(shown)} most expensive of {len(report.nodes):,} nodes. costs.json has all of them.")
    return make_table(
        shown,
        (text("node", lambda line: line.what), *_spend_columns(lambda line: line)),
        title=f"Each node in {report.month}",
        notes=tuple(notes),
    )


def _work_columns(of: Callable[[Any], WorkCost | WhatIf]) -> tuple[Column[Any], ...]:
    return (text("work", lambda row: of(row).work), text("GPU", lambda row: of(row).gpu_name or "CPU"))


def _works(report: SpendReport) -> Table:
    cheapest = _cheapest(report.works)
    rows = [(work, work.this) for work in report.works[:MAX_WORKS] if work.this]
    notes = [
        "Medians of the valid runs, drills left out; each links to its last run. All GPUs of a gang are paid for. "
        "True median within: an interval of at least 95 % confidence, from six runs on."
    ]
    if any(len(now.price_sources) > 1 for _, now in rows):
        notes.append("Where several prices were paid in the month, their median over the runs counts.")
    return make_table(
        rows,
        (
            *_work_columns(lambda row: row[0]),
            integer("GPUs", lambda row: row[0].num_gpus),
            integer("runs", lambda row: row[1].num_runs),
            SAMPLES_PER_SECOND.column(lambda row: row[1].samples_per_s),
            MEDIAN_INTERVAL.column(
                lambda r: " to ".join(map(figure, r[1].samples_per_s_interval or ())) or NO_INTERVAL
            ),
            USD_PER_GPU_HOUR.column(lambda row: row[1].usd_per_gpu_hour),
            USD_PER_1000_SAMPLES.column(lambda row: row[1].usd_per_1000_samples),
            USD_PER_1M_TOKENS.column(lambda row: row[1].usd_per_1m_tokens),
            OF_CHEAPEST.column(lambda row: _of_cheapest_pct(row[0], row[1], cheapest)),
        ),
        run_id=lambda row: row[1].last_run,
        title=f"What the work costs in {report.month}",
        notes=_cut(report, notes),
    )


def _of_cheapest_pct(work: WorkCost, now: WorkMonth, cheapest: Mapping[str, float]) -> float | None:
    best = cheapest.get(work.fingerprint)
    return 100 * now.usd_per_1000_samples / best if best and now.usd_per_1000_samples else None


def _cheapest(works: Sequence[WorkCost]) -> dict[str, float]:
    """Fingerprint -> USD per 1K samples on the cheapest kind of GPU, for works on several kinds."""
    costs_of: dict[str, list[float]] = {}
    for work in works:
        if work.this and work.this.usd_per_1000_samples:
            costs_of.setdefault(work.fingerprint, []).append(work.this.usd_per_1000_samples)
    return {key: min(costs) for key, costs in costs_of.items() if len(costs) > 1}


def _trend(report: SpendReport) -> Table:
    notes = ("The two parts add up to the change: each is weighted with the mean of the other over both months.",)
    return make_table(
        [work for work in report.works[:MAX_WORKS] if work.last],
        (
            *_work_columns(lambda work: work),
            MONTH_CHANGE.column(
                lambda w: w.last.usd_per_1000_samples if w.last else None, f"per 1K in {report.before}"
            ),
            MONTH_CHANGE.column(lambda w: w.this.usd_per_1000_samples if w.this else None, f"in {report.month}"),
            MONTH_CHANGE.column(lambda work: change_texts(work)[0], "change"),
            CHANGE_PARTS.column(lambda work: change_texts(work)[1]),
            CHANGE_PARTS.column(lambda work: change_texts(work)[2], "by throughput"),
            text("why", lambda work: work.why),
        ),
        title=f"Against {report.before}, per 1K samples",
        notes=_cut(report, notes),
    )


def _prices(report: SpendReport) -> Table:
    rows = tuple(_first_prices(report.prices))
    notes = [
        "The GPU-hours of the month's runs on that kind of GPU at another price. GPUs that did not run are not guessed."
    ]
    if report.params.price_basis is PriceBasis.SPOT:
        useful = share(100 * report.params.spot_useful_share, 0)
        notes.append(f"Spot: {useful} of the paid hours count as useful.")
    if len(rows) < len(report.prices):
        notes.append(f"The {MAX_PRICES} cheapest of each kind of GPU. {FILES}")
    return make_table(
        rows,
        (
            text("GPU", lambda price: price.gpu_name or "CPU"),
            text("price", lambda price: price.label),
            text("basis", lambda price: price.basis or "given"),
            text("as of", lambda price: price.as_of or NA),
            USD_PER_GPU_HOUR.column(lambda price: price.usd_per_gpu_hour),
            *time_columns(lambda price: price.usd_per_gpu_hour),
            OTHER_PRICE.column(lambda price: price.against_paid_pct, write=percent),
            OTHER_PRICE.column(lambda price: price.month_usd, "the month at this price", write=usd),
        ),
        title="What if: other prices",
        notes=tuple(notes),
    )


def _first_prices(prices: Sequence[OtherPrice]) -> Iterator[OtherPrice]:
    seen: dict[str | None, int] = {}
    for price in prices:
        seen[price.gpu_name] = seen.get(price.gpu_name, 0) + 1
        if seen[price.gpu_name] <= MAX_PRICES or price.basis is None:
            yield price


def _what_if(report: SpendReport) -> Table:
    """For each work the price given by hand and the cheapest other price."""
    paid = {(w.fingerprint, w.gpu_name): w.this.usd_per_1000_samples for w in report.works if w.this}
    given = {(price.gpu_name, price.label) for price in report.prices if price.basis is None}
    by_work = grouped(((tried.fingerprint, tried.gpu_name), tried) for tried in report.what_if)
    shown = []
    for of_work in list(by_work.values())[:MAX_WORKS]:
        of_kind = grouped(((tried.gpu_name, tried.label) in given, tried) for tried in of_work)
        shown += [cheapest_first[0] for cheapest_first in of_kind.values()]

    def before(tried: WhatIf) -> float | None:
        return paid.get((tried.fingerprint, tried.gpu_name))

    return make_table(
        shown,
        (
            *_work_columns(lambda tried: tried),
            text("price", lambda tried: tried.label),
            WHAT_IF.column(before),
            WHAT_IF.column(lambda tried: tried.usd_per_1000_samples, "per 1K samples then"),
            WHAT_IF.column(lambda tried: tried.usd_per_1m_tokens, "per 1M tokens then"),
            MONTH_CHANGE.column(
                lambda t: 100 * (t.usd_per_1000_samples / paid_usd - 1) if (paid_usd := before(t)) else None,
                "change",
                write=percent,
            ),
        ),
        title="What if: the work at other prices",
        notes=("For each work the price given by hand, if any, and the cheapest of the others. costs.csv has all.",),
    )


def _energy(report: SpendReport) -> Table:
    tariff, pue = report.params.usd_per_kwh, report.params.pue
    terms = f"at {usd(tariff)} per kWh, PUE {pue:g}" if tariff else "n/a: give usd_per_kwh"
    note = f"GPUs only, from their own energy counters. Electricity {terms}."
    works = [(work, work.this.joules_per_sample) for work in report.works[:MAX_WORKS] if work.this]
    return make_table(
        [(work, joules) for work, joules in works if joules is not None],
        (
            *_work_columns(lambda row: row[0]),
            ENERGY_PER_SAMPLE_J.column(lambda row: row[1]),
            ELECTRICITY.column(lambda row: row[1] * 1000 / JOULES_PER_KWH, write=figure_3),
            ELECTRICITY.column(
                lambda row: energy_usd_per_1000_samples(row[1], tariff, pue) if tariff else None,
                "electricity per 1K samples",
                write=usd,
            ),
        ),
        title="Energy",
        notes=_cut(report, (note,)),
    )


def _cut(report: SpendReport, notes: Sequence[str]) -> tuple[str, ...]:
    if len(report.works) <= MAX_WORKS:
        return tuple(notes)
    return (*notes, f"The first {MAX_WORKS} of {count(len(report.works), 'work')}. {FILES}")
