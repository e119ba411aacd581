"""Small pods for tests: a shell script under the restricted pod security of the namespace."""

from __future__ import annotations

from typing import Any

from tests.standin.fixture import SHELL

IN_POD = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
IN_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def container(script: str, name: str = "base", image: str = SHELL, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": image, "command": ["sh", "-c", script], "securityContext": IN_CONTAINER, **more}


def pod(name: str, script: str = "true", gpus: int = 0, labels: dict[str, str] | None = None, **spec: Any) -> Any:
    """One container that runs `script`; `spec` overrides any field of the pod's specification."""
    base = container(script)
    if gpus:
        base["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"restartPolicy": "Never", "securityContext": dict(IN_POD), "containers": [base], **spec},
    }
