"""Do the tests bite? Mutants of the modules whose figures people act on, each against the tests that mirror it.

    make mutants                                        # all parts, as many mutants as docs/mutation.md says
    python scripts/mutation_study.py merge listed       # some of them
    python scripts/mutation_study.py judging --size 50  # fewer

cosmic-ray makes the mutants in an environment of its own (requirements/mutation.txt; MUTATION_PYTHON=/path/to/python
uses one that is there). They run in the two environments of `make setup`, in forks: see scripts/mutation_runner.py.
Outcomes go to docs/results/mutation-2026-11-22/PART.jsonl; those that are there are not run again, so remove a file, or
lines of it, to run them anew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "mutation-2026-11-22"
CONTROL, IMAGE = (ROOT / name / "bin" / "python" for name in (".venv", ".venv-image"))
COST_TESTS = [f"tests/unit/{name}" for name in ("pricing", "spending", "estimating")]


class Part(NamedTuple):
    """`size`: how many mutants are drawn. `roots`: packages that a mutated import makes anew."""

    python: Path
    sources: Sequence[str]  # folders or files
    tests: Sequence[str]
    roots: str
    size: int


OURS = "bench_control,bench_image,tests"
PARTS = {
    "judging": Part(CONTROL, ["plugins/bench_control/judging"], ["tests/unit/judging"], OURS, 200),
    "comparing": Part(
        CONTROL,
        ["plugins/bench_control/comparing"],
        [
            "tests/unit/comparing",
            "tests/unit/reporting/test_more_gpus.py",
            "tests/unit/reporting/test_configuration_tables.py",
        ],
        OURS,
        250,
    ),
    "cost": Part(
        CONTROL,
        [f"plugins/bench_control/{name}" for name in ("pricing", "spending", "estimating")],
        [*COST_TESTS, "tests/unit/cli/test_cli_money.py", "tests/unit/cli/test_cli_cost.py"],
        OURS,
        250,
    ),
    "merge": Part(IMAGE, ["bench_image/merge.py"], ["tests/image/test_merge.py"], "bench_image,tests", 60),
    "loop": Part(IMAGE, ["bench_image/loop.py"], ["tests/image/test_loop.py"], "bench_image,tests", 40),
}
LISTED_TESTS = {
    CONTROL: [*COST_TESTS, "tests/unit/comparing", "tests/unit/judging/test_change_points.py"],
    IMAGE: ["tests/image/test_merge.py", "tests/image/test_loop.py", "tests/image/test_rank_figures.py"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join([*PARTS, 'listed'])}; default: all")
    parser.add_argument("--size", type=int, help="mutants to draw for each part")
    asked = parser.parse_args()
    parts = asked.parts or [*PARTS, "listed"]
    if unknown := [name for name in parts if name not in PARTS and name != "listed"]:
        parser.error(f"{', '.join(unknown)}: choose from {', '.join([*PARTS, 'listed'])}")
    os.nice(10)
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        maker = os.environ.get("MUTATION_PYTHON") if set(parts) == {"listed"} else _maker(Path(folder) / "environment")
        for name in parts:
            if name == "listed":
                _run_listed(Path(folder))
            else:
                part = PARTS[name]
                mutants = Path(folder) / f"{name}.jsonl"
                mutants.write_text(_mutants(maker or sys.executable, part, asked.size or part.size), encoding="utf-8")
                _run(part.python, mutants, RESULTS / f"{name}.jsonl", part.roots, part.tests)
            print(tally(name), flush=True)
    return 0


def tally(name: str) -> str:
    """ "judging: 200 mutants of 2,044, 190 killed (95.0 %), 10 survived"."""
    rows = [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    outcomes = Counter(row["outcome"] for row in rows)
    killed = outcomes["killed"] + outcomes["timeout"]
    rest = f"{100 * killed / len(rows):.1f} %), {outcomes['survived']} survived" if rows else "n/a)"
    return f"{name}: {len(rows)} mutants of {rows[0]['candidates'] if rows else 0:,}, {killed} killed ({rest}"


def _mutants(maker: str, part: Part, size: int) -> str:
    files = [
        str(path.relative_to(ROOT))
        for source in part.sources
        for path in (sorted((ROOT / source).glob("*.py")) if (ROOT / source).is_dir() else [ROOT / source])
        if path.name != "__init__.py"
    ]
    command = [maker, str(ROOT / "scripts" / "mutants.py"), str(size), *files]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _run(python: Path, mutants: Path, outcomes: Path, roots: str, tests: Sequence[str]) -> None:
    command = [str(python), "scripts/mutation_runner.py", str(mutants), str(outcomes), roots, *tests]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"PYTHONPATH": ".:plugins"})


def _run_listed(folder: Path) -> None:
    """Those of scripts/listed_mutants.toml."""
    listed = tomllib.loads((ROOT / "scripts" / "listed_mutants.toml").read_text(encoding="utf-8"))["mutant"]
    for python, tests in LISTED_TESTS.items():
        mutants = folder / f"listed-{python.parents[1].name}.jsonl"
        own = [one for one in listed if one["path"].startswith("bench_image") == (python == IMAGE)]
        mutants.write_text("".join(_listed_line(one, len(listed)) for one in own), encoding="utf-8")
        _run(python, mutants, RESULTS / "listed.jsonl", OURS if python == CONTROL else "bench_image,tests", tests)


def _listed_line(one: dict[str, str], num_listed: int) -> str:
    source = (ROOT / one["path"]).read_text(encoding="utf-8")
    if source.count(one["before"]) != 1:
        sys.exit(f"mutation_study: `before` of '{one['name']}' does not stand once in {one['path']}: write it anew")
    told = {"path": one["path"], "operator": one["name"], "function": "", "candidates": num_listed}
    told |= {"line": source[: source.index(one["before"])].count("\n") + 1}
    changed = source.replace(one["before"], one["after"])
    return json.dumps({**told, "before": one["before"], "after": one["after"], "source": changed}) + "\n"


def _maker(folder: Path) -> str:
    if given := os.environ.get("MUTATION_PYTHON"):
        return given
    print("mutation_study: installing cosmic-ray ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(ROOT / "requirements" / "mutation.txt")], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
