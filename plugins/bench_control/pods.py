"""A run spec -> a Pod manifest: a plain dict, the same for Kubernetes and for the local launcher."""

from __future__ import annotations

from typing import Any

from bench_control.plan import identifier
from bench_image.contract import (
    OUTPUT_DIR_ENV,
    SPEC_ENV,
    XCOM_DIR_ENV,
    Device,
    Frozen,
    RunSpec,
)

CONTAINER = "base"  # the container that KubernetesPodOperator reads logs and results from
XCOM_DIR = "/airflow/xcom"
TITLE = "trainbench.io/title"
USER_ID = 10001
# The program writes its own result on a timeout; the cluster's deadline is the backstop behind it.
DEADLINE_MARGIN_S = 120
GRACE_S = 20


class PodSettings(Frozen):
    """What depends on the cluster and not on the run."""

    namespace: str = "trainbench"
    instance: str = "trainbench"  # which installation the pods belong to: two may share a namespace
    image: str = "trainbench/bench:0.1.0"
    priority_class: str | None = None
    service: str = "trainbench-rendezvous"  # the headless Service by which the pods of a gang find each other
    shm_gib: int = 8
    memory_gib: int | None = None


def manifest(spec: RunSpec, settings: PodSettings) -> dict[str, Any]:
    """The Pod of one single-node run: pinned to its node, unprivileged, without a service-account token."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(spec),
            "namespace": settings.namespace,
            "labels": _labels(spec, settings),
            "annotations": {
                "trainbench.io/run-id": spec.run_id,
                TITLE: title(spec),
                "sidecar.istio.io/inject": "false",
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": round(spec.timeout_s) + DEADLINE_MARGIN_S,
            "terminationGracePeriodSeconds": GRACE_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER_ID,
                "runAsGroup": USER_ID,
                "fsGroup": USER_ID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _on_node(spec.node)}},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [_container(spec, settings)],
            "volumes": [
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{settings.shm_gib}Gi"}},
                {"name": "scratch", "emptyDir": {}},
                {"name": "results", "emptyDir": {}},
            ],
        },
    }
    if settings.priority_class:
        pod["spec"]["priorityClassName"] = settings.priority_class
    return pod


def ours(settings: PodSettings) -> dict[str, str]:
    """The labels by which this installation knows its pods: nothing else is ever listed or deleted."""
    return {
        "app.kubernetes.io/name": "trainbench",
        "app.kubernetes.io/component": "benchmark",
        "app.kubernetes.io/instance": settings.instance,
    }


def pod_name(spec: RunSpec) -> str:
    """A DNS label, different for each run of each campaign."""
    return identifier(f"tb-{spec.node}-{spec.strategy}-r{spec.round}-{spec.campaign_id}", 63).replace("_", "-")


def title(spec: RunSpec) -> str:
    """How the run is called in Airflow's grid."""
    return f"{spec.node} / {spec.strategy} · round {spec.round}"


def _container(spec: RunSpec, settings: PodSettings) -> dict[str, Any]:
    resources: dict[str, dict[str, str]] = {}
    if spec.device is Device.CUDA:
        resources["limits"] = {"nvidia.com/gpu": str(spec.gpus_per_node)}
    if settings.memory_gib:
        resources.setdefault("limits", {})["memory"] = f"{settings.memory_gib}Gi"
    return {
        "name": CONTAINER,
        "image": settings.image,
        "command": ["python", "-m", "bench_image"],
        "env": [
            {"name": SPEC_ENV, "value": spec.model_dump_json()},
            {"name": OUTPUT_DIR_ENV, "value": "/results"},
            {"name": XCOM_DIR_ENV, "value": XCOM_DIR},
            {"name": "TRAINBENCH_IMAGE", "value": settings.image},
            {"name": "TRAINBENCH_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "HOME", "value": "/scratch"},
            *([] if spec.needs_hub else [{"name": "HF_HUB_OFFLINE", "value": "1"}]),
        ],
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the pod's own memory volume
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "scratch", "mountPath": "/tmp", "subPath": "tmp"},  # noqa: S108 - the pod's own volume
            {"name": "results", "mountPath": "/results"},
        ],
    }


def _labels(spec: RunSpec, settings: PodSettings) -> dict[str, str]:
    values = {
        **ours(settings),
        "trainbench.io/campaign": spec.campaign_id,
        "trainbench.io/node": spec.node,
        "trainbench.io/strategy": spec.strategy.value,
        "trainbench.io/round": str(spec.round),
    }
    return {key: identifier(value, 63) for key, value in values.items()}


def _on_node(node: str) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
