"""Every figure of every report can be followed: its column is known, its function and its test exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from bench_image.contract.result import RunResult
from tests import campaigns
from tests.conftest import GOLDEN_DIR, Golden
from tests.unit.cost.test_monthly_report import report, two_months
from trainbench.core.tables import Table
from trainbench.cost import monthly_tables
from trainbench.reporting import cost_report, glossary, run_tables, verdict_text
from trainbench.reporting.comparison_sections import answers
from trainbench.reporting.figures import Figure, document, load_figures
from trainbench.results.campaign import Campaign

ROOT = GOLDEN_DIR.parents[1]
FIGURES = load_figures().figure


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
    yield verdict_text.history_table(campaign)
    yield verdict_text.findings_table(campaign.findings)
    for make in (
        run_tables.performance, run_tables.startup, run_tables.telemetry, run_tables.scaling, run_tables.failures,
        run_tables.skipped, run_tables.chosen, run_tables.software, run_tables.parameters,
        cost_report.prices_table, cost_report.nodes_table, cost_report.runs_table, cost_report.example_table,
    ):  # fmt: skip
        yield make(campaign)
    yield from (table for answer in answers(campaign) for table in answer.tables)


def test_the_page(golden: Golden) -> None:
    golden("figures.md", document(), folder=ROOT / "docs")


def test_every_column_of_every_report_is_known() -> None:
    """A new column belongs into figures.toml: with its field, formula, function and test, or as a label."""
    known = load_figures()
    columns = {column for made in whole_campaigns() for table in tables(made) for column in table.columns}
    columns |= {measure.name for measures in MEASURES for measure in measures}
    columns |= {column for table in monthly_tables.tables(report(two_months())) for column in table.columns}
    assert len(columns) > 80
    assert sorted(c for c in columns if known.of(c) is None and not known.is_label(c)) == []


MEASURES = (run_tables.PERFORMANCE, run_tables.STARTUP, run_tables.TELEMETRY)


def test_a_column_of_runs_names_the_field_that_it_reads() -> None:
    """The path by which a table explains an absence is the field that figures.toml names."""
    for measure in (measure for measures in MEASURES for measure in measures):
        figure = load_figures().of(measure.name)
        assert figure is not None, measure.name
        last = measure.path.replace(".*", "").split(".")[-1]
        assert last in figure.field.replace(",", " ").replace(".", " ").split(), measure.name


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.names[0])
def test_the_function_and_the_test_of_a_figure_exist(figure: Figure) -> None:
    for address, mark in ((figure.where, ":"), (figure.test, "::")):
        path, _, name = address.partition(mark)
        text = (ROOT / path).read_text()
        assert re.search(rf"^\s*def {re.escape(name)}\(", text, re.MULTILINE), f"{address} is not there"


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.names[0])
def test_the_field_of_a_figure_is_one_of_a_result(figure: Figure) -> None:
    """Those of other files name the file first."""
    for field in figure.field.replace(" .", " startup.").split(", "):
        if ":" in field or "price" in field:
            continue
        model: object = RunResult
        for name in field.split("; ")[0].split("."):
            fields = getattr(model, "model_fields", None) or {}
            assert name in fields, f"{field} of {figure.names[0]}"
            model = _inner(fields[name].annotation)


def _inner(annotation: object) -> object:
    """The model within `Model | None` or `tuple[Model, ...]`."""
    parts = [part for part in getattr(annotation, "__args__", (annotation,)) if hasattr(part, "model_fields")]
    return parts[0] if parts else annotation


def test_no_name_stands_for_two_figures() -> None:
    names = [name for figure in FIGURES for name in figure.names]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_the_reports_explain_the_figures_that_need_it_and_name_their_fields() -> None:
    explained = dict(glossary.FIGURES)
    assert explained["samples/s"].endswith("Field: performance.samples_per_second.")
    assert {"MFU", "spread", "noise", "deviation", "equal work", "per 1K samples"} <= explained.keys()
