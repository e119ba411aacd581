"""PATCH: what a merge makes of an object, and what the API server refuses."""

from __future__ import annotations

from typing import Any

from tests.standin.status import failure, invalid
from tests.standin.validate import check_names, check_node

Object = dict[str, Any]


def patched(old: Object, patch: Object, resource: str, kind: str) -> Object:
    """The object after the patch. Raises ApiError: 409 for a `resourceVersion` that is not the latest, 422 for what is
    invalid.
    """
    metadata = old["metadata"]
    version = (patch.get("metadata") or {}).get("resourceVersion")
    if version not in (None, metadata["resourceVersion"]):
        changed = "the object has been modified; please apply your changes to the latest version and try again"
        raise failure(409, f'Operation cannot be fulfilled on {resource} "{metadata["name"]}": {changed}')
    merged = _merged(old, patch)
    if (uid := merged["metadata"]["uid"]) != metadata["uid"]:
        raise invalid(kind, metadata["name"], [("metadata.uid", f'Invalid value: "{uid}": field is immutable')])
    check_names(kind, merged["metadata"])
    if resource == "nodes":
        check_node(merged)
    return merged


def _merged(old: Object, patch: Object) -> Object:
    """RFC 7386. A strategic merge does the same with objects and with atomic lists, as a node's taints are."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key) or {}, value) if isinstance(value, dict) else value
    return result
