"""Values as cells of a CSV file."""

from __future__ import annotations

import pytest

from trainbench.core.csv_cells import cell

ESCAPE, CSI, TURN = "\x1b[31m", "\x9b", "\u202e"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r+", "\u200b@", " -"])
def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe(start: str) -> None:
    assert cell(f"{start}1+1").startswith("'")


@pytest.mark.parametrize("text", ["a;=1+1", "a;b; @SUM(1)", "a;-1+1;+2"])
def test_a_semicolon_begins_a_cell_for_some_spreadsheets(text: str) -> None:
    assert all(part.startswith("'") for part in cell(text).split(";")[1:] if part != "b")


def test_a_list_with_semicolons_stays_as_it_is() -> None:
    assert cell("node-1 is slow; node-2 as well") == "node-1 is slow; node-2 as well"


@pytest.mark.parametrize("mark", [ESCAPE[0], CSI, TURN, "\n", "\x00", "\u2028"])
def test_a_character_that_shows_nothing_of_itself_is_a_space(mark: str) -> None:
    assert cell(f"node{mark}1") == "node 1"


def test_numbers_keep_their_precision_and_an_unknown_one_is_empty() -> None:
    assert [cell(value) for value in (0.1, -3, True, None)] == ["0.1", "-3", "true", ""]
