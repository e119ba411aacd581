"""Every fault is named, with what to do; a ready installation has nothing to say. Asked of a cluster made up."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders.fake_cluster import SERVICE, FakeCluster, gpu_node
from trainbench.cluster import doctor
from trainbench.cluster.doctor import (
    MARK,
    Check,
    CheckState,
    Row,
    Site,
    refusal,
    sample_pods,
    table,
    verdict,
)
from trainbench.cluster.kubernetes_api import NEEDED, Cluster, Refused, Unreachable
from trainbench.history.history import open_history
from trainbench.history.tables import REVISION
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.pods.local_pods import LocalImage
from trainbench.results.artefacts import open_store
from trainbench.settings.channels import Webhook
from trainbench.settings.environment import Settings, read_settings

OK, WARN, FAIL, UNKNOWN = CheckState.OK, CheckState.WARN, CheckState.FAIL, CheckState.UNKNOWN
THREE = tuple(gpu_node(f"gpu-{index}") for index in range(3))
Ask = Callable[..., tuple[Check, ...]]


def refused(message: str, status: int = 403) -> Refused:
    return Refused("request", status, "reason", message)


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """The outcome for a cluster of three equal nodes with the image, and what a test changes of it."""

    def ask(cluster: Cluster | None = None, probe: bool = False, **environ: str) -> Any:
        made = cluster or FakeCluster(listed=THREE)
        usual = {"TRAINBENCH_STORE": str(tmp_path / "store"), "TRAINBENCH_PRIORITY_CLASS": "trainbench-benchmark"}
        settings = read_settings(usual | {f"TRAINBENCH_{name}": value for name, value in environ.items()})
        return doctor.examine(settings, lambda: made, with_probe=probe, deadline_s=600.0)  # on a busy machine, too

    return ask


def check(name: str, checks: tuple[Check, ...]) -> Check:
    return next(each for each in checks if each.name == name)


def failed(checks: tuple[Check, ...]) -> list[str]:
    return [each.name for each in checks if each.state is FAIL]


# --- the outcome as a whole -------------------------------------------------------------------------------------------


def test_a_ready_installation(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**12))
    checks = ask()
    assert [(c.name, c.state) for c in checks] == [
        ("cluster", OK), ("namespace", OK), ("permissions", OK), ("GPUs", OK), ("pod", OK), ("priority class", OK),
        ("room", OK), ("image", OK), ("Service", OK), ("store", OK), ("history", OK), ("probe", UNKNOWN),
    ]  # fmt: skip
    assert [c.name for c in checks if c.resolution] == ["probe"]
    assert (refusal(checks), verdict(checks)) == (None, "Ready.")


def test_the_refusal_is_one_sentence_with_the_names_of_the_rest_and_every_fault_says_what_to_do(ask: Ask) -> None:
    checks = ask(FakeCluster(listed=(), denied=("create pods",), refusals={"service": refused("not found", 404)}))
    assert failed(checks) == ["permissions", "GPUs", "Service"]
    assert all(each.resolution for each in checks if each.state is FAIL)
    assert refusal(checks) == (
        "permissions: not allowed: create pods (to start a benchmark). Grant it to ada: apply the deployment's "
        "manifests (docs/deploy.md). Also not ready: GPUs, Service."
    )
    assert verdict(checks) == "Not ready: permissions, GPUs, Service."


def test_the_table_reads_without_colour(ask: Ask) -> None:
    rows = {row.texts[1]: row for row in table(ask(FakeCluster(listed=()))).rows}
    assert (rows["GPUs"].texts[0], rows["probe"].texts[0]) == ("✗", "?")
    assert rows["GPUs"].texts[2] == (
        "no node is ready and has allocatable nvidia.com/gpu. Install the vendor's GPU operator, or its device plugin."
    )


def test_a_cluster_that_gives_no_answer_is_one_line_and_gets_no_further_request(ask: Ask) -> None:
    class Dead(FakeCluster):
        def version(self) -> str:
            raise Unreachable("no Kubernetes API at https://x: [Errno 111] Connection refused")

        def nodes(self) -> tuple[dict[str, Any], ...]:
            raise AssertionError("asked")

    checks = ask(Dead(), probe=True)
    assert [c.name for c in checks] == ["cluster", "store", "history"]
    assert refusal(checks) == (
        "cluster: no Kubernetes API at https://x: [Errno 111] Connection refused. "
        "Check --kubeconfig, KUBECONFIG or the Airflow connection, the network and the API server."
    )


def test_with_the_local_launcher_no_cluster_is_opened_and_one_that_cannot_be_is_named(tmp_path: Path) -> None:
    def opened() -> Cluster:
        raise Unreachable("no Kubernetes cluster is configured: no file")

    environ = {"TRAINBENCH_STORE": str(tmp_path), "TRAINBENCH_LOCAL_PYTHON": str(tmp_path / "none")}
    first = doctor.examine(read_settings(environ), opened=opened)[0]
    assert (first.name, first.summary) == ("cluster", "no Kubernetes cluster is configured: no file")
    local = doctor.examine(read_settings(environ | {"TRAINBENCH_LAUNCHER": "local"}), opened=opened)
    assert [(each.name, each.state) for each in local] == [("interpreter", FAIL), ("store", OK), ("history", OK)]


def test_one_that_does_not_answer_in_time_does_not_hold_up_the_others(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster's and the store's answers are waited for at the moment 0, the history's at 600 s."""
    released, clock = threading.Event(), iter((0.0, 0.0, 0.0))
    monkeypatch.setattr(doctor, "time", SimpleNamespace(monotonic=lambda: next(clock, 600.0)))
    slow = Row("history", lambda _: doctor.Answer(OK, str(released.wait())), "")
    monkeypatch.setattr(doctor, "HISTORY", slow)
    checks = ask()
    released.set()
    assert check("history", checks).summary == "no answer within 600 s"
    assert (check("cluster", checks).state, check("store", checks).state) == (OK, OK)


def test_the_doctor_never_raises(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_answers", lambda *_: 1 / 0)
    (only,) = ask()
    assert only.state is UNKNOWN
    assert "ZeroDivisionError" in only.summary
    assert refusal([only]) is None


# --- rights, and the pod that is tried --------------------------------------------------------------------------------

ALL_DENIED = tuple(permission.name for permission in NEEDED)


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        (refused('namespaces "trainbench" not found', 404), "there is no namespace 'trainbench'"),
        (
            refused('namespaces "trainbench" is forbidden'),
            "nothing is allowed in the namespace 'trainbench': either it does not exist, or no right in it is bound to "
            "ada",
        ),
    ],
)
def test_a_namespace_that_does_not_exist_is_not_reported_as_missing_rights(
    answer: Refused, summary: str, ask: Ask
) -> None:
    """Audit K15: the API server looks at rights before it looks for the namespace."""
    checks = ask(FakeCluster(listed=THREE, denied=ALL_DENIED, refusals={"read_namespace": answer}))
    assert failed(checks) == ["namespace"]
    assert check("namespace", checks).summary == summary
    assert "TRAINBENCH_NAMESPACE" in check("namespace", checks).resolution


def test_a_namespace_that_exists_and_grants_nothing_is_reported_as_missing_rights(ask: Ask) -> None:
    assert check("permissions", ask(FakeCluster(denied=ALL_DENIED))).state is FAIL


@pytest.mark.parametrize(("name", "state"), [("get pods/log", FAIL), ("get services", WARN), ("list nodes", FAIL)])
def test_a_missing_right_matters_as_much_as_what_it_is_for(name: str, state: CheckState, ask: Ask) -> None:
    checked = check("permissions", ask(FakeCluster(denied=(name,))))
    assert checked.state is state
    assert name in checked.summary


def test_nodes_that_cannot_be_listed_are_a_fault_and_all_else_is_asked(ask: Ask) -> None:
    blind = FakeCluster(refusals={"nodes": refused("nodes is forbidden")})
    assert check("GPUs", ask(blind)).state is FAIL
    assert (check("pod", ask(blind)).state, check("Service", ask(blind)).state) == (OK, OK)


SAID = [
    ('namespaces "trainbench" not found', 404, "set TRAINBENCH_NAMESPACE"),
    ('pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', 403,
     "relabel the namespace"),
    ('pods "x" is forbidden: no PriorityClass with name trainbench-benchmark was found', 403,
     "TRAINBENCH_PRIORITY_CLASS"),
    ('pods "x" is forbidden: pod rejected: RuntimeClass "gpu" not found', 403, "get runtimeclasses"),
    ('pods "x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8', 403, "describe quota"),
    ('pods "x" is forbidden: error looking up service account trainbench/b: serviceaccount "b" not found', 403,
     "TRAINBENCH_SERVICE_ACCOUNT"),
    ('admission webhook "validate.kyverno.svc" denied the request: no tag', 400, "the policy's owner"),
    ('pods is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods" in API group ""', 403,
     "bind the rights"),
    ('Pod "x" is invalid: spec.containers[0].image: Required value', 422, "fix what it names"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "status", "remedy"), SAID)
def test_the_api_servers_no_is_understood(message: str, status: int, remedy: str, ask: Ask) -> None:
    checked = check("pod", ask(FakeCluster(refusals={"dry_run": refused(message, status)})))
    assert checked.state is FAIL
    assert message in checked.summary
    assert remedy in checked.resolution


@pytest.mark.parametrize("status", [409, 429, 500])
def test_a_server_that_is_busy_has_not_refused(status: int, ask: Ask) -> None:
    assert check("pod", ask(FakeCluster(refusals={"dry_run": refused("try again", status)}))).state is UNKNOWN


@pytest.mark.parametrize(
    ("stored", "state"),
    [
        ({"priority": -1000, "preemptionPolicy": "Never"}, OK),
        ({"priority": 0, "preemptionPolicy": "Never"}, OK),
        ({"priority": 1000, "preemptionPolicy": "Never"}, WARN),
        ({"priority": -1000, "preemptionPolicy": "PreemptLowerPriority"}, WARN),
        ({}, OK),
    ],
)
def test_a_benchmark_displaces_nobody(stored: dict[str, Any], state: CheckState, ask: Ask) -> None:
    assert check("priority class", ask(FakeCluster(stored=stored))).state is state


def test_a_missing_priority_class_is_reported(tmp_path: Path) -> None:
    settings = read_settings({"TRAINBENCH_STORE": str(tmp_path)})
    checked = check("priority class", doctor.examine(settings, opened=FakeCluster))
    assert checked.state is WARN
    assert "TRAINBENCH_PRIORITY_CLASS" in checked.resolution


def test_the_pod_that_is_tried_is_the_operators_under_a_free_name_with_the_template(ask: Ask, tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("apiVersion: v1\nkind: Pod\nspec: {runtimeClassName: nvidia}")
    cluster = FakeCluster()
    checks = ask(cluster, POD_TEMPLATE=str(template))
    (sent,) = cluster.sent
    assert sent["metadata"]["name"].startswith("tb-doctor-")
    assert [(c["name"], c["image"]) for c in sent["spec"]["containers"]] == [("base", "trainbench/bench:0.2.0")]
    assert sent["spec"]["runtimeClassName"] == "nvidia"
    assert check("pod", checks).summary.endswith(f"; {template} is merged into it")


def test_a_template_that_cannot_be_used_is_one_fault_and_the_rest_is_examined(ask: Ask, tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("apiVersion: v1\nkind: Pod\nspec: {hostPID: true}")
    cluster = FakeCluster()
    checks = ask(cluster, POD_TEMPLATE=str(template), probe=True)
    assert failed(checks) == ["pod"]
    assert cluster.sent == []  # neither a dry run nor a probe
    text = refusal(checks) or ""
    assert text.startswith(f"pod: TRAINBENCH_POD_TEMPLATE {template} sets what a benchmark sets itself: ")
    assert "spec.hostPID: programs of the node" in text


def test_a_pod_of_each_gpu_resource_is_tried_and_compared_with_its_own_nodes(ask: Ask) -> None:
    """A quota on one resource says nothing of the others."""
    amd = gpu_node("amd-0", {"amd.com/gpu": 4}) | {"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}}
    checks = ask(FakeCluster(listed=(*THREE, amd)), GPU_RESOURCES="nvidia.com/gpu,amd.com/gpu")
    assert "would take a pod with amd.com/gpu and a pod:" in check("pod", checks).summary
    room = check("room", checks)
    assert room.summary == (
        "a pod with amd.com/gpu would not fit amd-0 even when empty; amd-0: its taint dedicated:NoSchedule is not "
        "tolerated"
    )
    assert room.state is WARN
    assert "docs/pod-template.md" in room.resolution


def test_a_service_that_is_missing_is_a_fault_and_one_that_cannot_be_read_is_unknown(ask: Ask) -> None:
    for status, state in ((404, FAIL), (403, UNKNOWN)):
        assert check("Service", ask(FakeCluster(refusals={"service": refused("no", status)}))).state is state


@pytest.mark.parametrize(
    ("cpus", "state", "where"),
    [
        (("64", "64", "64"), OK, "a pod would fit each of 3 nodes when it is empty"),
        (
            ("64", "2", "64"),
            WARN,
            "a pod would not fit gpu-1 even when empty; gpu-1: cpu: requested 2.5, allocatable 2",
        ),
        (("2", "2", "2"), FAIL, "a pod would not fit any of 3 nodes even when empty; gpu-0: cpu: requested 2.5"),
    ],
)
def test_a_pod_that_fits_no_empty_node_is_refused_before_it_waits_for_ever(
    cpus: tuple[str, ...], state: CheckState, where: str, ask: Ask
) -> None:
    """LimitRange defaults are in the API server's answer. One node that is too small is a warning: the others are
    benchmarked.
    """

    class Limited(FakeCluster):
        def dry_run(self, pod: Mapping[str, Any]) -> dict[str, Any]:
            (base,) = pod["spec"]["containers"]
            return {
                "spec": pod["spec"]
                | {"containers": [base | {"resources": {**base["resources"], "requests": {"cpu": "2500m"}}}]}
            }

    nodes = [gpu_node(f"gpu-{index}", 1 if index == 2 else 8) for index in range(3)]
    for node, cpu in zip(nodes, cpus, strict=True):
        node["status"]["allocatable"]["cpu"] = cpu
    checked = check("room", ask(Limited(listed=tuple(nodes))))
    assert checked.state is state
    assert checked.summary.startswith(where)
    assert ("LimitRange" in checked.resolution) is (state is not OK)


# --- GPUs, image, Service, probe --------------------------------------------------------------------------------------


def cordoned(name: str) -> dict[str, Any]:
    return gpu_node(name) | {"spec": {"unschedulable": True}}


BROKEN = gpu_node("gpu-9", conditions=[{"type": "Ready", "status": "False", "message": "kubelet stopped"}])
A100S = tuple(gpu_node(f"a-{index}", 4, "NVIDIA-A100") for index in range(3))
LOST = gpu_node("gpu-2", capacity={"nvidia.com/gpu": 8}, allocatable={"nvidia.com/gpu": 7})
SLICES = gpu_node("gpu-2", {"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 7})
BOTH = {"GPU_RESOURCES": "nvidia.com/gpu,nvidia.com/mig-*"}


@pytest.mark.parametrize(
    ("nodes", "environ", "state", "text"),
    [
        ((*THREE, *A100S), {}, OK, "6 nodes with 36 GPUs: 3 x 4 NVIDIA-A100 and 3 x 8 H200"),
        ((*THREE, A100S[0]), {}, WARN, "fewer than 3 nodes of NVIDIA-A100"),
        ((*THREE[:2], SLICES), BOTH, WARN, "also offered, and not benchmarked: gpu-2: nvidia.com/mig-1g.10gb"),
        ((*THREE, cordoned("gpu-8")), {}, OK, "left out: gpu-8: cordoned"),
        ((*THREE, cordoned("gpu-8"), BROKEN), {}, WARN, "not usable: gpu-8: cordoned; gpu-9: not ready: kubelet"),
        ((*THREE[:2], LOST), {}, WARN, "1 x 7 H200; not allocatable, but in the node's capacity: 1 of gpu-2"),
        ((BROKEN,), {}, FAIL, "Look at these: gpu-9: not ready: kubelet stopped"),
        ((*THREE[:2], gpu_node("gpu-2", product=None)), {}, WARN, "product or memory is not labelled on gpu-2"),
        ((), {"GPU_RESOURCES": "amd.com/gpu", "NODE_SELECTOR": "pool=a"}, FAIL,
         "no node of those by TRAINBENCH_NODE_SELECTOR=pool=a is ready and has allocatable amd.com/gpu"),
    ],
)  # fmt: skip
def test_gpus_are_counted_by_kind_and_what_is_missing_is_named(
    nodes: tuple[dict[str, Any], ...], environ: dict[str, str], state: CheckState, text: str, ask: Ask
) -> None:
    checked = check("GPUs", ask(FakeCluster(listed=nodes), **environ))
    assert checked.state is state
    assert text in checked.sentences


@pytest.mark.parametrize(
    ("image", "state"),
    [
        ("registry/bench:1", OK), ("registry:5000/bench", WARN), ("registry/bench:latest", WARN),
        ("registry/bench@sha256:abc", OK),
    ],
)  # fmt: skip
def test_an_image_without_a_fixed_version_is_named(image: str, state: CheckState, ask: Ask) -> None:
    assert check("image", ask(IMAGE=image)).state is state


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ({"clusterIP": "10.0.0.1"}, "clusterIP is not None"),
        ({"publishNotReadyAddresses": False}, "publishNotReadyAddresses is not true"),
        ({"selector": {"app": "x"}}, "its selector is not"),
        ({"ports": [{"port": 80}]}, "it has no port 29500"),
    ],
)
def test_a_service_by_which_no_gang_could_meet(fault: dict[str, Any], named: str, ask: Ask) -> None:
    checked = check("Service", ask(FakeCluster(of_service=SERVICE | fault)))
    assert checked.state is FAIL
    assert named in checked.summary


def test_the_sample_is_the_nightly_checks_pod_on_a_node_that_is_there() -> None:
    (pod,) = sample_pods(read_settings({}), Fleet(nodes=(GpuNode(name="gpu-7", num_gpus=8),))).values()
    assert pod["metadata"]["labels"]["trainbench.io/node"] == "gpu-7"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_what_the_probe_finds_is_said_and_it_is_deleted_whatever_that_is(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "WAIT_S", 0.0)
    blind = MARK + '{"resolves": false, "address": "Name or service not known", "gpus": []}'
    good, bad, silent = FakeCluster(), FakeCluster(output=blind), FakeCluster(phase="Pending")
    states = [
        (probed.state, probed.summary)
        for probed in (check("probe", ask(cluster, probe=True)) for cluster in (good, bad, silent))
    ]
    assert states[:2] == [
        (OK, "a pod on gpu-0 found its own name by the Service, at 10.0.0.9, and sees GPU 0: H200"),
        (FAIL, "a pod on gpu-0 did not find its own name by the Service: Name or service not known and has a GPU by "
               "its manifest, and no nvidia-smi that lists one"),
    ]  # fmt: skip
    assert states[2][0] is FAIL
    assert good.deleted == bad.deleted == silent.deleted == ["uid-1"]


def test_the_probe_is_over_when_its_program_is_whatever_else_runs_on_in_the_pod(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mesh's container keeps the phase at Running: the probe was waited for ten minutes, and called failed."""
    monkeypatch.setattr(doctor.time, "sleep", lambda _: pytest.fail("it waited"))
    beside_a_mesh = FakeCluster(phase="Running", exit_code=0)
    assert check("probe", ask(beside_a_mesh, probe=True)).state is OK
    assert beside_a_mesh.deleted == ["uid-1"]


# --- the installation -------------------------------------------------------------------------------------------------


def examined(row: Row, settings: Settings, asks_airflow: bool = True) -> Check:
    return row.answer(Site(settings, None, asks_airflow))


def test_a_connection_that_is_not_there() -> None:
    checked = examined(doctor.AIRFLOW, read_settings({"TRAINBENCH_KUBERNETES_CONNECTION": "nowhere"}))
    assert checked.state is FAIL
    assert "nowhere" in checked.summary


@pytest.mark.parametrize(("free_gb", "state"), [(0.6, OK), (0.1, FAIL)])
def test_a_store_on_a_disk(free_gb: float, state: CheckState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free_gb * 1e9))
    checked = examined(doctor.STORE, read_settings({"TRAINBENCH_STORE": str(tmp_path)}))
    assert (checked.state, checked.summary) == (state, f"{tmp_path}: written, read and deleted; {free_gb:.1f} GB free")


@pytest.mark.parametrize(("launcher", "state"), [("kubernetes", WARN), ("local", OK)])
def test_the_default_folder_is_no_store_for_several_workers(
    launcher: str, state: CheckState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINBENCH_STORE", raising=False)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**12))
    assert examined(doctor.STORE, read_settings({"TRAINBENCH_LAUNCHER": launcher})).state is state


def history(tmp_path: Path, url: str | None = None) -> Check:
    environ = {"TRAINBENCH_STORE": str(tmp_path / "store")} | ({"TRAINBENCH_HISTORY_URL": url} if url else {})
    return examined(doctor.HISTORY, read_settings(environ))


def test_a_history_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    checked = history(tmp_path)
    assert checked.state is OK
    assert "is empty: the first run makes its tables" in checked.summary
    assert list(tmp_path.iterdir()) == []


def test_the_revision_of_a_history_is_read_and_a_later_one_is_not_known(tmp_path: Path) -> None:
    from sqlalchemy import create_engine, text

    open_history(None, open_store(str(tmp_path / "store")))
    known = history(tmp_path)
    assert (known.state, known.summary.endswith(f", revision {REVISION}")) == (OK, True)
    with create_engine(f"sqlite:///{tmp_path / 'store' / 'history.sqlite'}").begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    later = history(tmp_path)
    assert later.state is FAIL
    assert "is at revision 9999, which this version does not know" in later.summary


def test_a_history_that_does_not_answer_is_named_without_user_and_sql(tmp_path: Path) -> None:
    away = history(tmp_path, "postgresql+psycopg://bob@127.0.0.1:1/db?password=secret")
    assert away.state is FAIL
    assert away.summary.startswith("postgresql://127.0.0.1:1/db: connection failed: ")
    (tmp_path / "h.db").write_text("this is no database")
    assert history(tmp_path, f"sqlite:///{tmp_path / 'h.db'}").summary.endswith("h.db: file is not a database")


def test_the_interpreter_lists_its_modules_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing deepspeed costs two strategies, any other module all; without an interpreter nothing runs."""
    monkeypatch.setattr(doctor, "IMAGE_MODULES", ("torch_of_test", "deepspeed"))

    def interpreter(python: str = sys.executable) -> tuple[CheckState, str]:
        settings = read_settings({"TRAINBENCH_LAUNCHER": "local"})
        image = LocalImage(python=python, pythonpath=str(tmp_path))
        monkeypatch.setattr(type(settings), "local_image", property(lambda _: image))
        checked = examined(doctor.HERE[0], settings)
        return checked.state, checked.summary.removeprefix(f"{python}")

    assert interpreter() == (FAIL, " lacks torch_of_test")
    (tmp_path / "torch_of_test.py").write_text("raise SystemExit('imported')")
    assert interpreter() == (WARN, " lacks deepspeed: zero2 and zero3 cannot run")
    (tmp_path / "deepspeed.py").write_text("raise SystemExit('imported')")
    assert interpreter() == (OK, f", Python {'.'.join(map(str, sys.version_info[:3]))}, has the training stack")
    assert interpreter(str(tmp_path / "none"))[0] is FAIL
    (tmp_path / "broken").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "broken").chmod(0o755)
    state, summary = interpreter(str(tmp_path / "broken"))
    assert state is FAIL
    assert summary.startswith(" does not run: ")


BOX = GpuNode(name="box", num_gpus=8, gpu_product="NVIDIA H200", gpu_memory_bytes=150_754_820_096)


@pytest.mark.parametrize(
    ("gpus", "summary"),
    [
        (None, "nvidia-smi lists none: only trials on the CPU can run here"),
        (
            BOX,
            "8 x NVIDIA H200, 150.8 GB each",
        ),
    ],
)
def test_a_machine_without_a_visible_gpu_is_ready_for_trials_and_says_so(
    gpus: GpuNode | None, summary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "visible_gpus", lambda: gpus)
    settings = read_settings({"TRAINBENCH_LAUNCHER": "local", "TRAINBENCH_LOCAL_PYTHON": sys.executable})
    checked = examined(doctor.HERE[1], settings)
    assert (checked.state, checked.summary) == (OK, summary)


def test_a_channel_that_cannot_work_is_a_warning_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/dag/test_notifiers.py has the problems of a connection."""
    telling = read_settings({}).model_copy(update={"notify": (Webhook(kind="webhook", connection="oncall"),)})
    unread = examined(doctor.CHANNELS, telling, asks_airflow=False)
    assert (unread.state, unread.summary) == (OK, "webhook:oncall; their connections were not looked at")
    for problem, state in ((None, OK), ("the connection 'oncall' cannot be read", WARN)):
        monkeypatch.setattr(doctor, "channel_problem", lambda _, problem=problem: problem)
        checked = examined(doctor.CHANNELS, telling)
        assert (checked.state, checked.summary) == (state, f"webhook:oncall{f': {problem}' if problem else ''}")
