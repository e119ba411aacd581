"""Parts of a pod's status, and the processes of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
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


def processes(argument: str) -> list[str]:
    """The command lines of this machine that contain it."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in lines if argument in line]


def wait_for_log(api: Any, pod: str, container: str, line: bytes) -> None:
    """Until the container has written this as its first line: what it does before it is done."""
    followed = api.read_namespaced_pod_log(pod, NS, container=container, follow=True, _preload_content=False)
    assert next(iter(followed)) == line + b"\n"
