"""The taints that a pod tolerates, and for how long: the scheduler's and the taint manager's view of tolerations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]


def is_tolerated(taint: Object, tolerations: Iterable[Object]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def stay_s(pod: Object, taints: Iterable[Object]) -> float | None:
    """How long the pod may stay on a node with these taints: 0 if it does not tolerate one of effect NoExecute, else
    its smallest `tolerationSeconds`; None: for ever."""
    limits: list[float] = []
    for taint in taints:
        if taint["effect"] != "NoExecute":
            continue
        bearing = [t for t in pod["spec"].get("tolerations", []) if _tolerates(t, taint)]
        if not bearing:
            return 0.0
        limits += [max(0.0, t["tolerationSeconds"]) for t in bearing if t.get("tolerationSeconds") is not None]
    return min(limits, default=None)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")
