"""Rows that share their names are what a dict of them is."""

from __future__ import annotations

import pytest

from trainbench.core.compact_rows import CompactRow


def test_a_row_is_the_mapping_that_it_was_made_of() -> None:
    row, other = CompactRow({"node": "node-1", "rate": None}), CompactRow({"rate": 2.0})

    assert row == {"node": "node-1", "rate": None}
    assert {**row, "rate": 1.0} == {"node": "node-1", "rate": 1.0}
    assert (list(row), len(row), list(other.values())) == (["node", "rate"], 2, [2.0])
    assert row.get("gpu") is None
    with pytest.raises(KeyError):
        row["gpu"]
