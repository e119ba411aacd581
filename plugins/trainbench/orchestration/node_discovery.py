"""The nodes that a DAG run may use, from the configured launcher or from the cluster."""

from __future__ import annotations

from dataclasses import replace

from airflow.sdk.exceptions import AirflowFailException

from trainbench.params.campaign_params import BenchmarkParams
from trainbench.planning.nodes import Fleet, GpuNode, fleet_of
from trainbench.settings.environment import Launcher, Settings


def known_fleet(settings: Settings, params: BenchmarkParams) -> Fleet:
    """The cluster's nodes. Nodes given by name need no answer from the cluster: their memory is unknown
    then, and their GPUs are of the settings' first resource.
    """
    if settings.launcher is Launcher.LOCAL:
        from trainbench.cluster.local_nodes import local_fleet

        return local_fleet(settings, params)
    from trainbench.cluster.kubernetes_api import Refused, Unreachable

    try:
        return discover_fleet(settings, None if params.nodes else params.node_labels)
    except (Refused, Unreachable) as error:
        if not params.nodes:
            raise AirflowFailException(f"{error}; or name nodes in the parameter 'nodes'") from None
        resource = settings.gpu_resources[0]
        if "*" in resource:
            raise AirflowFailException(f"{error}; which {resource} the nodes have is not known without it") from None
        print(f"the nodes' GPUs are not known, so no run is skipped for them: {error}")  # noqa: T201 - task log
        return Fleet(nodes=tuple(GpuNode(name=name, gpu_resource=resource) for name in params.nodes))


def discover_fleet(settings: Settings, labels: str | None = None) -> Fleet:
    """The cluster's nodes with their GPUs; with `labels`, a label selector, those of them alone."""
    from trainbench.cluster.kubernetes_api import open_cluster

    cluster = open_cluster(settings)
    selector = ",".join(filter(None, (settings.node_selector, labels)))
    nodes = replace(cluster, node_selector=selector).nodes()
    return fleet_of(nodes, settings.quarantine, settings.gpu_resources, settings.topology_label)
