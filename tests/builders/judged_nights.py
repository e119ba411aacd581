"""Nights that the whole pipeline judges: give the measured runs, and what each node reached before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from bench_image.contract.result import RunResult
from tests.builders import STARTED_AT, make_result
from tests.builders.pipelines import StubHistory, assessed, nights_before
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import Fleet
from trainbench.planning.plan import make_plan
from trainbench.results.campaign import Campaign

NODES = ("node-1", "node-2", "node-3", "node-4")
ENDED_AT = STARTED_AT + timedelta(minutes=30)
STEADY = (9.99, 10.0, 10.01)


def judged_night(
    first: Sequence[RunResult],
    again: Sequence[RunResult] = (),
    *,
    pasts: Callable[[str], Sequence[float]] = lambda node: [10.0] * 9,
    **params: Any,
) -> Campaign:
    """A night of four nodes, judged by the whole flow. `pasts`: node -> what it reached before."""
    parsed = parse_params({"nodes": NODES, "rounds": 2, "strategies": ["single"], **params})
    planned = make_plan(parsed, Fleet(), "night")

    def of_plan(measured: Sequence[RunResult]) -> list[RunResult]:
        group = {"group_id": planned.specs[0].identity.group_id}
        return [run.model_copy(update={"spec": run.spec.changed(identity=group)}) for run in measured]

    # Its earlier nights were no drills.
    undrilled = [run.model_copy(update={"spec": run.spec.model_copy(update={"drill": None})}) for run in of_plan(first)]
    last = {run.spec.identity.node: run for run in undrilled}
    points = [record for node, run in last.items() for record in nights_before(run, *pasts(node))]
    history = StubHistory(points=points)
    return assessed(
        planned, of_plan(first), of_plan(again), history, suite="node_consistency", finished_at=ENDED_AT
    ).model_copy(update={"dag_run_id": "scheduled__1"})


def runs(node: str, rate: float = 10.0, rounds: Sequence[int] = (1, 2), **fields: Any) -> list[RunResult]:
    windows = fields.pop("windows", tuple(rate * window / 10 for window in STEADY))
    return [make_result(node, rate, round=number, windows=windows, **fields) for number in rounds]
