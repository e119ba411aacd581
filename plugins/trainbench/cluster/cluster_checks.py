"""The checks of the cluster: reachable, allowed, pods accepted and placed, GPUs, image, marks, Service.

Nothing is made on it, pods are tried by a dry run; but for `probe`, a real pod for what that cannot show: the image's
pull, the driver, and names of the Service.
"""

from __future__ import annotations

import copy
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from bench_image.contract.spec import WHOLE_GPU
from trainbench.cluster.doctor_check import Check, Manifests, Site, examination, fail, is_of_gang, ok, unknown, warn
from trainbench.cluster.kubernetes_api import NEEDED, Cluster, ClusterError, Permission, Refused
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
from trainbench.core.formats import count, listing
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import Fleet, GpuNode, fleet_of, is_gpu_resource
from trainbench.planning.plan import make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.pods.gangs import PORT
from trainbench.pods.manifests import CONTAINER, RENDEZVOUS, PodSettings, manifests, node_of
from trainbench.pods.placement import MAKE_IT_FIT, MAKE_IT_WELCOME, never_fits, refused_by
from trainbench.pods.pod_end import EndKind, pod_end
from trainbench.settings.environment import KeepAway, Launcher, Settings

Answer = TypeVar("Answer")

GPUS = "GPUs"
APPLY = "apply the deployment's manifests (docs/deploy.md)"
MIN_PEERS = 3  # with fewer nodes of one kind the wrong one cannot be identified
NUM_QUESTIONS_AT_ONCE = 8

# (pattern of the API server's refusal, the check that it fails, the remedy)
REFUSALS: tuple[tuple[str, str, str], ...] = (
    (r"namespaces? \S+ not found", "namespace", f"{APPLY}, or set TRAINBENCH_NAMESPACE to one that exists"),
    (
        r"violates PodSecurity",
        "pod security",
        "the pods are made for 'restricted': take what it names out of the Pod template, or relabel the namespace",
    ),
    (
        r"RuntimeClass \S+ not found",
        "runtime class",
        "name one that `kubectl get runtimeclasses` lists in the Pod template, or take it out",
    ),
    (
        r"no PriorityClass",
        "priority class",
        f"{APPLY}, or set TRAINBENCH_PRIORITY_CLASS to a class that `kubectl get priorityclasses` lists",
    ),
    (
        r"exceeded quota|failed quota",
        "quota",
        "raise the namespace's ResourceQuota, or wait for what uses it: see `kubectl describe quota`",
    ),
    (
        r"serviceaccount \S+ not found",
        "service account",
        f"{APPLY}, or set TRAINBENCH_SERVICE_ACCOUNT to one that exists",
    ),
    (r"cannot create resource", "pod", f"{APPLY}: they bind the rights"),
    (
        r"admission webhook|denied the request",
        "admission",
        "a policy of the cluster refuses the pod: ask the policy's owner",
    ),
)


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
    nodes, missing = _answer(api.nodes), _answer(partial(_missing, api))
    listed: Sequence[Node] = () if isinstance(nodes, Refused) else nodes
    fleet = fleet_of(listed, settings.quarantine, settings.gpu_resources)
    user = api.identity()
    account = user or "the account of the Airflow workers"
    as_user = f", as {user}" if user else ""
    yield ok("cluster", f"Kubernetes {version}, namespace {settings.namespace}{as_user}")
    # The API server checks rights before existence: without any right, its answers are about rights even where the
    # namespace does not exist. Rights, pod and Service would then fail for the same reason.
    nothing_allowed = not isinstance(missing, Refused) and all(p in missing for p in NEEDED if not p.is_cluster_wide)
    absent = _answer(api.read_namespace) if nothing_allowed else None
    if isinstance(absent, Refused):
        either = f"either it does not exist, or no right in it is bound to {account}"
        problem = f"there is no namespace '{settings.namespace}'"
        if absent.status != 404:
            problem = f"nothing is allowed in the namespace '{settings.namespace}': {either}"
        remedy = f"set TRAINBENCH_NAMESPACE to the namespace of the deployment's manifests, or {APPLY}"
        yield fail("namespace", problem, remedy)
    else:
        yield _permissions(missing, site, account)
        yield from _admissions(api, site, listed, fleet)
    yield _gpus(nodes, fleet, site)
    yield _image(listed, fleet, settings.image)
    marks = None if isinstance(nodes, Refused) else _answer(partial(_marks, api, listed, settings))
    if isinstance(marks, Check):
        yield marks
    if not isinstance(absent, Refused):
        yield _service(_answer(partial(api.service, settings.service)), site)


def _answer(request: Callable[[], Answer]) -> Answer | Refused:
    """The answer to a request. One that is refused does not stop the others."""
    try:
        return request()
    except Refused as refused:
        return refused


def _missing(cluster: Cluster) -> tuple[Permission, ...]:
    with ThreadPoolExecutor(NUM_QUESTIONS_AT_ONCE) as pool:
        answers = list(pool.map(cluster.is_allowed, NEEDED))
    return tuple(permission for permission, is_allowed in zip(NEEDED, answers, strict=True) if not is_allowed)


def _usable(listed: Sequence[Node], fleet: Fleet, gpu_resource: str | None = None) -> list[Node]:
    """The nodes that can be benchmarked, all or those with this resource."""
    names = {node.name for node in fleet.nodes if gpu_resource in (None, node.gpu_resource)}
    return [node for node in listed if name_of(node) in names]


def _permissions(missing: tuple[Permission, ...] | Refused, site: Site, account: str) -> Check:
    if isinstance(missing, Refused):
        return unknown("permissions", f"the API server does not say: {missing.message}")
    # The nodes of a plan are known.
    needed = [p for p in missing if (not site.planned if p.resource == "nodes" else p.is_required)]
    if not missing:
        return ok("permissions", "all required verbs are allowed")
    names = listing((f"{p.name} (to {p.purpose})" for p in needed or missing), most=4)
    grant = f"grant it to {account}: {APPLY}"
    if needed:
        return fail("permissions", f"not allowed: {names}", grant)
    return warn("permissions", f"not allowed, and not required: {names}", grant)


def _admissions(cluster: Cluster, site: Site, listed: Sequence[Node], fleet: Fleet) -> Iterator[Check]:
    """By a dry run of one pod of each kind, and of what the API server would store by the size of the empty nodes."""
    stored = {}
    for kind, (pod, resource) in _one_of_each_kind(site.planned or sample_pods(site.settings, fleet), site.settings):
        answer = _answer(partial(cluster.dry_run, pod))
        if isinstance(answer, Refused):
            yield _refused(kind, answer)
            return
        stored[kind] = answer.get("spec") or {}, resource
    kinds = " and ".join(stored)
    yield ok("pod", f"the API server would take {kinds}: security, quota and schema are in order (dry run)")
    yield _priority(next(iter(stored.values()))[0], site.settings.priority_class)
    for kind, (spec, resource) in stored.items():
        misfits = dict(_misfits({"spec": spec}, _usable(listed, fleet, resource), resource))
        if misfits:  # the pod would wait for ever; one node that is too small does not stop the check of the others
            some, (name, (short, advice)) = len(misfits) < len(fleet.nodes), next(iter(misfits.items()))
            where = listing(misfits) if some else f"any of {count(len(fleet.nodes), 'node')}"
            summary = f"{kind} would not fit {where} even when empty; {name}: {short}"
            yield (warn if some else fail)("room", summary, advice)
            return
    if fleet.nodes:
        yield ok("room", f"{kinds} would fit each of {count(len(fleet.nodes), 'node')} when it is empty")


def _one_of_each_kind(
    manifests: Manifests, settings: Settings
) -> Iterator[tuple[str, tuple[dict[str, Any], str | None]]]:
    """The name of a kind, a pod of it under a free name, and its GPU resource. Only pods of gangs have a host name and
    further labels; other pods of a plan differ only in their work.
    """
    pods = {}
    for pod in reversed(manifests):
        limits = pod["spec"]["containers"][0].get("resources", {}).get("limits") or {}
        resource = next((name for name in limits if is_gpu_resource(name, settings.gpu_resources)), None)
        pods[is_of_gang(pod), resource] = pod
    for (gang, resource), pod in sorted(pods.items(), key=lambda item: str(item[0])):
        sent = copy.deepcopy(dict(pod))
        sent["metadata"]["name"] = f"tb-doctor-{secrets.token_hex(4)}"
        of_gang, with_resource = " of a gang" if gang else "", f" with {resource}"
        yield f"a pod{of_gang}{'' if resource in (None, WHOLE_GPU) else with_resource}", (sent, resource)


def _refused(kind: str, refused: Refused) -> Check:
    for pattern, name, resolution in REFUSALS:
        if re.search(pattern, refused.message, re.IGNORECASE | re.DOTALL):
            return fail(name, refused.message, resolution)
    if refused.status in (409, 429) or refused.status >= 500:
        return unknown("pod", f"the API server could not say whether it takes {kind}: {refused.message}")
    return fail("pod", f"the API server would not take {kind}: {refused.message}", "fix what it names")


def _misfits(
    pod: Mapping[str, Any], nodes: Sequence[Node], gpu_resource: str | None
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each node that could not take the pod even if it were empty, with why and what to do. GPUs count only on the
    pod's own node, for which their number was chosen.
    """
    for node in nodes:
        name = name_of(node)
        if rule := refused_by(node, pod):
            yield name, (rule, MAKE_IT_WELCOME)
        elif short := never_fits(pod, node, without=() if name == node_of(pod) else (gpu_resource or "",)):
            yield name, (short, MAKE_IT_FIT)


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


def _gpus(nodes: Sequence[Node] | Refused, fleet: Fleet, site: Site) -> Check:
    if isinstance(nodes, Refused):
        summary = f"the nodes cannot be listed: {nodes.message}"
        if site.planned:
            return unknown(GPUS, summary, "the memory of the GPUs is not known, so nothing is skipped for it")
        return fail(GPUS, summary, f"{APPLY}, or name the nodes by the parameter 'nodes'")
    away = "; ".join(f"{node.name}: {node.reason}" for node in fleet.absent[:3])
    away += f" and {len(fleet.absent) - 3} more" if len(fleet.absent) > 3 else ""
    if not fleet.nodes:
        selector = site.settings.node_selector
        selected = f" of those by TRAINBENCH_NODE_SELECTOR={selector}" if selector else ""
        look = f"look at these: {away}" if away else "install the vendor's GPU operator, or its device plugin"
        resources = " or ".join(site.settings.gpu_resources)
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


def _image(listed: Sequence[Node], fleet: Fleet, image: str) -> Check:
    tag = re.search(r":([^/]+)$", image)
    if "@" not in image and (tag is None or tag[1] == "latest"):
        return warn("image", f"{image} names no fixed version: two nodes may run different programs", "name a tag")
    num_with_image = sum(
        any(name == image or name.endswith(f"/{image}") for entry in images for name in entry.get("names") or ())
        for images in ((node.get("status") or {}).get("images") or () for node in _usable(listed, fleet))
    )
    num_nodes = len(fleet.nodes)
    if num_nodes and num_with_image == num_nodes:
        return ok("image", f"{image} is on all {count(num_nodes, 'node')}")
    where = f"is on {num_with_image} of {count(num_nodes, 'node')}" if num_nodes else "was not looked for"
    return unknown("image", f"{image} {where}: the others pull it when the first pod starts", "--probe tries one node")


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


def _service(service: Mapping[str, Any] | Refused, site: Site) -> Check:
    name = f"'{site.settings.service}'"
    wrong = fail if site.needs_service else warn
    if isinstance(service, Refused):
        if service.status == 404:
            return wrong("Service", f"there is no Service {name}: the pods of a gang cannot find each other", APPLY)
        return unknown("Service", f"the Service {name} cannot be read: {service.message}", "only gangs need it")
    spec = service.get("spec") or {}
    faults = {
        "clusterIP is not None": spec.get("clusterIP") != "None",
        "publishNotReadyAddresses is not true": not spec.get("publishNotReadyAddresses"),
        f'its selector is not {RENDEZVOUS}: "true"': spec.get("selector") != {RENDEZVOUS: "true"},
        f"it has no port {PORT}": PORT not in [port["port"] for port in spec.get("ports") or ()],
    }
    if found := [fault for fault, is_there in faults.items() if is_there]:
        return wrong("Service", f"{name}: {listing(found)}: the pods of a gang would not find each other", APPLY)
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


def sample_pods(settings: Settings, fleet: Fleet) -> Manifests:
    """The pods of one run of the nightly check on one GPU of the first node of each GPU resource that there is. Raises
    PodTemplateError.
    """
    first = {node.gpu_resource: GpuNode(name=node.name, gpu_resource=node.gpu_resource) for node in fleet.nodes[::-1]}
    pods = []
    for node in [first[name] for name in sorted(first)] or [GpuNode(name="any-node")]:
        form = {"nodes": [node.name], "rounds": 1, "force": True, "gpus_per_node": 1}
        params = PLANNERS[CampaignKind.NODES].params(form, locally=settings.launcher is Launcher.LOCAL)
        pods += manifests(make_plan(params, Fleet(nodes=(node,)), "doctor").specs[0], settings)
    return pods


def probe_pod(pod: Mapping[str, Any], settings: PodSettings) -> dict[str, Any]:
    """A benchmark's pod with another program, for any node with a free GPU, selected by the Service."""
    probing: dict[str, Any] = copy.deepcopy(dict(pod))
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
    pod = probe_pod(sample_pods(settings, fleet)[0], settings)
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
        pod = cluster.pod(name)
        waited_s = time.monotonic() - started
        is_placed = bool(pod["spec"].get("nodeName"))
        has_ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        if has_ended or waited_s > (WAIT_S if is_placed else PLACE_WAIT_S):
            return pod
        if pod_end(pod, CONTAINER, "").kind is EndKind.NO_IMAGE:
            return pod
        time.sleep(POLL_S)
