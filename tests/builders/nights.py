"""Campaigns of several nights for the tests of the pages: say which node reached what, and how it was judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bench_image.contract.result import RunResult
from tests.builders import make_result
from tests.builders.campaigns import make_campaign
from tests.builders.verdicts import make_finding, make_group, make_node
from trainbench.core.verdicts import Finding, NodeVerdict, State, Why
from trainbench.results.campaign import Campaign

# The campaign of day 1 ends at this time; each later day's a day later.
ENDED_AT = datetime(2026, 11, 1, 3, 0, tzinfo=UTC)


def night(
    day: int,
    rates: Mapping[str, float] | Sequence[RunResult],
    whys: Mapping[str, Why] | None = None,
    *,
    reference: float = 10.0,
    drilled: Sequence[str] = (),
    expected: Mapping[str, Mapping[str, float]] | None = None,
    **fields: Any,
) -> Campaign:
    """`rates`: samples/s of each node, or whole results. Nodes are well unless `whys`, which may name others, says
    otherwise; their peers make `reference`. `expected`: node -> its `past` and `level`. A node that is not well gets a
    finding.
    """
    results = list(rates) if isinstance(rates, Sequence) else [make_result(node, rate) for node, rate in rates.items()]
    campaign_id = fields.pop("campaign_id", f"night-{day}")
    ended_at = ENDED_AT + timedelta(days=day - 1)
    dated = [_dated(result, campaign_id, ended_at) for result in results]
    judged = {result.spec.identity.node: Why.WELL for result in dated} | dict(whys or {})
    groups: dict[str, list[RunResult]] = {}
    for result in dated:
        groups.setdefault(result.spec.identity.group_id, []).append(result)
    gpu_name = fields.pop("gpu_name", "NVIDIA H200")
    verdicts = []
    for group_id, members in groups.items():
        nodes = []
        for node, why in judged.items():
            others = {"gpu_name": gpu_name, **(expected or {}).get(node, {})}
            nodes.append(_verdict(node, members, why, reference, is_drill=node in drilled, **others))
        verdicts.append(make_group(nodes, group_id, gpu_name=gpu_name))
    unwell = [node for node in verdicts[0].nodes if node.why is not Why.WELL] if verdicts else []
    return make_campaign(
        dated,
        fields.pop("groups", verdicts),
        campaign_id=campaign_id,
        started_at=ended_at - timedelta(hours=1),
        finished_at=ended_at,
        **{"findings": tuple(map(_finding, unwell)), "dag_run_id": f"scheduled__{day}"} | fields,
    )


def _dated(result: RunResult, campaign_id: str, ended_at: datetime) -> RunResult:
    at = ended_at - timedelta(minutes=30 - result.spec.identity.round)
    spec = result.spec.changed(identity={"campaign_id": campaign_id})
    return result.model_copy(
        update={"spec": spec, "started_at": at, "finished_at": at + (result.finished_at - result.started_at)}
    )


def _verdict(
    node: str, members: Sequence[RunResult], why: Why, reference: float, *, is_drill: bool, **others: Any
) -> NodeVerdict:
    own = [run for run in members if run.spec.identity.node == node]
    rate = own[0].performance.samples_per_second if own else None
    if is_drill:
        others["is_drill"] = True
    return make_node(node, rate, peers=reference, why=why, num_runs=len(own), **others)


def _finding(verdict: NodeVerdict) -> Finding:
    node, is_red = verdict.node, verdict.state in (State.RED, State.DRILL)
    more: dict[str, Any] = {}
    if is_red:
        more = {"category": "thermal_throttling", "cause": f"{node} is hot: its fans stand still"}
    return make_finding(
        node, verdict.why, evidence=verdict.off, measured="hot", expected="cool", is_drill=verdict.is_drill, **more
    )
