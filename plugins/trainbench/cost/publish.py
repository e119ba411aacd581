"""Reads history and price tables for the cost report, and writes its files into the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from trainbench.cost.monthly_files import report_files
from trainbench.cost.monthly_report import SpendReport, make_report
from trainbench.cost.paid_runs import paid_runs
from trainbench.history.history import History
from trainbench.params.cost_params import SpendParams, months_until, start_of
from trainbench.prices.price_tables import stale_price_findings, usable_prices
from trainbench.results.artefacts import Store
from trainbench.settings.environment import read_settings


def report_on(params: SpendParams, history: History, report_id: str, now: datetime) -> SpendReport:
    """The report on `params.month`, else on the month of `now`. Raises HistoryError, and PriceError for our table."""
    month = params.month or f"{now:%Y-%m}"
    months = months_until(month, params.months)
    runs = paid_runs(history, start_of(months[0]), start_of(month, after=1))
    table, findings = usable_prices(read_settings().prices)
    report = make_report(runs, params, month, report_id=report_id, made_at=now, table=table, findings=findings)
    tried = {price.label for price in report.prices}
    old = stale_price_findings((price for price in table if price.offer in tried), now.date())
    return report.model_copy(update={"findings": (*report.findings, *old)})


def publish(report: SpendReport, store: Store) -> Mapping[str, str]:
    """Write the report's files; file name -> address. An earlier report with this id is replaced."""
    return store.write_cost_report(report.report_id, report_files(report, store.campaign_ids()))
