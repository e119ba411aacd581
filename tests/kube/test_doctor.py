"""`trainbench doctor` against an API server: every fault is made there, and found by the real client."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders.commands import trainbench, whole_document
from tests.builders.nights import night
from tests.kube.clusters import ACCOUNT, shipped_roles
from tests.kube.e2e import INSTANCE
from tests.kube.real_cluster import e2e_settings
from trainbench.cluster import doctor
from trainbench.cluster.doctor import Check, CheckState
from trainbench.cluster.kubernetes_api import NEEDED, Cluster, open_cluster
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
    return _settings(tmp_path)


@pytest.fixture
def opened(cluster: Any, settings: Settings) -> Callable[[], Cluster]:
    return partial(open_cluster, settings, str(cluster.kubeconfig))


def _settings(folder: Path, **environ: str) -> Settings:
    return e2e_settings(TRAINBENCH_STORE=str(folder / "store"), **environ)


def connect(monkeypatch: pytest.MonkeyPatch, cluster: Any, **extra: Any) -> None:
    connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(cluster.kubeconfig), **extra}}
    monkeypatch.setenv(CONNECTION, json.dumps(connection))


def failed(checks: tuple[Check, ...]) -> dict[str, Check]:
    return {check.name: check for check in checks if check.state is CheckState.FAIL}


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


@pytest.mark.parametrize("permission", NEEDED, ids=lambda permission: permission.name)
def test_each_right_is_missed_when_it_is_gone(cluster: Any, settings: Settings, permission: Any) -> None:
    account = cluster.kubeconfig_of("ada", shipped_roles(permission.name))
    checks = doctor.examine(settings, opened=partial(open_cluster, settings, str(account)))
    found_check = next(check for check in checks if check.name == "permissions")
    assert found_check.state is not CheckState.OK
    assert f"{permission.name} (to {permission.purpose})" in found_check.summary
    if permission.name == "create pods":
        assert "cannot create resource" in failed(checks)["pod"].summary
    if permission.name == "list nodes":
        assert "GPUs" in failed(checks)
    if permission.name == "get services":
        assert failed(checks) == {}


def test_a_token_that_nobody_knows(cluster: Any, settings: Settings, tmp_path: Path) -> None:
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    config["users"] = [{"name": user["name"], "user": {"token": "wrong"}} for user in config["users"]]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    checks = doctor.examine(settings, opened=partial(open_cluster, settings, str(path)))
    assert list(failed(checks)) == ["cluster"]
    assert "Unauthorized" in failed(checks)["cluster"].summary


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRAINBENCH_NAMESPACE", "nowhere"),
        ("TRAINBENCH_PRIORITY_CLASS", "nobody"),
        ("TRAINBENCH_SERVICE_ACCOUNT", "nobody"),
    ],
)
def test_what_the_settings_name_and_the_cluster_has_not(
    cluster: Any, settings: Settings, tmp_path: Path, name: str, value: str
) -> None:
    wrong = _settings(tmp_path, **{name: value})
    refusals = failed(doctor.examine(wrong, opened=partial(open_cluster, wrong, str(cluster.kubeconfig))))
    refused = refusals.get("pod") or refusals["namespace"]  # an account without rights elsewhere reads no more
    assert value in refused.summary
    assert name in refused.resolution


def test_an_account_without_rights_in_a_missing_namespace_reads_that_the_namespace_is_missing(
    cluster: Any, settings: Settings, tmp_path: Path
) -> None:
    """Audit K15: a real API server refuses for want of rights before it looks for the namespace."""
    account = cluster.kubeconfig_of(ACCOUNT, shipped_roles())
    wrong = _settings(tmp_path, TRAINBENCH_NAMESPACE="nowhere")
    actual = failed(doctor.examine(wrong, opened=partial(open_cluster, wrong, str(account))))
    assert list(actual) == ["namespace"]
    assert "nothing is allowed in the namespace 'nowhere'" in actual["namespace"].summary


def test_the_probe_finds_its_own_name_and_leaves_nothing(cluster: Any, settings: Settings, opened: Any) -> None:
    cluster.nodes(1, gpus=1)
    by_name = {check.name: check for check in doctor.examine(settings, opened=opened, with_probe=True)}
    assert "found its own name by the Service" in by_name["probe"].summary or cluster.simulated
    if cluster.simulated:  # its GPUs are pretended
        assert "no nvidia-smi that lists one" in by_name["probe"].summary
        assert "did not find its own name" not in by_name["probe"].summary
        cluster.wait_for_pods(lambda pods: pods == [])


def test_a_node_that_a_pod_never_fits_is_named_before_any_pod_waits_for_it(
    cluster: Any, settings: Settings, opened: Callable[[], Cluster]
) -> None:
    """It was `busy` for ever, in green runs: the shipped LimitRange asks for 2 CPUs."""
    if not cluster.simulated:
        pytest.skip("the size of a real cluster's nodes is not the test's to choose")
    cluster.add_node("gpu-1", gpus=2, cpu="1900m")
    room = {check.name: check for check in doctor.examine(settings, opened=opened)}["room"]
    assert room.state is CheckState.WARN
    assert "a pod would not fit gpu-1 even when empty" in room.summary
    assert "cpu: requested 2, allocatable 1.9" in room.summary
    for name in ("gpu-0", "gpu-2"):
        cluster.add_node(name, gpus=2, cpu="1900m")
    assert "would not fit any of 3 nodes" in failed(doctor.examine(settings, opened=opened))["room"].summary


def test_a_tainted_pool_is_named_and_the_template_opens_it(cluster: Any, tmp_path: Path) -> None:
    """Pods went there, waited, and turned each night red; and a RuntimeClass that is not there refuses every pod."""
    if not cluster.simulated:
        pytest.skip("a real cluster's nodes are not tainted by tests")
    cluster.reset()
    for name in ("gpu-0", "gpu-1", "gpu-2"):
        cluster.add_node(name, gpus=2, taints=[{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}])

    def examined(**spec: Any) -> dict[str, Check]:
        template = tmp_path / "template.yaml"
        template.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "spec": spec}))
        settings = _settings(tmp_path, TRAINBENCH_POD_TEMPLATE=str(template))
        return failed(doctor.examine(settings, opened=partial(open_cluster, settings, str(cluster.kubeconfig))))

    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    shut = examined()
    assert list(shut) == ["room"]
    assert "gpu-0: its taint dedicated=ml:NoSchedule is not tolerated" in shut["room"].summary
    assert list(examined(tolerations=tolerations, runtimeClassName="gvisor")) == ["pod"]
    assert examined(tolerations=tolerations, runtimeClassName="nvidia") == {}


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
