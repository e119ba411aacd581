"""Verdicts for tests: of a metric, a node, a group."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from trainbench.core.verdicts import (
    Confirmation,
    Finding,
    GroupVerdict,
    HistoryVerdict,
    Level,
    Metric,
    MetricVerdict,
    NodeVerdict,
    ReferenceMode,
    State,
)
from trainbench.judging.over_time.baseline_deviation import HISTORY_SLOWER


def make_metric(value: float | None, reference: float | None, **fields: Any) -> MetricVerdict:
    deviation = 100 * (value / reference - 1) if value is not None and reference is not None else None
    return MetricVerdict(
        **{
            "metric": Metric.SAMPLES_PER_SECOND,
            "state": State.OK,
            "value": value,
            "reference": reference,
            "deviation": deviation,
            "limit": 5.0,
            "noise": 0.4,
            "side": None,
            "reason": "within the limit",
        }
        | fields
    )


def make_node(node: str, metrics: Sequence[MetricVerdict] = (), **fields: Any) -> NodeVerdict:
    defaults = {
        "node": node,
        "gpu_name": "NVIDIA A10",
        "state": State.OK,
        "metrics": tuple(metrics),
        "num_runs": 2,
        "confirmation": Confirmation.NOT_NEEDED,
        "confirm_deviation_pct": None,
        "is_drill": False,
        "reason": "all metrics within their limits",
    }
    return NodeVerdict(**defaults | fields)


def behind_its_past(
    node: str, group_id: str = "g", rate: float = 9.0, median: float = 10.0, **fields: Any
) -> HistoryVerdict:
    """A breach of the limit around the node's own history."""
    defaults = {
        "node": node,
        "group_id": group_id,
        "state": State.BREACH,
        "samples_per_second": rate,
        "baseline_median": median,
        "deviation_pct": 100 * (rate / median - 1),
        "limit_pct": 1.5,
        "num_points": 9,
        "reason": "slower than last week",
    }
    return HistoryVerdict(**defaults | fields)


def slower_than_it_was(node: str) -> Finding:
    """The warning of a node that is slower than its own history."""
    return Finding(
        level=Level.WARNING,
        category=HISTORY_SLOWER,
        nodes=(node,),
        measured="9.6",
        expected="10",
        summary="is slower than it was",
        resolution="look",
    )


def make_group(nodes: Sequence[NodeVerdict], group_id: str, **fields: Any) -> GroupVerdict:
    rates = [m.value for n in nodes if (m := n.metric(Metric.SAMPLES_PER_SECOND)) and m.value is not None]
    defaults = {
        "group_id": group_id,
        "gpu_name": "NVIDIA A10",
        "reference": ReferenceMode.LEAVE_ONE_OUT_MEDIAN,
        "nodes": tuple(nodes),
        "spread_pct": 100 * (max(rates) - min(rates)) / statistics.median(rates) if len(rates) > 1 else None,
        "noise_pct": 0.3,
        "detectable_pct": 1.1,
    }
    return GroupVerdict(**defaults | fields)
