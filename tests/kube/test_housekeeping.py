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
from tests.kube.e2e import INSTANCE
from tests.kube.real_cluster import e2e_settings
from tests.kube.shell_pods import SMALL
from trainbench.cluster import pod_deletions
from trainbench.cluster.housekeeping import Liveness, Rules, document, sweep_pods
from trainbench.cluster.kubernetes_api import Cluster, open_cluster
from trainbench.pods.manifests import Owner, installation_labels, manifests
from trainbench.results.artefacts import open_store
from trainbench.settings.environment import Housekeeping, Settings

AT_ONCE = Rules(min_age_s=0.0, keep_ended_s=0.0)
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
    return open_cluster(settings, str(cluster.kubeconfig))


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


def sweep(api: Cluster, settings: Settings, mode: Housekeeping, rules: Rules = AT_ONCE) -> dict[str, Any]:
    store = open_store(settings.store)
    return document(sweep_pods(api, installation_labels(settings), liveness, rules, mode, store, datetime.now(UTC)))


def names(cluster: Any) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.pods()}


def test_only_pods_of_ours_whose_run_is_over_go(cluster: Any, api: Cluster, settings: Settings, make: Any) -> None:
    make("leaked", OVER)
    make("live", LIVE)
    make("of-another-airflow", Owner(dag_id="node_consistency", dag_run_id="elsewhere"))
    make("by-hand", None)
    make("of-another-installation", OVER, **{"app.kubernetes.io__instance": f"{INSTANCE}-theirs"})
    make("somebodys", OVER, **{"app.kubernetes.io__name": "notebook"})
    cluster.wait_for_pods(lambda pods: all(pod["status"]["phase"] == "Running" for pod in pods))

    swept = sweep(api, settings, Housekeeping.REPORT)
    assert swept["to_delete"] == ["leaked"]
    assert set(swept["to_look_at"]) == {"of-another-airflow", "by-hand"}
    assert swept["looked_at"] == 4
    assert len(names(cluster)) == 6

    assert sweep(api, settings, Housekeeping.DELETE)["deleted"] == ["leaked"]
    cluster.wait_for_pods(lambda pods: len(pods) == 5)
    after_fault("airflow-gone", pods=names(cluster) & {"leaked"})
    assert names(cluster) == {"live", "of-another-airflow", "by-hand", "of-another-installation", "somebodys"}


def test_ended_pods_are_kept_for_their_log_first(cluster: Any, api: Cluster, settings: Settings, make: Any) -> None:
    make("failed", OVER, "exit 3")
    make("done", None, "exit 0")
    cluster.wait_for_pods(lambda pods: {pod["status"]["phase"] for pod in pods} == {"Failed", "Succeeded"})

    assert sweep(api, settings, Housekeeping.DELETE, Rules(min_age_s=0.0, keep_ended_s=3600.0))["deleted"] == []
    assert set(sweep(api, settings, Housekeeping.DELETE)["deleted"]) == {"failed", "done"}
    cluster.wait_for_pods(lambda pods: pods == [])


def test_a_pod_that_waits_for_ever_goes_too(cluster: Any, api: Cluster, settings: Settings, make: Any) -> None:
    make("pending", OVER, node="no-such-node")
    assert sweep(api, settings, Housekeeping.DELETE)["deleted"] == ["pending"]
    cluster.wait_for_pods(lambda pods: pods == [])


def test_a_pod_that_took_the_name_since_is_left_alone(
    cluster: Any, api: Cluster, settings: Settings, make: Any
) -> None:
    make("tb-1", LIVE)
    with pytest.raises(Exception, match="UID"):
        api.delete_pod("tb-1", "the-uid-of-the-one-before")
    assert names(cluster) == {"tb-1"}


def test_one_that_cannot_be_deleted_does_not_save_the_others(
    cluster: Any, api: Cluster, settings: Settings, make: Any
) -> None:
    make("a", OVER)
    make("b", OVER)
    cluster.fault(method="DELETE", path="/pods/a$", n=0, code=403, message="a policy keeps it")
    swept = sweep(api, settings, Housekeeping.DELETE)
    assert swept["deleted"] == ["b"]
    assert swept["faults"] == {"a": "a policy keeps it"}


def test_by_schedule_a_pod_that_a_failed_release_left_goes_and_everything_else_stays(
    cluster: Any, api: Cluster, settings: Settings, make: Any
) -> None:
    """The API was away when the DAG run ended: its pods ran on, or waited for GPUs, until somebody looked."""
    make("runs-on", OVER)
    make("ended", OVER, "exit 0")
    make("live", LIVE)
    make("of-another-airflow", Owner(dag_id="node_consistency", dag_run_id="elsewhere"))
    cluster.wait_for_pods(lambda pods: all(pod["status"]["phase"] in ("Running", "Succeeded") for pod in pods))
    cluster.wait_for_pods(lambda pods: any(pod["status"]["phase"] == "Succeeded" for pod in pods))

    swept = sweep(api, settings, Housekeeping.RELEASE)
    assert swept["deleted"] == ["runs-on"]
    assert swept["to_delete"] == ["ended"]
    cluster.wait_for_pods(lambda pods: len(pods) == 3)
    after_fault("release-fails", pods=names(cluster) & {"runs-on"})
    assert names(cluster) == {"ended", "live", "of-another-airflow"}
