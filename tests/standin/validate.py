"""Validation of objects as by a real API server: the schema (kubernetes-validate), names and labels, pod security."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]

from tests.standin.status import ApiError, failure, forbidden, invalid

SCHEMA_VERSION = "1.33"
Object = Mapping[str, Any]
Causes = Iterator[tuple[str, str]]  # (field, message)

_DNS_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_NAME = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_DNS_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)


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


def _restricted(spec: Object) -> Iterator[str]:
    """The `restricted` profile of the pod security standards, as far as it is checked here."""
    in_pod = spec.get("securityContext") or {}
    if spec.get("hostNetwork") or spec.get("hostPID") or spec.get("hostIPC"):
        yield "host namespaces (hostNetwork=true, hostPID=true or hostIPC=true)"
    if any("hostPath" in volume for volume in spec.get("volumes") or []):
        yield 'restricted volume types (volume uses restricted volume type "hostPath")'
    for container in spec["containers"]:
        own = container.get("securityContext") or {}
        both, must = {**in_pod, **own}, f'container "{container["name"]}" must set securityContext'
        if own.get("allowPrivilegeEscalation") is not False:
            yield f"allowPrivilegeEscalation != false ({must}.allowPrivilegeEscalation=false)"
        if "ALL" not in ((own.get("capabilities") or {}).get("drop") or []):
            yield f'unrestricted capabilities ({must}.capabilities.drop=["ALL"])'
        if not both.get("runAsNonRoot") or both.get("runAsUser") == 0:
            yield f"runAsNonRoot != true ({must}.runAsNonRoot=true)"
        if (both.get("seccompProfile") or {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f'seccompProfile ({must}.seccompProfile.type to "RuntimeDefault" or "Localhost")'
