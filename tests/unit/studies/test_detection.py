"""docs/internals/detection.md says what its file says, and the file what today's rules do."""

from __future__ import annotations

import json
import re

import pytest

import detection
from detection import FILE, FIRST, PAGE, Fleet, simulate, with_table

ROWS = json.loads(FILE.read_text())
SMALL = [row for row in ROWS if row["fleet"]["nodes"] <= 8]


def test_the_page_has_the_table_of_its_file() -> None:
    page = PAGE.read_text()
    assert with_table(page, ROWS) == page, "run python studies/detection.py --page"
    assert len(re.findall(r"\w[\w.,/-]*", page)) <= 1500


def test_every_case_was_simulated() -> None:
    asked = [(case, fleet.model_dump(exclude_defaults=True)) for case, of in detection.CASES.items() for fleet in of]
    assert [(row["case"], row["fleet"]) for row in ROWS] == asked


@pytest.mark.parametrize("row", SMALL[::4], ids=lambda row: str(row["fleet"]))
def test_the_rules_are_those_that_were_simulated(row: dict[str, object]) -> None:
    """Simulated nights are the same in every process: another rule gives other shares."""
    assert simulate(Fleet.model_validate(row["fleet"]), FIRST) == row["first"], "run python studies/detection.py"
