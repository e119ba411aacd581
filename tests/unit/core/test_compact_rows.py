"""Rows that share their names are what a dict of them is."""

from __future__ import annotations

import pytest

from trainbench.core.compact_rows import CompactRow, RowsOnDisk


def test_a_row_is_the_mapping_that_it_was_made_of() -> None:
    row, other = CompactRow({"node": "node-1", "rate": None}), CompactRow({"rate": 2.0})

    assert row == {"node": "node-1", "rate": None}
    assert {**row, "rate": 1.0} == {"node": "node-1", "rate": 1.0}
    assert (list(row), len(row), list(other.values())) == (["node", "rate"], 2, [2.0])
    assert row.get("gpu") is None
    with pytest.raises(KeyError):
        row["gpu"]


def test_rows_on_disk_are_read_as_often_as_needed_also_at_once() -> None:
    rows = RowsOnDisk({"run": number, "rate": number / 3} for number in range(3))
    first = iter(rows)

    assert next(first) == {"run": 0, "rate": 0.0}
    assert [row["run"] for row in rows] == [0, 1, 2]
    assert list(first) == [{"run": 1, "rate": 1 / 3}, {"run": 2, "rate": 2 / 3}]
