"""One table for all outputs: columns write the cells, long tables keep what is marked, a CSV has full figures."""

from __future__ import annotations

from tests.builders import make_result
from tests.builders.campaigns import gpu_node, make_campaign
from tests.builders.verdicts import make_group
from trainbench.core.markdown import table as markdown_table
from trainbench.core.tables import (
    MAX_ROWS,
    Table,
    Tone,
    csv_text,
    make_table,
    number,
    shortened,
    text,
    text_columns,
    text_row,
)
from trainbench.figure_catalogue.run_figures import PERFORMANCE
from trainbench.reporting import run_tables
from trainbench.reporting.report import benchmark_report, report_html


def long_table(rows: int, **tones: Tone) -> Table:
    return Table(
        columns=text_columns("node"),
        rows=tuple(text_row(f"node-{i}", tone=tones.get(f"n{i}", Tone.PLAIN)) for i in range(rows)),
        notes=("A note.",),
    )


def test_a_short_table_stays_as_it_is() -> None:
    table = long_table(MAX_ROWS)
    assert shortened(table, "--json has") is table


def test_a_long_table_keeps_marked_rows_and_counts_the_rest() -> None:
    """250 rows, numbers 0 to 249; 240 is red and 245 amber: both are kept, 198 others; a note counts the 50."""
    short = shortened(long_table(250, n240=Tone.BAD, n245=Tone.WARN), "--json has")
    assert [row.texts[0] for row in short.rows[:3]] == ["node-240", "node-245", "node-0"]
    assert len(short.rows) == MAX_ROWS
    assert short.notes == ("And 50 more rows: --json has all of them.", "A note.")


def test_more_red_rows_than_fit_are_counted() -> None:
    short = shortened(long_table(300, **{f"n{i}": Tone.BAD for i in range(260)}), "--json has")
    assert short.notes[0] == "And 100 more rows, 60 of them marked: --json has all of them."


def test_markdown_and_page_cut_alike() -> None:
    assert markdown_table(long_table(1000)).count("\n| ") == MAX_ROWS


def test_a_report_of_thousands_of_runs_can_be_opened() -> None:
    """1,200 nodes with one run each: tables of 200 rows, and the red node stands in the verdict's first row."""
    results = [make_result(f"node-{i}") for i in range(1200)]
    nodes = [gpu_node(f"node-{i}", 9.5, 9.5) for i in range(1200)]
    campaign = make_campaign(results, [make_group(nodes, results[0].spec.identity.group_id)])
    performance = run_tables.runs_table(campaign, PERFORMANCE)
    assert (len(performance.rows), performance.notes[0]) == (
        MAX_ROWS,
        "And 1,000 more runs: metrics.csv has all of them.",
    )
    assert len(benchmark_report(campaign)) < 400_000
    assert len(report_html(campaign, {})) < 2_000_000


def test_a_csv_has_full_figures_and_empty_cells_for_unknown_ones() -> None:
    rows = [("a", 9.123456), ("=b", None)]
    table = make_table(rows, (text("node", lambda row: row[0]), number("samples/s", lambda row: row[1])))

    assert [row.texts for row in table.rows] == [("a", "9.123"), ("=b", "n/a")]
    assert csv_text(table) == "node,samples/s\na,9.123456\n'=b,\n"


def test_bars_compare_the_figures_of_a_column() -> None:
    """Of 4, 2 and an unknown one: 100 %, 50 %, no bar."""

    def bars(*values: float | None) -> list[float | None]:
        table = make_table(values, (number("tokens/s", lambda value: value, has_bar=True),))
        return [row.cells[0].bar for row in table.rows]

    assert bars(4.0, 2.0, None) == [100.0, 50.0, None]
    assert bars(0.0) == [None]


def test_a_row_beside_the_objects_ends_in_empty_cells() -> None:
    columns = (
        text("name", lambda name: name),
        text("length", lambda name: str(len(name))),
        text("note", lambda _: "-"),
    )

    made = make_table(["ddp"], columns, more=[text_row("fsdp", "oom")])

    assert [row.texts for row in made.rows] == [("ddp", "3", "-"), ("fsdp", "oom", "")]
