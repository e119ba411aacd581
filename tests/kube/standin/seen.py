"""Parts of a pod's status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NS = "trainbench"


def state(item: dict[str, Any], index: int = 0) -> Any:
    return item["status"]["containerStatuses"][index]["state"]


def waits_for(item: dict[str, Any], index: int = 0) -> str | None:
    statuses = item["status"].get("containerStatuses")
    return statuses[index]["state"].get("waiting", {}).get("reason") if statuses else None


def condition(item: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((c for c in item["status"].get("conditions", []) if c["type"] == kind), {})


def has_phase(*phases: str) -> Callable[[list[Any]], bool]:
    return lambda pods: bool(pods) and all(p["status"]["phase"] in phases for p in pods)
