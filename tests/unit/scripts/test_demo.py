"""What `make demo` says at its end, by its exit status and in words."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from demo import _found_only, _meaning, pod_lines, task_lines
from trainbench.cluster.running_pods import LivePod, parse_progress
from trainbench.core.states import NodeState
from trainbench.core.verdicts import State, Why


@pytest.mark.parametrize(
    ("third", "fourth", "is_found"),
    [
        ((State.DRILL, Why.SLOW), (State.WELL, Why.WELL), True),
        ((State.DRILL, Why.SLOW), (State.RED, Why.SLOW), False),
        ((State.WELL, Why.WELL), (State.DRILL, Why.SLOW), False),
        ((State.RED, Why.SLOW), (State.WELL, Why.WELL), False),
        ((State.WELL, Why.WELL), (State.WELL, None), False),
    ],
)
def test_a_drill_succeeds_where_it_alone_makes_the_run_red(
    third: tuple[State, Why], fourth: tuple[State, Why], is_found: bool
) -> None:
    states = [NodeState("node-3", *third), NodeState("node-4", *fourth)]
    assert _found_only("node-3", states) == is_found


@pytest.mark.parametrize(
    ("drill", "found", "fourth", "timed_out", "said"),
    [
        (None, False, (State.RED, Why.FAILED), {"node-4"}, "this machine is too busy to measure node-4."),
        (None, False, (State.RED, Why.FAILED, "no store of timeouts"), (), "slow is more than 15 % below"),
        (None, False, (State.WELL, Why.WELL), (), "slow is more than 15 % below"),
        ("node-3", True, (State.WELL, Why.WELL), (), "node-3 was found, as it should"),
        ("node-3", True, (State.NOT_CHECKED, Why.NOISY), (), "this machine is too busy to measure node-4."),
    ],
)
def test_it_says_what_the_table_shows(
    drill: str | None, found: bool, fourth: Any, timed_out: Collection[str], said: str
) -> None:
    states = [NodeState("node-3", State.WELL, Why.WELL), NodeState("node-4", *fourth)]
    assert said in _meaning(drill, found, states, timed_out)


def test_each_line_names_its_node() -> None:
    ended = {"start_date": "2026-11-22T14:00:00Z", "duration": 1.25, "state": "success", "rendered_map_index": None}
    plan = {"task_id": "plan", "map_index": -1, **ended}
    run = {"task_id": "benchmark", "map_index": 1, **ended, "rendered_map_index": "node-2 / single · round 1"}
    waits = {"task_id": "judge", "map_index": -1, **ended, "state": None}
    progress = parse_progress(["phase=measure window=2/3 steps=20 samples_per_s=41.25"])
    shared: Any = {"work": "single", "state": "Running", "why": None, "age_s": 1.0, "progress": progress}
    pods = [LivePod(pod=f"pod-{node}", node=node, **shared) for node in ("node-3", "somebody-elses")]

    assert [line for _, line in task_lines([plan, run, waits])] == [
        "all nodes: plan, success after 1.2 s", "node-2: benchmark, success after 1.2 s",
    ]  # fmt: skip
    assert [line for _, line in pod_lines(pods)] == ["node-3: measuring, in turn with the other nodes"]
