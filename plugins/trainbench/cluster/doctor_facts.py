"""Gathers the facts that `doctor` judges, concurrently and in bounded time.

Nothing here raises: a fact that cannot be determined is an `Unknown` with the reason.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.cluster.cluster_facts import ClusterFacts, gather_cluster, is_of_gang
from trainbench.cluster.installation_facts import (
    AirflowFacts,
    ChannelFacts,
    HistoryFacts,
    ImageFacts,
    StoreFacts,
    Unknown,
    UnsentFacts,
    airflow_facts,
    channel_facts,
    history_facts,
    image_facts,
    store_facts,
    unsent_facts,
)
from trainbench.cluster.kubernetes_api import Cluster
from trainbench.cluster.probe_pod import WAIT_S, ProbeFacts, probe_pod, run_probe
from trainbench.core.formats import one_line
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.pods.manifests import manifests
from trainbench.pods.pod_template import PodTemplateError
from trainbench.settings.environment import Launcher, Settings

DEADLINE_S = 30.0
Manifests = Sequence[Mapping[str, Any]]
Read = Callable[[], Any]


class Facts(Frozen):
    """All facts that the checks judge; None: not gathered, because no check needs it."""

    settings: Settings
    has_plan: bool = False  # the pods of a plan are tried, so its nodes are known
    needs_service: bool = True
    kubeconfig_env: str | None = None
    template_fault: str | None = None  # why the installation's Pod template cannot be used
    airflow: AirflowFacts | Unknown | None = None
    cluster: ClusterFacts | Unknown | None = None
    probe: ProbeFacts | Unknown | None = None
    image: ImageFacts | Unknown | None = None
    store: StoreFacts | Unknown
    history: HistoryFacts | Unknown
    channels: tuple[ChannelFacts, ...] | Unknown | None = None
    unsent: UnsentFacts | Unknown | None = None


def gather_facts(
    settings: Settings,
    planned: Manifests,
    opened: Callable[[], Cluster],
    asks_airflow: bool,
    deadline_s: float = DEADLINE_S,
) -> Facts:
    """Gather the facts. `planned`: the pods to run; without any, a sample pod of the nightly check is tried."""
    reads: dict[str, Read] = {
        "store": lambda: store_facts(settings),
        "history": lambda: history_facts(settings),
    }
    if settings.notify:
        reads["unsent"] = lambda: unsent_facts(settings)
    # In this thread, because a task requests a connection from its supervisor.
    channels = _answer(lambda: channel_facts(settings)) if settings.notify and asks_airflow else None
    airflow: Any = None
    template_fault = _template_fault(settings)
    if settings.launcher is Launcher.LOCAL:
        reads["image"] = lambda: image_facts(settings.local_image)
    else:
        airflow = _answer(lambda: airflow_facts(settings)) if asks_airflow else None
        cluster = _answer(opened)
        usable = settings.model_copy(update={"pod_template": None}) if template_fault else settings
        reads["cluster"] = lambda: _cluster_facts(cluster, usable, planned)
    return Facts(
        settings=settings,
        has_plan=bool(planned),
        needs_service=not planned or any(is_of_gang(pod) for pod in planned),
        kubeconfig_env=os.environ.get("KUBECONFIG"),
        template_fault=template_fault,
        airflow=airflow,
        channels=channels,
        **_side_by_side(reads, deadline_s),
    )


def with_probe_facts(facts: Facts, opened: Callable[[], Cluster], wait_s: float = WAIT_S) -> Facts:
    """The facts with those of a real probe pod; unchanged without a cluster or a usable template."""
    if not isinstance(facts.cluster, ClusterFacts) or facts.template_fault:
        return facts
    gpu_fleet = facts.cluster.fleet if isinstance(facts.cluster.fleet, Fleet) else Fleet()
    pod = probe_pod(sample_pods(facts.settings, gpu_fleet)[0], facts.settings)
    return facts.model_copy(update={"probe": _answer(lambda: run_probe(opened(), pod, wait_s))})


def sample_pods(settings: Settings, fleet: Fleet) -> Manifests:
    """The pods of one run of the nightly check on one GPU of the first node of each GPU resource that there is."""
    first = {node.gpu_resource: GpuNode(name=node.name, gpu_resource=node.gpu_resource) for node in fleet.nodes[::-1]}
    nodes = [first[name] for name in sorted(first)] or [GpuNode(name="any-node")]
    return [pod for node in nodes for pod in _sample_pods(settings, node)]


def _sample_pods(settings: Settings, node: GpuNode) -> Manifests:
    form = {"nodes": [node.name], "rounds": 1, "force": True, "gpus_per_node": 1}
    params = PLANNERS[CampaignKind.NODES].params(form, locally=settings.launcher is Launcher.LOCAL)
    return manifests(make_plan(params, Fleet(nodes=(node,)), "doctor").specs[0], settings)


def _template_fault(settings: Settings) -> str | None:
    try:
        sample_pods(settings, Fleet())
    except PodTemplateError as error:
        return str(error)
    return None


def _cluster_facts(cluster: Cluster | Unknown, settings: Settings, planned: Manifests) -> Any:
    if isinstance(cluster, Unknown):
        return cluster
    return gather_cluster(cluster, settings, lambda fleet: planned or sample_pods(settings, fleet))


def _answer(read: Read) -> Any:
    try:
        return read()
    except Exception as error:  # doctor reports every fault; none of them may end it
        return Unknown(reason=one_line(str(error)) or type(error).__name__)


def _side_by_side(reads: Mapping[str, Read], deadline_s: float) -> dict[str, Any]:
    """Run the reads in daemon threads: a client that hangs does not delay the answer past its deadline."""
    answers: dict[str, Any] = {}

    def fill(name: str, read: Read) -> None:
        answers[name] = _answer(read)

    threads = [threading.Thread(target=fill, args=item, daemon=True) for item in reads.items()]
    for thread in threads:
        thread.start()
    give_up = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, give_up - time.monotonic()))
    late = Unknown(reason=f"no answer within {deadline_s:g} s")
    return {name: answers.get(name, late) for name in reads}
