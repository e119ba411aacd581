"""The reads of one page share a connection; an empty, absent or hostile history breaks none of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.nights import night
from tests.builders.three_nights import ALL, HOSTILE, SEEN, every_read
from trainbench.core.verdicts import Why
from trainbench.history.database import HistoryError
from trainbench.history.history import History
from trainbench.pages.reads.notices import open_notices
from trainbench.pages.reads.queries import Pages, choices
from trainbench.pages.reads.run_list import runs_page

pytestmark = pytest.mark.both_databases


def test_an_empty_database_has_empty_pages(history: History) -> None:
    empty = Pages(history.engine, {SEEN})
    everything_read = list(every_read(empty, ALL))
    assert everything_read[1].last_run is None
    assert (everything_read[1].spent.usd, everything_read[1].spent.num_runs) == (None, 0)
    assert (everything_read[2].rows, everything_read[2].num_pages) == ((), 1)
    assert everything_read[6].total.usd is None
    assert everything_read[-1].splitlines() == [",".join(pages_columns())]


def pages_columns() -> tuple[str, ...]:
    from trainbench.pages.reads.run_list import COLUMNS

    return COLUMNS


def test_an_unreachable_database_is_reported_in_one_sentence(history: History, tmp_path: Any) -> None:
    away = history.engine.url.set(database=str(tmp_path / "no" / "such" / "folder" / "file.sqlite"))
    if history.engine.dialect.name != "sqlite":
        away = away.set(database="nosuch")
    from trainbench.history.database import connect

    with pytest.raises(HistoryError, match=r"^history "):
        Pages(connect(away.render_as_string(hide_password=False)), {SEEN}).read(choices, ALL)


def test_a_number_where_text_belongs_is_reported_in_one_sentence(history: History) -> None:
    """As on a damaged disk: SQLite gives what the file says, whatever the column's type."""
    if history.engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL keeps a column's type")
    history.record(night(1, {"node-1": 10.0}))
    with history.engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA writable_schema=ON")
        typeless = "UPDATE sqlite_master SET sql = replace(sql, 'peers VARCHAR', 'peers BLOB') WHERE name = 'runs'"
        connection.exec_driver_sql(typeless)
    with history.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE runs SET peers = 7")

    with pytest.raises(HistoryError, match="a value that is not ours"):
        Pages(history.engine, {night(1, {"node-1": 1.0}).suite}).read(runs_page, ALL)


def test_hostile_text_comes_back_as_it_was(history: History) -> None:
    """The page escapes; the reads neither cut nor run anything."""
    campaign = night(1, {"node-1": 9.0}, {"node-1": Why.SLOW}, dag_run_id=HOSTILE)
    finding = campaign.findings[0].model_copy(update={"cause": HOSTILE, "resolution": HOSTILE})
    history.record(campaign.model_copy(update={"findings": (finding,)}))
    pages = Pages(history.engine, {SEEN})
    (notice,) = pages.read(open_notices, ALL).rows
    assert (notice.finding.cause, notice.finding.resolution, notice.dag_run_id) == (HOSTILE, HOSTILE, HOSTILE)
