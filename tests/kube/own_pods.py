"""The pods of trainbench on the tests' cluster."""

from __future__ import annotations

from typing import Any


def is_ours(pod: dict[str, Any]) -> bool:
    labels: dict[str, str] = pod["metadata"].get("labels", {})
    return labels.get("app.kubernetes.io/name") == "trainbench"


def names_of_ours(cluster: Any) -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.pods() if is_ours(pod)]


def wait_until_ours_are_gone(cluster: Any) -> None:
    """A pod that is deleted keeps its grace period: its program may not listen to SIGTERM."""
    cluster.wait_for_pods(lambda pods: not any(map(is_ours, pods)))
