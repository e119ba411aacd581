"""report.json: the report for programs: verdicts, findings, every run, costs and comparisons.

    format, format_version     "trainbench-report", 1
    campaign_id, suite, title, campaign_kind, started_at, finished_at
    verdict                    sentence, tone (good | warn | bad), drill, recommended
    nodes                      one for each: state, why, reason, next_step, comparisons of the verdict that decides it
    groups, findings           as in verdict.json, whose models document them; numbers as computed, percent as percent
    runs                       the rows of metrics.csv as numbers and nulls; units end the names; `result`: the raw file
    comparisons                the reports' comparison tables as text; each column with its unit and field
    cost                       sentences
    parameters                 of the campaign

Paths are relative to this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainbench.core.csv_cells import Cell
from trainbench.core.tables import RESULT_LINK, Table
from trainbench.reporting import cost_report, verdict_text
from trainbench.reporting.comparison_sections import Section, comparison_sections
from trainbench.reporting.metrics_csv import metric_rows
from trainbench.results.campaign import Campaign

FORMAT, FORMAT_VERSION = "trainbench-report", 1


def report_json(
    campaign: Campaign,
    rows: Iterable[Mapping[str, Cell]] | None = None,
    sections: Sequence[Section] | None = None,
) -> Iterator[str]:
    """The JSON text in pieces. `rows`, `sections`: those of `metric_rows` and `comparison_sections`, if known."""
    rows = metric_rows(campaign) if rows is None else rows
    sections = comparison_sections(campaign) if sections is None else sections
    head = campaign.model_dump(
        mode="json", include={"campaign_id", "suite", "title", "campaign_kind", "started_at", "finished_at"}
    )
    verdict = {
        "sentence": verdict_text.verdict(campaign),
        "tone": verdict_text.tone(campaign),
        "drill": verdict_text.drill_sentence(campaign),
        "recommended": verdict_text.recommended(campaign),
    }
    nodes = [row.model_dump(mode="json") for row in verdict_text.node_rows(campaign)]
    judged = campaign.model_dump(mode="json", include={"groups", "findings"})
    before = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **head,
        "verdict": verdict,
        "nodes": nodes,
        **judged,
        "runs": [],
    }
    after = {
        "comparisons": [
            {"anchor": section.anchor, "title": section.title, "tables": [_table(table) for table in section.tables]}
            for section in sections
        ],
        "cost": [cost_report.summary(campaign), *cost_report.sample_prices(campaign)],
        "parameters": campaign.params,
    }
    yield _text(before).removesuffix("]}")
    for place, row in enumerate(rows):
        yield (", " if place else "") + _text({**row, "result": _link(row.get("run_id"))})
    yield "], " + _text(after).removeprefix("{") + "\n"


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, default=str)


def _link(run_id: object) -> str | None:
    """The link to the raw result of a run; a skipped run has none."""
    return RESULT_LINK.format(run_id=run_id) if run_id else None


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "columns": [
            {"name": column.name, "is_number": column.is_number, "unit": column.unit, "field": column.field}
            for column in table.columns
        ],
        "rows": [{"cells": list(row.texts), "tone": row.tone.value, "result": _link(row.run_id)} for row in table.rows],
        "notes": list(table.notes),
    }
