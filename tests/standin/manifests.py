"""The manifests that a fresh cluster has, as after `kubectl apply -k FOLDER`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.standin.store import KINDS, Store

# What the stand-in acts on. Rights go by token (`rbac`), and there are no network policies.
RESOURCES = {kind.name: resource for resource, kind in KINDS.items()}


def apply_manifests(store: Store, namespace: str, folder: Path) -> None:
    """Creates the folder's objects in `namespace`, whatever the manifests call theirs."""
    documents = list(_documents(folder))
    named = {item["metadata"]["name"] for item in documents if item["kind"] == "Namespace"}
    for item in documents:
        if item["kind"] not in RESOURCES:
            continue
        metadata = item["metadata"]
        if item["kind"] == "Namespace":
            metadata["name"] = namespace
            metadata["labels"] = {"kubernetes.io/metadata.name": namespace, **metadata.get("labels", {})}
            item |= {"spec": {}, "status": {"phase": "Active"}}
        elif metadata.get("namespace") in named:
            metadata["namespace"] = namespace
        store.create(RESOURCES[item["kind"]], item)


def roles(folder: Path) -> list[dict[str, Any]]:
    """The Roles and ClusterRoles of the folder."""
    return [copy.deepcopy(item) for item in _documents(folder) if item["kind"] in ("Role", "ClusterRole")]


def _documents(folder: Path) -> Iterator[dict[str, Any]]:
    for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        yield from filter(None, yaml.safe_load_all((folder / name).read_text()))
