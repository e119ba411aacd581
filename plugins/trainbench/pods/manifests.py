"""A run spec -> its Pod manifests: plain dicts, the same for Kubernetes and for the local launcher.

A run on one node is one pod. A gang is one pod on each of its nodes; they find each other by a headless Service that
stands in the namespace all the time, so that no run needs the right to make one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from bench_image.contract.frozen import Frozen
from bench_image.contract.own_job import IMAGE_NAME, parse_profiles
from bench_image.contract.pod_io import (
    IMAGE_ENV,
    MEETING_ENV,
    NO_TEMPLATE,
    OUTPUT_DIR_ENV,
    POD_ENV,
    PROFILES_ENV,
    SPEC_ENV,
    TEMPLATE_ENV,
)
from bench_image.contract.spec import WHOLE_GPU, RunSpec
from bench_image.contract.work import Device
from trainbench import __version__
from trainbench.core.formats import count, listing
from trainbench.core.label_selector import SUBDOMAIN, LabelSelector
from trainbench.core.user_error import UserError
from trainbench.planning.nodes import KEPT_AWAY
from trainbench.planning.plan import identifier
from trainbench.pods.pod_template import IMAGE_FOLDERS, digest, with_template
from trainbench.pods.time_limits import DEADLINE_MARGIN_S, GRACE_S

CONTAINER = "base"  # the container that KubernetesPodOperator reads the log of
PORT = 29500  # by which the pods of a gang meet: torchrun's own default
KERNELS = "/kernels"  # the volume of compiled kernels
SHM, SCRATCH, TMP, RESULTS = "/dev/shm", "/scratch", "/tmp", "/results"  # noqa: S108 - the pod's own volumes
OWN_PATHS = (SHM, SCRATCH, TMP, RESULTS, KERNELS, *IMAGE_FOLDERS)
TITLE = "trainbench.io/title"
WORK = "trainbench.io/work"
CAMPAIGN = "trainbench.io/campaign"
GANG = "trainbench.io/gang"  # all pods of one run
NODE = "trainbench.io/node"
STRATEGY = "trainbench.io/strategy"
INSTANCE = "app.kubernetes.io/instance"
RENDEZVOUS = "trainbench.io/rendezvous"
DAG_ID, DAG_RUN_ID = "trainbench.io/dag-id", "trainbench.io/dag-run-id"
USER_ID = 10001
POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


# Kubernetes' own rules for names of objects and values of labels (RFC 1123 and 1035), and the registry's for images.
DnsLabel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
ServiceName = Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
DnsSubdomain = Annotated[str, StringConstraints(max_length=253, pattern=SUBDOMAIN)]
LabelValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
ImageName = Annotated[str, StringConstraints(max_length=1000, pattern=IMAGE_NAME)]


def _check_source(source: dict[str, Any]) -> dict[str, Any]:
    """The names of objects in a volume's source follow Kubernetes' rule for them."""
    for kind, key in (("persistentVolumeClaim", "claimName"), ("secret", "secretName"), ("configMap", "name")):
        of_kind = source.get(kind)
        if isinstance(of_kind, dict) and not re.fullmatch(SUBDOMAIN, str(of_kind.get(key, ""))[:254]):
            raise ValueError(f"{kind}.{key} is {of_kind.get(key)!r:.100}: Kubernetes refuses it")
    return source


VolumeSource = Annotated[dict[str, Any], AfterValidator(_check_source)]


class PodVolume(Frozen):
    """A volume of the cluster for weights or data: where the pod sees it, and its source as a manifest has it."""

    mount_path: Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9._/-]+$")]
    source: VolumeSource


class PodSettings(Frozen):
    """The settings of pods that depend on the cluster and not on the run: see `settings.environment`."""

    namespace: DnsLabel = Field("trainbench", description="namespace of the pods")
    instance: LabelValue = Field(
        "trainbench", description="label of this installation's pods: two may share a namespace"
    )
    image: ImageName = Field(
        f"trainbench/bench:{__version__}", description="container image of the pods, a tag or a digest"
    )
    image_pull_secret: DnsSubdomain | None = Field(None, description="Secret for a registry with a login")
    service_account: DnsSubdomain | None = Field(
        None, description="account of the pods, else the namespace's default; none of them gets a token"
    )
    priority_class: DnsSubdomain | None = Field(None, description="PriorityClass of the pods")
    service: ServiceName = Field(
        "trainbench-rendezvous", description="headless Service by which the pods of a gang find each other"
    )
    shm_gib: int = Field(8, ge=1, le=1024, description="size of a pod's `/dev/shm` in GiB")
    memory_gib: int | None = Field(None, ge=1, le=65_536, description="memory limit of a pod in GiB")
    volumes: tuple[PodVolume, ...] = Field(
        (),
        description="JSON: volumes for weights or data, "
        '`[{"mount_path": "/data", "source": {"persistentVolumeClaim": {"claimName": "data"}}}]`',
    )
    compile_cache: VolumeSource | None = Field(
        None,
        description="JSON: a volume that keeps compiled kernels from pod to pod, "
        '`{"persistentVolumeClaim": {"claimName": "kernels"}}` '
        "([deploy.md](deploy.md#keep-compiled-kernels))",
    )
    gpu_resources: tuple[str, ...] = Field(
        (WHOLE_GPU,),
        description="extended resources that count as GPUs, the preferred first, with commas: `nvidia.com/gpu`, "
        "`nvidia.com/mig-*`, `amd.com/gpu`",
    )
    node_selector: LabelSelector | None = Field(
        None, description="label selector of the nodes that are benchmarked, such as `pool=gpu,tier!=dev`; else all"
    )
    pod_template: Path | None = Field(
        None,
        description="YAML file with a Pod that is merged into every pod ([pod-template.md](pod-template.md))",
    )

    log_profiles: Path | None = Field(
        None,
        description="TOML file with log profiles of your own, beside the shipped ones ([own-job.md](own-job.md))",
    )

    @field_validator("volumes")
    @classmethod
    def _check_mount_paths(cls, volumes: tuple[PodVolume, ...]) -> tuple[PodVolume, ...]:
        """The API server would refuse the first pod of the night, or the pod would lack its program."""
        paths = [PurePosixPath(normpath(f"/{volume.mount_path.strip('/')}")) for volume in volumes]
        for index, path in enumerate(paths):
            if hidden := [own for own in OWN_PATHS if PurePosixPath(own).is_relative_to(path)]:
                raise ValueError(f"{index}.mount_path: {path} would hide {listing(hidden)}, which the benchmark needs")
            if path in paths[:index]:
                raise ValueError(f"{index}.mount_path: {path} is the path of another volume too")
        return volumes


class LogProfilesError(UserError, ValueError):
    """The installation's file of log profiles cannot be read, or is wrong."""


class Owner(Frozen):
    """The DAG run that the pods belong to: once it is over, nobody waits for them any more."""

    dag_id: str
    dag_run_id: str


def owner_of(pod: Mapping[str, Any]) -> Owner | None:
    """The DAG run that made the pod; None: no DAG run made it, or its annotations are gone."""
    annotations = pod["metadata"].get("annotations") or {}
    if DAG_ID not in annotations or DAG_RUN_ID not in annotations:
        return None
    return Owner(dag_id=annotations[DAG_ID], dag_run_id=annotations[DAG_RUN_ID])


def manifests(spec: RunSpec, settings: PodSettings, owner: Owner | None = None) -> list[dict[str, Any]]:
    """One Pod for each node of the run, in the order of their ranks."""
    return [manifest(spec, settings, owner, rank) for rank in range(spec.placement.nodes)]


def manifest(
    spec: RunSpec, settings: PodSettings, owner: Owner | None = None, node_rank: int = 0, what: str | None = None
) -> dict[str, Any]:
    """One Pod, pinned to its node, unprivileged, without a service-account token, with the installation's template.
    `what`: the work's name, for the title. Raises PodTemplateError.
    """
    node, num_pods = spec.identity.nodes[node_rank], spec.placement.nodes
    labels = {
        **installation_labels(settings),
        CAMPAIGN: spec.identity.campaign_id,
        GANG: gang_id(spec),
        NODE: node,
        STRATEGY: spec.placement.strategy.value,
        "trainbench.io/round": str(spec.identity.round),
    }
    on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(spec, node_rank),
            "namespace": settings.namespace,
            "labels": {key: label_value(value) for key, value in labels.items()},
            "annotations": {
                "trainbench.io/run-id": spec.identity.run_id,
                TITLE: pod_title(spec, node_rank, what),
                WORK: work_title(spec, node_rank, what),
                **({DAG_ID: owner.dag_id, DAG_RUN_ID: owner.dag_run_id} if owner else {}),
                "sidecar.istio.io/inject": "false",
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": round(spec.timeout_s) + DEADLINE_MARGIN_S,
            "terminationGracePeriodSeconds": GRACE_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": deepcopy(POD_SECURITY),
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [on_node]}]
                    }
                }
            },
            "tolerations": [
                # The taint that a vendor's GPU nodes usually have: nvidia.com/gpu, those with MIG slices too.
                {
                    "key": f"{spec.placement.gpu_resource.partition('/')[0]}/gpu",
                    "operator": "Exists",
                    "effect": "NoSchedule",
                },
                {"key": KEPT_AWAY, "operator": "Exists"},  # a node in breach recovers only if it is measured
            ],
            "containers": [_container(spec, settings, node_rank)],
            "volumes": [
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{settings.shm_gib}Gi"}},
                {"name": "scratch", "emptyDir": {}},
                {"name": "results", "emptyDir": {}},
                *({"name": f"data-{i}", **volume.source} for i, volume in enumerate(settings.volumes)),
                *([{"name": "kernels", **settings.compile_cache}] if settings.compile_cache else ()),
            ],
        },
    }
    if num_pods > 1:
        pod["metadata"]["labels"] |= {"trainbench.io/node-rank": str(node_rank), RENDEZVOUS: "true"}
        pod["spec"] |= {"hostname": host_name(spec, node_rank), "subdomain": settings.service}
    of_installation = {
        "priorityClassName": settings.priority_class,
        "serviceAccountName": settings.service_account,
        "imagePullSecrets": settings.image_pull_secret and [{"name": settings.image_pull_secret}],
    }
    pod["spec"] |= {name: value for name, value in of_installation.items() if value}
    return with_template(pod, settings.pod_template, num_pods) if settings.pod_template else pod


def node_of(pod: Mapping[str, Any]) -> str | None:
    """The node that a manifest is pinned to; None for one that another program wrote."""
    affinity = pod.get("spec", {}).get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ())
    return next((str(rule["values"][0]) for term in terms for rule in term.get("matchExpressions", ())), None)


def installation_labels(settings: PodSettings) -> dict[str, str]:
    """The labels of this installation's pods; no other pod is listed or deleted."""
    return {
        "app.kubernetes.io/name": "trainbench",
        "app.kubernetes.io/component": "benchmark",
        INSTANCE: label_value(settings.instance),
    }


def pod_name(spec: RunSpec, node_rank: int = 0) -> str:
    """Name of the pod: a DNS label, different for each run of each campaign."""
    node = spec.identity.nodes[node_rank]
    size = f"-{spec.placement.world_size}" if spec.placement.nodes > 1 else ""
    work = spec.identity.group_id[-6:]  # of the fingerprint: one campaign may do several works on a node
    name = f"tb-{node}-{spec.placement.strategy}{size}-{work}-r{spec.identity.round}-{spec.identity.campaign_id}"
    return identifier(name, 63).replace("_", "-")


def pod_title(spec: RunSpec, node_rank: int = 0, what: str | None = None) -> str:
    """Name of the pod in Airflow's grid: "node-3 / ddp on 4 GPUs · round 2"."""
    return f"{spec.identity.nodes[node_rank]} / {work_title(spec, node_rank, what)}"


def work_title(spec: RunSpec, node_rank: int = 0, what: str | None = None) -> str:
    """The title without the node. `what`: the name that the plan gave the work; None: its strategy."""
    where = (
        f"rank {node_rank} of {spec.placement.nodes}" if spec.placement.nodes > 1 else f"round {spec.identity.round}"
    )
    gpus = spec.placement.gpus_per_node
    name = what or spec.placement.strategy
    on = f" on {count(gpus, spec.work.device.rank_noun)}" if gpus > 1 else ""
    return f"{name.removesuffix(on)}{on} · {where}"


def gang_id(spec: RunSpec) -> str:
    """Name of the gang: short enough for a host name, different for each run of each campaign."""
    return f"g{hashlib.sha256(f'{spec.identity.campaign_id}/{spec.identity.run_id}'.encode()).hexdigest()[:10]}"


def host_name(spec: RunSpec, node_rank: int) -> str:
    """Host name of one pod of a gang, within the Service's domain."""
    return f"{gang_id(spec)}-r{node_rank}"


def _container(spec: RunSpec, settings: PodSettings, node_rank: int) -> dict[str, Any]:
    limits, image = {}, (spec.work.own_job and spec.work.own_job.image) or settings.image
    if spec.work.device is Device.CUDA:
        limits[spec.placement.gpu_resource] = str(spec.placement.gpus_per_node)
    if settings.memory_gib:
        limits["memory"] = f"{settings.memory_gib}Gi"
    env = {"HOME": SCRATCH}
    if spec.placement.nodes > 1:  # they meet at node rank 0, by its name in the cluster's DNS
        meeting_address = f"{host_name(spec, 0)}.{settings.service}.{settings.namespace}.svc"
        env |= dict(zip(MEETING_ENV, (str(node_rank), meeting_address, str(PORT)), strict=True))
    job = spec.work.own_job
    if job and settings.log_profiles:
        env[PROFILES_ENV] = read_profiles(settings.log_profiles)
    if not job:
        env["HF_HUB_OFFLINE"] = "0" if spec.work.needs_hub else "1"  # the image's own is 1
    if settings.compile_cache:  # a folder for each image
        folder = f"{KERNELS}/{hashlib.sha256(settings.image.encode()).hexdigest()[:12]}"
        env |= {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
    template = digest(settings.pod_template) if settings.pod_template else NO_TEMPLATE
    if template != NO_TEMPLATE:  # by which the result names the template under which it was made
        env[TEMPLATE_ENV] = template
    return {
        "name": CONTAINER,
        "image": image,
        "command": ["python", "-m", "bench_image"],
        "env": [
            {"name": SPEC_ENV, "value": spec.model_dump_json()},
            {"name": OUTPUT_DIR_ENV, "value": RESULTS},
            {"name": IMAGE_ENV, "value": image},
            {"name": POD_ENV, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            *({"name": name, "value": value} for name, value in env.items()),
        ],
        "resources": {"limits": limits} if limits else {},
        "securityContext": deepcopy(CONTAINER_SECURITY),  # manifests are plain dicts, and may be changed
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"name": "shm", "mountPath": SHM},
            {"name": "scratch", "mountPath": SCRATCH},
            {"name": "scratch", "mountPath": TMP, "subPath": "tmp"},
            {"name": "results", "mountPath": RESULTS},
            *({"name": f"data-{i}", "mountPath": volume.mount_path} for i, volume in enumerate(settings.volumes)),
            *([{"name": "kernels", "mountPath": KERNELS}] if settings.compile_cache else ()),
        ],
    }


def read_profiles(path: Path) -> str:
    """The text of the installation's log profiles. Raises LogProfilesError."""
    try:
        text = path.read_text(encoding="utf-8")
        parse_profiles(text, str(path))
    except (OSError, ValueError) as error:
        raise LogProfilesError(f"TRAINBENCH_LOG_PROFILES: {error}") from None
    return text


def label_value(text: str) -> str:
    """The text as a label value of Kubernetes: at most 63 allowed characters."""
    return identifier(text, 63)
