"""The runs as CSV."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime

import pytest

from tests.builders import make_result
from tests.builders.nights import night
from tests.builders.three_nights import ALL, HOSTILE, SEEN
from trainbench.history.history import History
from trainbench.pages.reads.queries import Pages


def test_the_csv_holds_every_run_in_pieces(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainbench.pages.reads.run_list.ROWS_AT_ONCE", 2)
    pieces = list(pages.runs_csv(ALL))
    assert [len(piece.splitlines()) for piece in pieces] == [1, 2, 1, 2, 2, 2, 2]
    rows = list(csv.DictReader(io.StringIO("".join(pieces))))
    assert [(row["campaign_id"], row["run_id"]) for row in rows] == [
        (row.campaign_id, row.run_id) for row in pages.runs(ALL).rows
    ]
    assert rows[0]["samples_per_second"] == "10.0"
    assert (rows[0]["state"], rows[0]["why"]) == ("well", "well")
    assert rows[0]["is_drill"] == "false"
    assert datetime.fromisoformat(rows[0]["started_at"]).tzinfo == UTC


def test_a_spreadsheet_finds_no_formula_in_the_csv(history: History) -> None:
    history.record(night(1, [make_result("node-1", 10.0)], dag_run_id=HOSTILE))
    text = "".join(Pages(history.engine, {SEEN}).runs_csv(ALL))
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["dag_run_id"] == "'=cmd|' /C calc'!A0 <script>alert(1)</script>"
