"""Defaults that admission fills in: names, priority, service account. And the objects of a fresh cluster."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.standin.admission import apply_limit_ranges
from tests.standin.manifests import apply_manifests
from tests.standin.status import failure, forbidden
from tests.standin.store import Store, timestamp

Object = dict[str, Any]
_NODE_INFO = {
    **dict.fromkeys(("bootID", "machineID", "systemUUID", "kubeProxyVersion"), ""),
    **{"architecture": "amd64", "operatingSystem": "linux", "osImage": "stand-in", "kernelVersion": "6.1.0"},
    **{"containerRuntimeVersion": "standin://1", "kubeletVersion": "v1.33.13"},
}
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def admit_pod(pod: Object, namespace: str, store: Store) -> None:
    """Fills in the defaults. Raises ApiError for what the cluster does not have. In the order of the API server's
    plugins: LimitRanger, ServiceAccount, Priority, DefaultTolerationSeconds."""
    metadata, spec = pod["metadata"], pod["spec"]
    name_object(metadata, namespace)
    _default_containers(spec)
    apply_limit_ranges(pod, store.all("limitranges", namespace))
    account = spec.setdefault("serviceAccountName", "default")
    if not store.has("serviceaccounts", namespace, account):
        why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
        raise forbidden("pods", metadata["name"], why)
    name = spec.get("priorityClassName")
    if name and not store.has("priorityclasses", "", name):
        raise forbidden("pods", metadata["name"], f"no PriorityClass with name {name} was found")
    chosen = store.get("priorityclasses", "", name) if name else {}
    spec["priority"] = chosen.get("value", 0)
    spec["preemptionPolicy"] = chosen.get("preemptionPolicy", "PreemptLowerPriority")
    for key, value in {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
    }.items():
        spec.setdefault(key, value)
    spec.setdefault("terminationGracePeriodSeconds", 30)
    runtime = spec.get("runtimeClassName")
    if runtime and not store.has("runtimeclasses", "", runtime):
        raise forbidden("pods", metadata["name"], f'pod rejected: RuntimeClass "{runtime}" not found')
    given = spec.get("tolerations") or []
    spec["tolerations"] = [*given, *(t for t in _tolerations() if not any(_covers(own, t["key"]) for own in given))]
    pod["status"] = {"phase": "Pending", "qosClass": "BestEffort"}


def _default_containers(spec: Object) -> None:
    for container in spec["containers"]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("resources", {})
        if container["resources"].get("limits"):
            requests = container["resources"].get("requests") or {}
            container["resources"]["requests"] = {**container["resources"]["limits"], **requests}


def name_object(metadata: Object, namespace: str) -> None:
    given = metadata.setdefault("namespace", namespace) if namespace else ""
    if given != namespace:
        why = "the namespace of the provided object does not match the namespace sent on the request"
        raise failure(400, f"{why}: {given}, {namespace}")
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"] + secrets.token_hex(3)[:5]


def node(
    name: str,
    gpus: int = 1,
    product: str | None = "NVIDIA-H200",
    memory_mib: int | None = 143_771,
    ready: bool = True,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
    cpu: str = "64",
    resources: Mapping[str, int] | None = None,
) -> Object:
    """As GPU feature discovery labels it; without GPUs, the labels are not there."""
    own = {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    if gpus:
        own |= {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": str(gpus)}
        own |= {"nvidia.com/gpu.product": product} if product else {}
        own |= {"nvidia.com/gpu.memory": str(memory_mib)} if memory_mib else {}
    room = {"cpu": cpu, "memory": "1056763064Ki", "ephemeral-storage": "1Ti", "pods": "110"}
    room |= {"nvidia.com/gpu": str(gpus)} if gpus else {}
    room |= {name: str(number) for name, number in (resources or {}).items()}
    spec: Object = {"unschedulable": True} if unschedulable else {}
    all_taints = [*taints, *([] if ready else [{"key": NOT_READY, "effect": e} for e in ("NoSchedule", "NoExecute")])]
    return {
        "metadata": {"name": name, "labels": own | dict(labels or {})},
        "spec": spec | ({"taints": all_taints} if all_taints else {}),
        "status": {
            "capacity": room,
            "allocatable": dict(room),
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "conditions": [
                {
                    "type": "Ready",
                    "status": str(ready),
                    "reason": "KubeletReady" if ready else "KubeletNotReady",
                    "message": "kubelet is posting ready status" if ready else "container runtime is down",
                    "lastHeartbeatTime": timestamp(),
                    "lastTransitionTime": timestamp(),
                }
            ],
            "nodeInfo": _NODE_INFO,
        },
    }


def furnish(store: Store, namespace: str, manifests: Path | None) -> None:
    """Makes what the manifests say, the namespace `default`, and a priority class of other people's work."""
    default = {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}}
    store.create("namespaces", {"metadata": default, "spec": {}, "status": {"phase": "Active"}})
    store.create("serviceaccounts", {"metadata": {"name": "default", "namespace": "default"}})
    if manifests:
        apply_manifests(store, namespace, manifests)
    production = {"value": 1_000_000, "preemptionPolicy": "PreemptLowerPriority", "globalDefault": False}
    store.create("priorityclasses", {"metadata": {"name": "production"}, **production})
    store.create("runtimeclasses", {"metadata": {"name": "nvidia"}, "handler": "nvidia"})


def _tolerations() -> list[Object]:
    common = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    return [{"key": key, **common} for key in (NOT_READY, UNREACHABLE)]


def _covers(toleration: Mapping[str, Any], key: str) -> bool:
    """Whether the pod says by itself how long it tolerates this taint: admission adds nothing then."""
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")
