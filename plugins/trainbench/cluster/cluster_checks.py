"""Facts of the cluster -> checks: reachable, allowed, pods accepted, image, GPUs, Service, priority."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from trainbench.cluster.cluster_facts import Admission, ClusterFacts, Refusal, ServiceFacts
from trainbench.cluster.doctor_check import Check, fail, ok, unknown, warn
from trainbench.cluster.doctor_facts import Facts
from trainbench.cluster.installation_facts import Unknown
from trainbench.cluster.kubernetes_api import Permission
from trainbench.cluster.mark_checks import MarkFacts, mark_checks
from trainbench.cluster.probe_pod import ProbeFacts
from trainbench.core.formats import count, listing
from trainbench.planning.nodes import Fleet
from trainbench.pods.gangs import PORT
from trainbench.pods.manifests import RENDEZVOUS
from trainbench.pods.node_rules import MAKE_IT_WELCOME
from trainbench.pods.pod_requests import MAKE_IT_FIT

GPUS = "GPUs"
APPLY = "apply the deployment's manifests (docs/deploy.md)"
MIN_PEERS = 3  # with fewer nodes of one kind the wrong one cannot be identified

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


def cluster_checks(facts: Facts) -> Iterator[Check]:
    cluster = facts.cluster
    yield from _template(facts)
    if cluster is None:
        return
    if isinstance(cluster, Unknown):
        connection = facts.settings.kubernetes_connection
        way = "KUBECONFIG or --kubeconfig" if facts.airflow is None else f"the connection '{connection}'"
        yield fail("cluster", cluster.reason, f"check {way}, the network and the API server")
        return
    who = f", as {cluster.identity}" if cluster.identity else ""
    yield ok("cluster", f"Kubernetes {cluster.version}, namespace {facts.settings.namespace}{who}")
    if cluster.namespace:  # rights, pod and Service would fail for the same reason
        yield _no_namespace(cluster.namespace, cluster, facts)
    else:
        yield _permissions(cluster, facts)
        yield from _admissions(cluster, facts)
    yield _gpus(cluster.fleet, facts)
    yield _image(cluster, facts)
    if isinstance(cluster.marks, MarkFacts):
        yield from mark_checks(cluster.marks, facts.settings)
    if not cluster.namespace:
        yield _service(cluster.service, facts)
    yield from _probed(facts)


def _template(facts: Facts) -> Iterator[Check]:
    if facts.template_fault:
        yield fail("pod template", facts.template_fault, "fix what it names: docs/pod-template.md")
    elif facts.settings.pod_template:
        yield ok("pod template", f"{facts.settings.pod_template} is merged into every pod")


def _no_namespace(refusal: Refusal, cluster: ClusterFacts, facts: Facts) -> Check:
    name, who = facts.settings.namespace, cluster.identity or "the account of the Airflow workers"
    advice = f"set TRAINBENCH_NAMESPACE to the namespace of the deployment's manifests, or {APPLY}"
    if refusal.status == 404:
        return fail("namespace", f"there is no namespace '{name}'", advice)
    problem = (
        f"nothing is allowed in the namespace '{name}': either it does not exist, or no right in it is bound to {who}"
    )
    return fail("namespace", problem, advice)


def _permissions(cluster: ClusterFacts, facts: Facts) -> Check:
    if isinstance(cluster.missing, Refusal):
        return unknown("permissions", f"the API server does not say: {cluster.missing.message}")
    needed = [p for p in cluster.missing if _is_needed(p, facts.has_plan)]
    grant = f"grant it to {cluster.identity or 'the account of the Airflow workers'}: {APPLY}"
    if needed:
        return fail("permissions", f"not allowed: {_purposes(needed)}", grant)
    if cluster.missing:
        return warn("permissions", f"not allowed, and not required: {_purposes(cluster.missing)}", grant)
    return ok("permissions", "all required verbs are allowed")


def _is_needed(permission: Permission, has_plan: bool) -> bool:
    if permission.resource == "nodes":
        return not has_plan
    return permission.is_required


def _purposes(permissions: list[Permission] | tuple[Permission, ...]) -> str:
    return listing((f"{p.name} (to {p.purpose})" for p in permissions), most=4)


def _admissions(cluster: ClusterFacts, facts: Facts) -> Iterator[Check]:
    refused = [admission for admission in cluster.admissions if admission.refusal]
    if refused:
        yield _refused(refused[0])
        return
    kinds = " and ".join(admission.pod for admission in cluster.admissions)
    yield ok("pod", f"the API server would take {kinds}: security, quota and schema are in order (dry run)")
    yield _priority(cluster.admissions[0], facts)
    yield from _room(cluster)


def _room(cluster: ClusterFacts) -> Iterator[Check]:
    """Check that the empty nodes could take the pods; a pod that needs more would wait for ever. One node that is too
    small does not stop the check of the others.
    """
    if isinstance(cluster.fleet, Refusal) or not cluster.fleet.nodes:
        return
    num_nodes = len(cluster.fleet.nodes)
    for admission in cluster.admissions:
        if not admission.misfits:
            continue
        nodes = listing(misfit.node for misfit in admission.misfits)
        shortest = admission.misfits[0]
        where = nodes if len(admission.misfits) < num_nodes else f"any of {count(num_nodes, 'node')}"
        problem = f"{admission.pod} would not fit {where} even when empty; {shortest.node}: {shortest.short}"
        advice = MAKE_IT_WELCOME if shortest.is_refused else MAKE_IT_FIT
        yield (warn if len(admission.misfits) < num_nodes else fail)("room", problem, advice)
        return
    kinds = " and ".join(admission.pod for admission in cluster.admissions)
    yield ok("room", f"{kinds} would fit each of {count(num_nodes, 'node')} when it is empty")


def _refused(admission: Admission) -> Check:
    refusal = admission.refusal
    assert refusal is not None
    for pattern, name, resolution in REFUSALS:
        if re.search(pattern, refusal.message, re.IGNORECASE | re.DOTALL):
            return fail(name, refusal.message, resolution)
    if refusal.status in (409, 429) or refusal.status >= 500:
        return unknown("pod", f"the API server could not say whether it takes {admission.pod}: {refusal.message}")
    return fail("pod", f"the API server would not take {admission.pod}: {refusal.message}", "fix what it names")


def _priority(admission: Admission, facts: Facts) -> Check:
    name = facts.settings.priority_class
    if name is None:
        return warn(
            "priority class",
            "benchmark pods have the default priority, like production",
            "set TRAINBENCH_PRIORITY_CLASS, for example to trainbench-benchmark",
        )
    if admission.priority is None:
        return ok("priority class", f"{name} is accepted")
    summary = f"{name}: priority {admission.priority}, preemption policy {admission.preemption_policy or 'unknown'}"
    if admission.preemption_policy == "PreemptLowerPriority":
        return warn(
            "priority class", f"{summary}: a benchmark could displace other work", "set preemptionPolicy: Never"
        )
    if admission.priority > 0:
        return warn(
            "priority class", f"{summary}: production at 0 does not displace a benchmark", "give it a value below 0"
        )
    return ok("priority class", summary)


def _gpus(gpu_fleet: Fleet | Refusal, facts: Facts) -> Check:
    if isinstance(gpu_fleet, Refusal):
        summary = f"the nodes cannot be listed: {gpu_fleet.message}"
        if facts.has_plan:
            return unknown(GPUS, summary, "the memory of the GPUs is not known, so nothing is skipped for it")
        return fail(GPUS, summary, f"{APPLY}, or name the nodes by the parameter 'nodes'")
    away = "; ".join(f"{node.name}: {node.reason}" for node in gpu_fleet.absent[:3])
    more = f" and {len(gpu_fleet.absent) - 3} more" if len(gpu_fleet.absent) > 3 else ""
    if not gpu_fleet.nodes:
        selected = (
            f" of those by TRAINBENCH_NODE_SELECTOR={selector}" if (selector := facts.settings.node_selector) else ""
        )
        look = f"look at these: {away}{more}" if away else "install the vendor's GPU operator, or its device plugin"
        resources = " or ".join(facts.settings.gpu_resources)
        return fail(GPUS, f"no node{selected} is ready and has allocatable {resources}", look)
    summary = (
        f"{count(len(gpu_fleet.nodes), 'node')} with {count(sum(n.num_gpus or 0 for n in gpu_fleet.nodes), 'GPU')}"
    )
    kinds = Counter((n.num_gpus, n.gpu_product or "GPUs of an unknown product") for n in gpu_fleet.nodes)
    summary += f": {listing(f'{number} x {num_gpus} {product}' for (num_gpus, product), number in kinds.items())}"
    if others := [f"{n.name}: {listing(n.other_gpu_resources)}" for n in gpu_fleet.nodes if n.other_gpu_resources]:
        advice = "of each node the first of TRAINBENCH_GPU_RESOURCES is benchmarked: put another one first, if you like"
        return warn(GPUS, f"{summary}; also offered, and not benchmarked: {listing(others)}", advice)
    if unlabelled := [n.name for n in gpu_fleet.nodes if n.gpu_product is None or n.gpu_memory_bytes is None]:
        advice = "install GPU feature discovery; until then nothing is skipped for lack of GPU memory"
        return warn(GPUS, f"{summary}; product or memory is not labelled on {listing(unlabelled)}", advice)
    if away and any(node.expected for node in gpu_fleet.absent):
        return warn(GPUS, f"{summary}; not usable: {away}{more}", "repair them, or put them in quarantine")
    few = [kind for kind, number in Counter(n.gpu_product for n in gpu_fleet.nodes).items() if number < MIN_PEERS]
    if few:
        advice = "nodes are compared with nodes of the same GPU only: such a node is compared with its own past alone"
        return warn(GPUS, f"{summary}; fewer than {MIN_PEERS} nodes of {listing(map(str, few))}", advice)
    return ok(GPUS, summary + (f"; left out: {away}{more}" if away else ""))


def _image(cluster: ClusterFacts, facts: Facts) -> Check:
    image = facts.settings.image
    tag = re.search(r":([^/]+)$", image)
    if "@" not in image and (tag is None or tag[1] == "latest"):
        return warn("image", f"{image} names no fixed version: two nodes may run different programs", "name a tag")
    usable = 0 if isinstance(cluster.fleet, Refusal) else len(cluster.fleet.nodes)
    if usable and cluster.num_with_image == usable:
        return ok("image", f"{image} is on all {count(usable, 'node')}")
    where = f"is on {cluster.num_with_image or 0} of {count(usable, 'node')}" if usable else "was not looked for"
    return unknown("image", f"{image} {where}: the others pull it when the first pod starts", "--probe tries one node")


def _probed(facts: Facts) -> Iterator[Check]:
    """Checks of the probe pod's facts; one of state unknown where no probe ran."""
    probe = facts.probe
    if isinstance(probe, Unknown):
        yield fail("probe", probe.reason, "fix what it names, then probe again")
    elif isinstance(probe, ProbeFacts):
        where = f"a pod on {probe.node}"
        if probe.resolves:
            yield ok("DNS", f"{where} found its own name by the Service, at {probe.address}")
        else:
            advice = "check the cluster's DNS, and that no NetworkPolicy forbids pods to query it"
            yield fail("DNS", f"{where} did not find its own name by the Service: {probe.address}", advice)
        if probe.gpus:
            yield ok("driver", f"{where} sees {listing(probe.gpus, most=2)}")
        else:
            advice = "check the driver and NVIDIA's container runtime on that node"
            yield fail("driver", f"{where} has a GPU by its manifest, and no nvidia-smi that lists one", advice)
    elif facts.needs_service:
        yield unknown("DNS", "only a pod can test whether pods find each other by the Service", "--probe runs one")


def _service(service: ServiceFacts | Refusal, facts: Facts) -> Check:
    name = f"'{facts.settings.service}'"
    wrong: Callable[[str, str, str], Check] = fail if facts.needs_service else warn
    if isinstance(service, Refusal):
        if service.status == 404:
            return wrong("Service", f"there is no Service {name}: the pods of a gang cannot find each other", APPLY)
        return unknown("Service", f"the Service {name} cannot be read: {service.message}", "only gangs need it")
    faults = [
        text
        for is_wrong, text in (
            (not service.is_headless, "clusterIP is not None"),
            (not service.publishes_not_ready, "publishNotReadyAddresses is not true"),
            (service.selector != {RENDEZVOUS: "true"}, f'its selector is not {RENDEZVOUS}: "true"'),
            (PORT not in service.ports, f"it has no port {PORT}"),
        )
        if is_wrong
    ]
    if faults:
        return wrong("Service", f"{name}: {listing(faults)}: the pods of a gang would not find each other", APPLY)
    return ok("Service", f"{name} is headless and selects the pods of gangs")
