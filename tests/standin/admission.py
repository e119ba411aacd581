"""Admission of a new pod by what its namespace holds: defaults of LimitRanges, and ResourceQuotas, the last word.

After the API server's LimitRanger and ResourceQuota plugins, as far as the shipped manifests use them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.standin.quantities import quantity
from tests.standin.scheduler import requests
from tests.standin.status import forbidden
from tests.standin.store import Store

Object = dict[str, Any]


def apply_limit_ranges(pod: Object, ranges: Iterable[Mapping[str, Any]]) -> None:
    """Requests that a container leaves out, from the LimitRanges of type Container."""
    for rule in (rule for item in ranges for rule in item["spec"]["limits"]):
        for container in pod["spec"]["containers"]:
            resources = container["resources"]
            resources["requests"] = {**rule["defaultRequest"], **(resources.get("requests") or {})}


def check_quotas(pod: Object, store: Store) -> None:
    """Raises the 403 of the first quota of the namespace that the pod would exceed."""
    space, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    requested = _usage(pod)
    for quota in store.all("resourcequotas", space):
        if not _in_scope(quota, pod):
            continue
        used: Counter[str] = Counter()
        for other in store.all("pods", space):
            if other["status"]["phase"] not in ("Succeeded", "Failed") and _in_scope(quota, other):
                used.update(_usage(other))
        hard = quota["spec"]["hard"]
        over = [key for key in sorted(hard) if requested[key] and used[key] + requested[key] > quantity(hard[key])]
        if over:
            columns = {"requested": requested, "used": used, "limited": hard}
            parts = [f"{title}: {','.join(f'{key}={of[key]}' for key in over)}" for title, of in columns.items()]
            raise forbidden("pods", name, f"exceeded quota: {quota['metadata']['name']}, {', '.join(parts)}")


def _usage(pod: Object) -> Counter[str]:
    """The pod's use of each resource that a quota may name."""
    return Counter({"pods": 1} | {f"requests.{name}": round(value) for name, value in requests(pod).items()})


def _in_scope(quota: Object, pod: Object) -> bool:
    """Whether the quota is about this pod. Of scopes the stand-in knows `PriorityClass NotIn [...]`."""
    rules = (quota["spec"].get("scopeSelector") or {}).get("matchExpressions") or []
    return all(pod["spec"].get("priorityClassName") not in rule["values"] for rule in rules)
