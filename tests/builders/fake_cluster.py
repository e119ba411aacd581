"""A cluster that answers as a ready one does, without an API server."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainbench.cluster.doctor import MARK
from trainbench.cluster.kubernetes_api import Cluster, Permission, Refused
from trainbench.pods.manifests import DAG_ID, DAG_RUN_ID, Owner, PodSettings, installation_labels

PROBED = MARK + '{"resolves": true, "address": "10.0.0.9", "gpus": ["GPU 0: H200"]}'
SERVICE: dict[str, Any] = {
    "clusterIP": "None",
    "publishNotReadyAddresses": True,
    "selector": {"trainbench.io/rendezvous": "true"},
    "ports": [{"port": 29500}],
}
NODE: dict[str, Any] = {
    "metadata": {
        "name": "gpu-0",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {
            "kubernetes.io/hostname": "gpu-0",
            "nvidia.com/gpu.product": "H200",
            "nvidia.com/gpu.memory": "143771",
        },
    },
    "spec": {},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8"},
        "capacity": {"nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "images": [{"names": ["docker.io/trainbench/bench:0.2.0"]}],
    },
}


def gpu_node(
    name: str, gpus: Mapping[str, int] | int = 8, product: str | None = "H200", **status: Any
) -> dict[str, Any]:
    """A ready node with GPUs of one product or, by their resources, of several; `product` None: without labels."""
    node = copy.deepcopy(NODE)
    counts = {"nvidia.com/gpu": gpus} if isinstance(gpus, int) else dict(gpus)
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "143771"} if product else {}
    node["metadata"] |= {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    node["status"] |= {"allocatable": {"cpu": "64", "memory": "512Gi", **counts}, "capacity": counts, **status}
    return node


def running_pod(name: str, owner: Owner | None, **metadata: Any) -> dict[str, Any]:
    """A pod of this installation since 1 January 2026; `owner` None: somebody made it by hand."""
    own = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "labels": installation_labels(PodSettings()),
        "annotations": {DAG_ID: owner.dag_id, DAG_RUN_ID: owner.dag_run_id} if owner else {},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": own | metadata, "spec": {"containers": []}, "status": {"phase": "Running"}}


@dataclass(frozen=True)
class FakeCluster(Cluster):
    """`refusals`: a method's name -> what it refuses with. `denied`: names of missing rights. `stored`: what the API
    server adds to a pod's spec.
    """

    api: Any = None
    namespace: str = "trainbench"
    listed: tuple[dict[str, Any], ...] = (NODE,)
    refusals: Mapping[str, Refused] = field(default_factory=dict)
    denied: tuple[str, ...] = ()
    of_service: Mapping[str, Any] = field(default_factory=lambda: SERVICE)
    stored: Mapping[str, Any] = field(default_factory=lambda: {"priority": -1000, "preemptionPolicy": "Never"})
    sent: list[Mapping[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    phase: str = "Succeeded"
    exit_code: int | None = None  # of the benchmark's container, where another one runs on
    output: str = PROBED

    def _may(self, method: str) -> None:
        if method in self.refusals:
            raise self.refusals[method]

    def version(self) -> str:
        return "v1.33.13"

    def identity(self) -> str | None:
        return "ada"

    def is_allowed(self, permission: Permission) -> bool:
        return permission.name not in self.denied

    def read_namespace(self) -> dict[str, Any]:
        self._may("read_namespace")
        return {}

    def nodes(self) -> tuple[dict[str, Any], ...]:
        self._may("nodes")
        return self.listed

    def service(self, name: str) -> dict[str, Any]:
        self._may("service")
        return {"spec": self.of_service}

    def dry_run(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        self.sent.append(pod)
        self._may("dry_run")
        return {"spec": pod["spec"] | self.stored}

    def create_pod(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        self.sent.append(pod)
        return {"metadata": {"uid": "uid-1"}}

    def pod(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = {"phase": self.phase}
        if self.exit_code is not None:
            state = {"terminated": {"exitCode": self.exit_code}}
            status["containerStatuses"] = [{"name": "mesh", "state": {"running": {}}}, {"name": "base", "state": state}]
        return {"metadata": {"name": name}, "spec": {"nodeName": "gpu-0"}, "status": status}

    def log_lines(self, name: str, container: str, **_: Any) -> Iterator[str]:
        yield from ("starting", self.output)

    def delete_pod(self, name: str, uid: str, version: str | None = None, **_: Any) -> None:
        self.deleted.append(uid)
