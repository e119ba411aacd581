"""The nodes that a DAG run may use, from the configured launcher or from the cluster."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowFailException

from trainbench.params.campaign_params import BenchmarkParams
from trainbench.planning.nodes import Fleet, GpuNode, fleet_of
from trainbench.settings.environment import Launcher, Settings


def known_fleet(settings: Settings, params: BenchmarkParams) -> Fleet:
    """The cluster's nodes. Nodes given by name need no answer from the cluster; their memory is unknown then."""
    if settings.launcher is Launcher.LOCAL:
        from trainbench.cluster.local_nodes import local_fleet

        return local_fleet(settings, params)
    from trainbench.cluster.kubernetes_api import Refused, Unreachable

    try:
        return discover_fleet(settings)
    except (Refused, Unreachable) as error:
        if not params.nodes:
            raise AirflowFailException(f"{error}; or name nodes in the parameter 'nodes'") from None
        return _fleet_by_name(settings, params, str(error))


def discover_fleet(settings: Settings) -> Fleet:
    """The cluster's nodes with their GPUs."""
    from trainbench.cluster.kubernetes_api import open_cluster

    return fleet_of(open_cluster(settings).nodes(), settings.quarantine, settings.gpu_resources)


def _fleet_by_name(settings: Settings, params: BenchmarkParams, reason: str) -> Fleet:
    """The named nodes without further facts; their GPUs are of the settings' first resource."""
    resource = settings.gpu_resources[0]
    if "*" in resource:
        raise AirflowFailException(f"{reason}; which {resource} the nodes have is not known without it")
    print(f"the nodes' GPUs are not known, so no run is skipped for them: {reason}")  # noqa: T201 - goes to the task's log
    return Fleet(nodes=tuple(GpuNode(name=name, gpu_resource=resource) for name in params.nodes or ()))
