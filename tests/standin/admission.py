"""Admission of a new object by what its namespace holds: defaults of LimitRanges, and ResourceQuotas, the last word.

After the API server's LimitRanger and ResourceQuota plugins, as far as the shipped manifests and their tests use them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.standin.quantities import quantity, written
from tests.standin.scheduler import requests
from tests.standin.status import failure, forbidden
from tests.standin.store import Store

Object = dict[str, Any]
PRIORITY_CLASS = "PriorityClass"
_ALIASES = {"cpu": "requests.cpu", "memory": "requests.memory"}  # how a quota may write them too


def apply_limit_ranges(pod: Object, ranges: Iterable[Mapping[str, Any]]) -> None:
    """Requests and limits that a container leaves out, from the LimitRanges of type Container. Raises ApiError."""
    rules = [rule for item in ranges for rule in item["spec"]["limits"] if rule["type"] == "Container"]
    for container in [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]:
        resources = container["resources"]
        for rule in rules:
            for kind, field in (("limits", "default"), ("requests", "defaultRequest")):
                if rule.get(field):
                    resources[kind] = {**rule[field], **(resources.get(kind) or {})}
            _check_most(pod, rule.get("max") or {}, resources.get("limits") or {})


def _check_most(pod: Object, most: Mapping[str, str], limits: Mapping[str, str]) -> None:
    for name, value in most.items():
        if name not in limits or quantity(limits[name]) > quantity(value):
            limit = f"but limit is {limits[name]}" if name in limits else "but no limit is specified"
            raise forbidden("pods", pod["metadata"]["name"], f"maximum {name} usage per Container is {value}, {limit}")


def check_quotas(resource: str, item: Object, store: Store) -> None:
    """Raises the 403 of the first quota of the namespace that the object would exceed."""
    space = item["metadata"]["namespace"]
    for quota in store.all("resourcequotas", space):
        if not _in_scope(quota, item):
            continue
        used: Counter[str] = Counter()
        for other in store.all(resource, space):
            if _counts(other) and _in_scope(quota, other):
                used.update(_usage(resource, other))
        requested, hard = _usage(resource, item), quota["spec"]["hard"]
        over = [
            name
            for name, most in sorted(hard.items())
            if (more := requested.get(_ALIASES.get(name, name), 0)) > 0
            and used[_ALIASES.get(name, name)] + more > quantity(most)
        ]
        if over:
            columns = {"requested": requested, "used": used}
            parts = [
                f"{column}: {','.join(f'{n}={written(n, values[_ALIASES.get(n, n)])}' for n in over)}"
                for column, values in columns.items()
            ]
            limited = ",".join(f"{name}={hard[name]}" for name in over)
            name = quota["metadata"]["name"]
            why = f"exceeded quota: {name}, {', '.join(parts)}, limited: {limited}"
            raise forbidden(resource, item["metadata"]["name"], why)


def _counts(item: Object) -> bool:
    """Pods that have ended hold nothing."""
    return item.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _usage(resource: str, item: Object) -> Counter[str]:
    """The object's use of each resource that a quota may name. A pod's requests are those of all its containers."""
    usage = Counter({resource: 1, f"count/{resource}": 1})
    if resource == "pods":
        usage.update({f"requests.{name}": value for name, value in requests(item).items()})
    elif resource == "services":
        kind = item["spec"].get("type")
        usage.update({"services.nodeports": kind == "NodePort", "services.loadbalancers": kind == "LoadBalancer"})
    return usage


def _in_scope(quota: Object, item: Object) -> bool:
    """Whether the quota is about this object: by its scope selector, which only pods can match."""
    rules = (quota["spec"].get("scopeSelector") or {}).get("matchExpressions") or []
    if rules and item["kind"] != "Pod":
        return False
    return all(_matches(rule, item["spec"].get("priorityClassName")) for rule in rules)


def _matches(rule: Mapping[str, Any], priority_class: str | None) -> bool:
    if rule["scopeName"] != PRIORITY_CLASS:
        raise failure(501, f"the stand-in knows no quota scope but {PRIORITY_CLASS}, not {rule['scopeName']}")
    match rule["operator"]:
        case "In":
            return priority_class in rule["values"]
        case "NotIn":  # a pod without a class is not in any list
            return priority_class not in rule["values"]
        case "Exists":
            return priority_class is not None
        case _:
            return priority_class is None
