"""Reads the verdicts of campaigns that 0.1.0 stored: nine states, and figures beside one reference for each metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainbench.core.states import TRAITS
from trainbench.core.verdicts import Against, Confirmation, Metric, State, Why

WHY = {
    "ok": Why.WELL,
    "notice": Why.ONCE,
    "breach": Why.SLOW,
    "insufficient": Why.NOISY,
    "no_baseline": Why.NOTHING_TO_COMPARE,
    "not_judged": Why.OTHER_CHOICE,
    "failed": Why.FAILED,
    "missing": Why.MISSING,
    "busy": Why.BUSY,
}
CONFIRMATION = {"not_confirmed": Confirmation.CLEARED}
CONFIRMATION |= dict.fromkeys(("inconclusive", "pending", "not_planned"), Confirmation.NO_ANSWER)
OF_METRIC = {Metric.TEMPERATURE_C: Why.HOT, Metric.MEMORY_GB: Why.HEAVY}
GONE = ("changes",)  # fields of a finding


def as_of_today(campaign: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stored campaign, those of 0.1.0 as this version has them."""
    fields = dict(campaign)
    if "history" not in fields:
        return fields
    fields.pop("history")
    fields["groups"] = [_group(group) for group in fields["groups"]]
    fields["findings"] = [finding_of_today(finding) for finding in fields["findings"]]
    return fields


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in group.items() if name not in ("reference", "nodes")}
    return {**kept, "nodes": [_node(node) for node in group["nodes"]]}


def _node(node: Mapping[str, Any]) -> dict[str, Any]:
    made = _verdict(node)
    gpus = [{**_verdict(gpu), "index": gpu["index"], "uuid": gpu["uuid"]} for gpu in node.get("gpus", ())]
    return {**made, "node": node["node"], "gpu_name": node["gpu_name"], "gpus": gpus}


def _verdict(node: Mapping[str, Any]) -> dict[str, Any]:
    metrics = node["metrics"]
    off = {Metric(metric["metric"]) for metric in metrics if metric["state"] == "breach"}
    why = WHY[node["state"]]
    if why is Why.SLOW and off and Metric.SAMPLES_PER_SECOND not in off:
        why = next(OF_METRIC[metric] for metric in OF_METRIC if metric in off)
    if why is Why.WELL and node.get("is_watched"):
        why = Why.BEHIND
    is_drill = node.get("is_drill", False)
    state = State.RED if node["state"] == "breach" else TRAITS[why].state
    return {
        "state": State.DRILL if is_drill and why is not Why.BUSY else state,
        "why": why if why is Why.SLOW or not is_drill else Why.DRILL,
        "reason": node["reason"],
        "num_runs": node["num_runs"],
        "comparisons": [_comparison(metric) for metric in metrics if metric["deviation"] is not None],
        **{metric["metric"]: metric["value"] for metric in metrics},
        "confirmation": CONFIRMATION.get(node["confirmation"], node["confirmation"]),
        "is_drill": is_drill,
        "gpu": next((metric["gpu"] for metric in metrics if metric.get("gpu")), None),
    }


def _comparison(metric: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "metric": metric["metric"],
        "against": Against.PEERS,
        "value": metric["value"],
        "expected": metric["reference"],
        "source": "the other nodes",
        "deviation": metric["deviation"],
        "limit": metric["limit"],
        "chance": metric["noise"],
        "rounds": [metric["deviation"]],
        "is_off": metric["state"] == "breach",
    }


def finding_of_today(finding: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in finding.items() if name not in GONE}
    evidence = [_comparison(metric) for metric in finding.get("evidence", ()) if metric["deviation"] is not None]
    return {**kept, "evidence": evidence}
