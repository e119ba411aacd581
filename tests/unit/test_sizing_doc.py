"""The memory formula against every peak in the committed results, and the page that shows both."""

from __future__ import annotations

from sizing_doc import ROOT, beyond, document, measured_rows

# Measured after the formula had been settled, and not understood yet: take it out when the formula knows it.
KNOWN = {"mistral-7b lora zero3 on 2 GPUs, 4 x 2048"}


def test_the_formula_is_within_10_pct_of_every_measured_peak_but_the_known_one() -> None:
    rows = measured_rows()

    assert len(rows) >= 20
    assert {row.name for row in beyond(rows)} == KNOWN
    assert max(abs(row.error_pct) for row in rows) < 10.5


def test_what_was_measured_before_the_formula_was_settled_does_not_count_as_a_prediction() -> None:
    rows = measured_rows()

    assert not [row for row in rows if row.fitted and row.spec.world_size == 2]
    assert [row for row in rows if row.fitted]
    assert [row for row in rows if not row.fitted]


def test_the_page_shows_what_the_formula_and_the_results_say_now() -> None:
    """`python scripts/sizing_doc.py` writes it."""
    assert (ROOT / "docs" / "sizing.md").read_text() == document()
