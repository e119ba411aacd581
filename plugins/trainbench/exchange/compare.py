"""Compares rows by job: speed and cost of each against its baseline, without a rank where work differs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainbench.core.formats import NA, count, duration, figure, listing, percent, share, usd
from trainbench.core.grouping import grouped
from trainbench.core.number_checks import QuantityError, positive
from trainbench.core.tables import Column, Table, integer, make_table, number, shortened, text, text_columns
from trainbench.core.user_error import UserError
from trainbench.exchange.result_files import ComparisonRow, Gathered, differences, same_job
from trainbench.figure_catalogue.run_figures import (
    GPU_UTILISATION_MEAN_PCT,
    HALF_WIDTH_PCT,
    MEDIAN_STEP_TIME_S,
    PEAK_MEMORY_GB,
    SAMPLES_PER_SECOND,
    TOKENS_PER_SECOND,
    USD_PER_1M_TOKENS,
    USD_PER_1000_SAMPLES,
    USD_PER_GPU_HOUR,
)
from trainbench.figure_catalogue.table_figures import EPOCH, RELATIVE_SPEED
from trainbench.prices.price_tables import Price, price_for
from trainbench.prices.quote import usd_per_1m_tokens, usd_per_1000_samples, where_known
from trainbench.reporting.document import Closed, Lines, Section, document_html
from trainbench.results.store_files import BrokenFile

FORMAT, FORMAT_VERSION = "trainbench-comparison", 1
GIVEN = "given by --cost"


class CompareError(UserError, ValueError):
    """The comparison cannot be made with these options; the message says why and what to do."""


Job = tuple[ComparisonRow, ...]  # rows of one job; the first is its baseline


def compare(rows: Sequence[ComparisonRow], prices: Sequence[Price], costs: Sequence[float] = ()) -> tuple[Job, ...]:
    """The jobs of the rows. `costs`: USD per GPU-hour of each row in order; empty: the price stored with the run, else
    the price table's. Raises CompareError.
    """
    if costs and len(costs) != len(rows):
        listed = listing(f"{number} {row.name} ({row.hardware})" for number, row in enumerate(rows, 1))
        raise CompareError(f"--cost has {count(len(costs), 'price')} for {count(len(rows), 'row')}: {listed}")
    priced = [_priced(number, row, prices, costs[number - 1] if costs else None) for number, row in enumerate(rows, 1)]
    of_jobs = grouped(((row.program, *sorted(row.job.items())), row) for row in priced)
    return tuple(tuple(_against(row, members[0]) for row in members) for members in of_jobs.values())


def sections(jobs: Sequence[Job]) -> list[Section]:
    """One for each job, with tables of speed and of cost; without a price a note under that of speed."""
    made = []
    for job_number, job in enumerate(jobs, 1):
        title, prices = _title(job, jobs), _price_notes(job)
        is_priced = any(row.usd_per_gpu_hour is not None for row in job)
        notes = (*_speed_notes(job, jobs), *(() if is_priced else prices))
        speed = _table(job, f"{title}: speed", SPEED, notes)
        cost = [_table(job, f"{title}: cost", COST, prices)] if is_priced else []
        made.append(Section(speed.title, [speed, *cost], f"job-{job_number}"))
    return made


def summary(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Sentences that name the fastest and the cheapest row of each job with several rows."""
    lines = [line for job in jobs if len(job) > 1 for line in _summary(job, jobs)]
    if len(jobs) > 1:
        lines.append(f"{len(jobs)} different jobs: rows of different jobs are not ranked against each other.")
    return tuple(lines)


def document(jobs: Sequence[Job], notes: Sequence[str], left_out: Sequence[BrokenFile]) -> dict[str, Any]:
    """The comparison as JSON: one entry for each row, in the order of the sources."""
    rows = [
        row.model_dump(mode="json", exclude={"figures"}) | dict(row.figures) | {"job_number": number}
        for number, job in enumerate(jobs, 1)
        for row in job
    ]
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "rows": sorted(rows, key=lambda row: row["number"]),
        "summary": list(summary(jobs)),
        "notes": list(notes),
        "left_out": left_out,
    }


def _priced(number: int, row: ComparisonRow, prices: Sequence[Price], given: float | None) -> ComparisonRow:
    price, source = row.usd_per_gpu_hour, row.price_source or "given for the run"
    if given is not None:
        try:
            price, source = positive(given, "--cost"), GIVEN
        except QuantityError as error:
            raise CompareError(f"{error}, in $ per GPU-hour") from None
    elif price is None and (listed := price_for(row.hardware, prices)):
        price, source = listed.usd_per_gpu_hour, f"{listed.label}, {listed.as_of}"
    tokens_per_s, epoch_s = row.figure(TOKENS_PER_SECOND), row.epoch_s
    return row.model_copy(
        update={
            "number": number,
            "usd_per_gpu_hour": price,
            "price_source": None if price is None else source,
            "usd_per_1000_samples": where_known(usd_per_1000_samples, price, row.num_ranks, row.samples_per_s),
            "usd_per_1m_tokens": where_known(usd_per_1m_tokens, price, row.num_ranks, tokens_per_s),
            "usd_per_epoch": None if price is None or epoch_s is None else price * row.num_ranks * epoch_s / 3600,
        }
    )


def _against(row: ComparisonRow, base: ComparisonRow) -> ComparisonRow:
    mine, its = row.usd_per_1000_samples, base.usd_per_1000_samples
    return row.model_copy(
        update={
            "relative_rate": row.samples_per_s / base.samples_per_s,
            "relative_usd": mine / its if mine is not None and its is not None else None,
            "is_ranked": same_job(row, base),
            "is_baseline": row.number == base.number,
        }
    )


def _relative(row: ComparisonRow, value: float | None) -> str:
    return NA if value is None else f"{value:.2f}x{'' if row.is_ranked else ', other batch'}"


def _batch(row: ComparisonRow) -> str:
    return NA if row.batch_per_rank is None else f"{row.batch_per_rank} x {row.num_ranks} = {row.global_batch}"


HEAD: tuple[Column[ComparisonRow], ...] = (
    text("row", lambda row: str(row.number)),
    text("result", lambda row: row.name),
    text("hardware", lambda row: row.hardware),
    text("size", lambda row: row.size, is_number=True),
)
SPEED: tuple[Column[ComparisonRow], ...] = (
    *HEAD,
    text("strategy", lambda row: row.strategy or NA),
    text("batch", _batch, is_number=True),
    SAMPLES_PER_SECOND.own(has_bar=True),
    HALF_WIDTH_PCT.column(lambda row: NA if (pct := row.apart_pct) is None else f"±{share(pct, 2)}", "uncertainty"),
    RELATIVE_SPEED.column(lambda row: _relative(row, row.relative_rate), "relative"),
    TOKENS_PER_SECOND.own(),
    MEDIAN_STEP_TIME_S.own("step", write=duration),
    EPOCH.column(lambda row: row.epoch_s, "epoch"),
    PEAK_MEMORY_GB.own(),
    GPU_UTILISATION_MEAN_PCT.own(),
    integer("runs", lambda row: row.num_runs),
)
SHARED = ("result", "hardware", "size", "strategy", "batch", "runs")
COST: tuple[Column[ComparisonRow], ...] = (
    *HEAD,
    USD_PER_GPU_HOUR.column(lambda row: row.usd_per_gpu_hour),
    USD_PER_1000_SAMPLES.column(lambda row: row.usd_per_1000_samples),
    text("relative", lambda row: _relative(row, row.relative_usd), is_number=True),
    USD_PER_1M_TOKENS.column(lambda row: row.usd_per_1m_tokens),
    number("per epoch", lambda row: row.usd_per_epoch, usd),
)


def _table(job: Job, title: str, columns: Sequence[Column[ComparisonRow]], notes: Sequence[str]) -> Table:
    """A job's table. Notes replace columns that no row fills and settings that all rows share."""
    values = {column.name: {column.cell(row).text for row in job} for column in columns}
    shared = [name for name in SHARED if len(values.get(name, ())) == 1 and NA not in values[name]]
    absent = [name for name, cells in values.items() if cells == {NA}]
    who = "All rows" if len(job) > 1 else f"Row {job[0].number}"
    more = [f"{who}: {', '.join(f'{name} {next(iter(values[name]))}' for name in shared)}."] if shared else []
    more += [f"{NA} for all rows: {listing(absent, most=9)}."] if absent else []
    made = make_table(
        job,
        [column for column in columns if column.name not in (*shared, *absent)],
        run_id=lambda row: str(row.number),
        notes=(*more, *notes),
        title=title,
    )
    return shortened(made, "--json has")


def _price_notes(job: Job) -> tuple[str, ...]:
    """Notes on the source of each price, each once."""
    rows = grouped(
        (row.price_source or f"none is known for {row.hardware}, give --cost", str(row.number)) for row in job
    )
    return tuple(f"Price of {'row' if len(n) == 1 else 'rows'} {listing(n)}: {source}." for source, n in rows.items())


def _speed_notes(job: Job, jobs: Sequence[Job]) -> tuple[str, ...]:
    base = job[0]
    notes = [f"Relative to row {base.number}, {base.name}, on {base.hardware}."] if len(job) > 1 else []
    unranked = [row for row in job if not row.is_ranked]
    if unranked:
        listed = listing(f"row {row.number} ({', '.join(differences(base, row))})" for row in unranked)
        notes.append(
            "Other batch: a step is other work there, so no such row is called fastest or cheapest. Neither the batch "
            f"per GPU nor that of all GPUs is the baseline's: {listed}."
        )
    if origins := dict.fromkeys(origin for row in job if (origin := row.apart_from)):
        notes.append(f"Uncertainty: {listing(origins)}.")
    templates = {row.number: row.pod_template for row in job if row.pod_template}
    if len(set(templates.values())) > 1:
        listed = listing(f"row {number} {template}" for number, template in templates.items())
        notes.append(f"The pod template differs, which may change the speed: {listed}.")
    others = [other for other in jobs if other is not job]
    if nearest := min(others, key=lambda other: len(differences(base, other[0])), default=None):
        work_differences = listing(differences(base, nearest[0]), most=8)
        notes.append(f"Other work than that of row {nearest[0].number}; it differs in: {work_differences}.")
    return tuple(notes)


def _title(job: Job, jobs: Sequence[Job]) -> str:
    label = job[0].label
    namesakes = [other[0] for other in jobs if other[0].label == label]
    if len(namesakes) == 1:
        return label
    known = [size for other in namesakes if (size := other.num_parameters)]
    sizes = {_parameters(size) for size in known}
    if job[0].num_parameters and len(known) == len(sizes) == len(namesakes):
        return f"{label}, {_parameters(job[0].num_parameters)} parameters"
    return f"{label} (as row {job[0].number})"


def _parameters(number: int) -> str:
    """ "7.24 B" or "4.33 M"."""
    unit, divisor = ("B", 1e9) if number >= 1e9 else ("M", 1e6)
    return f"{figure(number / divisor, 3)} {unit}"


def _summary(job: Job, jobs: Sequence[Job]) -> list[str]:
    ranked = [row for row in job if row.is_ranked]
    title = f"{_title(job, jobs)}: " if len(jobs) > 1 else ""
    lines = [f"{title}{_fastest(ranked)}"] if len(ranked) > 1 else []
    priced = [row for row in ranked if row.usd_per_1000_samples is not None]
    if len(priced) > 1:
        best = min(priced, key=lambda row: row.usd_per_1000_samples or 0.0)
        price = usd(best.usd_per_1000_samples)
        lines.append(f"{title}Cheapest per 1K samples: {_called(best)}, {price}.")
    return lines


def _fastest(rows: Sequence[ComparisonRow]) -> str:
    """A sentence on the fastest row. Rates that differ less than their half-widths are not ranked."""
    first, second = sorted(rows, key=lambda row: -row.samples_per_s)[:2]
    rate, other = first.samples_per_s, second.samples_per_s
    ahead_pct = 100 * (rate / other - 1)
    uncertainty_pct = (first.apart_pct or 0.0) + (second.apart_pct or 0.0)
    lead = f"{figure(rate)} samples/s, {percent(ahead_pct)} against {_called(second)}"
    if ahead_pct <= uncertainty_pct:
        return (
            f"Fastest: {_called(first)} and {_called(second)} are too close to rank; they differ by "
            f"{share(ahead_pct)}, within their joint uncertainty of {share(uncertainty_pct)}."
        )
    return f"Fastest: {_called(first)}, {lead}."


def _called(row: ComparisonRow) -> str:
    size = f"{row.num_gpus} x {row.hardware}" if row.num_gpus else f"{row.size} on {row.hardware}"
    return f"row {row.number} ({row.name}: {', '.join(filter(None, [row.strategy, size]))})"


MAX_BROKEN = 50
COLUMN_TERMS = (
    ("row", "A link to the raw file; for a row of several runs, to the first. Such a row shows their medians."),
    ("samples/s", "Samples of all GPUs / wall seconds of the measured windows or epochs."),
    ("relative", "samples/s, or the cost per 1K samples, over the baseline's."),
    (
        "per 1K samples",
        "Price per GPU-hour x GPUs / (samples/s x 3600) x 1000; start-up is left out. On the CPU a process counts as a "
        "GPU.",
    ),
    ("per epoch", "Price per GPU-hour x GPUs x seconds of an epoch / 3600."),
    ("memory GB", "Peak of a GPU, 1e9 bytes."),
)


def comparison_html(jobs: Sequence[Job], gathered: Gathered, folder: Path) -> str:
    """The page. `folder`: the page's folder, from which rows link to their raw files."""
    rows, parts = [row for job in jobs for row in job], sections(jobs)
    broken = [f"{file.address} is left out: {file.reason}" for file in gathered.broken[:MAX_BROKEN]]
    if len(gathered.broken) > MAX_BROKEN:
        broken.append(f"and {len(gathered.broken) - MAX_BROKEN} more")
    if told := [*gathered.notes, *broken]:
        parts.append(Section("Files that were read", [Lines(told)], "files"))
    title = count(len(rows), "result") + (" compared" if len(rows) != 1 else "")
    terms = make_table(COLUMN_TERMS, text_columns("column", "meaning", long="meaning"), title="Columns")
    return document_html(
        title,
        title,
        [*parts, Section("How to read this", [Closed(terms)], "reading")],
        word="Comparison",
        more=summary(jobs),
        # Row number -> its raw file; of several runs the first.
        links={
            str(row.number): where if "://" in where else quote(os.path.relpath(where, folder))  # a URL as it is
            for row in rows
            for where in row.addresses[:1]
        },
    )
