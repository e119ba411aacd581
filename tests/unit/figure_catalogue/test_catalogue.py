"""Every figure of every report can be followed: its column is known, its function and its test exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from bench_image.contract.result import RunResult
from tests.builders import campaigns, make_failed, make_result
from tests.conftest import GOLDEN_DIR, Golden
from tests.unit.cost.test_monthly_report import report, two_months
from trainbench.core.tables import Table
from trainbench.cost import monthly_report
from trainbench.figure_catalogue import run_figures
from trainbench.figure_catalogue.catalogue import FIGURES, document, origins
from trainbench.figure_catalogue.figure import Figure
from trainbench.figure_catalogue.run_figures import MFU_PCT, P95_STEP_TIME_S, TEMPERATURE_MEAN_C
from trainbench.pages.render import listings
from trainbench.reporting import cost_report, glossary, run_tables, verdict_text
from trainbench.reporting.comparison_sections import comparison_sections
from trainbench.reporting.data_files import metric_rows
from trainbench.results.campaign import Campaign

ROOT = GOLDEN_DIR.parents[1]


def whole_campaigns() -> Iterator[Campaign]:
    """All that the tests of the reports know."""
    for make in vars(campaigns).values():
        if callable(make) and getattr(make, "__module__", "") == campaigns.__name__:
            try:
                made = make()
            except TypeError:  # one that needs arguments
                continue
            if isinstance(made, Campaign):
                yield made


def tables(campaign: Campaign) -> Iterator[Table]:
    yield from (verdict_text.verdict_table(campaign, group) for group in campaign.groups)
    yield from (run_tables.runs_table(campaign, each) for each in run_figures.SECTIONS)
    yield verdict_text.findings_table(campaign.findings)
    for make in (
        run_tables.failures, run_tables.skipped, run_tables.chosen, run_tables.software, run_tables.parameters,
        cost_report.prices_table, cost_report.nodes_table, cost_report.runs_table, cost_report.work_table,
    ):  # fmt: skip
        yield make(campaign)
    yield from (table for section in comparison_sections(campaign) for table in section.tables)


def test_the_pages(golden: Golden) -> None:
    golden("figures.md", document(), folder=ROOT / "docs")
    golden("figures.md", origins(), folder=ROOT / "docs" / "internals")


# Number columns that count something or repeat a setting: they need no formula.
COUNTS = frozenset({
    "GPUs", "GPUs paid", "nodes", "runs", "rounds", "processes", "rows", "days", "not known", "micro-batch", "memory",
    "compared with",
})  # fmt: skip


def test_every_column_of_every_report_is_known() -> None:
    """A number column is a figure of the catalogue, under one of its headings, or a count."""
    made = [table for campaign in whole_campaigns() for table in tables(campaign)]
    columns = [
        column for table in (*made, *monthly_report.spend_tables(report(two_months()))) for column in table.columns
    ]
    assert len({column.name for column in columns}) > 80
    strange = {
        column.name
        for column in columns
        if (column.is_number or column.field)
        and column.name not in COUNTS
        and not any(each.names(column.name) and each.field == column.field for each in FIGURES)
    }
    assert sorted(strange) == []


def test_a_figure_is_read_at_its_field_or_by_its_function() -> None:
    """38 % MFU at performance.mfu_pct; the hottest of the GPUs by its function; no step times without a step."""
    result = make_result("node-1", 10.0)
    assert MFU_PCT.value(result) == result.performance.mfu_pct
    assert TEMPERATURE_MEAN_C.value(result) == 60.0
    assert P95_STEP_TIME_S.value(make_failed("node-1")) is None


def test_a_new_figure_of_a_run_is_in_every_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry of the catalogue makes a column of metrics.csv and of the report, and a line of the run's page."""
    first_loss = Figure(
        "first_loss", "first loss", "1", "performance.first_loss", "", "", "", section=run_figures.PERFORMANCE
    )
    monkeypatch.setattr(run_figures, "RUN_FIGURES", (*run_figures.RUN_FIGURES, first_loss))
    campaign = campaigns.make_campaign([make_result()])
    assert "first_loss" in next(iter(metric_rows(campaign)))
    assert "first loss" in run_tables.runs_table(campaign, run_figures.PERFORMANCE).names
    assert ("first loss",) in {row.texts[:1] for table in listings.run_figures(make_result()) for row in table.rows}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_function_and_the_test_of_a_figure_exist(figure: Figure) -> None:
    module, _, function = figure.source.rpartition(".")
    path = ROOT / ("" if module.startswith("bench_image") else "plugins") / f"{module.replace('.', '/')}.py"
    file, _, test = figure.test.partition("::")
    assert _defines(path.read_text(), function), f"no {function} in {path}"
    assert any(_defines(actual.read_text(), test) for actual in (ROOT / "tests").rglob(file)), f"no test {figure.test}"


def _defines(code: str, function: str) -> bool:
    return re.search(rf"^\s*def {re.escape(function)}\(", code, re.MULTILINE) is not None


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_field_of_a_figure_is_one_of_a_result(figure: Figure) -> None:
    """Those of other files name the file first."""
    for field in figure.field.replace(".*", "").split(", "):
        if ":" in field or "price" in field:
            continue
        model: object = RunResult
        for name in field.split("; ")[0].split("."):
            fields = getattr(model, "__pydantic_fields__", None) or {}
            assert name in fields, f"{field} of {figure.name}"
            model = _inner(fields[name].annotation)


def _inner(annotation: object) -> object:
    """The model within `Model | None` or `tuple[Model, ...]`."""
    parts = [part for part in getattr(annotation, "__args__", (annotation,)) if hasattr(part, "__pydantic_fields__")]
    return parts[0] if parts else annotation


def test_no_heading_and_no_column_stands_for_two_figures() -> None:
    for names in (
        [heading for figure in FIGURES for heading in (figure.label, *figure.also)],
        [figure.name for figure in FIGURES],
        [figure.csv or figure.name for figure in FIGURES],
    ):
        assert sorted({name for name in names if names.count(name) > 1}) == []


def test_the_reports_explain_the_figures_that_need_it_and_name_their_fields() -> None:
    explained = {row.texts[0]: row.texts[2] for row in glossary.tables()[1].rows}
    assert explained["samples/s"] == "performance.samples_per_second"
    assert {"MFU", "spread", "noise", "deviation", "equal work", "per 1K samples"} <= explained.keys()
