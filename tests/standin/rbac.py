"""Who may do what: bearer tokens, each with a user and the rules of its Roles and ClusterRoles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.standin.status import ApiError


class Call(NamedTuple):
    """One request as the API server's authorisation sees it."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Identity(NamedTuple):
    """`rules` are PolicyRules by namespace; those under "" hold in the whole cluster."""

    user: str
    rules: Mapping[str, tuple[Mapping[str, Any], ...]]

    def may(self, call: Call) -> bool:
        rules = [*self.rules.get("", ()), *(self.rules.get(call.namespace, ()) if call.namespace else ())]
        return any(_allows(rule, call) for rule in rules)


EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
ANONYMOUS = Identity("system:anonymous", {})  # a request without a token
ADMIN = Identity("kubernetes-admin", {"": (EVERYTHING,)})


def identity(user: str, roles: Iterable[Mapping[str, Any]]) -> Identity:
    """From Role and ClusterRole manifests: a Role holds in its namespace, a ClusterRole everywhere."""
    rules: dict[str, tuple[Mapping[str, Any], ...]] = {}
    for role in roles:
        space = role["metadata"]["namespace"] if role["kind"] == "Role" else ""
        rules[space] = rules.get(space, ()) + tuple(role["rules"])
    return Identity(user, rules)


def refusal(who: Identity, call: Call) -> ApiError:
    where = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
    subject = f'{call.resource} "{call.name}"' if call.name else call.resource
    return ApiError(
        403,
        "Forbidden",
        f'{subject} is forbidden: User "{who.user}" cannot {call.verb} resource "{call.full_resource}" '
        f'in API group "{call.group}" {where}',
        {"name": call.name, "kind": call.resource},
    )


def _allows(rule: Mapping[str, Any], call: Call) -> bool:
    names = rule.get("resourceNames")
    return (
        _has(rule.get("apiGroups", []), call.group)
        and _has(rule["resources"], call.full_resource)
        and _has(rule["verbs"], call.verb)
        and (not names or call.name in names)
    )


def _has(allowed: Iterable[str], value: str) -> bool:
    return "*" in allowed or value in allowed
