"""The memory formula against every peak in the committed results, and the page that shows both."""

from __future__ import annotations

from sizing_doc import ROOT, document, measured_rows


def test_the_formula_is_within_10_pct_of_every_measured_peak() -> None:
    rows = measured_rows()
    wrong = {row.spec.run_id: round(row.error_pct, 1) for row in rows if abs(row.error_pct) > 10}

    assert len(rows) >= 20
    assert wrong == {}


def test_the_page_shows_what_the_formula_and_the_results_say_now() -> None:
    """`python scripts/sizing_doc.py` writes it."""
    assert (ROOT / "docs" / "sizing.md").read_text() == document()
