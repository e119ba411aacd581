"""The kubeconfig file of a stand-in."""

from __future__ import annotations

import yaml


def kubeconfig(url: str, token: str, namespace: str) -> str:
    """Its YAML, for the holder of this bearer token."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "standin", "cluster": {"server": url}}],
        "users": [{"name": "standin", "user": {"token": token}}],
        "contexts": [{"name": "standin", "context": {"cluster": "standin", "user": "standin", "namespace": namespace}}],
        "current-context": "standin",
    }
    return yaml.safe_dump(config, sort_keys=False)
