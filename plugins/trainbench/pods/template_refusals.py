"""The fields of a Pod template that would change what is measured, or lose a pod's result: each with its reason."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

Fields = Mapping[str, Any]
BASE = "base"  # the benchmark's container
SCHEDULE = "the plan pins each pod to its node: TRAINBENCH_NODE_SELECTOR chooses the fleet"
REPEATED = "a failed benchmark is repeated by its task, never inside its pod"
OTHERS = "programs of the node or of another container could stop the benchmark's, and it theirs"
GPU_COUNT = "each run sets how many GPUs it takes, and TRAINBENCH_GPU_RESOURCES which"
MEETING = ("hostname", "subdomain", "setHostnameAsFQDN", "hostnameOverride")
PRIORITY = ("priorityClassName", "priority", "preemptionPolicy")
PROGRAM = ("command", "args", "workingDir", "stdin", "stdinOnce", "tty")
PROBES = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")

SPEC = {
    "nodeName": SCHEDULE,
    **dict.fromkeys(MEETING, "the pods of a gang find each other by it"),
    "restartPolicy": REPEATED,
    "activeDeadlineSeconds": "the run's timeout sets it",
    "terminationGracePeriodSeconds": "the program gets as long as its supervisor needs to write a result",
    "automountServiceAccountToken": "benchmark pods do not call the Kubernetes API, and get no token",
    **dict.fromkeys(("serviceAccountName", "serviceAccount"), "set TRAINBENCH_SERVICE_ACCOUNT"),
    **dict.fromkeys(PRIORITY, "set TRAINBENCH_PRIORITY_CLASS"),
    "imagePullSecrets": "set TRAINBENCH_IMAGE_PULL_SECRET",
    **dict.fromkeys(("shareProcessNamespace", "hostPID"), OTHERS),
    "ephemeralContainers": "they can be added to a running pod only",
    "overhead": "the RuntimeClass sets it",
    "resources": f"give those of the container '{BASE}'",
}
CONTAINER = {
    "image": "set TRAINBENCH_IMAGE",
    **dict.fromkeys(PROGRAM, "the benchmark's own program runs there"),
    **dict.fromkeys(PROBES, "it would run or stop programs in the measured container"),
    **dict.fromkeys(("restartPolicy", "restartPolicyRules"), REPEATED),
    **dict.fromkeys(
        ("terminationMessagePath", "terminationMessagePolicy"), "the cause of a failure is read from there"
    ),
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
RESERVED = {"labels": LABELS, "annotations": ANNOTATIONS}  # the only metadata that a template may give
# Variables that the program, torchrun, the image or the device plugin sets, or that make another work of it.
ENV = re.compile(
    r"^(TRAINBENCH_.*|PET_.*|TORCHELASTIC_.*|(LOCAL_|GROUP_|ROLE_|NODE_)?RANK|(LOCAL_|ROLE_|GROUP_)?WORLD_SIZE|"
    r"ROLE_NAME|MASTER_(ADDR|PORT)|(CUDA|NVIDIA|ROCR|HIP)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|"
    r"PATH|PYTHON(PATH|HOME|UNBUFFERED|WARNINGS)|HOME|XDG_CACHE_HOME|TRITON_CACHE_DIR|TORCHINDUCTOR_.*|"
    r"HF_HOME|HF_HUB_OFFLINE|TRANSFORMERS_VERBOSITY|TOKENIZERS_PARALLELISM|DS_ACCELERATOR|OMP_NUM_THREADS|"
    r"CUDA_LAUNCH_BLOCKING|NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE)$"
)
IMAGE_FOLDERS = ("/opt/bench", "/opt/trainbench")  # the interpreter and the program
IMAGE_PATHS = [PurePosixPath(folder) for folder in IMAGE_FOLDERS]
DATA_VOLUME = re.compile(r"^data-\d+$")  # of TRAINBENCH_VOLUMES
GPU_RESOURCE = re.compile(r"^((requests|limits)\.)?(nvidia\.com/(gpu.*|mig-.*)|amd\.com/.*|gpu\.intel\.com/.*)$")


def template_refusals(template: Fields, pod: Fields) -> Iterator[str]:
    """One clause for each field that the template must not set: "spec.hostPID: <reason>". `pod`: as it is without."""
    metadata, spec, own = template["metadata"], template["spec"], pod["spec"]
    yield from (f"metadata.{name}: only labels and annotations" for name in metadata if name not in RESERVED)
    for kind, reserved in RESERVED.items():
        for key in metadata.get(kind, {}):
            if reserved.match(key) or key in pod["metadata"][kind]:
                yield f"metadata.{kind}.{key}: trainbench or Airflow sets it"
    yield from _of_spec(spec, own)
    base, own_base, at = spec["containers"][0], own["containers"][0], "spec.containers[0]"
    yield from (f"{at}.{clause}" for clause in _of_container(base, own_base))
    devices = {name for name in own_base["resources"].get("limits", {}) if "/" in name}
    yield from (f"{at}.{clause}" for clause in _of_devices(base, devices))
    for index, container in enumerate(spec.get("initContainers", ())):
        at = f"spec.initContainers[{index}]"
        if container["name"] == BASE:
            yield f"{at}.name: '{BASE}' is the name of another container of the pod"
        yield from (f"{at}.{clause}" for clause in _of_devices(container, devices))


def _of_spec(spec: Fields, own: Fields) -> Iterator[str]:
    yield from (f"spec.{name}: {reason}" for name, reason in SPEC.items() if name in spec)
    if "nodeAffinity" in spec.get("affinity", {}):
        yield f"spec.affinity.nodeAffinity: {SCHEDULE}"
    if spec.get("hostNetwork") and spec.get("dnsPolicy", "ClusterFirstWithHostNet") != "ClusterFirstWithHostNet":
        yield "spec.dnsPolicy: with hostNetwork only ClusterFirstWithHostNet finds the pods of a gang"
    volumes = {volume["name"] for volume in own["volumes"]}
    for index, volume in enumerate(spec.get("volumes", ())):
        if volume["name"] in volumes or DATA_VOLUME.match(volume["name"]):
            yield f"spec.volumes[{index}]: the name '{volume['name']}' is one of the benchmark's own volumes"
    if len(spec["containers"]) > 1:
        yield "spec.containers[1]: another container would share the measured CPUs and keep the pod from ending"


def _of_container(base: Fields, own: Fields) -> Iterator[str]:
    if base["name"] != BASE:
        yield f"name: '{base['name']}' must be '{BASE}', the benchmark's container"
    yield from (f"{name}: {reason}" for name, reason in CONTAINER.items() if name in base)
    variables = {variable["name"] for variable in own["env"]}
    for index, variable in enumerate(base.get("env", ())):
        if variable["name"] in variables or ENV.match(variable["name"]):
            yield f"env[{index}]: {variable['name']} is set by the program, or would make other work of it"
    folders = [PurePosixPath(own_mount["mountPath"]) for own_mount in own["volumeMounts"]] + IMAGE_PATHS
    for index, mount in enumerate(base.get("volumeMounts", ())):
        path = PurePosixPath(mount["mountPath"])
        if hidden := [each for each in folders if path.is_relative_to(each) or each.is_relative_to(path)]:
            yield f"volumeMounts[{index}]: {path} would hide {hidden[0]}, which the benchmark needs"
    if "memory" in base.get("resources", {}).get("limits", {}):
        yield "resources.limits.memory: set TRAINBENCH_MEMORY_GIB"


def _of_devices(container: Fields, own: Collection[str]) -> Iterator[str]:
    for kind in ("limits", "requests"):
        for name in container.get("resources", {}).get(kind, {}):
            if name in own or GPU_RESOURCE.match(name):
                yield f"resources.{kind}.{name}: {GPU_COUNT}"
