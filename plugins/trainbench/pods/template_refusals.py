"""The fields of a Pod template that would change what is measured, or lose a pod's result: each with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

Fields = Mapping[str, Any]
BASE = "base"  # the benchmark's container
SCHEDULE = "the plan pins each pod to its node: TRAINBENCH_NODE_SELECTOR chooses the fleet"
MEETING = "the pods of a gang find each other by it"
PROGRAM = "the benchmark's own program runs there"
PROBE = "it would run or stop programs in the measured container"
OTHERS = "programs of the node or of another container could stop the benchmark's, and it theirs"
RUN_SETS_IT = "the run's timeout sets it"
GPU_COUNT = "each run sets how many GPUs it takes, and TRAINBENCH_GPU_RESOURCES which"

METADATA = ("labels", "annotations")  # the only metadata that a template may give
SPEC = {
    "nodeName": SCHEDULE,
    "hostname": MEETING,
    "subdomain": MEETING,
    "setHostnameAsFQDN": MEETING,
    "hostnameOverride": MEETING,
    "restartPolicy": "a failed benchmark is repeated by its task, never inside its pod",
    "activeDeadlineSeconds": RUN_SETS_IT,
    "terminationGracePeriodSeconds": "the program gets as long as its supervisor needs to write a result",
    "automountServiceAccountToken": "benchmark pods do not call the Kubernetes API, and get no token",
    "serviceAccountName": "set TRAINBENCH_SERVICE_ACCOUNT",
    "serviceAccount": "set TRAINBENCH_SERVICE_ACCOUNT",
    "priorityClassName": "set TRAINBENCH_PRIORITY_CLASS",
    "priority": "set TRAINBENCH_PRIORITY_CLASS",
    "preemptionPolicy": "set TRAINBENCH_PRIORITY_CLASS",
    "imagePullSecrets": "set TRAINBENCH_IMAGE_PULL_SECRET",
    "shareProcessNamespace": OTHERS,
    "hostPID": OTHERS,
    "ephemeralContainers": "they can be added to a running pod only",
    "overhead": "the RuntimeClass sets it",
    "resources": f"give those of the container '{BASE}'",
}
CONTAINER = {
    "image": "set TRAINBENCH_IMAGE",
    "command": PROGRAM,
    "args": PROGRAM,
    "workingDir": PROGRAM,
    "stdin": PROGRAM,
    "stdinOnce": PROGRAM,
    "tty": PROGRAM,
    "terminationMessagePath": "the cause of a failure is read from there",
    "terminationMessagePolicy": "the cause of a failure is read from there",
    "lifecycle": PROBE,
    "livenessProbe": PROBE,
    "readinessProbe": PROBE,
    "startupProbe": PROBE,
    "restartPolicy": "a failed benchmark is repeated by its task, never inside its pod",
    "restartPolicyRules": "a failed benchmark is repeated by its task, never inside its pod",
}
# Labels by which trainbench and Airflow's operator find their pods; Kueue's group is each gang's own.
LABELS = re.compile(
    r"^(trainbench\.io/.*|app\.kubernetes\.io/(name|component|instance)|dag_id|task_id|run_id|map_index|try_number|"
    r"kubernetes_pod_operator|airflow_version|airflow_kpo_in_cluster|already_checked|airflow-worker|"
    r"kueue\.x-k8s\.io/pod-group-name)$"
)
ANNOTATIONS = re.compile(
    r"^(trainbench\.io/.*|sidecar\.istio\.io/inject|kueue\.x-k8s\.io/(pod-group-total-count|retriable-in-group))$"
)
# Variables that the program, torchrun, the image or the device plugin sets, or that make another work of it.
ENV = re.compile(
    r"^(TRAINBENCH_.*|PET_.*|TORCHELASTIC_.*|(LOCAL_|GROUP_|ROLE_|NODE_)?RANK|(LOCAL_|ROLE_|GROUP_)?WORLD_SIZE|"
    r"ROLE_NAME|MASTER_(ADDR|PORT)|(CUDA|NVIDIA|ROCR|HIP)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|"
    r"PATH|PYTHON(PATH|HOME|UNBUFFERED|WARNINGS)|HOME|XDG_CACHE_HOME|TRITON_CACHE_DIR|TORCHINDUCTOR_.*|"
    r"HF_HOME|HF_HUB_OFFLINE|TRANSFORMERS_VERBOSITY|TOKENIZERS_PARALLELISM|DS_ACCELERATOR|OMP_NUM_THREADS|"
    r"CUDA_LAUNCH_BLOCKING|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE)$"
)
IMAGE_FOLDERS = ("/opt/bench", "/opt/trainbench")  # the interpreter and the program
DATA_VOLUME = re.compile(r"^data-\d+$")  # of TRAINBENCH_VOLUMES
GPU_RESOURCE = re.compile(r"^((requests|limits)\.)?(nvidia\.com/(gpu.*|mig-.*)|amd\.com/.*|gpu\.intel\.com/.*)$")


def template_refusals(template: Fields, pod: Fields) -> Iterator[str]:
    """One clause for each field that the template must not set: "spec.hostPID: <reason>". `pod`: as it is without."""
    yield from (
        f"metadata.{name}: only labels and annotations" for name in template["metadata"] if name not in METADATA
    )
    yield from _keys(template, pod, "labels", LABELS)
    yield from _keys(template, pod, "annotations", ANNOTATIONS)
    spec = template["spec"]
    yield from (f"spec.{name}: {reason}" for name, reason in SPEC.items() if name in spec)
    if "nodeAffinity" in spec.get("affinity", {}):
        yield f"spec.affinity.nodeAffinity: {SCHEDULE}"
    if spec.get("hostNetwork") and spec.get("dnsPolicy", "ClusterFirstWithHostNet") != "ClusterFirstWithHostNet":
        yield "spec.dnsPolicy: with hostNetwork only ClusterFirstWithHostNet finds the pods of a gang"
    yield from _volumes(spec, pod)
    yield from _containers(spec, pod)
    yield from _init_containers(spec, pod)


def _keys(template: Fields, pod: Fields, kind: str, reserved: re.Pattern[str]) -> Iterator[str]:
    for key in template["metadata"].get(kind, {}):
        if reserved.match(key) or key in pod["metadata"][kind]:
            yield f"metadata.{kind}.{key}: trainbench or Airflow sets it"


def _volumes(spec: Fields, pod: Fields) -> Iterator[str]:
    taken = {volume["name"] for volume in pod["spec"]["volumes"]}
    for index, volume in enumerate(spec.get("volumes", ())):
        if volume["name"] in taken or DATA_VOLUME.match(volume["name"]):
            yield f"spec.volumes[{index}]: the name '{volume['name']}' is one of the benchmark's own volumes"


def _containers(spec: Fields, pod: Fields) -> Iterator[str]:
    base, at = spec["containers"][0], "spec.containers[0]"
    if base["name"] != BASE:
        yield f"{at}.name: '{base['name']}' must be '{BASE}', the benchmark's container"
    if len(spec["containers"]) > 1:
        yield "spec.containers[1]: another container would share the measured CPUs and keep the pod from ending"
    yield from (f"{at}.{name}: {reason}" for name, reason in CONTAINER.items() if name in base)
    yield from _env(base, pod, at)
    yield from _mounts(base, pod, at)
    yield from _resources(base, pod, at)
    if "memory" in base.get("resources", {}).get("limits", {}):
        yield f"{at}.resources.limits.memory: set TRAINBENCH_MEMORY_GIB"


def _env(base: Fields, pod: Fields, at: str) -> Iterator[str]:
    ours = {variable["name"] for variable in pod["spec"]["containers"][0]["env"]}
    for index, variable in enumerate(base.get("env", ())):
        if variable["name"] in ours or ENV.match(variable["name"]):
            yield f"{at}.env[{index}]: {variable['name']} is set by the program, or would make other work of it"


def _mounts(base: Fields, pod: Fields, at: str) -> Iterator[str]:
    ours = [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
    for index, mount in enumerate(base.get("volumeMounts", ())):
        for own in (*ours, *IMAGE_FOLDERS):
            if _overlap(mount["mountPath"], own):
                yield f"{at}.volumeMounts[{index}]: {mount['mountPath']} would hide {own}, which the benchmark needs"
                break


def _overlap(one: str, other: str) -> bool:
    a, b = PurePosixPath(one), PurePosixPath(other)
    return a.is_relative_to(b) or b.is_relative_to(a)


def _resources(container: Fields, pod: Fields, at: str) -> Iterator[str]:
    ours = {name for name in pod["spec"]["containers"][0]["resources"].get("limits", {}) if "/" in name}
    for kind in ("limits", "requests"):
        for name in container.get("resources", {}).get(kind, {}):
            if name in ours or GPU_RESOURCE.match(name):
                yield f"{at}.resources.{kind}.{name}: {GPU_COUNT}"


def _init_containers(spec: Fields, pod: Fields) -> Iterator[str]:
    for index, container in enumerate(spec.get("initContainers", ())):
        at = f"spec.initContainers[{index}]"
        if container["name"] == BASE:
            yield f"{at}.name: '{container['name']}' is the name of another container of the pod"
        yield from _resources(container, pod, at)
