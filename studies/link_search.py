"""Simulates searches for bad nodes and links in a large fleet: runs, rounds and correct answers, beside the theory.

python studies/link_search.py           # simulates, and writes docs/results/link-search-2026-11-27/searches.json
python studies/link_search.py --page    # writes its table into docs/internals/interconnect.md

**Model.** A group fails, with the inner link and without, if it has a bad node; or a node of each of the two groups
between which the way is bad. Bad nodes and groups are drawn evenly; each search has its own seed. Correct: exactly the
bad nodes, or exactly the two groups, are named.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainbench.planning.link_search import GroupState, GroupTest, LinkSearch, Outcome, groups_of

DOCS = Path(__file__).resolve().parents[1] / "docs"
FILE, PAGE = DOCS / "results" / "link-search-2026-11-27" / "searches.json", DOCS / "internals" / "interconnect.md"
BEGIN, END = "<!-- searches -->", "<!-- end of searches -->"
NODES = (232, 1000)
BAD = (0, 1, 5)
SEARCHES = 200
FIRST = 5  # that a test simulates again


def search(nodes: int, bad: int | None, seed: int) -> dict[str, Any]:
    """One search. `bad`: how many nodes are; None: one way between two groups is."""
    names = [f"node-{number}" for number in range(nodes)]
    groups = groups_of(names)
    draw = random.Random(seed)  # noqa: S311 - a simulation
    faulty = {*draw.sample(names, bad or 0)}
    ends = draw.sample(sorted(groups), 2)
    between = [{*groups[name]} for name in ends] if bad is None else []
    made, runs, rounds = LinkSearch(groups, has_inner_link=True), 0, 0
    while tests := made.due():
        runs, rounds = runs + len(tests), rounds + 1
        made.learn([_outcome(test, faulty, between) for test in tests])
    named = [(each.kind, {*each.groups} or {*each.nodes}) for each in made.culprits]
    true = [("groups", {*ends})] if bad is None else [("node", {name}) for name in faulty]
    is_correct = len(named) == len(true) and all(each in named for each in true)
    return {"runs": runs, "rounds": rounds, "is_correct": is_correct}


def _outcome(test: GroupTest, faulty: set[str], between: Sequence[set[str]]) -> Outcome:
    has_way = bool(between) and all(end & {*test.nodes} for end in between)
    state = GroupState.FAILED if has_way or faulty & {*test.nodes} else GroupState.PASSED
    return Outcome(test=test, state=state, evidence="simulated")


def rows() -> Iterator[dict[str, Any]]:
    for nodes in NODES:
        for bad in (*BAD, None):
            made = [search(nodes, bad, seed) for seed in range(SEARCHES)]
            yield {
                "nodes": nodes,
                "bad": bad,
                "searches": SEARCHES,
                "mean_runs": round(sum(each["runs"] for each in made) / SEARCHES, 1),
                "most_runs": max(each["runs"] for each in made),
                "most_rounds": max(each["rounds"] for each in made),
                "correct": sum(each["is_correct"] for each in made),
                "first": made[:FIRST],
            }


def table(of: Sequence[Mapping[str, Any]]) -> str:
    """Markdown. The theory: d log2(N/d) runs are the least that tell d bad of N nodes apart; pairs: N (N - 1) / 2."""
    lines = [
        "| nodes | bad | searches | correct | runs, mean (most) | rounds, most | d log2(N/d) | all pairs |",
        "|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in of:
        nodes, bad = row["nodes"], row["bad"]
        what = "one way between groups" if bad is None else {0: "none", 1: "1 node"}.get(bad, f"{bad} nodes")
        least = f"{bad * math.log2(nodes / bad):.0f}" if bad else "-"
        lines.append(
            f"| {nodes:,} | {what} | {row['searches']} | {row['correct']} | {row['mean_runs']:.1f} ({row['most_runs']})"
            f" | {row['most_rounds']} | {least} | {nodes * (nodes - 1) // 2:,} |"
        )
    return "\n".join(lines)


def with_table(page: str, of: Sequence[Mapping[str, Any]]) -> str:
    """The page with this table between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(of)}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the table into the page, simulate nothing")
    if parser.parse_args().page:
        PAGE.write_text(with_table(PAGE.read_text(), json.loads(FILE.read_text())))
        return
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(list(rows()), indent=1) + "\n")


if __name__ == "__main__":
    main()
