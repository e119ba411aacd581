"""The tables of a cost report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainbench.core.formats import NA, count, figure, percent, share, usd
from trainbench.core.tables import Row, Table
from trainbench.cost.cost_trend import WorkCost
from trainbench.cost.monthly_cost import Spend
from trainbench.cost.monthly_report import SpendReport, change_words
from trainbench.cost.what_if import OtherPrice
from trainbench.params.cost_params import PriceBasis
from trainbench.prices.energy import JOULES_PER_KWH, energy_usd_per_1000_samples

MAX_NODES = 50
NO_INTERVAL = "under 6 runs"  # see cost_trend.median_interval
MAX_WORKS = 100
MAX_PRICES = 12  # of one kind of GPU
FILES = "costs.csv and costs.json have all of them."


def tables(report: SpendReport) -> tuple[Table, ...]:
    """Those that have rows, in the report's order."""
    every = (_months, _nodes, _works, _trend, _prices, _what_if, _energy)
    return tuple(made for make in every if (made := make(report)).rows)


def _months(report: SpendReport) -> Table:
    rows = []
    for month in report.spend:
        if month.total.num_runs:
            rows += [Row(cells=(month.month, *_spend_cells(line))) for line in month.by_dag]
            if len(month.by_dag) > 1:
                rows.append(Row(cells=(month.month, *_spend_cells(month.total))))
    return _table("What benchmarking cost", ("month", "DAG", *SPEND), rows, SPEND, (UNKNOWN,))


SPEND = ("runs", "GPU-hours", "cost", "not known")
UNKNOWN = "Not known: runs whose cost is not in the sum. Nor is the time in it that a node waited for a pod."


def _spend_cells(line: Spend) -> tuple[str, ...]:
    return line.what, f"{line.num_runs:,}", figure(line.gpu_hours, 3), usd(line.usd), f"{line.num_unknown:,}"


def _nodes(report: SpendReport) -> Table:
    shown = report.nodes[:MAX_NODES]
    notes = ["A gang's cost is shared evenly by its nodes."]
    if len(report.nodes) > len(shown):
        notes.append(f"The {len(shown)} dearest of {len(report.nodes):,} nodes. costs.json has all of them.")
    rows = [Row(cells=_spend_cells(line)) for line in shown]
    return _table(f"Each node in {report.month}", ("node", *SPEND), rows, SPEND, notes)


PER = ("per 1K samples", "per 1M tokens")


def _works(report: SpendReport) -> Table:
    numeric = (
        "GPUs",
        "runs",
        "samples/s",
        "true median within",
        "per GPU-hour",
        "per 1K samples",
        "per 1M tokens",
        "of the cheapest GPU",
    )
    cheapest = _cheapest(report.works)
    rows, mixed = [], False
    for work in report.works[:MAX_WORKS]:
        if not work.this:
            continue
        now, best = work.this, cheapest.get(work.fingerprint)
        mixed |= len(now.price_sources) > 1
        cells = (
            work.work,
            work.gpu_name or "CPU",
            str(work.num_gpus),
            f"{now.num_runs:,}",
            figure(now.samples_per_s),
            _interval(now.samples_per_s_interval),
            usd(now.usd_per_gpu_hour),
            usd(now.usd_per_1000_samples),
            usd(now.usd_per_1m_tokens),
            share(100 * now.usd_per_1000_samples / best, 0) if best and now.usd_per_1000_samples else NA,
        )
        rows.append(Row(cells=cells, run_id=now.last_run))
    notes = [
        "Medians of the valid runs, drills left out; each links to its last run. All GPUs of a gang are paid for. "
        "True median within: so in at least 95 % of the cases; fewer than six runs have no such interval."
    ]
    if mixed:
        notes.append("Where several prices were paid in the month, their median over the runs counts.")
    return _table(
        f"What the work costs in {report.month}", ("work", "GPU", *numeric), rows, numeric, _cut(report, notes)
    )


def _cheapest(works: Sequence[WorkCost]) -> dict[str, float]:
    """Fingerprint -> USD per 1K samples on the cheapest of several kinds of GPU that did it."""
    found: dict[str, list[float]] = {}
    for work in works:
        if work.this and work.this.usd_per_1000_samples:
            found.setdefault(work.fingerprint, []).append(work.this.usd_per_1000_samples)
    return {key: min(costs) for key, costs in found.items() if len(costs) > 1}


def _trend(report: SpendReport) -> Table:
    numeric = (f"per 1K in {report.before}", f"in {report.month}", "change", "by price", "by throughput")
    rows = [
        Row(
            cells=(
                work.work,
                work.gpu_name or "CPU",
                usd(work.last.usd_per_1000_samples if work.last else None),
                usd(work.this.usd_per_1000_samples if work.this else None),
                *change_words(work),
                work.why,
            )
        )
        for work in report.works[:MAX_WORKS]
        if work.last
    ]
    notes = ("The two parts add up to the change: each is weighed with the mean of the other over both months.",)
    title = f"Against {report.before}, per 1K samples"
    return _table(title, ("work", "GPU", *numeric, "why"), rows, numeric, _cut(report, notes))


def _prices(report: SpendReport) -> Table:
    numeric = ("per GPU-hour", "against what is paid", "the month at this price")
    rows = [
        Row(
            cells=(
                price.gpu_name or "CPU",
                price.label,
                price.basis or "given",
                price.as_of or NA,
                usd(price.usd_per_gpu_hour),
                percent(price.against_paid_pct),
                usd(price.month_usd),
            )
        )
        for price in _first_prices(report.prices)
    ]
    notes = [
        "The GPU-hours of the month's runs on that kind of GPU at another price. GPUs that did not run are not guessed."
    ]
    if report.params.price_basis is PriceBasis.SPOT:
        useful = share(100 * report.params.spot_useful_share, 0)
        notes.append(f"Spot: {useful} of the hours that are paid for are taken to be useful.")
    if len(rows) < len(report.prices):
        notes.append(f"The {MAX_PRICES} cheapest of each kind of GPU. {FILES}")
    return _table("What if: other prices", ("GPU", "price", "basis", "as of", *numeric), rows, numeric, notes)


def _first_prices(prices: Sequence[OtherPrice]) -> Iterator[OtherPrice]:
    seen: dict[str | None, int] = {}
    for price in prices:
        seen[price.gpu_name] = seen.get(price.gpu_name, 0) + 1
        if seen[price.gpu_name] <= MAX_PRICES or price.basis is None:
            yield price


def _what_if(report: SpendReport) -> Table:
    """The price given by hand and the cheapest of the others, for each work."""
    numeric = ("per 1K samples paid", "per 1K samples then", "per 1M tokens then", "change")
    by_work: dict[tuple[str, str | None], list[Row]] = {}
    paid = {(w.fingerprint, w.gpu_name): w.this.usd_per_1000_samples for w in report.works if w.this}
    given = {(price.gpu_name, price.label) for price in report.prices if price.basis is None}
    told: set[tuple[str, str | None, bool]] = set()
    for tried in report.what_if:
        key, is_given = (tried.fingerprint, tried.gpu_name), (tried.gpu_name, tried.label) in given
        if (*key, is_given) in told or (len(by_work) >= MAX_WORKS and key not in by_work):
            continue
        told.add((*key, is_given))
        before = paid.get(key)
        change = 100 * (tried.usd_per_1000_samples / before - 1) if before else None
        cells = (
            tried.work, tried.gpu_name or "CPU", tried.label, usd(before), usd(tried.usd_per_1000_samples),
            usd(tried.usd_per_1m_tokens), percent(change),
        )  # fmt: skip
        by_work.setdefault(key, []).append(Row(cells=cells))
    rows = [row for of in by_work.values() for row in of]
    notes = ("For each work the price given by hand, if any, and the cheapest of the others. costs.csv has all.",)
    return _table("What if: the work at other prices", ("work", "GPU", "price", *numeric), rows, numeric, notes)


def _energy(report: SpendReport) -> Table:
    tariff, pue = report.params.usd_per_kwh, report.params.pue
    numeric = ("J per sample", "kWh per 1K samples", "electricity per 1K samples")
    rows = [
        Row(
            cells=(
                work.work,
                work.gpu_name or "CPU",
                figure(joules),
                figure(joules * 1000 / JOULES_PER_KWH, 3),
                usd(energy_usd_per_1000_samples(joules, tariff, pue) if tariff else None),
            )
        )
        for work in report.works[:MAX_WORKS]
        if work.this and (joules := work.this.joules_per_sample) is not None
    ]
    asked = f"at {usd(tariff)} per kWh, PUE {pue:g}" if tariff else "n/a: give usd_per_kwh"
    note = f"GPUs only, from their own energy counters. Electricity {asked}."
    return _table("Energy", ("work", "GPU", *numeric), rows, numeric, _cut(report, (note,)))


def _interval(interval: tuple[float, float] | None) -> str:
    return NO_INTERVAL if interval is None else " to ".join(map(figure, interval))


def _cut(report: SpendReport, notes: Sequence[str]) -> tuple[str, ...]:
    if len(report.works) <= MAX_WORKS:
        return tuple(notes)
    return (*notes, f"The first {MAX_WORKS} of {count(len(report.works), 'work')}. {FILES}")


def _table(
    title: str, columns: Sequence[str], rows: Sequence[Row], numeric: Sequence[str], notes: Sequence[str]
) -> Table:
    return Table(columns=tuple(columns), rows=tuple(rows), numeric=frozenset(numeric), notes=tuple(notes), title=title)
