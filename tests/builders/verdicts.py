"""Verdicts for tests: of a metric, a node, a group."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from trainbench.core.verdicts import (
    Confirmation,
    GroupVerdict,
    Metric,
    MetricVerdict,
    NodeVerdict,
    ReferenceMode,
    State,
)


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
