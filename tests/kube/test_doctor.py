"""`trainbench doctor` against an API server, by the real client; its faults are found in tests/unit/cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.builders.commands import trainbench, whole_document
from tests.builders.nights import night
from tests.kube.clusters import ACCOUNT, shipped_roles
from tests.kube.e2e import INSTANCE
from tests.kube.real_cluster import e2e_settings
from trainbench.cluster import doctor
from trainbench.cluster.doctor import CheckState
from trainbench.cluster.kubernetes_api import Cluster, open_cluster
from trainbench.history.history import open_history
from trainbench.results.artefacts import open_store
from trainbench.settings.environment import Settings

CONNECTION = "AIRFLOW_CONN_KUBERNETES_DEFAULT"


@pytest.fixture
def settings(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of an installation as the deployment's manifests make it; the stand-in gets three nodes with two GPUs each."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if cluster.simulated:
        for name in ("gpu-0", "gpu-1", "gpu-2"):
            cluster.add_node(name, gpus=2)
    return e2e_settings(TRAINBENCH_STORE=str(tmp_path / "store"))


@pytest.fixture
def opened(cluster: Any, settings: Settings) -> Callable[[], Cluster]:
    return partial(open_cluster, settings, str(cluster.kubeconfig))


def connect(monkeypatch: pytest.MonkeyPatch, cluster: Any, **extra: Any) -> None:
    connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(cluster.kubeconfig), **extra}}
    monkeypatch.setenv(CONNECTION, json.dumps(connection))


def test_a_cluster_as_the_manifests_make_it_is_ready(
    cluster: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, cluster)
    checks = doctor.examine(settings)
    assert doctor.refusal(checks, uses_gpus=cluster.simulated) is None
    by_name = {check.name: check for check in checks}
    ready = ("cluster", "permissions", "pod", "Service", "Airflow", "store", "history")
    assert [name for name in ready if by_name[name].state is not CheckState.OK] == []
    assert cluster.pods() == []
    if cluster.simulated:
        assert by_name["GPUs"].state is CheckState.OK
        assert by_name["GPUs"].summary == "3 nodes with 6 GPUs: 3 x 2 NVIDIA-H200"
        assert by_name["priority class"].summary == "trainbench-benchmark: priority -1000, preemption policy Never"


def test_the_shipped_rights_are_what_is_needed(cluster: Any, settings: Settings) -> None:
    account = cluster.kubeconfig_of(ACCOUNT, shipped_roles())
    checks = doctor.examine(settings, opened=partial(open_cluster, settings, str(account)))
    assert {check.name: check.state for check in checks}["permissions"] is CheckState.OK
    assert doctor.refusal(checks) is None


def test_the_probe_finds_its_own_name_and_leaves_nothing(cluster: Any, settings: Settings, opened: Any) -> None:
    cluster.nodes(1, gpus=1)
    by_name = {check.name: check for check in doctor.examine(settings, opened=opened, with_probe=True)}
    assert "found its own name by the Service" in by_name["probe"].summary or cluster.simulated
    if cluster.simulated:  # its GPUs are pretended
        assert "no nvidia-smi that lists one" in by_name["probe"].summary
        assert "did not find its own name" not in by_name["probe"].summary
        cluster.wait_for_pods(lambda pods: pods == [])


def test_commands_write_their_documents_twice_with_a_history_on_a_cluster(
    cluster: Any, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, cluster)
    environ = {"STORE": str(tmp_path / "store"), "LAUNCHER": "kubernetes", "INSTANCE": INSTANCE}
    for name, value in (environ | {"NAMESPACE": cluster.namespace}).items():
        monkeypatch.setenv(f"TRAINBENCH_{name}", value)
    open_history(store=open_store()).record(night(1, {"node-1": 10.0, "node-2": 10.0}))
    for _ in range(2):
        for command in (["doctor"], ["housekeeping"], ["housekeeping", "--delete"], ["watch"]):
            done = trainbench(*command, "--json", "--kubeconfig", str(cluster.kubeconfig))
            document = whole_document(done)
            assert document["error"] is None, (command, document["error"])
            assert document["data"] is not None
            assert done.exit_code in (0, 1), command  # a real cluster may have something for doctor to report
        assert whole_document(trainbench("plan", "--json"))["exit_code"] == 0
    assert cluster.pods() == []
