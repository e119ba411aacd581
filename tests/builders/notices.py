"""Stored notices for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.builders.verdicts import make_finding
from trainbench.core.states import TRAITS
from trainbench.core.verdicts import Against, Finding, Metric, State, Why
from trainbench.history.notices import Notice


def make_notice(node: str = "node-3", why: Why = Why.MISSING, deviation: float | None = None, **fields: Any) -> Notice:
    """`fields`: of the notice or of its finding. `deviation`: of samples/s from the peers."""
    is_drill = fields.get("is_drill", False)
    of_finding = {name: fields.pop(name) for name in Finding.model_fields.keys() & fields.keys() - {"group_id"}}
    rate = {"metric": Metric.SAMPLES_PER_SECOND, "against": Against.PEERS, "deviation": deviation}
    of_notice = {
        "id": 1,
        "state": State.DRILL if is_drill else TRAITS[why].state,
        "why": why,
        "is_drill": is_drill,
        "campaign_id": "night-1",
        "dag_id": "node_consistency",
        "dag_run_id": "scheduled__2026-11-21T02:00:00+00:00",
        "opened_at": datetime(2026, 11, 21, tzinfo=UTC),
        **({} if deviation is None else rate),
    }
    finding = make_finding(node, why, **{"is_drill": is_drill} | of_finding)
    return Notice(node=node, finding=finding, **of_notice | fields)
