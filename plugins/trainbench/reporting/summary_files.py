"""Writes the files of a campaign's summary. A file that cannot be written becomes an error finding in the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench_image.contract.pod_io import RESULT_FILE
from trainbench.core.verdicts import by_level
from trainbench.history import summaries as history_rows
from trainbench.pods.gangs import failed_rank
from trainbench.pods.pod_log import log_file
from trainbench.reporting import comparison_sections, cost_report, data_files, plots, report
from trainbench.reporting.pictures import png
from trainbench.results.artefacts import CAMPAIGN_FILE, Store
from trainbench.results.campaign import Campaign
from trainbench.results.fault_isolation import FaultIsolation

Files = dict[str, str | bytes]


def write_summary(campaign: Campaign, store: Store) -> Mapping[str, str]:
    """Write every file of the campaign's summary, replacing older ones; return relative path -> address. Stored results
    stay as their pods printed them: the verdict holds them as judged, with their cost.
    """
    parts = FaultIsolation()
    logs = parts.attempt("looking for the logs of failed runs", campaign.campaign_id, lambda: _logs(campaign, store))
    campaign = campaign.model_copy(update={"logs": logs or {}})
    files = _files(campaign, parts)
    for _ in history_rows.each_row(campaign, parts):
        pass  # adds a finding on rows that the history cannot record; none is held
    if parts.failures:  # written again with a finding on the files that failed
        campaign = campaign.model_copy(update={"findings": by_level((*campaign.findings, *parts.failures))})
        files = _files(campaign, FaultIsolation())
    store.write_results(campaign.results)
    store.write_campaign(campaign)
    return store.write_summary(campaign.campaign_id, files)


def _logs(campaign: Campaign, store: Store) -> dict[str, str]:
    """Id of each failed run -> name of its kept log; of a gang that of the rank that failed, else the first."""
    logs = {}
    for result in campaign.results:
        run_id = result.spec.identity.run_id
        if result.error and (names := store.log_names(campaign.campaign_id, run_id)):
            rank = failed_rank(result)
            own = None if rank is None else log_file(rank)
            logs[run_id] = own if own in names else names[0]
    return logs


def _files(campaign: Campaign, parts: FaultIsolation) -> Files:
    """Relative path -> content, without files that cannot be made."""
    name, files = campaign.campaign_id, Files()
    # Plots and sections first: several documents show them.
    pictures = parts.attempt("drawing plots", name, lambda: plots.draw(campaign)) or {}
    sections = parts.attempt("comparing", name, lambda: comparison_sections.comparison_sections(campaign)) or ()
    beside = [CAMPAIGN_FILE, *(f"../runs/{result.spec.identity.run_id}/{RESULT_FILE}" for result in campaign.results)]
    # The Markdown report comes last: it lists the files before it.
    documents: Mapping[str, Callable[[], str]] = {
        "metrics.csv": lambda: data_files.metrics_csv(campaign, parts),
        "COST_REPORT.md": lambda: cost_report.cost_report(campaign),
        "report.html": lambda: report.report_html(campaign, pictures, sections),
        "BENCHMARK_REPORT.md": lambda: report.benchmark_report(campaign, [*sorted(files), *beside], sections),
    }
    files |= {f"plots/{each}.png": png(figure) for each, figure in pictures.items()}
    for path, write in documents.items():
        if (content := parts.attempt(f"writing {path}", name, write)) is not None:
            files[path] = content
    return files
