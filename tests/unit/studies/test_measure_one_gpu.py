"""studies/measure_one_gpu.py measures both presets twice by turns, every other work once, and two diagnoses."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.options import Strategy
from measure_one_gpu import command, planned, tables
from tests.unit.published.measured import run
from trainbench.cli.planned import changes
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import Fleet, named_nodes
from trainbench.planning.planners import PLANNERS


def test_both_presets_run_by_turns_and_every_other_work_once() -> None:
    specs = dict(planned())
    works = {name: fingerprint(spec.work) for name, spec in specs.items()}
    times = Counter(works.values())

    assert [spec.work.preset.value for spec in list(specs.values())[:4]] == ["as_users_run", "tuned"] * 2
    assert [name for name, work in works.items() if times[work] > 1] == [
        "00-users-qlora-1",
        "01-tuned-qlora-1",
        "02-users-qlora-2",
        "03-tuned-qlora-2",
    ]
    assert {(spec.placement.strategy, spec.placement.world_size) for spec in specs.values()} == {(Strategy.SINGLE, 1)}


@pytest.mark.parametrize(("name", "num_runs"), [("six", 6), ("settings", 7)])
def test_each_diagnosis_is_a_plan_of_its_configurations(name: str, num_runs: int) -> None:
    words = command(name, Path("store"))
    planner = PLANNERS[CampaignKind.CONFIGURATIONS]
    values = changes([value for option, value in pairwise(words) if option == "--set"])
    plan = planner.make(planner.params(values, locally=False), Fleet(nodes=named_nodes(["h200-1"])), "campaign")

    assert len(plan.specs) == num_runs
    assert plan.skipped == ()


def test_the_table_has_a_row_for_each_result() -> None:
    result = run("float8-h200-2026-11-22/bf16-1-gpus-1")

    assert list(tables({"06-full": result}))[2:] == ["| `06-full` | 13,366 | 62.0 % | 119.3 | 6.53, 6.53, 6.52 |"]
