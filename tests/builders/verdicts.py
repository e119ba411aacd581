"""Verdicts for tests: of a node, of one of its GPUs, of a group; and the findings that explain them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from trainbench.core.formats import percent
from trainbench.core.states import TRAITS
from trainbench.core.verdicts import (
    Against,
    Comparison,
    Finding,
    GpuVerdict,
    GroupVerdict,
    Level,
    Metric,
    NodeVerdict,
    State,
    Why,
)

SOURCES = {
    Against.PEERS: "the median of 3 peers",
    Against.PAST: "its own past of 9 nights",
    Against.LEVEL: "the level of its GPU",
}
LIMITS = {Against.PEERS: 5.0, Against.PAST: 1.5, Against.LEVEL: 4.0}
METRIC_OF = {Why.HOT: Metric.TEMPERATURE_C, Why.HEAVY: Metric.MEMORY_GB}
LEVELS = {State.RED: Level.ERROR, State.DRILL: Level.ERROR}


def make_comparison(
    value: float,
    expected: float,
    against: Against = Against.PEERS,
    metric: Metric = Metric.SAMPLES_PER_SECOND,
    **fields: Any,
) -> Comparison:
    """`is_off` follows from limit and chance, to the bad side only, unless given."""
    is_rate, is_heat = metric is Metric.SAMPLES_PER_SECOND, metric is Metric.TEMPERATURE_C
    deviation = value - expected if is_heat else 100 * (value / expected - 1)
    limit = LIMITS[against] if is_rate else 10.0 if is_heat else 2.0
    chance = fields.pop("chance", 1.1 if is_rate else None)
    bad = -deviation if is_rate else deviation
    defaults = {
        "metric": metric,
        "against": against,
        "value": value,
        "expected": expected,
        "source": SOURCES[against],
        "deviation": deviation,
        "limit": limit,
        "chance": chance,
        "rounds": (deviation,) if is_rate else (),
        "is_off": bad > max(fields.get("limit", limit), chance or 0.0),
    }
    return Comparison(**defaults | fields)


def make_node(
    node: str,
    rate: float | None = 10.0,
    *,
    peers: float | None = None,
    past: float | None = None,
    level: float | None = None,
    why: Why = Why.WELL,
    **fields: Any,
) -> NodeVerdict:
    """`peers`, `past`, `level`: the samples/s that each expects; None: it expects none. The state is that of `why`
    unless given; `is_drill=True` makes it DRILL.
    """
    return NodeVerdict(**_verdict(rate, peers, past, level, why, fields | {"node": node}, "NVIDIA A10"))


def make_gpu(index: int, rate: float | None = 10.0, *, peers: float | None = None, **fields: Any) -> GpuVerdict:
    """One GPU of a node; `fields` as for `make_node`."""
    why = fields.pop("why", Why.WELL)
    past, level = fields.pop("past", None), fields.pop("level", None)
    fields = {"index": index, "uuid": f"GPU-{index:04d}"} | fields
    made = _verdict(rate, peers, past, level, why, fields, None)
    del made["gpu_name"]
    return GpuVerdict(**made)


def _verdict(
    rate: float | None,
    peers: float | None,
    past: float | None,
    level: float | None,
    why: Why,
    fields: dict[str, Any],
    gpu_name: str | None,
) -> dict[str, Any]:
    expected = {Against.PEERS: peers, Against.PAST: past, Against.LEVEL: level}
    made = [
        make_comparison(rate, value, against)
        for against, value in expected.items()
        if rate is not None and value is not None
    ]
    comparisons = fields.get("comparisons", made)
    of_metric = [c for c in comparisons if c.metric is METRIC_OF.get(why, Metric.SAMPLES_PER_SECOND)]
    decides = min(of_metric, key=lambda c: not c.is_off, default=None)
    deviations = [f"{percent(c.deviation)} against {c.source}" for c in comparisons]
    is_drill = fields.get("is_drill", why is Why.DRILL)
    return {
        "gpu_name": gpu_name,
        "state": State.DRILL if is_drill else TRAITS[why].state,
        "why": why,
        "reason": f"samples/s {deviations[0]}" if deviations else TRAITS[why].meaning,
        "num_runs": 0 if why is Why.MISSING else 2,
        "comparisons": tuple(comparisons),
        "decided_by": (decides.metric, decides.against) if decides and why not in (Why.ONCE, Why.UNSTEADY) else None,
        "samples_per_second": rate,
        "is_drill": is_drill,
    } | fields


def make_group(nodes: Sequence[NodeVerdict], group_id: str = "g", **fields: Any) -> GroupVerdict:
    rates = [node.samples_per_second for node in nodes if node.samples_per_second is not None]
    defaults = {
        "group_id": group_id,
        "gpu_name": "NVIDIA A10",
        "nodes": tuple(nodes),
        "spread_pct": 100 * (max(rates) - min(rates)) / statistics.median(rates) if len(rates) > 1 else None,
        "noise_pct": 0.3,
        "detectable_pct": 1.1,
    }
    return GroupVerdict(**defaults | fields)


def make_finding(node: str, why: Why = Why.SLOW, **fields: Any) -> Finding:
    """The finding that explains the verdict on a node."""
    defaults = {
        "level": LEVELS.get(TRAITS[why].state, Level.WARNING),
        "category": why.value,
        "nodes": (node,),
        "why": why,
        "measured": "9.0 samples/s",
        "expected": "10.0 samples/s",
        "summary": TRAITS[why].one,
        "resolution": f"look at the fans of {node}",
    }
    return Finding(**defaults | fields)
