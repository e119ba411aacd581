"""The questions as they are asked: side by side, in bounded time, and with an answer whatever happens."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders import make_spec
from trainbench.cluster import doctor
from trainbench.cluster import doctor_facts as facts
from trainbench.cluster import installation_facts as site_facts
from trainbench.cluster.cluster_facts import ClusterFacts, Refusal, gather_cluster
from trainbench.cluster.doctor_check import CheckState
from trainbench.cluster.doctor_facts import gather_facts, sample_pods, with_probe_facts
from trainbench.cluster.installation_facts import (
    HistoryFacts,
    Unknown,
    history_facts,
    image_facts,
    store_facts,
)
from trainbench.cluster.kubernetes_api import Cluster, Permission, Refused, Unreachable
from trainbench.cluster.probe_pod import MARK, probe_pod
from trainbench.history.database import HistoryError
from trainbench.history.history import open_history
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.pods.local_pods import LocalImage
from trainbench.pods.manifests import RENDEZVOUS, manifests
from trainbench.results.artefacts import open_store
from trainbench.settings.environment import Settings, read_settings

NODE = {
    "metadata": {
        "name": "gpu-0",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {
            "kubernetes.io/hostname": "gpu-0",
            "nvidia.com/gpu.product": "H200",
            "nvidia.com/gpu.memory": "143771",
        },
    },
    "spec": {},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8"},
        "capacity": {"nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "images": [{"names": ["docker.io/trainbench/bench:0.1.0"]}],
    },
}
SERVICE = {
    "spec": {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"trainbench.io/rendezvous": "true"},
        "ports": [{"port": 29500}],
    }
}


@dataclass(frozen=True)
class FakeCluster(Cluster):
    """Answers as a ready cluster does; `refusals` maps a method's name to what it refuses with."""

    api: Any = None
    namespace: str = "trainbench"
    refusals: Mapping[str, Refused] = field(default_factory=dict)
    denied: tuple[str, ...] = ()
    sent: list[Mapping[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    phase: str = "Succeeded"
    output: str = MARK + '{"resolves": true, "address": "10.0.0.9", "gpus": ["GPU 0: H200"]}'

    def _may(self, method: str) -> None:
        if method in self.refusals:
            raise self.refusals[method]

    def version(self) -> str:
        return "v1.33.13"

    def identity(self) -> str | None:
        return "ada"

    def is_allowed(self, permission: Permission) -> bool:
        return permission.name not in self.denied

    def nodes(self) -> tuple[dict[str, Any], ...]:
        self._may("nodes")
        return (NODE,)

    def service(self, name: str) -> dict[str, Any]:
        self._may("service")
        return SERVICE

    def dry_run(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        self.sent.append(pod)
        self._may("dry_run")
        return {"spec": {"priority": -1000, "preemptionPolicy": "Never"}}

    def create_pod(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        self.sent.append(pod)
        return {"metadata": {"uid": "uid-1"}}

    def pod(self, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"nodeName": "gpu-0"}, "status": {"phase": self.phase}}

    def log(self, name: str, container: str) -> str:
        return f"starting\n{self.output}\n"

    def delete_pod(self, name: str, uid: str) -> None:
        self.deleted.append(uid)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"TRAINBENCH_STORE": str(tmp_path / "store")})


def ask(settings: Settings, cluster: Cluster, planned: Any = ()) -> Any:
    return gather_facts(settings, planned, lambda: cluster, asks_airflow=False)


def test_a_ready_cluster(settings: Settings) -> None:
    cluster = FakeCluster()
    facts = ask(settings, cluster)
    assert isinstance(facts.cluster, ClusterFacts)
    assert facts.cluster.missing == ()
    assert [node.num_gpus for node in facts.cluster.fleet.nodes] == [8]
    assert facts.cluster.num_with_image == 1
    assert facts.cluster.admissions[0].priority == -1000
    assert (facts.has_plan, facts.needs_service) == (False, True)
    assert [c.name for c in doctor.checks(facts) if c.state is CheckState.FAIL] == []


def test_the_pod_that_is_tried_is_the_operators_under_a_free_name(settings: Settings) -> None:
    cluster = FakeCluster()
    ask(settings, cluster)
    (sent,) = cluster.sent
    assert [container["name"] for container in sent["spec"]["containers"]] == ["base"]
    assert sent["metadata"]["name"].startswith("tb-doctor-")
    assert sent["spec"]["containers"][0]["image"] == "trainbench/bench:0.1.0"


def test_the_pod_that_is_tried_has_the_installation_s_template(settings: Settings, tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("apiVersion: v1\nkind: Pod\nspec: {runtimeClassName: nvidia}")
    cluster, templated = FakeCluster(), settings.model_copy(update={"pod_template": template})
    (row,) = (check for check in doctor.checks(ask(templated, cluster)) if check.name == "pod template")
    assert [pod["spec"]["runtimeClassName"] for pod in cluster.sent] == ["nvidia"]
    assert (row.state, row.summary) == (CheckState.OK, f"{template} is merged into every pod")


def test_a_template_that_cannot_be_used_is_one_fault_and_the_rest_is_examined(
    settings: Settings, tmp_path: Path
) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("apiVersion: v1\nkind: Pod\nspec: {hostPID: true}")
    cluster, templated = FakeCluster(), settings.model_copy(update={"pod_template": template})
    checks = doctor.checks(ask(templated, cluster))
    assert [check.name for check in checks if check.state is CheckState.FAIL] == ["pod template"]
    assert len(cluster.sent) == 1
    refusal = doctor.refusal(checks)
    assert refusal is not None
    assert refusal.startswith(f"pod template: TRAINBENCH_POD_TEMPLATE {template} sets what a benchmark sets itself: ")
    assert "spec.hostPID: programs of the node" in refusal


def test_a_pod_of_each_gpu_resource_is_tried_and_compared_with_its_own_nodes(settings: Settings) -> None:
    """A quota on one resource says nothing of the others."""
    amd = copy.deepcopy(NODE)
    amd["metadata"]["name"] = amd["metadata"]["labels"]["kubernetes.io/hostname"] = "amd-0"
    amd["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
    amd["status"]["allocatable"] = amd["status"]["capacity"] = {"amd.com/gpu": "4", "cpu": "64", "memory": "64Gi"}

    class Mixed(FakeCluster):
        def nodes(self) -> tuple[dict[str, Any], ...]:
            return (NODE, amd)

        def dry_run(self, pod: Mapping[str, Any]) -> dict[str, Any]:
            self.sent.append(pod)
            return dict(pod)

    cluster = Mixed()
    both = settings.model_copy(update={"gpu_resources": ("nvidia.com/gpu", "amd.com/gpu")})
    admissions = ask(both, cluster).cluster.admissions
    assert [admission.pod for admission in admissions] == ["a pod with amd.com/gpu", "a pod"]
    assert [[m.node for m in admission.misfits if m.is_refused] for admission in admissions] == [["amd-0"], []]


def test_of_a_plan_one_pod_of_each_kind_is_tried(settings: Settings) -> None:
    cluster = FakeCluster()
    single = manifests(make_spec(node="gpu-0"), settings)
    gang = manifests(make_spec(node="gpu-0", nodes=2, peers=("gpu-1",), strategy="ddp"), settings)
    facts = ask(settings, cluster, [*single, *single, *gang])
    assert [RENDEZVOUS in pod["metadata"]["labels"] for pod in cluster.sent] == [False, True]
    assert [admission.pod for admission in facts.cluster.admissions] == ["a pod", "a pod of a gang"]
    assert (facts.has_plan, facts.needs_service) == (True, True)
    assert not ask(settings, FakeCluster(), single).needs_service


def test_a_refused_request_is_a_fact_and_the_others_are_still_sent(settings: Settings) -> None:
    forbidden = Refused("GET /api/v1/nodes", 403, "Forbidden", "nodes is forbidden")
    cluster = FakeCluster(
        refusals={"nodes": forbidden, "service": Refused("GET", 404, "NotFound", "no service")}, denied=("list nodes",)
    )
    facts = ask(settings, cluster).cluster
    assert facts.fleet == Refusal(status=403, message="nodes is forbidden")
    assert facts.num_with_image is None
    assert facts.service == Refusal(status=404, message="no service")
    assert [permission.name for permission in facts.missing] == ["list nodes"]
    assert facts.admissions[0].refusal is None


def test_a_cluster_that_does_not_answer_gets_no_further_requests() -> None:
    class Dead(FakeCluster):
        def version(self) -> str:
            raise Unreachable("no Kubernetes API at https://x")

        def nodes(self) -> tuple[dict[str, Any], ...]:
            raise AssertionError("asked")

    with pytest.raises(Unreachable):
        gather_cluster(Dead(), read_settings({}), lambda _: ())


def test_a_cluster_that_cannot_be_opened_is_unknown_with_the_reason(settings: Settings) -> None:
    def opened() -> Cluster:
        raise Unreachable("no Kubernetes cluster is configured: no file")

    facts = doctor.examine(settings, opened=opened)
    assert facts[0].name == "cluster"
    assert facts[0].summary == "no Kubernetes cluster is configured: no file"


def test_who_does_not_answer_in_time_does_not_hold_up_the_others(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's answer is waited for at the moment 0, the history's at 600 s."""
    released, clock = threading.Event(), iter((0.0, 0.0))
    monkeypatch.setattr(facts, "time", SimpleNamespace(monotonic=lambda: next(clock, 600.0)))
    monkeypatch.setattr(facts, "history_facts", lambda _: released.wait())
    gathered = gather_facts(settings, (), FakeCluster, asks_airflow=False, deadline_s=600.0)
    released.set()
    assert gathered.history == Unknown(reason="no answer within 600 s")
    assert isinstance(gathered.store, site_facts.StoreFacts)


def test_the_doctor_never_raises(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "gather_facts", lambda *_, **__: 1 / 0)
    (check,) = doctor.examine(settings, opened=FakeCluster)
    assert check.state is CheckState.UNKNOWN
    assert "ZeroDivisionError" in check.summary
    assert doctor.refusal([check]) is None


def test_with_the_local_launcher_no_cluster_is_opened(tmp_path: Path) -> None:
    local = read_settings(
        {
            "TRAINBENCH_LAUNCHER": "local",
            "TRAINBENCH_STORE": str(tmp_path),
            "TRAINBENCH_LOCAL_PYTHON": str(tmp_path / "none"),
        }
    )

    def opened() -> Cluster:
        raise AssertionError("opened")

    facts = doctor.examine(local, opened=opened)
    assert (facts[0].name, facts[0].state) == ("interpreter", CheckState.FAIL)


def test_the_sample_is_the_nightly_checks_pod_on_a_node_that_is_there(settings: Settings) -> None:
    (pod,) = sample_pods(settings, Fleet(nodes=(GpuNode(name="gpu-7", num_gpus=8),)))
    assert pod["metadata"]["labels"]["trainbench.io/node"] == "gpu-7"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert len(sample_pods(settings, Fleet())) == 1


def test_the_probe_runs_anywhere_and_is_found_by_the_service(settings: Settings) -> None:
    pod = probe_pod(sample_pods(settings, Fleet())[0], settings)
    name = pod["metadata"]["name"]
    assert "affinity" not in pod["spec"]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (name, "trainbench-rendezvous")
    assert pod["metadata"]["labels"]["trainbench.io/rendezvous"] == "true"
    assert pod["spec"]["containers"][0]["command"][-1] == f"{name}.trainbench-rendezvous.trainbench.svc"
    compile(pod["spec"]["containers"][0]["command"][2], "probe", "exec")


def test_the_probe_is_deleted_whatever_its_result(settings: Settings) -> None:
    good = FakeCluster()
    probe = with_probe_facts(ask(settings, good), lambda: good)
    assert (probe.probe.node, probe.probe.resolves, probe.probe.gpus) == ("gpu-0", True, ("GPU 0: H200",))
    assert good.deleted == ["uid-1"]

    silent = FakeCluster(phase="Pending")
    probe = with_probe_facts(ask(settings, silent), lambda: silent, wait_s=0)
    assert isinstance(probe.probe, Unknown)
    assert silent.deleted == ["uid-1"]


def test_the_free_space_of_a_store_is_read(settings: Settings, tmp_path: Path) -> None:
    facts = store_facts(settings)
    assert facts.address == str(tmp_path / "store")
    assert facts.free_bytes is not None
    assert facts.free_bytes > 0
    assert facts.is_chosen


def history(tmp_path: Path, url: str | None = None) -> HistoryFacts:
    environ = {"TRAINBENCH_STORE": str(tmp_path / "store")} | ({"TRAINBENCH_HISTORY_URL": url} if url else {})
    return history_facts(read_settings(environ))


def test_a_history_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    facts = history(tmp_path)
    assert (facts.revision, facts.is_known) == (None, True)
    assert list(tmp_path.iterdir()) == []


def test_the_revision_of_a_history_is_read(tmp_path: Path) -> None:
    open_history(None, open_store(str(tmp_path / "store")))
    facts = history(tmp_path)
    assert (facts.revision, facts.is_known) == ("0003_probes", True)


def test_a_history_of_a_later_version_is_not_known(tmp_path: Path) -> None:
    from sqlalchemy import create_engine, text

    open_history(None, open_store(str(tmp_path / "store")))
    with create_engine(f"sqlite:///{tmp_path / 'store' / 'history.sqlite'}").begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    facts = history(tmp_path)
    assert (facts.revision, facts.is_known) == ("9999", False)


def test_a_history_that_does_not_answer_is_named_without_user_and_sql(tmp_path: Path) -> None:
    with pytest.raises(HistoryError) as error:
        history(tmp_path, "postgresql+psycopg://bob@127.0.0.1:1/db?password=secret")
    assert str(error.value).startswith("postgresql://127.0.0.1:1/db: connection failed: ")
    (tmp_path / "h.db").write_text("this is no database")
    with pytest.raises(HistoryError, match=r"^sqlite:///.*/h.db: file is not a database$"):
        history(tmp_path, f"sqlite:///{tmp_path / 'h.db'}")


def test_the_interpreter_lists_its_modules_without_importing_them(tmp_path: Path) -> None:
    facts = image_facts(LocalImage(python=sys.executable, pythonpath=str(tmp_path)))
    assert facts.version == ".".join(map(str, sys.version_info[:3]))
    assert "torch" in facts.missing
    (tmp_path / "torch.py").write_text("raise SystemExit('imported')")
    assert "torch" not in image_facts(LocalImage(python=sys.executable, pythonpath=str(tmp_path))).missing
    assert image_facts(LocalImage(python=str(tmp_path / "none"), pythonpath="")).version is None


def test_what_the_api_server_would_store_is_held_against_each_node(settings: Settings) -> None:
    """LimitRange defaults are in its answer: 2.5 cores on a node with 2."""

    class Limited(FakeCluster):
        def dry_run(self, pod: Mapping[str, Any]) -> dict[str, Any]:
            given = {"base": {"cpu": "2500m"}}
            containers = [
                container | {"resources": {"requests": given[container["name"]], **container.get("resources", {})}}
                for container in pod["spec"]["containers"]
            ]
            return {"spec": pod["spec"] | {"containers": containers}}

        def nodes(self) -> tuple[dict[str, Any], ...]:
            return tuple(
                NODE
                | {
                    "metadata": NODE["metadata"] | {"name": name, "labels": {"kubernetes.io/hostname": name}},
                    "status": NODE["status"] | {"allocatable": {"nvidia.com/gpu": gpus, "cpu": cpu, "memory": "64Gi"}},
                }
                for name, cpu, gpus in (("gpu-0", "64", "8"), ("gpu-1", "2", "8"), ("gpu-2", "64", "1"))
            )

    pods = manifests(make_spec(node="gpu-0", gpus_per_node=8, strategy="ddp"), settings)
    (admission,) = ask(settings, Limited(), pods).cluster.admissions
    (misfit,) = admission.misfits

    assert misfit.node == "gpu-1"
    assert misfit.short == "cpu: requested 2.5, allocatable 2"
