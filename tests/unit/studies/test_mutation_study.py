"""The mutation study: its page shows its outcomes, and its claims are what they say."""

from __future__ import annotations

from typing import Any

import mutation_study
from mutation_study import PAGE, PARTS, ROOT, Tally, outcomes, reasons, refreshed, samples, tally

ALL = {sample: [row for rows in outcomes(sample).values() for row in rows] for sample in samples()}


def test_the_parts_name_files_that_exist() -> None:
    named = [name for part in PARTS.values() for name in (*part.tests, *part.sources)]
    files = {name.removeprefix("--deselect=").split("::")[0] for name in named}
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []


def test_the_page_shows_the_outcomes() -> None:
    """`studies/mutation_study.py --page` writes its tables."""
    page = PAGE.read_text(encoding="utf-8")
    assert refreshed(page) == page
    assert all(f"<!-- {name} -->" in page for name in mutation_study.TABLES)


def test_every_sample_has_parts_of_the_study_and_draws_what_no_other_drew() -> None:
    keys = [row["key"] for rows in ALL.values() for row in rows]
    assert ALL
    assert all(set(outcomes(sample)) <= set(PARTS) and rows for sample, rows in ALL.items())
    assert len(keys) == len(set(keys))


def test_a_reason_stands_only_where_a_mutant_is_alive() -> None:
    alive = {row["key"] for rows in ALL.values() for row in rows if row["outcome"] == "survived"}
    assert set(reasons()) <= alive


def row(outcome: str, key: str, **more: Any) -> dict[str, Any]:
    return {"outcome": outcome, "key": key, "path": "a.py", "candidates": 10, **more}


def test_a_share_by_hand(monkeypatch: Any) -> None:
    """Six drawn, one of them equivalent. Three killed at first, one in time that never ended: 4 of 5 are 80 %. A test
    killed one more later: 5 of 5.
    """
    monkeypatch.setattr(mutation_study, "reasons", lambda: {"e": "why"})
    drawn = [
        *(row("killed", key) for key in "abc"), row("timeout", "d"), row("survived", "e"),
        row("killed", "f", first_outcome="survived"),
    ]  # fmt: skip
    assert tally(drawn, first=True) == Tally(drawn=6, killed=4, equivalent=1)
    assert tally(drawn, first=False) == Tally(drawn=6, killed=5, equivalent=1)
    assert tally(drawn, first=True).share.startswith("80.0 % (")
