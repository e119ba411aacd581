"""Stored breaches for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from trainbench.core.verdicts import Finding, Level, State
from trainbench.history.breach import Breach, BreachKind


def make_breach(node: str, **fields: Any) -> Breach:
    """`fields`: of the breach or of its finding. Missing where they do not say otherwise."""
    defaults: dict[str, Any] = {
        "level": Level.ERROR,
        "category": "node_missing",
        "nodes": (node,),
        "measured": "no result",
        "expected": "at least one",
        "summary": "was expected, but gave no result",
        "resolution": "see whether the node is Ready",
    }
    of_finding = {name: fields.pop(name) for name in Finding.model_fields.keys() & fields.keys() - {"group_id"}}
    of_breach = {
        "kind": BreachKind.BREACH,
        "id": 1,
        "state": State.MISSING,
        "campaign_id": "night-1",
        "dag_id": "node_consistency",
        "dag_run_id": "scheduled__2026-11-21T02:00:00+00:00",
        "opened_at": datetime(2026, 11, 21, tzinfo=UTC),
        "closed_at": None,
        "ended": None,
        "is_drill": of_finding.get("is_drill", False),
    }
    return Breach(node=node, finding=Finding(**defaults | of_finding), **of_breach | fields)
