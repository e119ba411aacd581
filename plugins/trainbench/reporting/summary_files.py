"""Writes the files of a campaign's summary. A file that cannot be written becomes an error finding in the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainbench.core.verdicts import by_level
from trainbench.history import run_rows as history_rows
from trainbench.reporting import comparison_sections, cost_report, html, metrics_csv, plots, report, report_json
from trainbench.results.artefacts import Store
from trainbench.results.campaign import Campaign
from trainbench.results.fault_isolation import FaultIsolation

Files = dict[str, str | bytes]


def write_summary(campaign: Campaign, store: Store) -> Mapping[str, str]:
    """Write every file of the campaign's summary, replacing older ones; return relative path -> address."""
    parts = FaultIsolation()
    files = _files(campaign, parts)
    history_rows.rows(campaign, parts)  # adds a finding on rows that the history cannot record
    if parts.failures:  # written again with a finding on the files that failed
        campaign = campaign.model_copy(update={"findings": by_level((*campaign.findings, *parts.failures))})
        files = _files(campaign, FaultIsolation())
    store.write_results(campaign.results)
    store.write_campaign(campaign)
    return store.write_summary(campaign.campaign_id, files)


def _files(campaign: Campaign, parts: FaultIsolation) -> Files:
    """Relative path -> content, without files that cannot be made."""
    name, files = campaign.campaign_id, Files()
    # Plots, sections and rows first: several documents show them.
    images = parts.attempt("drawing plots", name, lambda: plots.draw(campaign)) or {}
    sections = parts.attempt("comparing", name, lambda: comparison_sections.comparison_sections(campaign)) or ()
    rows = parts.attempt("computing the figures of the runs", name, lambda: metrics_csv.metric_rows(campaign)) or ()
    raw = [f"../runs/{result.spec.identity.run_id}/result.json" for result in campaign.results]
    # The Markdown report comes last: it lists the files before it.
    documents: Mapping[str, Callable[[], str]] = {
        "metrics.csv": lambda: metrics_csv.metrics_csv(campaign, rows),
        "COST_REPORT.md": lambda: cost_report.cost_report(campaign),
        "report.html": lambda: html.report_html(campaign, images, sections),
        "report.json": lambda: report_json.report_json(campaign, rows, sections),
        "BENCHMARK_REPORT.md": lambda: report.benchmark_report(campaign, [*sorted(files), *raw], sections),
    }
    files |= {f"plots/{image}": png for image, png in images.items()}
    for path, write in documents.items():
        text = parts.attempt(f"writing {path}", name, write)
        files |= {} if text is None else {path: text}
    return files
