"""Do the tests bite? Mutants of the modules whose figures people act on, each against the tests that mirror it.

    make mutants                                          # what is missing of the newest sample, and the listed ones
    python studies/mutation_study.py c                    # a fresh sample named c
    python studies/mutation_study.py b judging listed     # some parts of sample b
    python studies/mutation_study.py b --again            # those of b that were alive, after new tests
    python studies/mutation_doc.py                        # writes the tables of docs/internals/mutation.md

A sample's name is its seed. It draws nothing that an earlier sample drew, so its first outcomes are of mutants that
nobody has looked at. Outcomes go to docs/results/mutation-2026-11-22/SAMPLE/PART.jsonl; those that are there are not
run anew. With --again, an outcome that changes keeps the first one as `first_outcome`.

cosmic-ray makes the mutants in an environment of its own (requirements/mutation.txt; MUTATION_PYTHON=/path/to/python
uses one that is there). They run in the two environments of `make setup`, in forks: see studies/mutation_runner.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "mutation-2026-11-22"
CONTROL, IMAGE = (ROOT / name / "bin" / "python" for name in (".venv", ".venv-image"))
COST_TESTS = [f"tests/unit/{name}" for name in ("prices", "cost")]


class Part(NamedTuple):
    """`size`: how many mutants are drawn, twice as many from a line of a `newer` module. `roots`: packages that a
    mutated import makes anew.
    """

    python: Path
    sources: Sequence[str]  # folders or files
    tests: Sequence[str]
    roots: str
    size: int
    newer: Collection[str] = ()


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
            *COST_TESTS,
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
                    "test_sigterm_ends_all_ranks_and_leaves_nobody_behind",
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
LISTED_TESTS = {
    CONTROL: [
        *COST_TESTS,
        *(f"tests/unit/{name}" for name in ("comparison", "history", "alerting", "test_pipeline.py")),
    ],
    IMAGE: [
        "tests/image/process/test_merge.py",
        "tests/image/training/test_loop.py",
        "tests/image/telemetry/test_peak_memory.py",
    ],
}
NEWER_WEIGHT = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sample", help="its name, a lower-case letter")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join([*PARTS, 'listed'])}; default: all")
    parser.add_argument("--size", type=float, default=1.0, help="times as many mutants of each part; default: 1")
    parser.add_argument("--again", action="store_true", help="only those that were alive")
    options = parser.parse_args()
    if len(options.sample) != 1 or not options.sample.islower():
        parser.error(f"sample is '{options.sample}': give one lower-case letter, the next one for a fresh sample")
    parts = options.parts or [*PARTS, "listed"]
    if unknown := [name for name in parts if name not in PARTS and name != "listed"]:
        parser.error(f"{', '.join(unknown)}: choose from {', '.join([*PARTS, 'listed'])}")
    os.nice(10)
    (RESULTS / options.sample).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        maker = sys.executable if set(parts) == {"listed"} else _maker(Path(folder) / "environment")
        for name in parts:
            outcomes = RESULTS / options.sample / f"{name}.jsonl"
            if name == "listed":
                _run_listed(Path(folder), RESULTS / "listed.jsonl")
            elif options.again:
                _run_again(maker, PARTS[name], outcomes, Path(folder))
            else:
                plan = _plan(PARTS[name], options.sample, options.size)
                _run(PARTS[name], _made(maker, plan, Path(folder) / f"{name}.jsonl"), outcomes)
    return 0


def _plan(part: Part, sample: str, times: float) -> dict[str, Any]:
    weights = {str(path.relative_to(ROOT)): NEWER_WEIGHT if path.stem in part.newer else 1 for path in sources_of(part)}
    return {"seed": sample, "size": part.size * times, "files": weights, "seen": sorted(_seen_before(sample))}


def sources_of(part: Part) -> list[Path]:
    return [
        path
        for source in part.sources
        for path in (sorted((ROOT / source).rglob("*.py")) if (ROOT / source).is_dir() else [ROOT / source])
        if path.name != "__init__.py"
    ]


def _seen_before(sample: str) -> set[str]:
    """Keys of the mutants of all samples with an earlier name."""
    earlier = [path for path in RESULTS.glob("?/*.jsonl") if path.parent.name < sample]
    return {row["key"] for path in earlier for row in rows_of(path)}


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
    alive = {row["key"]: row for row in rows if row["outcome"] == "survived"}
    if not alive:
        return
    before = {key: row["before"] for key, row in alive.items()}
    plan = {"only": before, "files": dict.fromkeys(sorted({row["path"] for row in alive.values()}), 1)}
    now_file = folder / f"{outcomes.stem}-again.jsonl"
    _run(part, _made(maker, plan, folder / f"{outcomes.stem}.jsonl"), now_file)
    now = {row["key"]: row for row in rows_of(now_file)}
    for key in alive.keys() - now.keys():
        print(f"mutation_study: the lines of {alive[key]['path']} changed, so this one stays as it was: {alive[key]}")
    settled = [_settled(row, now.get(row["key"])) for row in rows]
    outcomes.write_text("".join(json.dumps(row) + "\n" for row in settled), encoding="utf-8")


def _settled(row: dict[str, Any], now: Mapping[str, Any] | None) -> dict[str, Any]:
    if now is None or row["outcome"] != "survived" or now["outcome"] == "survived":
        return row
    return {**row, "outcome": now["outcome"], "test": now["test"], "first_outcome": row["outcome"]}


def _run(part: Part, mutants: Path, outcomes: Path) -> None:
    command = [str(part.python), "studies/mutation_runner.py", str(mutants), str(outcomes), part.roots, *part.tests]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"PYTHONPATH": ".:plugins"})


def _run_listed(folder: Path, outcomes: Path) -> None:
    """Those of studies/listed_mutants.toml."""
    listed = tomllib.loads((ROOT / "studies" / "listed_mutants.toml").read_text(encoding="utf-8"))["mutant"]
    for python, tests in LISTED_TESTS.items():
        mutants = folder / f"listed-{python.parents[1].name}.jsonl"
        own = [one for one in listed if one["path"].startswith("bench_image") == (python == IMAGE)]
        mutants.write_text("".join(_listed_line(one, len(listed)) for one in own), encoding="utf-8")
        _run(Part(python, (), tests, OURS if python == CONTROL else OURS_IMAGE, len(own)), mutants, outcomes)


def _listed_line(one: dict[str, str], num_listed: int) -> str:
    source = (ROOT / one["path"]).read_text(encoding="utf-8")
    if source.count(one["before"]) != 1:
        sys.exit(f"mutation_study: `before` of '{one['name']}' does not stand once in {one['path']}: write it anew")
    row = {"key": one["name"], "path": one["path"], "operator": "listed", "function": "", "candidates": num_listed}
    row |= {"line": source[: source.index(one["before"])].count("\n") + 1}
    changed = source.replace(one["before"], one["after"])
    return json.dumps({**row, "before": one["before"], "after": one["after"], "source": changed}) + "\n"


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


if __name__ == "__main__":
    sys.exit(main())
