"""Do the tests bite? Mutants of the modules whose figures people act on, each against the tests that mirror it.

    make mutants                                   # what is missing of the newest sample
    python studies/mutation_study.py i             # a fresh sample named i
    python studies/mutation_study.py h judging     # some parts of sample h
    python studies/mutation_study.py h --again     # those of h that were alive, after new tests
    python studies/mutation_study.py --page        # write the tables of docs/internals/mutation.md

A sample's name is its seed. It draws nothing that a sample before it drew whose outcomes are here: its first outcomes
are of mutants that nobody has looked at. Outcomes go to docs/results/mutation-2026-11-22/SAMPLE/PART.jsonl; those that
are there are not run anew. With --again, an outcome that changes keeps the first one as `first_outcome`.

cosmic-ray makes the mutants in an environment of its own (requirements/mutation.txt; MUTATION_PYTHON=/path/to/python
uses one that is there). They run in the two environments of `make setup`, in forks: see studies/mutation_runner.py.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "mutation-2026-11-22"
PAGE = ROOT / "docs" / "internals" / "mutation.md"
CONTROL, IMAGE = (ROOT / name / "bin" / "python" for name in (".venv", ".venv-image"))
ALIVE = "survived"
Outcome = dict[str, Any]


class Part(NamedTuple):
    """`size`: how many mutants are drawn. `roots`: packages that a mutated import makes anew."""

    python: Path
    sources: Sequence[str]  # folders or files
    tests: Sequence[str]
    roots: str
    size: int


OURS, OURS_IMAGE = "trainbench,bench_image,tests", "bench_image,tests"
PARTS = {
    "judging": Part(
        CONTROL,
        ["plugins/trainbench/judging"],
        [
            "tests/unit/judging",
            "tests/unit/pages/test_state_surfaces.py",
            "tests/unit/test_pipeline.py",
            "tests/unit/test_drill_night.py",
            "tests/unit/test_diary.py",
            "tests/unit/results/test_fault_isolation.py",
        ],
        OURS,
        50,
    ),
    "alerting": Part(
        CONTROL,
        ["plugins/trainbench/pipeline.py", "plugins/trainbench/alerting"],
        [
            "tests/unit/alerting",
            "tests/unit/test_pipeline.py",
            "tests/unit/test_drill_night.py",
        ],
        OURS,
        18,
    ),
    "history": Part(
        CONTROL,
        ["plugins/trainbench/history"],
        ["tests/unit/history", "tests/unit/test_upgrade.py"],
        OURS,
        22,
    ),
    "planning": Part(
        CONTROL,
        ["plugins/trainbench/planning"],
        ["tests/unit/planning", "tests/unit/test_pipeline.py"],
        OURS,
        25,
    ),
    "comparing": Part(
        CONTROL,
        ["plugins/trainbench/comparison"],
        [
            "tests/unit/comparison",
            "tests/unit/reporting/test_more_gpus.py",
            "tests/unit/reporting/test_configuration_tables.py",
        ],
        OURS,
        80,
    ),
    "cost": Part(
        CONTROL,
        [f"plugins/trainbench/{name}" for name in ("prices", "cost")],
        [
            "tests/unit/prices",
            "tests/unit/cost",
            "tests/unit/cli/test_cli_cost.py",
            "--deselect=tests/unit/cost/test_monthly_report.py::test_many_runs_make_a_page_that_can_be_read",
        ],
        OURS,
        80,
    ),
    "merge": Part(IMAGE, ["bench_image/process/merge.py"], ["tests/image/process/test_merge.py"], OURS_IMAGE, 30),
    "independent": Part(
        IMAGE,
        ["bench_image/process/merge.py"],
        [
            "tests/image/process/test_merge_independent.py",  # but those of real processes, which take a minute
            *(
                f"--deselect=tests/image/process/test_merge_independent.py::{name}"
                for name in (
                    "test_independent_ranks_do_the_same_work_at_the_same_time",
                    "test_no_fault_of_one_gpu_reaches_its_neighbours",
                )
            ),
        ],
        OURS_IMAGE,
        40,
    ),
    "loop": Part(
        IMAGE,
        [f"bench_image/training/{module}.py" for module in ("loop", "train_step", "stopwatch")],
        ["tests/image/training/test_loop.py"],
        OURS_IMAGE,
        30,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sample", nargs="?", help="its name, a lower-case letter")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--again", action="store_true", help="only those that were alive")
    parser.add_argument("--page", action="store_true", help="write the tables into the page, run nothing")
    options = parser.parse_args()
    if options.page:
        PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    if not re.fullmatch("[a-z]", options.sample or ""):
        parser.error(f"sample is '{options.sample}': give one lower-case letter, the next one for a fresh sample")
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"{', '.join(unknown)}: choose from {', '.join(PARTS)}")
    os.nice(10)
    (RESULTS / options.sample).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        maker = _maker(Path(folder) / "environment")
        for name in options.parts or PARTS:
            outcomes = RESULTS / options.sample / f"{name}.jsonl"
            if options.again:
                _run_again(maker, PARTS[name], outcomes, Path(folder))
            else:
                plan = _plan(PARTS[name], options.sample)
                _run(PARTS[name], _made(maker, plan, Path(folder) / f"{name}.jsonl"), outcomes)
    return 0


def _plan(part: Part, sample: str) -> dict[str, Any]:
    files = [str(path.relative_to(ROOT)) for path in sources_of(part)]
    earlier = [path for path in RESULTS.glob("?/*.jsonl") if path.parent.name < sample]
    seen = sorted({row["key"] for path in earlier for row in rows_of(path)})
    return {"seed": sample, "size": part.size, "files": files, "seen": seen}


def sources_of(part: Part) -> list[Path]:
    return [
        path
        for source in part.sources
        for path in (sorted((ROOT / source).rglob("*.py")) if (ROOT / source).is_dir() else [ROOT / source])
        if path.name != "__init__.py"
    ]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _made(maker: str, plan: Mapping[str, Any], mutants: Path) -> Path:
    """The file with the mutants."""
    plan_file = mutants.with_suffix(".plan")
    plan_file.write_text(json.dumps(plan), encoding="utf-8")
    command = [maker, str(ROOT / "studies" / "mutants.py"), str(plan_file)]
    mutants.write_text(
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout, encoding="utf-8"
    )
    return mutants


def _run_again(maker: str, part: Part, outcomes: Path, folder: Path) -> None:
    """Replaces the outcomes of those that were alive."""
    rows = rows_of(outcomes)
    alive = {row["key"]: row for row in rows if row["outcome"] == ALIVE}
    if not alive:
        return
    before = {key: row["before"] for key, row in alive.items()}
    plan = {"only": before, "files": sorted({row["path"] for row in alive.values()})}
    now_file = folder / f"{outcomes.stem}-again.jsonl"
    _run(part, _made(maker, plan, folder / f"{outcomes.stem}.jsonl"), now_file)
    now = {row["key"]: row for row in rows_of(now_file)}
    for key in alive.keys() - now.keys():
        print(f"mutation_study: the lines of {alive[key]['path']} changed, so this one stays as it was: {alive[key]}")
    settled = [_settled(row, now.get(row["key"])) for row in rows]
    outcomes.write_text("".join(json.dumps(row) + "\n" for row in settled), encoding="utf-8")


def _settled(row: dict[str, Any], now: Mapping[str, Any] | None) -> dict[str, Any]:
    if now is None or row["outcome"] != ALIVE or now["outcome"] == ALIVE:
        return row
    return {**row, "outcome": now["outcome"], "test": now["test"], "first_outcome": row["outcome"]}


def _run(part: Part, mutants: Path, outcomes: Path) -> None:
    command = [str(part.python), "studies/mutation_runner.py", str(mutants), str(outcomes), part.roots, *part.tests]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"PYTHONPATH": ".:plugins"})


def _maker(folder: Path) -> str:
    if given := os.environ.get("MUTATION_PYTHON"):
        return given
    print("mutation_study: installing cosmic-ray ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "--require-hashes", "--no-deps", "-r", str(ROOT / "requirements" / "mutation.txt")], check=True
    )
    return python


# ---------------------------------------------------------------- the page


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
    return {
        one["key"]: one["why"]
        for one in tomllib.loads((RESULTS / "equivalent.toml").read_text(encoding="utf-8"))["mutant"]
    }


def tally(rows: Iterable[Outcome], *, first: bool) -> Tally:
    """`first`: as it was before anybody had looked at these mutants."""
    known, counted = reasons(), list(rows)
    now = [row.get("first_outcome", row["outcome"]) if first else row["outcome"] for row in counted]
    killed = sum(outcome != ALIVE for outcome in now)
    equivalent = sum(outcome == ALIVE and row["key"] in known for outcome, row in zip(now, counted, strict=True))
    return Tally(len(counted), killed, equivalent)


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


def alive() -> str:
    """Every mutant that was alive when it ran last, with the reason; "-" where there is none."""
    known = reasons()
    rows = [
        [
            f"{Path(row['path']).name}, {row['function'] or 'module'}",
            *("`" + row[name].replace("|", "\\|") + "`" for name in ("before", "after")),
            known.get(row["key"], "-"),
        ]
        for sample in samples()
        for part in outcomes(sample).values()
        for row in part
        if row["outcome"] == ALIVE
    ]
    return markdown(["where", "was", "became", "why no input can show it"], rows)


TABLES = {
    "first": lambda: shares(first=True),
    "now": lambda: shares(first=False),
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
    sys.exit(main())
