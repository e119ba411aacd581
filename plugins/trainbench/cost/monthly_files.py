"""A cost report as files: Markdown, one self-contained page, CSV, JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from trainbench.core import markdown
from trainbench.core.csv_cells import Cell, lines
from trainbench.core.formats import moment, sentence
from trainbench.cost.cost_trend import WorkCost, WorkMonth
from trainbench.cost.monthly_report import SpendReport
from trainbench.cost.monthly_tables import spend_tables
from trainbench.reporting.html import environment

TITLE = "Cost report"
# The report lies in cost/<id>/, the results in campaigns/<id>/runs/.
RESULT = "../../campaigns/{}/runs/{}/result.json"
FORMULAS = (
    "Cost of a run: GPU-hours from process start to result, every GPU of the run, x price per GPU-hour of that run.",
    "Per 1K samples: price per GPU-hour x GPUs / (samples/s x 3600) x 1000, start-up left out; per 1M tokens likewise.",
    "Change by price: (new - old price) x mean of both months' GPU-hours per 1K samples; by throughput: the change of "
    "those GPU-hours x mean of both prices.",
    "Owned: purchase price x (1 - worth at the end) / (life in hours x use) + running costs per hour of work.",
    "Spot: spot price / useful share of the hours.",
    "Electricity: kWh x PUE x tariff.",
)

# Of costs.csv, with one row for each work, month and price: what was paid, then what if.
COLUMNS = (
    "month", "work", "fingerprint", "gpu", "num_gpus", "num_runs", "samples_per_s", "tokens_per_s", "price", "is_paid",
    "usd_per_gpu_hour", "usd_per_1000_samples", "usd_per_1m_tokens", "last_run",
)  # fmt: skip


def report_files(report: SpendReport, campaign_ids: Collection[str]) -> dict[str, str]:
    """File name -> content. `campaign_ids`: campaigns with results in the store; only these are linked."""
    runs = [work.this.last_run for work in report.works if work.this]
    places = {run: run.split("/", 1) for run in runs}
    links = {run: RESULT.format(*parts) for run, parts in places.items() if parts[0] in campaign_ids}
    return {
        "COST_REPORT.md": as_markdown(report, links),
        "cost_report.html": as_page(report, links),
        "costs.csv": lines((COLUMNS, *_paid(report), *_tried(report))),
        "costs.json": report.model_dump_json(indent=1) + "\n",
    }


def as_markdown(report: SpendReport, links: Mapping[str, str]) -> str:
    parts = [f"# {TITLE}: {report.month}", markdown.bullets(report.summary)]
    parts += [markdown.section(content, links) for content in spend_tables(report)]
    if doubts := _doubts(report):
        parts.append(f"## Doubts about prices\n\n{markdown.bullets(doubts)}")
    parts.append(f"## How it is computed\n\n{markdown.bullets(FORMULAS)}")
    parts.append(f"{markdown.escape(report.report_id)}, made {moment(report.made_at)}. Months are in UTC.")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def as_page(report: SpendReport, links: Mapping[str, str]) -> str:
    template = environment().get_template("spend.html.j2")
    return template.render(
        title=f"{TITLE}: {report.month}",
        head=report.summary[0],
        rest=report.summary[1:],
        facts=(report.report_id, f"made {moment(report.made_at)}", "months in UTC"),
        tables=spend_tables(report),
        links=links,
        doubts=_doubts(report),
        formulas=FORMULAS,
    )


def _paid(report: SpendReport) -> Iterator[tuple[Cell, ...]]:
    for work in report.works:
        for of in filter(None, (work.last, work.this)):
            costs = (of.usd_per_gpu_hour, of.usd_per_1000_samples, of.usd_per_1m_tokens)
            yield (*_about(work, of), "; ".join(of.price_sources), True, *costs, of.last_run)


def _tried(report: SpendReport) -> Iterator[tuple[Cell, ...]]:
    works = {(work.fingerprint, work.gpu_name): work for work in report.works}
    for tried in report.what_if:
        work = works[tried.fingerprint, tried.gpu_name]
        if work.this:
            costs = (tried.usd_per_gpu_hour, tried.usd_per_1000_samples, tried.usd_per_1m_tokens)
            yield (*_about(work, work.this), tried.label, False, *costs, work.this.last_run)


def _about(work: WorkCost, of: WorkMonth) -> tuple[Cell, ...]:
    rates = (of.num_runs, of.samples_per_s, of.tokens_per_s)
    return (of.month, work.work, work.fingerprint, work.gpu_name, work.num_gpus, *rates)


def _doubts(report: SpendReport) -> tuple[str, ...]:
    return tuple(f"{sentence(finding.headline)} {sentence(finding.resolution)}" for finding in report.findings)
