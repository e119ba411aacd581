"""Small pods for tests: a shell script as the shipped namespace takes it: restricted, of our priority, small."""

from __future__ import annotations

from typing import Any

from tests.kube.e2e import E2E, INSTANCE

PRIORITY_CLASS = "trainbench-benchmark"  # the shipped quota refuses pods of any other
SMALL = {"requests": {"cpu": "20m", "memory": "32Mi"}}  # without requests the LimitRange gives each container 2 CPUs
IN_POD = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
IN_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def container(script: str, name: str = "base", image: str = E2E.image, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "command": ["sh", "-c", script],
        "securityContext": IN_CONTAINER,
        "resources": {"requests": dict(SMALL["requests"])},
        **more,
    }


def pod(name: str, script: str = "true", gpus: int = 0, labels: dict[str, str] | None = None, **spec: Any) -> Any:
    """One container that runs `script`; `spec` overrides any field of the pod's specification."""
    base = container(script)
    if gpus:
        base["resources"]["limits"] = {"nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/instance": INSTANCE, **(labels or {})}},
        "spec": {
            "restartPolicy": "Never",
            "priorityClassName": PRIORITY_CLASS,
            "securityContext": dict(IN_POD),
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [base],
            **spec,
        },
    }


def on_nodes(names: list[str]) -> dict[str, Any]:
    """The affinity of a pod that may go to these nodes only."""
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": names}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
