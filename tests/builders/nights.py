"""Campaigns of several nights for the tests of the pages: say which node reached what, and how it was judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bench_image.contract.result import RunResult
from tests.builders import make_result
from tests.builders.campaigns import make_campaign
from tests.builders.verdicts import make_group, make_metric, make_node
from trainbench.core.verdicts import RED, Finding, Level, NodeVerdict, State
from trainbench.results.campaign import Campaign

# The campaign of day 1 ends at this time; each later day's a day later.
ENDED_AT = datetime(2026, 11, 1, 3, 0, tzinfo=UTC)


def night(
    day: int,
    rates: Mapping[str, float] | Sequence[RunResult],
    states: Mapping[str, State] | None = None,
    *,
    reference: float = 10.0,
    drilled: Sequence[str] = (),
    **fields: Any,
) -> Campaign:
    """`rates`: samples/s of each node, or whole results. Nodes are ok unless `states`, which may name others, says
    otherwise; all are compared with `reference`. A red one gets a finding.
    """
    results = list(rates) if isinstance(rates, Sequence) else [make_result(node, rate) for node, rate in rates.items()]
    campaign_id = fields.pop("campaign_id", f"night-{day}")
    ended_at = ENDED_AT + timedelta(days=day - 1)
    dated = [_dated(result, campaign_id, ended_at) for result in results]
    judged = {result.spec.identity.node: State.OK for result in dated} | dict(states or {})
    groups: dict[str, list[RunResult]] = {}
    for result in dated:
        groups.setdefault(result.spec.identity.group_id, []).append(result)
    gpu_name = fields.pop("gpu_name", "NVIDIA H200")
    verdicts = [
        make_group(
            [_verdict(node, members, state, reference, node in drilled, gpu_name) for node, state in judged.items()],
            group_id,
            gpu_name=gpu_name,
        )
        for group_id, members in groups.items()
    ]
    red = [node for node in verdicts[0].nodes if node.state in RED] if verdicts else []
    return make_campaign(
        dated,
        fields.pop("groups", verdicts),
        campaign_id=campaign_id,
        started_at=ended_at - timedelta(hours=1),
        finished_at=ended_at,
        **{"findings": tuple(map(_finding, red)), "dag_run_id": f"scheduled__{day}"} | fields,
    )


def _dated(result: RunResult, campaign_id: str, ended_at: datetime) -> RunResult:
    at = ended_at - timedelta(minutes=30 - result.spec.identity.round)
    spec = result.spec.changed(identity={"campaign_id": campaign_id})
    return result.model_copy(update={"spec": spec, "started_at": at, "finished_at": at + timedelta(seconds=55)})


def _verdict(
    node: str, members: Sequence[RunResult], state: State, reference: float, is_drill: bool, gpu_name: str | None
) -> NodeVerdict:
    own = [run for run in members if run.spec.identity.node == node]
    rate = own[0].performance.samples_per_second if own else None
    metrics = (make_metric(rate, reference, state=state),) if rate else ()
    return make_node(
        node,
        metrics,
        state=state,
        num_runs=len(own),
        is_drill=is_drill,
        gpu_name=gpu_name,
        reason=f"{node} is {state.value}",
    )


def _finding(verdict: NodeVerdict) -> Finding:
    node = verdict.node
    return Finding(
        level=Level.ERROR,
        category="thermal_throttling",
        nodes=(node,),
        evidence=tuple(metric for metric in verdict.metrics if metric.state is verdict.state),
        is_drill=verdict.is_drill,
        measured="hot",
        expected="cool",
        summary="is in breach",
        cause=f"{node} is hot: its fans stand still",
        resolution=f"look at the fans of {node}",
    )
