"""The mutation study: its page shows its outcomes, and its claims are what they say."""

from __future__ import annotations

import tomllib
from typing import Any

import mutation_doc
from mutation_doc import PAGE, Tally, outcomes, reasons, refreshed, samples, tally
from mutation_study import LISTED_TESTS, PARTS, RESULTS, ROOT, rows_of, sources_of

ALL = {sample: [row for rows in outcomes(sample).values() for row in rows] for sample in samples()}


def test_the_parts_name_files_that_exist() -> None:
    tests = [*(part.tests for part in PARTS.values()), *LISTED_TESTS.values()]
    files = {name.removeprefix("--deselect=").split("::")[0] for names in tests for name in names}
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []
    for part in PARTS.values():
        assert set(part.newer) <= {path.stem for path in sources_of(part)}


def test_the_page_shows_the_outcomes() -> None:
    """`studies/mutation_doc.py` writes its tables."""
    page = PAGE.read_text(encoding="utf-8")
    assert refreshed(page) == page
    assert all(f"<!-- {name} -->" in page for name in mutation_doc.TABLES)


def test_every_sample_has_parts_of_the_study_and_draws_what_no_other_drew() -> None:
    keys = [row["key"] for rows in ALL.values() for row in rows]
    assert ALL
    assert all(set(outcomes(sample)) <= set(PARTS) and rows for sample, rows in ALL.items())
    assert len(keys) == len(set(keys))


def test_the_listed_mutants_can_be_made() -> None:
    listed = tomllib.loads((ROOT / "studies" / "listed_mutants.toml").read_text(encoding="utf-8"))["mutant"]
    assert [one["name"] for one in listed if (ROOT / one["path"]).read_text().count(one["before"]) != 1] == []


def test_the_listed_mutants_are_killed() -> None:
    assert {row["outcome"] for row in rows_of(RESULTS / "listed.jsonl")} == {"killed"}


def test_a_reason_stands_only_where_a_mutant_is_alive() -> None:
    alive = {row["key"] for rows in ALL.values() for row in rows if row["outcome"] == "survived"}
    assert set(reasons()) <= alive


def row(outcome: str, key: str, **more: Any) -> dict[str, Any]:
    return {"outcome": outcome, "key": key, "path": "a.py", "candidates": 10, **more}


def test_a_share_by_hand(monkeypatch: Any) -> None:
    """Six drawn, one of them equivalent. Three killed at first, one in time that never ended: 4 of 5 are 80 %. A test
    killed one more later: 5 of 5.
    """
    monkeypatch.setattr(mutation_doc, "reasons", lambda: {"e": "why"})
    drawn = [
        *(row("killed", key) for key in "abc"), row("timeout", "d"), row("survived", "e"),
        row("killed", "f", first_outcome="survived"),
    ]  # fmt: skip
    assert tally(drawn, first=True) == Tally(drawn=6, killed=4, equivalent=1)
    assert tally(drawn, first=False) == Tally(drawn=6, killed=5, equivalent=1)
    assert tally(drawn, first=True).share.startswith("80.0 % (")


def test_modules_of_which_more_were_drawn_count_by_their_candidates(monkeypatch: Any) -> None:
    """Of a.py (10 candidates) 1 of 2 killed, of b.py (30) 3 of 3: (10 * 50 % + 30 * 100 %) / 40 = 87.5 %."""
    monkeypatch.setattr(mutation_doc, "reasons", dict)
    b = {"path": "b.py", "candidates": 30}
    drawn = [row("killed", "1"), row("survived", "2"), *(row("killed", key, **b) for key in "345")]
    assert mutation_doc.estimate_pct(drawn) == 87.5
