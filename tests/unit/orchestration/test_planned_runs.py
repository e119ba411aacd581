"""Task i of a mapped task gets run i, however the runs are cut into blocks and chunks."""

from __future__ import annotations

from typing import Any

import pytest

from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from tests.builders import make_spec
from trainbench.orchestration.plan_tasks import (
    CHUNK,
    hand_out,
    handed_out,
    num_blocks,
    places,
    run_at,
)
from trainbench.pods.machine_turns import Slot

BYTES_OF_AN_XCOM = 200_000


class Xcoms:
    """The XComs of one task, as another task instance reads them."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.map_index = -1

    def xcom_push(self, key: str, value: Any) -> None:
        self.values[key] = value

    def xcom_pull(self, task_ids: str, key: str) -> Any:
        assert task_ids == "plan"
        return self.values.get(key)


def runs(number: int) -> list[RunSpec]:
    return [make_spec(node=f"gpu-{index}") for index in range(number)]


@pytest.mark.parametrize("number", [1, CHUNK, CHUNK + 1, 3 * CHUNK - 1])
def test_each_task_gets_its_own_run_and_the_surplus_none(number: int) -> None:
    ti, specs = Xcoms(), runs(number)
    hand_out(ti, specs, {specs[0].identity.group_id: "LoRA r8"})

    for ti.map_index, spec in enumerate(specs):
        planned = run_at(ti, "plan", ti.map_index)
        assert planned is not None
        assert (planned.spec, planned.what) == (spec, "LoRA r8")
    for ti.map_index in (number, number + 1, number + CHUNK):
        assert run_at(ti, "plan", ti.map_index) is None


@pytest.mark.parametrize("number", [0, 1, CHUNK, 2 * CHUNK + 1])
def test_a_later_task_reads_all_runs_that_were_handed_out(number: int) -> None:
    ti, specs = Xcoms(), runs(number)
    assert handed_out(ti, "plan") is None  # the task failed before

    hand_out(ti, specs)
    assert handed_out(ti, "plan") == tuple(specs)


def test_a_task_knows_its_slot_on_the_machine() -> None:
    ti, specs = Xcoms(), [spec.changed(work={"device": Device.CPU}) for spec in runs(3)]
    hand_out(ti, specs)

    ti.map_index = 1
    planned = run_at(ti, "plan", ti.map_index)
    assert planned is not None
    assert planned.slot == Slot(group=0, member=1, num_members=3)


@pytest.mark.parametrize(
    ("number", "blocks", "in_each"),
    [(1, 1, 1), (1024, 1, 1024), (1025, 2, 513), (3072, 3, 1024), (5000, 5, 1000), (5001, 5, 1001)],
)
def test_blocks_and_places_make_as_many_tasks_as_there_are_runs(number: int, blocks: int, in_each: int) -> None:
    """5,001 runs: 4 blocks would have 4,096 places, 5 of 1,001 have 5,005."""
    assert num_blocks(number, 1024) == blocks
    assert len(places(number, blocks)) == in_each <= 1024
    assert 0 <= blocks * in_each - number < blocks


def test_without_re_runs_there_are_no_tasks() -> None:
    assert places(0, num_blocks(5000, 1024)) == []


def test_no_xcom_of_5000_runs_is_large() -> None:
    ti, specs = Xcoms(), runs(60)
    hand_out(ti, (specs * 84)[:5000])

    assert ti.values["num_runs"] == 5000
    assert max(len(str(value)) for value in ti.values.values()) < BYTES_OF_AN_XCOM
