"""Merges the installation's Pod template into a pod, as Airflow's pod operator merges a template file of its own.

The merge goes through the Kubernetes client's models, which drop a field that they do not know: a misspelt toleration
would be a pod that waits for ever. So what they drop or change is refused; the rest the API server checks, by the
doctor's dry run. Fields that would change what is measured, or lose a pod's result, are refused, each with its reason.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from bench_image.contract.pod_io import NO_TEMPLATE
from trainbench.core.formats import listing, one_line
from trainbench.core.strict_yaml import YamlError, read_yaml
from trainbench.core.user_error import UserError

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
    r"^(TRAINBENCH_(?!TRACES$).*|PET_.*|TORCHELASTIC_.*|(LOCAL_|GROUP_|ROLE_|NODE_)?RANK|(LOCAL_|ROLE_|GROUP_)?WORLD_SIZE|"
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


VARIABLE = "TRAINBENCH_POD_TEMPLATE"
MAX_BYTES = 1_000_000
MOST_FAULTS = 5  # in one sentence
# Defaults that a template replaces as a whole; OpenShift, for one, chooses the user id itself.
REPLACEABLE = frozenset({"securityContext", "enableServiceLinks"})
# Where a pod may run: the plan pins each one to its node, so these change no figure.
PLACEMENT = ("tolerations", "affinity", "nodeSelector", "topologySpreadConstraints")
QUEUE = "kueue.x-k8s.io/queue-name"


class PodTemplateError(UserError, ValueError):
    """The template cannot be used; the message names the file, the field and the reason."""


def with_template(pod: Mapping[str, Any], path: Path, num_pods: int = 1) -> dict[str, Any]:
    """`pod` with what the template at `path` adds. `num_pods`: of its run. Raises PodTemplateError."""
    template = read_template(path)
    if reasons := list(template_refusals(template, pod)):
        raise PodTemplateError(
            f"{VARIABLE} {path} sets what a benchmark sets itself: {listing(reasons, most=MOST_FAULTS)}"
        )
    return _merged(template, pod, num_pods)


def digest(path: Path) -> str:
    """12 hex digits, equal for templates that change pods alike; NO_TEMPLATE for one that changes only where they may
    run. Raises PodTemplateError.
    """
    template = read_template(path)
    spec = {name: value for name, value in template["spec"].items() if name not in PLACEMENT}
    if not template["metadata"] and spec == {"containers": [{"name": "base"}]}:
        return NO_TEMPLATE
    return hashlib.sha256(json.dumps({**template, "spec": spec}, sort_keys=True, default=str).encode()).hexdigest()[:12]


def read_template(path: Path) -> dict[str, Any]:
    """The template with its first container, checked against the schema of a Pod. Raises PodTemplateError."""
    try:
        stat = path.stat()
        return _read(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise PodTemplateError(f"{VARIABLE} {path} cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=4)
def _read(path: Path, mtime_ns: int, num_bytes: int) -> dict[str, Any]:
    """Cached for as long as the file is the same: a plan makes thousands of pods."""
    try:
        template = read_yaml(path, MAX_BYTES).value
    except YamlError as error:
        where = f", line {error.line}," if error.line else ""
        raise PodTemplateError(f"{VARIABLE} {path}{where} is not one YAML document: {error}") from None
    if not isinstance(template, dict) or (template.get("apiVersion"), template.get("kind")) != ("v1", "Pod"):
        raise PodTemplateError(f"{VARIABLE} {path} is not a Pod: begin it with apiVersion: v1 and kind: Pod")
    filled: dict[str, Any] = {"metadata": {}, "spec": {}} | template
    if isinstance(filled["spec"], dict):  # a template need not name the container that it leaves as it is
        filled["spec"] = {"containers": [{"name": "base"}]} | filled["spec"]
    if "status" in filled:
        raise PodTemplateError(f"{VARIABLE} {path}: status: the cluster sets it")
    try:
        faults = list(_not_kept(filled, _as_json(_model(filled))))
    except Exception as error:  # the client's own, of several kinds, for what fits no model
        faults = [f"not a Pod by Kubernetes' schema: {one_line(str(error), 200)}"]
    if faults:
        raise PodTemplateError(f"{VARIABLE} {path}: {listing(faults, most=MOST_FAULTS)}")
    if not filled["spec"]["containers"]:
        raise PodTemplateError(f"{VARIABLE} {path}: spec.containers is empty: leave it out, or name 'base'")
    return filled


def _not_kept(given: Any, read: Any, path: str = "") -> Iterator[str]:
    """One clause for each field that the client's models drop or change: "spec.tolerations[0].efect: unknown field"."""
    if isinstance(given, dict) and isinstance(read, dict):
        for name, value in given.items():
            at = f"{path}.{name}".lstrip(".")
            yield from _not_kept(value, read[name], at) if name in read else [f"{at}: unknown field, or no value"]
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for index, pair in enumerate(zip(given, read, strict=True)):
            yield from _not_kept(*pair, f"{path}[{index}]")
    elif (type(given), given) != (type(read), read) and (isinstance(given, bool) or str(given) != read):
        yield f"{path}: {given!r:.80} is of the wrong kind"


def _model(pod: Mapping[str, Any]) -> Any:
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator  # takes two seconds to import

    return PodGenerator.deserialize_model_dict(dict(pod))


def _as_json(model: Any) -> dict[str, Any]:
    from kubernetes.client import ApiClient  # type: ignore[import-untyped]

    pod: dict[str, Any] = ApiClient().sanitize_for_serialization(model)
    return pod


def _merged(template: Mapping[str, Any], pod: Mapping[str, Any], num_pods: int) -> dict[str, Any]:
    """By the provider's own merge: labels, annotations, environment, mounts and volumes are joined, else `pod` wins. It
    gets `pod` without the defaults that the template replaces, and with both where the provider would keep only one.
    """
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

    ours = deepcopy(dict(pod))
    spec, theirs = ours["spec"], template["spec"]
    container, their_container = spec["containers"][0], theirs["containers"][0]
    for own, replacing in ((spec, theirs), (container, their_container)):
        for name in REPLACEABLE & replacing.keys():
            own.pop(name, None)
    spec["tolerations"] = [*theirs.get("tolerations", ()), *spec.get("tolerations", ())]
    spec["affinity"] = {**theirs.get("affinity", {}), **spec.get("affinity", {})}
    given, own_resources = their_container.get("resources", {}), container.get("resources", {})
    container["resources"] = dict(given) | {
        kind: {**given.get(kind, {}), **own_resources.get(kind, {})}
        for kind in ("limits", "requests")
        if kind in given or kind in own_resources
    }
    if theirs.get("hostNetwork"):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"  # else the node's own DNS, which knows no Service
    if num_pods > 1 and QUEUE in template["metadata"].get("labels", {}):
        # Kueue admits the pods of a gang together or not at all
        # (https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/#running-a-group-of-pods-to-be-admitted-together).
        ours["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = ours["metadata"]["labels"]["trainbench.io/gang"]
        ours["metadata"]["annotations"] |= {
            "kueue.x-k8s.io/pod-group-total-count": str(num_pods),
            "kueue.x-k8s.io/retriable-in-group": "false",  # a rank that failed is not made again alone
        }
    return _as_json(PodGenerator.reconcile_pods(_model(template), _model(ours)))
