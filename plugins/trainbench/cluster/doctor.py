"""`trainbench doctor`: checks that everything is ready for a benchmark, and names each fault with its remedy.

Nothing is made on the cluster, pods are tried by a dry run; but for `probe`, a real pod for what that cannot show: the
image's pull, the driver, and names of the Service.
"""

from __future__ import annotations

import copy
import json
import os
import re
import secrets
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bench_image.contract.frozen import Frozen
from bench_image.contract.spec import WHOLE_GPU
from trainbench.cluster.kubernetes_api import NEEDED, Cluster, ClusterError, Permission, Refused, open_cluster
from trainbench.cluster.local_nodes import visible_gpus
from trainbench.cluster.node_marks import (
    CAP,
    GRANT,
    NEEDED_TO_MARK,
    UNDO,
    Node,
    gpu_nodes,
    listed_node,
    most_marked,
    name_of,
    shape_of,
)
from trainbench.core.formats import count, listing, one_line, sentence
from trainbench.core.tables import Table, make_table, text
from trainbench.history.database import HISTORY_ENV
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import Fleet, GpuNode, fleet_of
from trainbench.planning.plan import make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.pods.manifests import CONTAINER, PORT, RENDEZVOUS, PodSettings, manifest
from trainbench.pods.placement import MAKE_IT_FIT, MAKE_IT_WELCOME, never_fits, refused_by
from trainbench.pods.pod_end import EndKind, pod_end
from trainbench.pods.pod_template import PodTemplateError
from trainbench.pods.time_limits import OUTAGE_S
from trainbench.results.artefacts import open_store
from trainbench.results.store_files import STORE_ENV
from trainbench.settings.campaign_file import CampaignFileError, read_campaign_file
from trainbench.settings.channels import NOTIFY_ENV, Channel
from trainbench.settings.environment import CAMPAIGNS_ENV, KeepAway, Launcher, Settings, campaign_files


class CheckState(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Check(Frozen):
    """One check of `doctor`. `resolution` is empty where there is nothing to do."""

    name: str
    state: CheckState
    summary: str
    resolution: str = ""

    @property
    def sentences(self) -> str:
        """How it is, and what to do."""
        advice = self.resolution[:1].upper() + self.resolution[1:]
        return sentence(self.summary) + (f" {sentence(advice)}" if advice else "")


class Site(NamedTuple):
    """The installation. `cluster`: or why it could not be opened; None with the local launcher. `asks_airflow`: the
    cluster is that of the Airflow connection.
    """

    settings: Settings
    cluster: Cluster | Exception | None
    asks_airflow: bool = False


class Examination(NamedTuple):
    """Checks that are made together. `silent`: the check in their place, from the reason for which none was made."""

    checks: Callable[[Site], Iterator[Check]]
    silent: Callable[[Site, str], Check]


def examination(
    silent: Callable[[Site, str], Check],
) -> Callable[[Callable[[Site], Iterator[Check]]], Examination]:
    return lambda checks: Examination(checks, silent)


def ok(name: str, summary: str) -> Check:
    return Check(name=name, state=CheckState.OK, summary=summary)


def warn(name: str, summary: str, resolution: str) -> Check:
    return Check(name=name, state=CheckState.WARN, summary=summary, resolution=resolution)


def fail(name: str, summary: str, resolution: str) -> Check:
    return Check(name=name, state=CheckState.FAIL, summary=summary, resolution=resolution)


def unknown(name: str, summary: str, resolution: str = "") -> Check:
    return Check(name=name, state=CheckState.UNKNOWN, summary=summary, resolution=resolution)


Answer = TypeVar("Answer")

GPUS = "GPUs"
APPLY = "apply the deployment's manifests (docs/deploy.md)"
MIN_PEERS = 3  # with fewer nodes of one kind the wrong one cannot be identified
NUM_QUESTIONS_AT_ONCE = 8

# (pattern of the API server's refusal, the check that it fails, the remedy)
REFUSALS = (
    (r"namespaces? \S+ not found", "namespace", f"{APPLY}, or set TRAINBENCH_NAMESPACE to one that exists"),
    (r"violates PodSecurity", "pod security",
     "the pods are made for 'restricted': take what it names out of the Pod template, or relabel the namespace"),
    (r"RuntimeClass \S+ not found", "runtime class",
     "name one that `kubectl get runtimeclasses` lists in the Pod template, or take it out"),
    (r"no PriorityClass", "priority class",
     f"{APPLY}, or set TRAINBENCH_PRIORITY_CLASS to a class that `kubectl get priorityclasses` lists"),
    (r"exceeded quota|failed quota", "quota",
     "raise the namespace's ResourceQuota, or wait for what uses it: see `kubectl describe quota`"),
    (r"serviceaccount \S+ not found", "service account",
     f"{APPLY}, or set TRAINBENCH_SERVICE_ACCOUNT to one that exists"),
    (r"cannot create resource", "pod", f"{APPLY}: they bind the rights"),
    (r"admission webhook|denied the request", "admission",
     "a policy of the cluster refuses the pod: ask the policy's owner"),
)  # fmt: skip


def _silent(site: Site, reason: str) -> Check:
    name = site.settings.kubernetes_connection
    way = f"the connection '{name}'" if site.asks_airflow else "KUBECONFIG or --kubeconfig"
    return fail("cluster", reason, f"check {way}, the network and the API server")


@examination(_silent)
def on_cluster(site: Site) -> Iterator[Check]:
    api, settings = site.cluster, site.settings
    if not isinstance(api, Cluster):
        raise api or ValueError("no cluster")
    version = api.version()  # first, to stop early where no server answers
    nodes, missing = _asked(api.nodes), _asked(partial(_missing, api))
    listed: Sequence[Node] = () if isinstance(nodes, Refused) else nodes
    fleet = fleet_of(listed, settings.quarantine, settings.gpu_resources)
    user = api.identity()
    account = user or "the account of the Airflow workers"
    as_user = f", as {user}" if user else ""
    yield ok("cluster", f"Kubernetes {version}, namespace {settings.namespace}{as_user}")
    # The API server checks rights before existence: without any right, its answers are about rights even where the
    # namespace does not exist. Rights, pod and Service would then fail for the same reason.
    nothing_allowed = not isinstance(missing, Refused) and all(p in missing for p in NEEDED if not p.is_cluster_wide)
    absent = _asked(api.read_namespace) if nothing_allowed else None
    if isinstance(absent, Refused):
        either = f"either it does not exist, or no right in it is bound to {account}"
        problem = f"there is no namespace '{settings.namespace}'"
        if absent.status != 404:
            problem = f"nothing is allowed in the namespace '{settings.namespace}': {either}"
        remedy = f"set TRAINBENCH_NAMESPACE to the namespace of the deployment's manifests, or {APPLY}"
        yield fail("namespace", problem, remedy)
    else:
        yield _permissions(missing, account)
        yield from _admissions(api, settings, listed, fleet)
    yield _gpus(nodes, fleet, settings)
    yield _image(settings.image)
    marks = None if isinstance(nodes, Refused) else _asked(partial(_marks, api, listed, settings))
    if isinstance(marks, Check):
        yield marks
    if not isinstance(absent, Refused):
        yield _service(_asked(partial(api.service, settings.service)), settings.service)


def _asked(request: Callable[[], Answer]) -> Answer | Refused:
    """The answer to a request. One that is refused does not stop the others."""
    try:
        return request()
    except Refused as refused:
        return refused


def _missing(cluster: Cluster) -> tuple[Permission, ...]:
    with ThreadPoolExecutor(NUM_QUESTIONS_AT_ONCE) as pool:
        answers = list(pool.map(cluster.is_allowed, NEEDED))
    return tuple(permission for permission, is_allowed in zip(NEEDED, answers, strict=True) if not is_allowed)


def _permissions(missing: tuple[Permission, ...] | Refused, account: str) -> Check:
    if isinstance(missing, Refused):
        return unknown("permissions", f"the API server does not say: {missing.message}")
    if not missing:
        return ok("permissions", "all required verbs are allowed")
    needed, grant = [each for each in missing if each.is_required], f"grant it to {account}: {APPLY}"
    names = listing((f"{each.name} (to {each.purpose})" for each in needed or missing), most=4)
    if needed:
        return fail("permissions", f"not allowed: {names}", grant)
    return warn("permissions", f"not allowed, and not required: {names}", grant)


def _admissions(cluster: Cluster, settings: Settings, listed: Sequence[Node], fleet: Fleet) -> Iterator[Check]:
    """By a dry run of a pod for each GPU resource, and of what the API server would store by the size of the empty
    nodes.
    """
    stored: dict[str, tuple[dict[str, Any], str]] = {}
    for resource, pod in sample_pods(settings, fleet).items():
        kind = "a pod" if resource == WHOLE_GPU else f"a pod with {resource}"
        answer = _asked(partial(cluster.dry_run, pod))
        if isinstance(answer, Refused):
            yield _refused(kind, answer)
            return
        stored[kind] = answer.get("spec") or {}, resource
    kinds = " and ".join(stored)
    yield ok("pod", f"the API server would take {kinds}: security, quota and schema are in order (dry run)")
    yield _priority(next(iter(stored.values()))[0], settings.priority_class)
    for kind, (spec, resource) in stored.items():
        names = {node.name for node in fleet.nodes if node.gpu_resource == resource}
        misfits = dict(_misfits({"spec": spec}, [node for node in listed if name_of(node) in names], resource))
        if misfits:  # the pod would wait for ever; one node that is too small does not stop the check of the others
            some, (name, (short, advice)) = len(misfits) < len(fleet.nodes), next(iter(misfits.items()))
            where = listing(misfits) if some else f"any of {count(len(fleet.nodes), 'node')}"
            summary = f"{kind} would not fit {where} even when empty; {name}: {short}"
            yield (warn if some else fail)("room", summary, advice)
            return
    if fleet.nodes:
        yield ok("room", f"{kinds} would fit each of {count(len(fleet.nodes), 'node')} when it is empty")


def _refused(kind: str, refused: Refused) -> Check:
    for pattern, name, resolution in REFUSALS:
        if re.search(pattern, refused.message, re.IGNORECASE | re.DOTALL):
            return fail(name, refused.message, resolution)
    if refused.status in (409, 429) or refused.status >= 500:
        return unknown("pod", f"the API server could not say whether it takes {kind}: {refused.message}")
    return fail("pod", f"the API server would not take {kind}: {refused.message}", "fix what it names")


def _misfits(pod: Mapping[str, Any], nodes: Sequence[Node], gpu_resource: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each node that could not take the pod even if it were empty, with why and what to do. The number of GPUs is
    chosen for each node.
    """
    for node in nodes:
        if rule := refused_by(node, pod):
            yield name_of(node), (rule, MAKE_IT_WELCOME)
        elif short := never_fits(pod, node, without=(gpu_resource,)):
            yield name_of(node), (short, MAKE_IT_FIT)


def _priority(spec: Mapping[str, Any], name: str | None) -> Check:
    what, priority, policy = "priority class", spec.get("priority"), spec.get("preemptionPolicy")
    if name is None:
        summary = "benchmark pods have the default priority, like production"
        return warn(what, summary, "set TRAINBENCH_PRIORITY_CLASS, for example to trainbench-benchmark")
    if priority is None:
        return ok(what, f"{name} is accepted")
    summary = f"{name}: priority {priority}, preemption policy {policy or 'unknown'}"
    if policy == "PreemptLowerPriority":
        return warn(what, f"{summary}: a benchmark could displace other work", "set preemptionPolicy: Never")
    if priority > 0:
        return warn(what, f"{summary}: production at 0 does not displace a benchmark", "give it a value below 0")
    return ok(what, summary)


def _gpus(nodes: Sequence[Node] | Refused, fleet: Fleet, settings: Settings) -> Check:
    if isinstance(nodes, Refused):
        advice = f"{APPLY}, or name the nodes by the parameter 'nodes'"
        return fail(GPUS, f"the nodes cannot be listed: {nodes.message}", advice)
    away = "; ".join(f"{node.name}: {node.reason}" for node in fleet.absent[:3])
    away += f" and {len(fleet.absent) - 3} more" if len(fleet.absent) > 3 else ""
    if not fleet.nodes:
        selector = settings.node_selector
        selected = f" of those by TRAINBENCH_NODE_SELECTOR={selector}" if selector else ""
        look = f"look at these: {away}" if away else "install the vendor's GPU operator, or its device plugin"
        resources = " or ".join(settings.gpu_resources)
        return fail(GPUS, f"no node{selected} is ready and has allocatable {resources}", look)
    num_gpus = sum(node.num_gpus or 0 for node in fleet.nodes)
    kinds = Counter((n.num_gpus, n.gpu_product or "GPUs of an unknown product") for n in fleet.nodes)
    of_kinds = listing(f"{number} x {each} {product}" for (each, product), number in kinds.items())
    summary = f"{count(len(fleet.nodes), 'node')} with {count(num_gpus, 'GPU')}: {of_kinds}"
    if others := [f"{n.name}: {listing(n.other_gpu_resources)}" for n in fleet.nodes if n.other_gpu_resources]:
        advice = "of each node the first of TRAINBENCH_GPU_RESOURCES is benchmarked: put another one first, if you like"
        return warn(GPUS, f"{summary}; also offered, and not benchmarked: {listing(others)}", advice)
    if unlabelled := [n.name for n in fleet.nodes if n.gpu_product is None or n.gpu_memory_bytes is None]:
        advice = "install GPU feature discovery; until then nothing is skipped for lack of GPU memory"
        return warn(GPUS, f"{summary}; product or memory is not labelled on {listing(unlabelled)}", advice)
    if lost := [f"{n.num_gpus_lost} of {n.name}" for n in fleet.nodes if n.num_gpus_lost]:
        advice = "look at its driver and device plugin (Xids in the kernel's log): runs take the GPUs that are left"
        return warn(GPUS, f"{summary}; not allocatable, but in the node's capacity: {listing(lost)}", advice)
    if any(node.expected for node in fleet.absent):
        return warn(GPUS, f"{summary}; not usable: {away}", "repair them, or put them in quarantine")
    if few := [kind for kind, number in Counter(n.gpu_product for n in fleet.nodes).items() if number < MIN_PEERS]:
        advice = "nodes are compared with nodes of the same GPU only: such a node is compared with its own past alone"
        return warn(GPUS, f"{summary}; fewer than {MIN_PEERS} nodes of {listing(map(str, few))}", advice)
    return ok(GPUS, summary + (f"; left out: {away}" if away else ""))


def _image(image: str) -> Check:
    tag = re.search(r":([^/]+)$", image)
    if "@" not in image and (tag is None or tag[1] == "latest"):
        return warn("image", f"{image} names no fixed version: two nodes may run different programs", "name a tag")
    return ok("image", f"{image} names a fixed version; --probe pulls it on one node")


def _marks(cluster: Cluster, listed: Sequence[Node], settings: Settings) -> Check | None:
    """None where no node is marked or to be marked. Raises ClusterError."""
    name, known = "marks", gpu_nodes(listed, settings)
    ours = [each for each, node in known.items() if listed_node(node, settings).is_ours]
    marked = f"{count(len(ours), 'node')} ({listing(ours)})"
    if settings.keep_away is KeepAway.OFF:
        summary = f"{marked} marked while red, and TRAINBENCH_KEEP_AWAY is off: no run frees them"
        return warn(name, summary, f"`{UNDO} --all` frees them") if ours else None
    if missing := [permission for permission in NEEDED_TO_MARK if not cluster.is_allowed(permission)]:
        rights = listing(f"{each.name} (to {each.purpose})" for each in missing)
        return warn(name, f"TRAINBENCH_KEEP_AWAY is {settings.keep_away}, and not allowed is {rights}", GRANT)
    most = most_marked(len(known), settings.keep_away_max_pct)
    if most == 0:
        share = f"{settings.keep_away_max_pct} % of {count(len(known), 'node')}"
        return warn(name, f"{share} is less than one node: none will be marked", f"raise {CAP}")
    now = f"; now {marked}" if ours else ""
    return ok(name, f"a node that is confirmed to be red gets {shape_of(settings)}, at most {count(most, 'node')}{now}")


def _service(service: Mapping[str, Any] | Refused, own: str) -> Check:
    name = f"'{own}'"
    if isinstance(service, Refused):
        if service.status == 404:
            return fail("Service", f"there is no Service {name}: the pods of a gang cannot find each other", APPLY)
        return unknown("Service", f"the Service {name} cannot be read: {service.message}", "only gangs need it")
    spec = service.get("spec") or {}
    faults = {
        "clusterIP is not None": spec.get("clusterIP") != "None",
        "publishNotReadyAddresses is not true": not spec.get("publishNotReadyAddresses"),
        f'its selector is not {RENDEZVOUS}: "true"': spec.get("selector") != {RENDEZVOUS: "true"},
        f"it has no port {PORT}": PORT not in [port["port"] for port in spec.get("ports") or ()],
    }
    if found := [fault for fault, is_there in faults.items() if is_there]:
        return fail("Service", f"{name}: {listing(found)}: the pods of a gang would not find each other", APPLY)
    return ok("Service", f"{name} is headless and selects the pods of gangs")


WAIT_S = 600.0  # enough for an image of 10 GB
PLACE_WAIT_S = 120.0  # on a busy cluster, a free GPU may take hours
POLL_S = 2.0
MARK = "trainbench-probe "
# A headless Service lists a new pod after a moment; the pod resolves its own name.
PROGRAM = f"""
import json, shutil, socket, subprocess, sys, time
address = "no answer"
for _ in range(30):
    try:
        address = socket.getaddrinfo(sys.argv[1], None)[0][4][0]
        break
    except OSError as error:
        address = str(error)
        time.sleep(1)
resolves = address[:1].isdigit()
smi = shutil.which("nvidia-smi")
gpus = subprocess.run([smi, "-L"], capture_output=True, text=True).stdout.splitlines() if smi else []
print({MARK!r} + json.dumps({{"resolves": resolves, "address": address, "gpus": gpus}}), flush=True)
"""


def sample_pods(settings: Settings, fleet: Fleet) -> dict[str, dict[str, Any]]:
    """GPU resource -> the pod of one run of the nightly check on one GPU of the first node that has it, under a free
    name. Raises PodTemplateError.
    """
    first = {node.gpu_resource: node.name for node in fleet.nodes[::-1]} or {WHOLE_GPU: "any-node"}
    pods = {}
    for resource, name in sorted(first.items()):
        node = GpuNode(name=name, gpu_resource=resource)
        form = {"nodes": [name], "rounds": 1, "force": True, "gpus_per_node": 1}
        params = PLANNERS[CampaignKind.NODES].params(form, locally=settings.launcher is Launcher.LOCAL)
        pods[resource] = manifest(make_plan(params, Fleet(nodes=(node,)), "doctor").specs[0], settings)
        pods[resource]["metadata"]["name"] = f"tb-doctor-{secrets.token_hex(4)}"
    return pods


def probe_pod(pod: dict[str, Any], settings: PodSettings) -> dict[str, Any]:
    """A benchmark's pod with another program, for any node with a free GPU, selected by the Service."""
    probing = copy.deepcopy(pod)
    name = f"tb-probe-{secrets.token_hex(4)}"
    probing["metadata"] |= {"name": name, "labels": {**probing["metadata"]["labels"], RENDEZVOUS: "true"}}
    probing["spec"] |= {"hostname": name, "subdomain": settings.service, "activeDeadlineSeconds": round(WAIT_S)}
    probing["spec"].pop("affinity", None)
    base = next(container for container in probing["spec"]["containers"] if container["name"] == CONTAINER)
    base["command"] = ["python", "-c", PROGRAM, f"{name}.{settings.service}.{settings.namespace}.svc"]
    return probing


@examination(lambda _, reason: fail("probe", reason, "fix what it names, then probe again"))
def probe(site: Site) -> Iterator[Check]:
    """Create the pod, wait for its end, and delete it in any case."""
    cluster, settings = site.cluster, site.settings
    assert isinstance(cluster, Cluster)
    fleet = fleet_of(cluster.nodes(), settings.quarantine, settings.gpu_resources)
    pod = probe_pod(next(iter(sample_pods(settings, fleet).values())), settings)
    name = pod["metadata"]["name"]
    uid = cluster.create_pod(pod)["metadata"]["uid"]
    try:
        ended = _ended(cluster, name)
        log = cluster.log(name, CONTAINER) if ended["status"].get("phase") in ("Succeeded", "Failed") else ""
    finally:
        with suppress(ClusterError):  # housekeeping deletes a pod that could not be deleted here
            cluster.delete_pod(name, uid)
    line = next((line for line in log.splitlines() if line.startswith(MARK)), None)
    if line is None:
        yield probe.silent(site, pod_end(ended, CONTAINER, "it was not done in time").message)
        return
    found = json.loads(line.removeprefix(MARK))
    where, address = f"a pod on {ended['spec'].get('nodeName', 'an unknown node')}", found["address"]
    if found["resolves"]:
        yield ok("DNS", f"{where} found its own name by the Service, at {address}")
    else:
        advice = "check the cluster's DNS, and that no NetworkPolicy forbids pods to query it"
        yield fail("DNS", f"{where} did not find its own name by the Service: {address}", advice)
    if found["gpus"]:
        yield ok("driver", f"{where} sees {listing(found['gpus'], most=2)}")
    else:
        advice = "check the driver and NVIDIA's container runtime on that node"
        yield fail("driver", f"{where} has a GPU by its manifest, and no nvidia-smi that lists one", advice)


def _ended(cluster: Cluster, name: str) -> dict[str, Any]:
    """The pod's last state: ended, or without an image or a node in useful time."""
    started = time.monotonic()
    while True:
        pod, waited_s = cluster.pod(name), time.monotonic() - started
        if pod is None:
            raise ClusterError(f"somebody deleted the pod {name}")
        is_placed = bool(pod["spec"].get("nodeName"))
        has_ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        if has_ended or waited_s > (WAIT_S if is_placed else PLACE_WAIT_S):
            return pod
        if pod_end(pod, CONTAINER, "").kind is EndKind.NO_IMAGE:
            return pod
        time.sleep(POLL_S)


PROVIDER = "apache-airflow-providers-cncf-kubernetes"
DEEPSPEED = "deepspeed"
IMAGE_MODULES = ("torch", "transformers", "peft", "bitsandbytes", "psutil", "bench_image", DEEPSPEED)
INTERPRETER_TIMEOUT_S = 20
SENDING_MINUTES = 15  # time that sending a notice may take
LITTLE_DISK_BYTES, NO_DISK_BYTES = 10_000_000_000, 500_000_000


@examination(
    lambda site, reason: fail(
        "Airflow",
        f"the connection '{site.settings.kubernetes_connection}' cannot be read: {reason}",
        f"make the connection '{site.settings.kubernetes_connection}' of type kubernetes, or set "
        "TRAINBENCH_KUBERNETES_CONNECTION",
    )
)
def airflow(site: Site) -> Iterator[Check]:
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

    name = site.settings.kubernetes_connection
    KubernetesHook.get_connection(name)  # raises Airflow's errors where it cannot be read
    airflow, provider = map(_installed, ("apache-airflow", PROVIDER))
    yield ok("Airflow", f"Airflow {airflow}, provider {provider}, connection '{name}'")
    if not site.settings.deferrable:
        from airflow.sdk.configuration import conf

        failures, every_s = (conf.getint("workers", key) for key in ("max_failed_heartbeats", "min_heartbeat_interval"))
        token_s = conf.getint("execution_api", "jwt_expiration_time")  # renewed when a fifth of it is left
        timeout_s = conf.getint("scheduler", "task_instance_heartbeat_timeout")
        ends_after_s = min(failures * every_s, timeout_s, token_s // 5)
        if ends_after_s < OUTAGE_S:
            yield warn(
                "heartbeats",
                f"where its API server is away for longer than {ends_after_s} s, Airflow ends a task that waits for a "
                f"pod, and with it the pod; trainbench waits for {OUTAGE_S} s",
                "set AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS=400, "
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT=2000 and "
                "AIRFLOW__EXECUTION_API__JWT_EXPIRATION_TIME=10800, or leave out TRAINBENCH_DEFERRABLE=false",
            )


@examination(
    lambda site, reason: fail(
        "interpreter",
        f"{site.settings.local_image.python} does not run: {reason}",
        site.settings.local_image.remedy,
    )
)
def interpreter(site: Site) -> Iterator[Check]:
    """The interpreter that replaces the image: it lists the modules that it can find, without importing them."""
    image = site.settings.local_image
    if not os.access(image.python, os.X_OK):
        yield fail("interpreter", image.absent, image.remedy)
        return
    program = (
        "import importlib.util as u, platform, sys; print(platform.python_version(), "
        "*[name for name in sys.argv[1:] if u.find_spec(name) is None])"
    )
    answer = subprocess.run(
        [image.python, "-c", program, *IMAGE_MODULES],
        env={**os.environ, "PYTHONPATH": image.pythonpath},
        capture_output=True,
        text=True,
        timeout=INTERPRETER_TIMEOUT_S,
        check=True,
    )
    number, *missing = answer.stdout.split()
    if required := sorted({*missing} - {DEEPSPEED}):
        yield fail("interpreter", f"{image.python} lacks {', '.join(required)}", image.remedy)
    elif missing:
        summary = f"{image.python} lacks {DEEPSPEED}: zero2 and zero3 cannot run"
        yield warn("interpreter", summary, "run `pip install deepspeed` in its environment")
    else:
        yield ok("interpreter", f"{image.python}, Python {number}, has the training stack")
    if gpus := visible_gpus():
        yield ok("GPUs", f"{gpus.count} x {gpus.product}, {gpus.memory_bytes / 1e9:.1f} GB each")
    else:  # no warning: trials run on the CPU
        yield ok("GPUs", "nvidia-smi lists none: only trials on the CPU can run here")


@examination(lambda _, reason: fail("store", reason, f"check {STORE_ENV}, its credentials and the network"))
def store(site: Site) -> Iterator[Check]:
    """By writing, reading and deleting a small object."""
    store = open_store(site.settings.store)
    address = store.probe()
    summary, wants_space = f"{address}: written, read and deleted", f"free space, or set {STORE_ENV} to another place"
    if store.is_local:
        free_bytes = shutil.disk_usage(address).free
        summary += f"; {free_bytes / 1e9:,.1f} GB free"
        if free_bytes < LITTLE_DISK_BYTES:
            yield (fail if free_bytes < NO_DISK_BYTES else warn)("store", summary, wants_space)
            return
    if site.settings.launcher is Launcher.KUBERNETES and site.settings.store is None:
        advice = f"set {STORE_ENV} to a folder that all Airflow workers share, or to s3://... or gs://..."
        yield warn("store", f"{summary}; it is the default folder, which other workers do not see", advice)
    else:
        yield ok("store", summary)


@examination(lambda _, reason: fail("history", reason, f"check {HISTORY_ENV}, and that the database answers"))
def history(site: Site) -> Iterator[Check]:
    """By comparing the database's schema with ours; nothing is changed."""
    from sqlalchemy.exc import SQLAlchemyError

    from trainbench.history.database import HistoryError, cause_of, without_secrets
    from trainbench.history.tables import REVISION
    from trainbench.history.upgrade import READS

    engine = _engine(site.settings)
    where = without_secrets(engine.url)
    try:
        revision = _revision(engine)
    except SQLAlchemyError as error:
        raise HistoryError(f"{where}: {cause_of(engine.url, error)}") from None
    if revision is None:
        yield ok("history", f"{where} is empty: the first run makes its tables")
    elif revision in (READS, REVISION):
        yield ok("history", f"{where}, revision {revision}")
    else:
        summary = f"{where} is at revision {revision}, which this version does not know"
        yield fail("history", summary, f"set {HISTORY_ENV} to an empty database, then run trainbench reindex")


@examination(lambda _, reason: warn("notifications", reason, f"check {NOTIFY_ENV}"))
def channels(site: Site) -> Iterator[Check]:
    """By reading each channel's connection; no message is sent. At worst a warning, because a night without messages
    still judges its nodes.
    """
    names = ", ".join(channel.name for channel in site.settings.notify)
    if not site.asks_airflow:
        yield ok("notifications", f"{names}; their connections were not looked at")
    elif wrong := [f"{c.name}: {problem}" for c in site.settings.notify if (problem := channel_problem(c))]:
        yield warn("notifications", "; ".join(wrong), f"make the connection in Airflow, or change {NOTIFY_ENV}")
    else:
        yield ok("notifications", names)


@examination(lambda _, reason: warn("campaign files", reason, f"check {CAMPAIGNS_ENV}"))
def campaigns(site: Site) -> Iterator[Check]:
    """A wrong file has no DAG, and stops none of the others: a warning."""
    files, wrong = campaign_files(site.settings.campaigns), []
    for path in files:
        try:
            read_campaign_file(path)
        except CampaignFileError as error:
            wrong.append(str(error))
    if wrong:
        yield warn("campaign files", "; ".join(wrong), "correct the files: docs/campaign-files.md")
    elif not files:
        yield warn("campaign files", f"no .yaml file in {site.settings.campaigns}", f"check {CAMPAIGNS_ENV}")
    else:
        yield ok("campaign files", ", ".join(path.name for path in files))


def channel_problem(channel: Channel) -> str | None:
    """Why no notice can be sent by this channel; None: its connection exists and has the right type."""
    from airflow.sdk import Connection

    wanted, package = channel.needs
    if _installed(package) is None:
        return f"{package} is not installed"
    try:
        connection = Connection.get(channel.connection)
    except Exception as error:  # Airflow has several errors for a missing connection
        return f"the connection '{channel.connection}' cannot be read: {one_line(str(error))}"
    if connection.conn_type != wanted:
        return f"the connection '{channel.connection}' is of type {connection.conn_type}, not {wanted}"
    return None


@examination(lambda _, reason: unknown("unsent notices", f"not known: {reason}"))
def notices(site: Site) -> Iterator[Check]:
    """Unsent notices of the last days; of a history with another schema nothing can be said."""
    from trainbench.alerting.outbox import DUE_DAYS, Outbox
    from trainbench.history.tables import REVISION

    engine = _engine(site.settings)
    if _revision(engine) != REVISION:
        return
    now = datetime.now(UTC)
    unsent = [
        f"{row.channel}: {row.node or 'a run'} ({row.event}) of {row.claimed_at:%Y-%m-%d %H:%M} UTC, "
        f"{row.problem or 'its sender was stopped'}"
        for row in Outbox(engine).unsent(now - timedelta(days=DUE_DAYS), now - timedelta(minutes=SENDING_MINUTES))
    ]
    if unsent:
        advice = "the next run of the DAG tries again what failed; the log of its task 'notify' says more"
        yield warn("unsent notices", f"not sent: {listing(unsent, most=3)}", advice)


def _engine(settings: Settings) -> Any:
    from trainbench.history.database import connect

    return connect(settings.history_url, open_store(settings.store))


def _revision(engine: Any) -> str | None:
    """Revision of the database's schema; None for a file that does not exist yet, which is not created here."""
    from trainbench.history.database import revision_of

    if engine.dialect.name == "sqlite":
        file = Path(str(engine.url.database)).absolute()
        present = next(path for path in (file, *file.parents) if path.exists())
        if not os.access(present, os.W_OK):
            raise PermissionError(f"{present} cannot be written by this user")
        if present != file:
            return None
    with engine.connect() as connection:
        return revision_of(connection)


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


DEADLINE_S = 30.0
IN_THIS_THREAD = (airflow, channels)  # a task requests a connection from its supervisor
NOT_PROBED = unknown("DNS", "only a pod can test whether pods find each other by the Service", "--probe runs one")
OUTAGES = ("cluster", "store", "history")  # checks that fail where something gives no answer
SIGNS = {CheckState.OK: "✓", CheckState.WARN: "!", CheckState.FAIL: "✗", CheckState.UNKNOWN: "?"}


def examine(
    settings: Settings,
    opened: Callable[[], Cluster] | None = None,
    with_probe: bool = False,
    deadline_s: float | None = None,
) -> tuple[Check, ...]:
    """The checks' outcomes, in the order in which their faults should be fixed, in seconds (`with_probe`: minutes).
    Never raises. `opened`: opens the cluster without the Airflow connection, which is not checked then. `deadline_s`:
    of all answers together.
    """
    try:
        checks, usable = _template_check(settings)
        examinations = [store, history, *([channels, notices] if settings.notify else [])]
        if settings.campaigns:
            examinations.append(campaigns)
        cluster: Cluster | Exception | None = None
        if settings.launcher is Launcher.LOCAL:
            examinations.insert(0, interpreter)
        else:
            examinations[:0] = [on_cluster, airflow] if opened is None else [on_cluster]
            try:
                cluster = (opened or partial(open_cluster, settings))()
            except Exception as error:  # the cluster's examination tells of it
                cluster = error
        site = Site(usable, cluster, asks_airflow=opened is None)
        checks += _answers(examinations, site, DEADLINE_S if deadline_s is None else deadline_s)
        if any(check.name == "cluster" and check.state is CheckState.OK for check in checks):
            if with_probe and usable == settings:
                checks += _answer(probe, site)
            else:
                checks.append(NOT_PROBED)
        return tuple(checks)
    except Exception as error:  # a broken doctor must not stop a benchmark that could run
        summary = f"the examination itself failed: {type(error).__name__}: {one_line(str(error))}"
        return (unknown("doctor", summary, "please report this"),)


def _template_check(settings: Settings) -> tuple[list[Check], Settings]:
    """The check of the Pod template, and the settings without one that cannot be used."""
    try:
        sample_pods(settings, Fleet())
    except PodTemplateError as error:
        check = fail("pod template", str(error), "fix what it names: docs/pod-template.md")
        return [check], settings.model_copy(update={"pod_template": None})
    if settings.pod_template is None:
        return [], settings
    return [ok("pod template", f"{settings.pod_template} is merged into every pod")], settings


def _answers(examinations: Sequence[Examination], site: Site, deadline_s: float) -> list[Check]:
    """The checks of all. They are made side by side in daemon threads: one that hangs does not delay the answer past
    the deadline.
    """
    answers: dict[Examination, list[Check]] = {}

    def fill(examination: Examination) -> None:
        answers[examination] = _answer(examination, site)

    threads = []
    for examination in examinations:
        if examination in IN_THIS_THREAD:
            fill(examination)
        else:
            threads.append(threading.Thread(target=fill, args=(examination,), daemon=True))
            threads[-1].start()
    give_up = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, give_up - time.monotonic()))
    late = f"no answer within {deadline_s:g} s"
    return [check for each in examinations for check in answers.get(each, [each.silent(site, late)])]


def _answer(examination: Examination, site: Site) -> list[Check]:
    try:
        return list(examination.checks(site))
    except Exception as error:  # doctor reports every fault; none of them may end it
        return [examination.silent(site, one_line(str(error)) or type(error).__name__)]


def refusal(checks: Sequence[Check], uses_gpus: bool = True) -> str | None:
    """A sentence on why no run is possible; None: runs are possible. A trial on CPUs ignores the check of GPUs."""
    failed = _failed(checks, uses_gpus)
    if not failed:
        return None
    more = f" Also not ready: {', '.join(check.name for check in failed[1:])}." if failed[1:] else ""
    return f"{failed[0].name}: {failed[0].sentences}{more}"


def may_pass(checks: Sequence[Check], uses_gpus: bool = True) -> bool:
    """Whether the `refusal` may be over in minutes: nothing failed but checks of OUTAGES."""
    return all(check.name in OUTAGES for check in _failed(checks, uses_gpus))


def _failed(checks: Sequence[Check], uses_gpus: bool) -> list[Check]:
    return [check for check in checks if check.state is CheckState.FAIL and (uses_gpus or check.name != GPUS)]


def verdict(checks: Sequence[Check]) -> str:
    if failed := _failed(checks, uses_gpus=True):
        return f"Not ready: {', '.join(check.name for check in failed)}."
    warned = sum(check.state is CheckState.WARN for check in checks)
    return f"Ready, with {count(warned, 'warning')}." if warned else "Ready."


def table(checks: Sequence[Check]) -> Table:
    return make_table(
        checks,
        (
            text("", lambda check: SIGNS[check.state]),
            text("what", lambda check: check.name),
            text("how it is, and what to do", lambda check: check.sentences),
        ),
    )
