"""docs/internals/interconnect.md says what its file says, and the file what today's search does."""

from __future__ import annotations

import json

import pytest

import link_search
from link_search import FILE, PAGE, search, with_table

ROWS = json.loads(FILE.read_text())


def test_the_page_has_the_table_of_its_file() -> None:
    page = PAGE.read_text()
    assert with_table(page, ROWS) == page, "run python studies/link_search.py --page"
    assert [(row["nodes"], row["bad"]) for row in ROWS] == [
        (nodes, bad) for nodes in link_search.NODES for bad in (*link_search.BAD, None)
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['nodes']}-{row['bad']}")
def test_the_search_is_the_one_that_was_simulated(row: dict[str, object]) -> None:
    first = [search(int(str(row["nodes"])), row["bad"], seed) for seed in range(link_search.FIRST)]  # type: ignore[arg-type]
    assert first == row["first"], "run python studies/link_search.py"
