"""Writes the tables of docs/internals/mutation.md from the outcomes of the mutation study (studies/mutation_study.py).

PYTHONPATH=.:plugins python studies/mutation_doc.py
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mutation_study import PARTS, RESULTS, ROOT, rows_of

PAGE = ROOT / "docs" / "internals" / "mutation.md"
EQUIVALENT = RESULTS / "equivalent.toml"
ALIVE = "survived"

Outcome = dict[str, Any]


class Tally(NamedTuple):
    """Mutants of some rows. Those that no input can show are in none of the shares."""

    drawn: int
    killed: int
    equivalent: int

    @property
    def num_killable(self) -> int:
        return self.drawn - self.equivalent

    @property
    def share(self) -> str:
        """ "95.2 % (91.0-97.5)": of those that a test could kill, with the 95 % interval."""
        if not self.num_killable:
            return "-"
        low, high = interval_pct(self.killed, self.num_killable)
        return f"{100 * self.killed / self.num_killable:.1f} % ({low:.1f}-{high:.1f})"

    def cells(self) -> list[str]:
        alive = self.num_killable - self.killed
        return [str(self.drawn), str(self.killed), str(self.equivalent), str(alive), self.share]


def samples() -> list[str]:
    return sorted(path.name for path in RESULTS.iterdir() if path.is_dir())


def outcomes(sample: str) -> dict[str, list[Outcome]]:
    """part -> its rows"""
    return {name: rows for name in PARTS if (rows := rows_of(RESULTS / sample / f"{name}.jsonl"))}


def reasons() -> dict[str, str]:
    """Key of a mutant that no input can show -> why."""
    return {one["key"]: one["why"] for one in tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutant"]}


def tally(rows: Iterable[Outcome], *, first: bool) -> Tally:
    """`first`: as it was before anybody had looked at these mutants."""
    known, counted = reasons(), list(rows)
    now = [row.get("first_outcome", row["outcome"]) if first else row["outcome"] for row in counted]
    killed = sum(outcome != ALIVE for outcome in now)
    equivalent = sum(outcome == ALIVE and row["key"] in known for outcome, row in zip(now, counted, strict=True))
    return Tally(len(counted), killed, equivalent)


def estimate_pct(rows: Sequence[Outcome]) -> float:
    """Of all candidates, in percent: each file's first share of killed, weighted by how many candidates it has. So the
    modules of which more mutants were drawn count no more than the others.
    """
    by_file: dict[str, list[Outcome]] = {}
    for row in rows:
        by_file.setdefault(row["path"], []).append(row)
    shares = [(tally(own, first=True), own[0]["candidates"]) for own in by_file.values()]
    known = [(one.killed / one.num_killable, weight) for one, weight in shares if one.num_killable]
    return 100 * sum(share * weight for share, weight in known) / sum(weight for _, weight in known)


def shares(*, first: bool) -> str:
    head = ["sample", "part", "candidates", "drawn", "killed", "equivalent", "alive", "killed of those that could be"]
    rows = []
    for sample in samples():
        parts = outcomes(sample)
        for name, of_part in parts.items():
            rows.append([sample, name, f"{_candidates(of_part):,}", *tally(of_part, first=first).cells()])
        of_all = [row for of_part in parts.values() for row in of_part]
        total = tally(of_all, first=first).cells()
        rows.append([sample, "**all**", f"{_candidates(of_all):,}", *total[:-1], f"**{total[-1]}**"])
    return markdown(head, rows)


def _candidates(rows: Iterable[Outcome]) -> int:
    return sum({row["path"]: row["candidates"] for row in rows}.values())


def weighted() -> str:
    lines = (
        f"Sample {sample}: {estimate_pct([row for part in outcomes(sample).values() for row in part]):.1f} %"
        for sample in samples()
    )
    return "; ".join(lines) + "."


def alive() -> str:
    """Every mutant that was alive when it ran last, with the reason; "-" where there is none."""
    known = reasons()
    rows = [
        [_where(row), _code(row["before"]), _code(row["after"]), known.get(row["key"], "-")]
        for sample in samples()
        for part in outcomes(sample).values()
        for row in part
        if row["outcome"] == ALIVE
    ]
    return markdown(["where", "was", "became", "why no input can show it"], rows)


def _where(row: Outcome) -> str:
    return f"{Path(row['path']).name}, {row['function'] or 'module'}"


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


TABLES = {
    "first": lambda: shares(first=True),
    "now": lambda: shares(first=False),
    "weighted": weighted,
    "alive": alive,
}


def refreshed(page: str) -> str:
    """`page` with every table between its marks written anew. Raises KeyError for a mark without a table."""

    def block(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n{TABLES[match[1]]()}\n<!-- /{match[1]} -->"

    return re.sub(r"<!-- (\w+) -->.*?<!-- /\1 -->", block, page, flags=re.DOTALL)


def interval_pct(k: int, n: int) -> tuple[float, float]:
    """95 % of a share: Wilson's; where nothing or everything was counted, the rule of three (3 / n)."""
    if k in (0, n):
        return (0.0, 300 / n) if k == 0 else (100 - 300 / n, 100.0)
    z, p = 1.96, k / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return 100 * (middle - half), 100 * (middle + half)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
