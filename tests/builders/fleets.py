"""A fleet's results for the tests of judgement, and its verdicts by node."""

from __future__ import annotations

from bench_image.contract.result import RunResult
from tests.builders import make_result
from trainbench.core.verdicts import GroupVerdict, NodeVerdict, State, Why


def fleet(*rates: float) -> list[RunResult]:
    return [make_result(f"node-{i}", rate) for i, rate in enumerate(rates, 1)]


def by_name(group: GroupVerdict) -> dict[str, NodeVerdict]:
    return {node.node: node for node in group.nodes}


def states(group: GroupVerdict) -> list[State]:
    return [node.state for node in group.nodes]


def reasons(group: GroupVerdict) -> list[Why]:
    return [node.why for node in group.nodes]
