"""Validation of a Pod as by a real API server: the schema (kubernetes-validate), rules beyond it, pod security."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]

from tests.standin.quantities import quantity
from tests.standin.status import ApiError, failure, forbidden, invalid

SCHEMA_VERSION = "1.33"
Object = Mapping[str, Any]
Causes = Iterator[tuple[str, str]]  # (field, message)

_DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_DNS_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_NAME = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_ENV_NAME = re.compile(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")

_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_DNS_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_DNS_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
FIELD_PATHS = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def check_pod(pod: Object) -> None:
    """Raises ApiError 422 for what is invalid."""
    check_names("Pod", pod["metadata"])
    if causes := list(_pod_spec(pod["spec"])):
        raise invalid("Pod", pod["metadata"]["name"], causes)


def check_security(pod: Object, namespace_labels: Mapping[str, str]) -> None:
    """Raises ApiError 403 for what the namespace's pod security forbids."""
    name = pod["metadata"]["name"]
    restricted = namespace_labels.get("pod-security.kubernetes.io/enforce") == "restricted"
    if restricted and (violations := list(_restricted(pod["spec"]))):
        raise forbidden("pods", name, f'violates PodSecurity "restricted:latest": {", ".join(violations)}')


def check_schema(pod: Object) -> None:
    """Raises ApiError for what cannot be read: mostly 400."""
    try:
        kubernetes_validate.validate(dict(pod), SCHEMA_VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        raise _schema_error(error) from None
    for container in _containers(pod["spec"]):
        for kind, amounts in (container.get("resources") or {}).items():
            if kind == "claims":
                continue
            for resource, amount in amounts.items():
                try:
                    quantity(amount)
                except ValueError as error:
                    raise failure(
                        400,
                        f'Pod in version "v1" cannot be handled as a Pod: {error} '
                        f"({container['name']}: {kind}.{resource} is {amount!r})",
                    ) from None


def _schema_error(error: Any) -> ApiError:
    """Unknown fields and wrong types cannot be decoded; a missing field is a fault of the object."""
    path = ".".join(str(part) for part in error.path)
    if error.validator == "required":
        missing = error.message.split("'")[1]
        return invalid("Pod", "", [(f"{path}.{missing}".lstrip("."), "Required value")])
    if error.validator == "additionalProperties":
        unknown = re.findall(r"'([^']+)' (?:was|were) unexpected", error.message)
        return failure(400, f'strict decoding error: unknown field "{".".join([path, *unknown[:1]]).lstrip(".")}"')
    return failure(400, f'Pod in version "v1" cannot be handled as a Pod: {path}: {error.message}')


def check_names(kind: str, metadata: Object) -> None:
    """Name, labels and annotations of any object."""
    if causes := list(_metadata(metadata)):
        raise invalid(kind, metadata.get("name", ""), causes)


def check_node(node: Object) -> None:
    """The node's taints. Raises ApiError 422."""
    if causes := list(_taints(node["spec"].get("taints") or [])):
        raise invalid("Node", node["metadata"]["name"], causes)


def _taints(taints: Sequence[Object]) -> Causes:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        field = f"spec.taints[{index}]"
        yield from _qualified_name(f"{field}.key", taint["key"])
        if taint.get("value") and not _LABEL_NAME.match(taint["value"]):
            yield f"{field}.value", f'Invalid value: "{taint["value"]}": {_LABEL_RULE}'
        yield from _one_of(f"{field}.effect", taint["effect"], _EFFECTS)
        if (taint["key"], taint["effect"]) in seen:
            yield field, f"Duplicate value: {dict(taint)}"
        seen.add((taint["key"], taint["effect"]))


def _metadata(metadata: Object) -> Causes:
    name = metadata.get("name", "")
    if name and (not _DNS_NAME.match(name) or len(name) > 253):
        yield "metadata.name", f'Invalid value: "{name}": {_DNS_NAME_RULE}'
    if not name and not metadata.get("generateName"):
        yield "metadata.name", "Required value: name or generateName is required"
    yield from _labels("metadata.labels", metadata.get("labels") or {})
    for key in metadata.get("annotations") or {}:
        yield from _qualified_name("metadata.annotations", key)


def _labels(field: str, labels: Mapping[str, str]) -> Causes:
    for key, value in labels.items():
        yield from _qualified_name(field, key)
        if len(value) > 63:
            yield field, f'Invalid value: "{value}": must be no more than 63 bytes'
        if value and not _LABEL_NAME.match(value):
            yield field, f'Invalid value: "{value}": {_LABEL_RULE}'


def _qualified_name(field: str, key: str) -> Causes:
    prefix, _, name = key.rpartition("/")
    if not _LABEL_NAME.match(name) or len(name) > 63 or (prefix and not _DNS_NAME.match(prefix)):
        yield field, f"Invalid value: \"{key}\": name part must consist of alphanumeric characters, '-', '_' or '.'"


def _pod_spec(spec: Object) -> Causes:
    yield from _one_of("spec.restartPolicy", spec.get("restartPolicy"), ("Always", "Never", "OnFailure"))
    yield from _one_of(
        "spec.dnsPolicy", spec.get("dnsPolicy"), ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
    )
    for field in ("hostname", "subdomain"):
        yield from _dns_label(f"spec.{field}", spec.get(field))
    if spec.get("activeDeadlineSeconds") is not None and not 1 <= spec["activeDeadlineSeconds"] < 2**31:
        yield "spec.activeDeadlineSeconds", _between(spec["activeDeadlineSeconds"], 1)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield "spec.terminationGracePeriodSeconds", _between(spec["terminationGracePeriodSeconds"], 0)
    yield from _labels("spec.nodeSelector", spec.get("nodeSelector") or {})
    for index, toleration in enumerate(spec.get("tolerations") or []):
        yield from _toleration(f"spec.tolerations[{index}]", toleration)
    yield from _node_affinity(spec)
    volumes = [volume["name"] for volume in spec.get("volumes") or []]
    for index, name in enumerate(volumes):
        yield from _dns_label(f"spec.volumes[{index}].name", name)
        if name in volumes[:index]:
            yield f"spec.volumes[{index}].name", f'Duplicate value: "{name}"'
    if not spec.get("containers"):
        yield "spec.containers", "Required value"
    seen: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            field = f"spec.{group}[{index}]"
            if container["name"] in seen:
                yield f"{field}.name", f'Duplicate value: "{container["name"]}"'
            seen.add(container["name"])
            yield from _container(field, container, volumes)


def _container(field: str, container: Object, volumes: list[str]) -> Causes:
    yield from _dns_label(f"{field}.name", container["name"])
    if not container.get("image", "").strip():
        yield f"{field}.image", "Required value"
    yield from _one_of(
        f"{field}.imagePullPolicy", container.get("imagePullPolicy"), ("Always", "IfNotPresent", "Never")
    )
    yield from _one_of(
        f"{field}.terminationMessagePolicy",
        container.get("terminationMessagePolicy"),
        ("File", "FallbackToLogsOnError"),
    )
    for index, variable in enumerate(container.get("env") or []):
        yield from _variable(f"{field}.env[{index}]", variable)
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or []):
        at = f"{field}.volumeMounts[{index}]"
        if mount["name"] not in volumes:
            yield f"{at}.name", f'Not found: "{mount["name"]}"'
        if mount["mountPath"] in paths:
            yield f"{at}.mountPath", f'Invalid value: "{mount["mountPath"]}": must be unique'
        paths.add(mount["mountPath"])
        if ".." in mount.get("subPath", "").split("/"):
            yield f"{at}.subPath", f"Invalid value: \"{mount['subPath']}\": must not contain '..'"
    yield from _resources(f"{field}.resources", container.get("resources") or {})


def _variable(field: str, variable: Object) -> Causes:
    if not _ENV_NAME.match(variable["name"]):
        yield (
            f"{field}.name",
            f'Invalid value: "{variable["name"]}": a valid environment variable name must consist of ...',
        )
    source = variable.get("valueFrom")
    if source is None:
        return
    if variable.get("value"):
        yield f"{field}.valueFrom", 'Invalid value: "": may not be specified when `value` is not empty'
    path = (source.get("fieldRef") or {}).get("fieldPath")
    if path and path not in FIELD_PATHS and not re.match(r"^metadata\.(labels|annotations)\['[^']+'\]$", path):
        yield (
            f"{field}.valueFrom.fieldRef.fieldPath",
            f'Invalid value: "{path}": error converting fieldPath: field label not supported: {path}',
        )


def _resources(field: str, resources: Object) -> Causes:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name in {**limits, **requests}:
        extended = "/" in name and not name.startswith("kubernetes.io/")
        if "/" not in name and name not in ("cpu", "memory", "ephemeral-storage") and not name.startswith("hugepages-"):
            yield f"{field}", f'Invalid value: "{name}": must be a standard resource for containers'
        if extended and name not in limits:
            yield f"{field}.limits", "Required value: Limit must be set for non overcommitable resources"
        elif extended and name in requests and quantity(requests[name]) != quantity(limits[name]):
            yield (
                f"{field}.requests",
                f'Invalid value: "{requests[name]}": must be equal to {name} limit of {limits[name]}',
            )
        elif name in requests and name in limits and quantity(requests[name]) > quantity(limits[name]):
            yield (
                f"{field}.requests",
                f'Invalid value: "{requests[name]}": must be less than or equal to {name} limit of {limits[name]}',
            )
        if extended and quantity(limits.get(name, 0)) % 1:
            yield f"{field}.limits[{name}]", f'Invalid value: "{limits[name]}": must be an integer'


def _toleration(field: str, toleration: Object) -> Causes:
    operator = toleration.get("operator", "Equal")
    yield from _one_of(f"{field}.operator", operator, ("Equal", "Exists"))
    yield from _one_of(f"{field}.effect", toleration.get("effect"), _EFFECTS)
    if operator == "Exists" and toleration.get("value"):
        yield (
            f"{field}.operator",
            f"Invalid value: \"{toleration['value']}\": value must be empty when `operator` is 'Exists'",
        )
    if not toleration.get("key") and operator != "Exists":
        yield f"{field}.operator", f'Invalid value: "{operator}": operator must be Exists when `key` is empty'
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        yield f"{field}.effect", "Invalid value: effect must be 'NoExecute' when `tolerationSeconds` is set"


def _node_affinity(spec: Object) -> Causes:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {"nodeSelectorTerms": [{}]}
    field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    if not required["nodeSelectorTerms"]:
        yield field, "Required value: must have at least one node selector term"
    for index, term in enumerate(required["nodeSelectorTerms"]):
        for position, expression in enumerate(term.get("matchExpressions") or []):
            at, operator = f"{field}[{index}].matchExpressions[{position}]", expression["operator"]
            yield from _one_of(f"{at}.operator", operator, ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
            values = expression.get("values") or []
            if operator in ("In", "NotIn") and not values:
                yield f"{at}.values", "Required value: must be specified when `operator` is 'In' or 'NotIn'"
            if operator in ("Exists", "DoesNotExist") and values:
                yield f"{at}.values", "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"


def _restricted(spec: Object) -> Iterator[str]:
    """The `restricted` profile of the pod security standards, as far as it is checked here."""
    in_pod = spec.get("securityContext") or {}
    by_container = [(c["name"], c.get("securityContext") or {}) for c in _containers(spec)]
    if spec.get("hostNetwork") or spec.get("hostPID") or spec.get("hostIPC"):
        yield "host namespaces (hostNetwork=true, hostPID=true or hostIPC=true)"
    if any("hostPath" in volume for volume in spec.get("volumes") or []):
        yield 'restricted volume types (volume uses restricted volume type "hostPath")'
    if names := [name for name, own in by_container if own.get("privileged")]:
        yield f"privileged ({_named(names)} must not set securityContext.privileged=true)"
    if names := [name for name, own in by_container if own.get("allowPrivilegeEscalation") is not False]:
        yield (
            f"allowPrivilegeEscalation != false ({_named(names)} must set "
            "securityContext.allowPrivilegeEscalation=false)"
        )
    if names := [n for n, own in by_container if "ALL" not in ((own.get("capabilities") or {}).get("drop") or [])]:
        yield f'unrestricted capabilities ({_named(names)} must set securityContext.capabilities.drop=["ALL"])'
    for name, own in by_container:
        added = [f'"{c}"' for c in (own.get("capabilities") or {}).get("add") or [] if c != "NET_BIND_SERVICE"]
        if added:
            yield (
                f'unrestricted capabilities (container "{name}" must not include {", ".join(added)} in '
                "securityContext.capabilities.add)"
            )
    if names := [name for name, own in by_container if not own.get("runAsNonRoot", in_pod.get("runAsNonRoot"))]:
        yield f"runAsNonRoot != true (pod or {_named(names)} must set securityContext.runAsNonRoot=true)"
    if 0 in [in_pod.get("runAsUser"), *(own.get("runAsUser") for _, own in by_container)]:
        yield "runAsUser=0 (pod must not set runAsUser=0)"
    profile = in_pod.get("seccompProfile")
    allowed = ("RuntimeDefault", "Localhost")
    if names := [
        n for n, own in by_container if (own.get("seccompProfile") or profile or {}).get("type") not in allowed
    ]:
        yield (
            f'seccompProfile (pod or {_named(names)} must set securityContext.seccompProfile.type to "RuntimeDefault" '
            'or "Localhost")'
        )


def _named(names: list[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"container {quoted}" if len(names) == 1 else f"containers {quoted}"


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def _dns_label(field: str, value: str | None) -> Causes:
    if value and (not _DNS_LABEL.match(value) or len(value) > 63):
        yield field, f'Invalid value: "{value}": {_DNS_LABEL_RULE}'


def _one_of(field: str, value: str | None, allowed: tuple[str, ...]) -> Causes:
    if value and value not in allowed:
        supported = ", ".join(f'"{choice}"' for choice in allowed)
        yield field, f'Unsupported value: "{value}": supported values: {supported}'


def _between(value: int, lowest: int) -> str:
    return f"Invalid value: {value}: must be between {lowest} and 2147483647, inclusive"
