"""Leaked pods against an API server: ours go, those of live runs and other people's stay."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_spec
from tests.kube.after_fault import after_fault
from tests.kube.clusters import airflows_kubeconfig
from tests.kube.e2e import INSTANCE
from tests.kube.real_cluster import e2e_settings
from tests.kube.shell_pods import SMALL
from trainbench.cluster import housekeeping, pod_deletions
from trainbench.cluster.housekeeping import Liveness, names_by_outcome, sweep_pods
from trainbench.cluster.kubernetes_api import Cluster, open_cluster
from trainbench.pods.manifests import Owner, installation_labels, manifests
from trainbench.results.artefacts import open_store
from trainbench.settings.environment import Housekeeping, Settings

OVER, LIVE = Owner(dag_id="node_consistency", dag_run_id="over"), Owner(dag_id="node_consistency", dag_run_id="live")
RUNS = {OVER: Liveness.ENDED, LIVE: Liveness.LIVE}


def liveness(owner: Owner) -> Liveness:
    return RUNS.get(owner, Liveness.NOT_FOUND)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return e2e_settings(TRAINBENCH_STORE=str(tmp_path))


@pytest.fixture
def api(cluster: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(pod_deletions, "RESTART_S", 1.0)
    monkeypatch.setattr(housekeeping, "MIN_AGE_S", 0.0)
    monkeypatch.setattr(housekeeping, "KEEP_ENDED_S", 0.0)
    return open_cluster(settings, str(airflows_kubeconfig(cluster)))


@pytest.fixture
def make(cluster: Any, api: Cluster, settings: Settings) -> Callable[..., str]:
    (own_node,) = cluster.nodes(1)

    def make(
        name: str,
        owner: Owner | None,
        command: str = "trap 'exit 0' TERM; sleep 600 & wait",
        node: str = own_node,
        **labels: str,
    ) -> str:
        (pod,) = manifests(make_spec(node=node, device="cpu"), settings, owner)
        pod = copy.deepcopy(pod)
        pod["metadata"]["name"] = name
        pod["metadata"]["labels"] |= {key.replace("__", "/"): value for key, value in labels.items()}
        pod["spec"]["containers"][0] |= {"command": ["sh", "-c", command], "resources": SMALL}
        return str(api.create_pod(pod)["metadata"]["uid"])

    return make


def sweep(api: Cluster, settings: Settings, mode: Housekeeping) -> dict[str, Any]:
    store = open_store(settings.store)
    labels = installation_labels(settings)
    return names_by_outcome(sweep_pods(api, labels, liveness, mode, store, datetime.now(UTC)))


def names(cluster: Any) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.pods()}


def test_only_pods_of_ours_whose_run_is_over_go_and_those_that_ended_on_request(
    cluster: Any, api: Cluster, settings: Settings, make: Any
) -> None:
    """By schedule what runs on goes: the API was away when the DAG run ended, or Airflow is gone."""
    make("leaked", OVER)
    make("ended", OVER, "exit 3")
    make("live", LIVE)
    make("of-another-airflow", Owner(dag_id="node_consistency", dag_run_id="elsewhere"))
    make("by-hand", None)
    make("of-another-installation", OVER, **{"app.kubernetes.io__instance": f"{INSTANCE}-theirs"})
    make("somebodys", OVER, **{"app.kubernetes.io__name": "notebook"})
    stay = {"live", "of-another-airflow", "by-hand", "of-another-installation", "somebodys"}
    cluster.wait_for_pods(lambda pods: sorted(p["status"]["phase"] for p in pods) == ["Failed", *["Running"] * 6])
    make("waits-for-ever", OVER, node="no-such-node")

    swept = sweep(api, settings, Housekeeping.REPORT)
    assert set(swept["to be deleted"]) == {"leaked", "ended", "waits-for-ever"}
    assert set(swept["to be looked at"]) == {"of-another-airflow", "by-hand"}
    assert len(names(cluster)) == 8

    swept = sweep(api, settings, Housekeeping.RELEASE)
    assert (set(swept["deleted"]), swept["to be deleted"]) == ({"leaked", "waits-for-ever"}, ["ended"])
    cluster.wait_for_pods(lambda pods: len(pods) == 6)
    after_fault("airflow-gone", "release-fails", pods=names(cluster) & {"leaked", "waits-for-ever"})

    assert sweep(api, settings, Housekeeping.DELETE)["deleted"] == ["ended"]
    cluster.wait_for_pods(lambda pods: len(pods) == 5)
    assert names(cluster) == stay


def test_a_pod_that_took_the_name_since_is_left_alone(
    cluster: Any, api: Cluster, settings: Settings, make: Any
) -> None:
    make("tb-1", LIVE)
    with pytest.raises(Exception, match="UID"):
        api.delete_pod("tb-1", "the-uid-of-the-one-before")
    assert names(cluster) == {"tb-1"}
