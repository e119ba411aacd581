"""Facts from the Kubernetes API: rights, nodes, the Service, and a dry run of one of our pods."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.spec import WHOLE_GPU
from trainbench.cluster.kubernetes_api import NEEDED, Cluster, Permission, Refused
from trainbench.cluster.mark_checks import MarkFacts, mark_facts
from trainbench.planning.nodes import HOSTNAME, Fleet, fleet_of, is_gpu_resource
from trainbench.pods.manifests import RENDEZVOUS, node_of
from trainbench.pods.node_rules import refused_by
from trainbench.pods.pod_requests import never_fits
from trainbench.settings.environment import Settings

Node = Mapping[str, Any]  # as the API's JSON
NUM_QUESTIONS_AT_ONCE = 8


class Refusal(Frozen):
    """A refusal of the API server: HTTP status and message."""

    status: int
    message: str


class Misfit(Frozen):
    """A node that could not take the pod even if it were empty. `short`: (resource, request, allocatable);
    `is_refused`: the node's rule that rejects the pod.
    """

    node: str
    short: str
    is_refused: bool = False


class Admission(Frozen):
    """The API server's answer to a dry run of a pod. `refusal` None: the server accepts it. `misfits`: usable nodes
    that cannot take it, by the sum of its containers' requests in the answer.
    """

    pod: str
    refusal: Refusal | None
    priority: int | None = None
    preemption_policy: str | None = None
    misfits: tuple[Misfit, ...] = ()


class ServiceFacts(Frozen):
    is_headless: bool
    publishes_not_ready: bool
    selector: dict[str, str]
    ports: tuple[int, ...]


class ClusterFacts(Frozen):
    version: str
    identity: str | None
    missing: tuple[Permission, ...] | Refusal
    namespace: Refusal | None = None  # why it cannot be read; only read where no right exists in it
    fleet: Fleet | Refusal
    num_with_image: int | None = None  # usable nodes that report the bench image
    service: ServiceFacts | Refusal
    admissions: tuple[Admission, ...]
    marks: MarkFacts | Refusal | None = None  # None: the nodes could not be listed


def gather_cluster(
    cluster: Cluster, settings: Settings, manifests: Callable[[Fleet], Sequence[Mapping[str, Any]]]
) -> ClusterFacts:
    """The cluster's facts. `manifests`: makes the pods to try for the ready GPU nodes. Raises Unreachable."""
    version = cluster.version()  # first, to stop early where no server answers
    nodes = _or_refusal(cluster.nodes)
    gpu_fleet = nodes if isinstance(nodes, Refusal) else fleet_of(nodes, settings.quarantine, settings.gpu_resources)
    known = Fleet() if isinstance(gpu_fleet, Refusal) else gpu_fleet
    pods = {kind: _as_sent(pod) for kind, pod in _one_of_each_kind(manifests(known), settings).items()}
    missing = _or_refusal(lambda: _missing(cluster))
    return ClusterFacts(
        version=version,
        identity=cluster.identity(),
        missing=missing,
        namespace=_namespace(cluster, missing),
        fleet=gpu_fleet,
        num_with_image=None if isinstance(nodes, Refusal) else _num_with_image(nodes, known, settings.image),
        service=_or_refusal(lambda: _service(cluster.service(settings.service))),
        admissions=tuple(
            _admission(cluster, pod, resource, [] if isinstance(nodes, Refusal) else _usable(nodes, known, resource))
            for (_, resource), pod in pods.items()
        ),
        marks=None if isinstance(nodes, Refusal) else _or_refusal(lambda: mark_facts(cluster, nodes, settings)),
    )


def _or_refusal(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Refused as refused:
        return Refusal(status=refused.status, message=refused.message)


def _missing(cluster: Cluster) -> tuple[Permission, ...]:
    with ThreadPoolExecutor(NUM_QUESTIONS_AT_ONCE) as pool:
        answers = list(pool.map(cluster.is_allowed, NEEDED))
    return tuple(permission for permission, is_allowed in zip(NEEDED, answers, strict=True) if not is_allowed)


def _namespace(cluster: Cluster, missing: tuple[Permission, ...] | Refusal) -> Refusal | None:
    """Why the namespace cannot be read. The API server checks rights before existence: without any right, its answers
    are about rights even where the namespace does not exist.
    """
    is_nothing_allowed = not isinstance(missing, Refusal) and all(p in missing for p in NEEDED if not p.is_cluster_wide)
    answer = _or_refusal(cluster.read_namespace) if is_nothing_allowed else None
    return answer if isinstance(answer, Refusal) else None


def _service(service: Mapping[str, Any]) -> ServiceFacts:
    spec = service.get("spec") or {}
    return ServiceFacts(
        is_headless=spec.get("clusterIP") == "None",
        publishes_not_ready=bool(spec.get("publishNotReadyAddresses")),
        selector=spec.get("selector") or {},
        ports=tuple(int(port["port"]) for port in spec.get("ports") or ()),
    )


def _usable(nodes: Sequence[Node], known: Fleet, gpu_resource: str | None = None) -> list[tuple[str, Node]]:
    """Name and node of the nodes that can be benchmarked, all or those with this resource."""
    usable = {node.name for node in known.nodes if gpu_resource in (None, node.gpu_resource)}
    by_name = [((node["metadata"].get("labels") or {}).get(HOSTNAME, node["metadata"]["name"]), node) for node in nodes]
    return [(name, node) for name, node in by_name if name in usable]


def _num_with_image(nodes: Sequence[Node], known: Fleet, image: str) -> int:
    return sum(
        any(name == image or name.endswith(f"/{image}") for entry in images for name in entry.get("names") or ())
        for _, node in _usable(nodes, known)
        if (images := (node.get("status") or {}).get("images") or ())
    )


def _one_of_each_kind(
    manifests: Sequence[Mapping[str, Any]], settings: Settings
) -> dict[tuple[bool, str | None], Mapping[str, Any]]:
    """(is of a gang, GPU resource) -> a pod. Only pods of gangs have a host name and further labels; other pods of a
    plan differ only in their work.
    """
    kinds = {(is_of_gang(pod), _gpu_resource(pod, settings)): pod for pod in reversed(manifests)}
    return {kind: kinds[kind] for kind in sorted(kinds, key=str)}


def _gpu_resource(pod: Mapping[str, Any], settings: Settings) -> str | None:
    """Name of the GPU resource that the pod requests; None: it requests none."""
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits") or {}
    return next((name for name in limits if is_gpu_resource(name, settings.gpu_resources)), None)


def is_of_gang(pod: Mapping[str, Any]) -> bool:
    return RENDEZVOUS in pod["metadata"]["labels"]


def _as_sent(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod as the operator creates it, with a random name."""
    sent: dict[str, Any] = copy.deepcopy(dict(pod))
    sent["metadata"]["name"] = f"tb-doctor-{secrets.token_hex(4)}"
    return sent


def _misfits(pod: Mapping[str, Any], nodes: Sequence[tuple[str, Node]], gpu_resource: str | None) -> Iterator[Misfit]:
    """Nodes that cannot take the pod. GPUs count only on the pod's own node, for which their number was chosen."""
    own = node_of(pod)
    for name, node in nodes:
        if rule := refused_by(node, pod):
            yield Misfit(node=name, short=rule, is_refused=True)
        elif short := never_fits(pod, node, without=() if name == own else (gpu_resource or "",)):
            yield Misfit(node=name, short=short)


def _admission(
    cluster: Cluster, pod: Mapping[str, Any], resource: str | None, nodes: Sequence[tuple[str, Node]]
) -> Admission:
    kind = ("a pod of a gang" if is_of_gang(pod) else "a pod") + (
        f" with {resource}" if resource not in (None, WHOLE_GPU) else ""
    )
    stored = _or_refusal(lambda: cluster.dry_run(pod))
    if isinstance(stored, Refusal):
        return Admission(pod=kind, refusal=stored)
    spec = stored.get("spec") or {}
    return Admission(
        pod=kind,
        refusal=None,
        priority=spec.get("priority"),
        preemption_policy=spec.get("preemptionPolicy"),
        misfits=tuple(_misfits({"spec": spec}, nodes, resource)),
    )
