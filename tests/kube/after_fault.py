"""The invariants that hold after each fault of tests/kube/faults.toml: no result is lost or counts twice; no pod stays;
not green without a figure; one sentence says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta

from bench_image.contract.result import RunResult, Status
from tests.builders import STARTED_AT, make_result
from tests.builders.pipelines import assessed
from tests.kube.faults import faults, one_sentence
from trainbench.alerting.run_summary import alerts
from trainbench.core.verdicts import Level, Why
from trainbench.params.campaign_params import parse_params
from trainbench.planning.nodes import Fleet
from trainbench.planning.plan import make_plan
from trainbench.pods.pod_end import PodEnd
from trainbench.results.campaign import Campaign
from trainbench.results.collect import collect

HEALTHY = ("node-1", "node-2", "node-3")
SICK = "node-4"
NOT_RED = (Why.BUSY,)  # reported by a finding, and red only where no run gave a figure
PLAN = make_plan(parse_params({"nodes": [*HEALTHY, SICK], "rounds": 1}), Fleet(), "night-1")
AT = STARTED_AT + timedelta(minutes=9)


def after_fault(
    *rows: str,
    results: tuple[Iterable[str], Iterable[str]] | None = None,
    pods: Collection[str] | None = None,
    green: tuple[bool, Collection[str]] | None = None,
    cause: str | None = None,
) -> None:
    """Assert invariants after the faults named `rows`. None: this test does not show that one.

    `results`: the planned runs and those that count; `pods`: names of those that stayed; `green`: whether the run is
    green, and the runs without a figure that it must not hide; `cause`: the sentence that says why.
    """
    assert {fault.name for fault in faults()} >= set(rows), rows
    if results is not None:
        planned, counted = map(sorted, results)
        assert counted == planned  # neither lost nor counted twice
    assert not pods, pods
    if green is not None:
        is_green, missing = green
        assert not (is_green and missing), missing
    if cause is not None:
        assert all(one_sentence(cause).values()), (one_sentence(cause), cause)


def node_of(result: RunResult) -> str:
    return result.spec.identity.node


def after_night(
    *rows: str,
    planned: Sequence[str],
    campaign: Campaign,
    is_green: bool,
    name: Callable[[RunResult], str] = node_of,
) -> None:
    """Assert of a campaign all invariants but that of pods. `name`: by which `planned` names a run."""
    missing = [result for result in campaign.results if result.status is not Status.OK]
    reported = {node for finding in campaign.findings for node in finding.nodes}
    quiet = {node.node for node in campaign.nodes if node.why in NOT_RED} & reported
    hidden = [name(result) for result in missing if node_of(result) not in quiet or len(missing) == len(planned)]
    after_fault(*rows, results=(planned, map(name, campaign.results)), green=(is_green, hidden))
    for result in missing:
        after_fault(*rows, cause=result.error.message if result.error else "")
    for finding in campaign.findings:
        assert missing or finding.level is not Level.ERROR, finding
        after_fault(*rows, cause=finding.text)


def whole_results() -> dict[str, RunResult]:
    """Node -> its result in `night_with` if it were healthy."""
    of_node = {spec.identity.node: spec for spec in PLAN.specs}
    return {node: make_result(node, 9.5).model_copy(update={"spec": spec}) for node, spec in of_node.items()}


def night_with(payload: object | None, state: str = "failed", end: PodEnd | None = None) -> Campaign:
    """A night of three healthy nodes and one whose task left this result, state and end."""
    is_sick = [spec.identity.node == SICK for spec in PLAN.specs]
    whole = [result.model_dump_json() for result in whole_results().values()]
    payloads = [payload if sick else text for sick, text in zip(is_sick, whole, strict=True)]
    states = [state if sick else "success" for sick in is_sick]
    return assessed(PLAN, collect(PLAN.specs, payloads, AT, states, [end if sick else None for sick in is_sick]))


def is_green(campaign: Campaign) -> bool:
    """Whether the gate lets the DAG run succeed."""
    return not any(alert.level is Level.ERROR for alert in alerts(campaign))
