"""The shipped manifests as a fresh cluster has them after `kubectl apply -k docker/kubernetes/base`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.standin.store import KINDS, Store

BASE = Path(__file__).resolve().parents[2] / "docker" / "kubernetes" / "base"
SHIPPED_NAMESPACE = "trainbench"
# What the stand-in acts on. Rights go by token (`rbac`), and there are no network policies.
RESOURCES = {kind.name: resource for resource, kind in KINDS.items()}


def apply_base(store: Store, namespace: str) -> None:
    """Into `namespace`, whatever name the manifests give it."""
    for item in _documents():
        item = copy.deepcopy(item)
        if item["kind"] not in RESOURCES:
            continue
        metadata = item["metadata"]
        if item["kind"] == "Namespace":
            metadata["name"] = namespace
            metadata["labels"] = {"kubernetes.io/metadata.name": namespace, **metadata.get("labels", {})}
            item |= {"spec": {}, "status": {"phase": "Active"}}
        elif metadata.get("namespace") == SHIPPED_NAMESPACE:
            metadata["namespace"] = namespace
        store.create(RESOURCES[item["kind"]], item)


def roles() -> list[dict[str, Any]]:
    """The shipped Role and ClusterRole."""
    return [copy.deepcopy(item) for item in _documents() if item["kind"] in ("Role", "ClusterRole")]


@cache
def _documents() -> tuple[dict[str, Any], ...]:
    return tuple(_read())


def _read() -> Iterator[dict[str, Any]]:
    for name in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]:
        yield from filter(None, yaml.safe_load_all((BASE / name).read_text()))
