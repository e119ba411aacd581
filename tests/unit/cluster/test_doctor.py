"""Facts in, checks out: every fault is named, with what to do; a ready installation has nothing to say."""

from __future__ import annotations

from typing import Any

import pytest

from trainbench.cluster.cluster_facts import Admission, ClusterFacts, Misfit, Refusal, ServiceFacts
from trainbench.cluster.doctor import checks, refusal, table, verdict
from trainbench.cluster.doctor_check import Check, CheckState
from trainbench.cluster.doctor_facts import Facts
from trainbench.cluster.installation_facts import (
    AirflowFacts,
    ChannelFacts,
    HistoryFacts,
    ImageFacts,
    StoreFacts,
    Unknown,
    UnsentFacts,
)
from trainbench.cluster.kubernetes_api import NEEDED
from trainbench.cluster.local_nodes import LocalGpus
from trainbench.cluster.probe_pod import ProbeFacts
from trainbench.core.tables import Tone
from trainbench.planning.nodes import AbsentNode, Fleet, GpuNode
from trainbench.settings.channels import Webhook
from trainbench.settings.environment import read_settings

H200 = {"num_gpus": 8, "gpu_product": "NVIDIA-H200", "gpu_memory_bytes": 143_771 * 2**20}
FLEET = Fleet(nodes=tuple(GpuNode(name=f"gpu-{i}", **H200) for i in range(3)))
SERVICE = ServiceFacts(
    is_headless=True, publishes_not_ready=True, selector={"trainbench.io/rendezvous": "true"}, ports=(29500,)
)
ACCEPTED = Admission(pod="a pod", refusal=None, priority=-1000, preemption_policy="Never")
KUBERNETES = read_settings({"TRAINBENCH_PRIORITY_CLASS": "trainbench-benchmark", "TRAINBENCH_STORE": "s3://b/store"})
LOCAL = read_settings({"TRAINBENCH_LAUNCHER": "local"})


def cluster(**changes: Any) -> ClusterFacts:
    fields: dict[str, Any] = {
        "version": "v1.33.13",
        "identity": "system:serviceaccount:trainbench:trainbench-airflow",
        "missing": (),
        "fleet": FLEET,
        "num_with_image": 3,
        "service": SERVICE,
        "admissions": (ACCEPTED,),
    }
    return ClusterFacts(**fields | changes)


def airflow(**changes: Any) -> AirflowFacts:
    fields: dict[str, Any] = {
        "version": "3.3.2",
        "provider": "10.25.0",
        "connection_id": "kubernetes_default",
        "kube_config_path": None,
    }
    return AirflowFacts(**fields | changes)


def facts(**changes: Any) -> Facts:
    fields: dict[str, Any] = {
        "settings": KUBERNETES,
        "airflow": airflow(),
        "cluster": cluster(),
        "probe": ProbeFacts(node="gpu-0", name="p", resolves=True, address="10.0.0.9", gpus=("GPU 0: NVIDIA H200",)),
        "store": StoreFacts(address="s3://b/store", is_local=False, is_chosen=True, free_bytes=None),
        "history": HistoryFacts(where="postgresql://h", revision="0001_history", is_known=True),
    }
    return Facts(**fields | changes)


def check(name: str, **changes: Any) -> Check:
    return next(each for each in checks(facts(**changes)) if each.name == name)


def refused(message: str, status: int = 403) -> Any:
    return cluster(admissions=(Admission(pod="a pod", refusal=Refusal(status=status, message=message)),))


def missing(*names: str) -> Any:
    return tuple(permission for permission in NEEDED if permission.name in names)


def test_a_ready_installation() -> None:
    all_checks = checks(facts())
    assert [c.name for c in all_checks if c.state is not CheckState.OK] == []
    assert {c.name for c in all_checks} == {
        "cluster", "permissions", "pod", "priority class", "room", "GPUs", "image", "Service", "DNS", "driver",
        "Airflow", "connection", "store", "history",
    }  # fmt: skip
    assert all(c.resolution == "" for c in all_checks)
    assert (refusal(all_checks), verdict(all_checks)) == (None, "Ready.")


def test_every_fault_says_what_to_do() -> None:
    bad = facts(
        cluster=cluster(
            missing=missing("create pods"),
            fleet=Fleet(),
            service=Refusal(status=404, message="not found"),
            num_with_image=0,
        ),
        airflow=airflow(provider="10.1.0"),
        store=Unknown(reason="no"),
        history=Unknown(reason="no"),
    )
    failed = [c for c in checks(bad) if c.state is CheckState.FAIL]
    assert [c.name for c in failed] == ["permissions", "GPUs", "Service", "Airflow", "store", "history"]
    assert all(c.resolution for c in failed)


def test_without_a_cluster_one_line_stands_for_all_of_it() -> None:
    reason = "no Kubernetes API at https://10.0.0.1:6443: [Errno 111] Connection refused"
    all_checks = checks(facts(cluster=Unknown(reason=reason), probe=None))
    assert [c.name for c in all_checks] == ["cluster", "Airflow", "connection", "store", "history"]
    assert refusal(all_checks) == (
        "cluster: no Kubernetes API at https://10.0.0.1:6443: [Errno 111] Connection refused. "
        "Check the connection 'kubernetes_default', the network and the API server."
    )


def test_the_refusal_is_one_sentence_with_the_names_of_the_rest() -> None:
    all_checks = checks(facts(cluster=cluster(missing=missing("create pods"), fleet=Fleet())))
    assert refusal(all_checks) == (
        "permissions: not allowed: create pods (to start a benchmark). Grant it to "
        "system:serviceaccount:trainbench:trainbench-airflow: apply the deployment's manifests (docs/deploy.md). "
        "Also not ready: GPUs."
    )
    assert verdict(all_checks) == "Not ready: permissions, GPUs."


EVERYTHING = missing(*(permission.name for permission in NEEDED))


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        (Refusal(status=404, message='namespaces "trainbench" not found'), "there is no namespace 'trainbench'"),
        (
            Refusal(status=403, message='namespaces "trainbench" is forbidden'),
            "nothing is allowed in the namespace 'trainbench': either it does not exist, or no right in it is bound to "
            "system:serviceaccount:trainbench:trainbench-airflow",
        ),
    ],
)
def test_a_namespace_that_does_not_exist_is_not_reported_as_missing_rights(answer: Refusal, summary: str) -> None:
    """Audit K15: the API server looks at rights before it looks for the namespace."""
    all_checks = checks(
        facts(cluster=cluster(missing=EVERYTHING, namespace=answer, admissions=refused("cannot").admissions))
    )
    failed = [c for c in all_checks if c.state is CheckState.FAIL]
    assert [(c.name, c.summary) for c in failed] == [("namespace", summary)]
    assert "TRAINBENCH_NAMESPACE" in failed[0].resolution


def test_a_namespace_that_exists_and_grants_nothing_is_reported_as_missing_rights() -> None:
    assert check("permissions", cluster=cluster(missing=EVERYTHING)).state is CheckState.FAIL


@pytest.mark.parametrize(
    ("names", "state"),
    [
        (("get pods/log",), CheckState.FAIL),
        (("get services",), CheckState.WARN),
        (("list nodes",), CheckState.FAIL),
    ],
)
def test_a_missing_right_matters_as_much_as_what_it_is_for(names: tuple[str, ...], state: CheckState) -> None:
    checked = check("permissions", cluster=cluster(missing=missing(*names)))
    assert checked.state is state
    assert all(name in checked.summary for name in names)


def test_with_a_plan_the_nodes_need_not_be_listed_any_more() -> None:
    blind = cluster(missing=missing("list nodes"), fleet=Refusal(status=403, message="nodes is forbidden"))
    assert check("permissions", cluster=blind, has_plan=True).state is CheckState.WARN
    assert check("GPUs", cluster=blind, has_plan=True).state is CheckState.UNKNOWN
    assert check("GPUs", cluster=blind).state is CheckState.FAIL


SAID = [
    ('namespaces "trainbench" not found', 404, "namespace"),
    ('pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', 403, "pod security"),
    ('pods "x" is forbidden: no PriorityClass with name trainbench-benchmark was found', 403, "priority class"),
    ('pods "x" is forbidden: pod rejected: RuntimeClass "gpu" not found', 403, "runtime class"),
    ('pods "x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8', 403, "quota"),
    ('pods "x" is forbidden: error looking up service account trainbench/b: serviceaccount "b" not found', 403,
     "service account"),
    ('admission webhook "validate.kyverno.svc" denied the request: no tag', 400, "admission"),
    ('pods is forbidden: User "system:serviceaccount:a:b" cannot create resource "pods" in API group ""', 403, "pod"),
    ('Pod "x" is invalid: spec.containers[0].image: Required value', 422, "pod"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "status", "name"), SAID)
def test_the_api_servers_no_is_understood(message: str, status: int, name: str) -> None:
    checked = check(name, cluster=refused(message, status))
    assert checked.state is CheckState.FAIL
    assert message in checked.summary
    assert checked.resolution


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_a_server_that_is_busy_has_not_refused(status: int) -> None:
    assert check("pod", cluster=refused("try again", status)).state is CheckState.UNKNOWN


@pytest.mark.parametrize(
    ("priority", "policy", "state"),
    [
        (-1000, "Never", CheckState.OK),
        (0, "Never", CheckState.OK),
        (1000, "Never", CheckState.WARN),
        (-1000, "PreemptLowerPriority", CheckState.WARN),
        (None, None, CheckState.OK),
    ],
)
def test_a_benchmark_displaces_nobody(priority: int | None, policy: str | None, state: CheckState) -> None:
    admitted = Admission(pod="a pod", refusal=None, priority=priority, preemption_policy=policy)
    assert check("priority class", cluster=cluster(admissions=(admitted,))).state is state


def test_a_missing_priority_class_is_reported() -> None:
    checked = check("priority class", settings=read_settings({}))
    assert checked.state is CheckState.WARN
    assert "TRAINBENCH_PRIORITY_CLASS" in checked.resolution


def test_gpus_are_counted_by_kind() -> None:
    a100 = {"num_gpus": 4, "gpu_product": "NVIDIA-A100", "gpu_memory_bytes": 1}
    mixed = Fleet(nodes=(*FLEET.nodes, *(GpuNode(name=f"a-{i}", **a100) for i in range(3))))
    checked = check("GPUs", cluster=cluster(fleet=mixed))
    assert checked.state is CheckState.OK
    assert checked.summary == "6 nodes with 36 GPUs: 3 x 8 NVIDIA-H200 and 3 x 4 NVIDIA-A100"
    few = check("GPUs", cluster=cluster(fleet=Fleet(nodes=mixed.nodes[:4])))
    assert few.state is CheckState.WARN
    assert "fewer than 3 nodes of NVIDIA-A100" in few.summary


def test_a_second_resource_of_a_node_is_named_for_it_is_not_benchmarked() -> None:
    mixed = GpuNode(name="gpu-9", **H200, other_gpu_resources=("nvidia.com/mig-1g.10gb",))
    checked = check("GPUs", cluster=cluster(fleet=Fleet(nodes=(*FLEET.nodes, mixed))))
    assert checked.state is CheckState.WARN
    assert "also offered, and not benchmarked: gpu-9: nvidia.com/mig-1g.10gb" in checked.summary


def test_an_empty_fleet_names_resources_and_selector() -> None:
    chosen = read_settings({"TRAINBENCH_GPU_RESOURCES": "amd.com/gpu", "TRAINBENCH_NODE_SELECTOR": "pool=a"})
    checked = check("GPUs", settings=chosen, cluster=cluster(fleet=Fleet()))
    assert (
        checked.summary
        == "no node of those by TRAINBENCH_NODE_SELECTOR=pool=a is ready and has allocatable amd.com/gpu"
    )


def test_a_node_whose_taint_the_pods_do_not_tolerate_leads_to_the_template() -> None:
    taint = "its taint dedicated=ml:NoSchedule is not tolerated"
    misfit = Misfit(node="gpu-1", short=taint, is_refused=True)
    checked = check("room", cluster=cluster(admissions=(ACCEPTED.model_copy(update={"misfits": (misfit,)}),)))
    assert checked.state is CheckState.WARN
    assert f"gpu-1: {taint}" in checked.summary
    assert "docs/pod-template.md" in checked.resolution


def test_nodes_that_are_missing_are_named_and_those_taken_out_on_purpose_are_no_fault() -> None:
    broken = AbsentNode(name="gpu-9", reason="not ready: kubelet stopped", expected=True)
    spared = AbsentNode(name="gpu-8", reason="in quarantine: fan", expected=False)
    checked = check("GPUs", cluster=cluster(fleet=Fleet(nodes=FLEET.nodes, absent=(spared, broken))))
    assert checked.state is CheckState.WARN
    assert "gpu-9: not ready: kubelet stopped" in checked.summary
    assert check("GPUs", cluster=cluster(fleet=Fleet(nodes=FLEET.nodes, absent=(spared,)))).state is CheckState.OK
    none = check("GPUs", cluster=cluster(fleet=Fleet(absent=(broken,))))
    assert none.state is CheckState.FAIL
    assert "gpu-9: not ready" in none.resolution


def test_without_labels_nothing_is_known_of_a_gpus_memory() -> None:
    checked = check("GPUs", cluster=cluster(fleet=Fleet(nodes=(GpuNode(name="gpu-0", num_gpus=1),))))
    assert checked.state is CheckState.WARN
    assert "feature discovery" in checked.resolution


@pytest.mark.parametrize(
    ("image", "num_with_image", "state"),
    [
        ("registry/bench:1", 3, CheckState.OK),
        ("registry/bench:1", 1, CheckState.UNKNOWN),
        ("registry:5000/bench", 3, CheckState.WARN),
        ("registry/bench:latest", 3, CheckState.WARN),
        ("registry/bench@sha256:abc", 3, CheckState.OK),
    ],
)
def test_the_image(image: str, num_with_image: int, state: CheckState) -> None:
    settings = read_settings({"TRAINBENCH_IMAGE": image})
    assert check("image", settings=settings, cluster=cluster(num_with_image=num_with_image)).state is state


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ({"is_headless": False}, "clusterIP is not None"),
        ({"publishes_not_ready": False}, "publishNotReadyAddresses is not true"),
        ({"selector": {"app": "x"}}, "its selector is not"),
        ({"ports": (80,)}, "it has no port 29500"),
    ],
)
def test_a_service_by_which_no_gang_could_meet(fault: dict[str, Any], named: str) -> None:
    checked = check("Service", cluster=cluster(service=SERVICE.model_copy(update=fault)))
    assert checked.state is CheckState.FAIL
    assert named in checked.summary


def test_only_gangs_need_the_service() -> None:
    gone = cluster(service=Refusal(status=404, message='services "trainbench-rendezvous" not found'))
    assert check("Service", cluster=gone).state is CheckState.FAIL
    assert check("Service", cluster=gone, needs_service=False).state is CheckState.WARN
    unread = cluster(service=Refusal(status=403, message="forbidden"))
    assert check("Service", cluster=unread).state is CheckState.UNKNOWN


def test_what_the_probe_finds() -> None:
    assert check("DNS", probe=None).state is CheckState.UNKNOWN
    blind = ProbeFacts(node="gpu-1", name="p", resolves=False, address="Name or service not known", gpus=())
    assert check("DNS", probe=blind).state is CheckState.FAIL
    assert check("driver", probe=blind).state is CheckState.FAIL
    no_image = check("probe", probe=Unknown(reason="the image 'x' of container 'base' cannot be pulled"))
    assert no_image.state is CheckState.FAIL


def test_two_ways_to_the_cluster_at_once_are_an_error() -> None:
    checked = check("connection", kubeconfig_env="/root/.kube/config", airflow=airflow(kube_config_path="/etc/kube"))
    assert checked.state is CheckState.FAIL
    assert checked.resolution == "unset KUBECONFIG where Airflow runs"
    assert check("connection", kubeconfig_env="/root/.kube/config").state is CheckState.OK


@pytest.mark.parametrize(
    ("versions", "state"),
    [
        ({"version": "3.10.0", "provider": "11.0.0"}, CheckState.OK),
        ({"version": "3.2.9"}, CheckState.FAIL),
        ({"provider": "10.9.0"}, CheckState.FAIL),
        ({"provider": None}, CheckState.FAIL),
    ],
)
def test_versions_are_compared_as_numbers(versions: dict[str, Any], state: CheckState) -> None:
    assert check("Airflow", airflow=airflow(**versions)).state is state


def test_a_connection_that_is_not_there() -> None:
    checked = check("Airflow", airflow=Unknown(reason="The conn_id `gpu` isn't defined"))
    assert checked.state is CheckState.FAIL


@pytest.mark.parametrize(
    ("free_gb", "is_chosen", "state"),
    [
        (100, True, CheckState.OK),
        (5, True, CheckState.WARN),
        (0.1, True, CheckState.FAIL),
        (100, False, CheckState.WARN),
    ],
)
def test_a_store_on_a_disk(free_gb: float, is_chosen: bool, state: CheckState) -> None:
    store = StoreFacts(address="/store", is_local=True, is_chosen=is_chosen, free_bytes=int(free_gb * 1e9))
    assert check("store", store=store).state is state
    if not is_chosen:
        assert check("store", store=store, settings=LOCAL).state is CheckState.OK


@pytest.mark.parametrize(
    ("revision", "is_known", "state", "message"),
    [
        (None, True, CheckState.OK, "the first run makes its tables"),
        ("0001_history", True, CheckState.OK, "revision 0001_history"),
        ("9999", False, CheckState.FAIL, "which this version does not know"),
    ],
)
def test_the_historys_revision(revision: str | None, is_known: bool, state: CheckState, message: str) -> None:
    checked = check("history", history=HistoryFacts(where="db", revision=revision, is_known=is_known))
    assert checked.state is state
    assert message in checked.summary


@pytest.mark.parametrize(
    ("image", "state"),
    [
        (ImageFacts(python="/p", version="3.11.7"), CheckState.OK),
        (ImageFacts(python="/p", version="3.11.7", missing=("torch",)), CheckState.FAIL),
        (ImageFacts(python="/p", version="3.11.7", missing=("torch", "deepspeed")), CheckState.FAIL),
        (ImageFacts(python="/p", version="3.11.7", missing=("deepspeed",)), CheckState.WARN),
        (ImageFacts(python="/p", version=None), CheckState.FAIL),
        (Unknown(reason="exit status 1"), CheckState.FAIL),
    ],
)
def test_the_local_launcher_needs_an_interpreter_and_no_cluster(image: Any, state: CheckState) -> None:
    all_checks = checks(facts(settings=LOCAL, cluster=None, airflow=None, probe=None, image=image))
    assert [c.name for c in all_checks if c.name != "GPUs"] == ["interpreter", "store", "history"]
    assert all_checks[0].state is state


def test_a_machine_without_a_visible_gpu_is_ready_for_trials_and_says_so() -> None:
    h200 = LocalGpus(count=8, product="NVIDIA H200", memory_bytes=150_754_820_096)
    of = {gpus: ImageFacts(python="/p", version="3.11.7", gpus=gpus) for gpus in (None, h200)}
    rows = [
        checks(facts(settings=LOCAL, cluster=None, airflow=None, probe=None, image=image))[1] for image in of.values()
    ]
    assert [row.summary for row in rows] == [
        "nvidia-smi lists none: only trials on the CPU can run here",
        "8 x NVIDIA H200, 150.8 GB each",
    ]


def test_the_table_reads_without_colour() -> None:
    all_checks = checks(facts(cluster=cluster(fleet=Fleet()), probe=None))
    rows = {row.texts[1]: row for row in table(all_checks).rows}
    assert rows["GPUs"].texts[0] == "✗"
    assert rows["GPUs"].tone is Tone.BAD
    assert rows["GPUs"].texts[2] == (
        "no node is ready and has allocatable nvidia.com/gpu. Install the vendor's GPU operator, or its device plugin."
    )
    assert rows["DNS"].texts[0] == "?"
    assert verdict(all_checks) == "Not ready: GPUs."


# --- channels of notices ----------------------------------------------------------------------------------------------

TELLING = KUBERNETES.model_copy(update={"notify": (Webhook(kind="webhook", connection="oncall"),)})


def notices_check(**changes: Any) -> Check:
    there = (ChannelFacts(name="webhook:oncall", problem=None),)
    return check("notifications", **{"settings": TELLING, "channels": there} | changes)


def test_channels_whose_connections_are_there() -> None:
    assert notices_check().state is CheckState.OK
    assert notices_check(channels=None).summary == "webhook:oncall; their connections were not looked at"


def test_a_channel_that_cannot_work_is_a_warning_and_stops_nothing() -> None:
    problem = "the connection 'oncall' cannot be read: it isn't defined"
    checked = notices_check(channels=(ChannelFacts(name="webhook:oncall", problem=problem),))

    assert (checked.state, checked.summary) == (CheckState.WARN, f"webhook:oncall: {problem}")
    assert "TRAINBENCH_NOTIFY" in checked.resolution
    assert notices_check(channels=Unknown(reason="no")).state is CheckState.WARN


def test_unsent_notices_are_reported() -> None:
    checked = notices_check(unsent=UnsentFacts(notices=("webhook:oncall: node-3 (breach opened), TimeoutError",)))

    assert checked.state is CheckState.WARN
    assert "not sent: webhook:oncall: node-3 (breach opened), TimeoutError" in checked.summary


SHORT = "cpu: requested 2.001 (base 2, proxy 0.001), allocatable 2"


@pytest.mark.parametrize(
    ("short_nodes", "state", "where"),
    [
        ((), CheckState.OK, "a pod would fit each of 3 nodes when it is empty"),
        (("gpu-1",), CheckState.WARN, f"a pod would not fit gpu-1 even when empty; gpu-1: {SHORT}"),
        (
            ("gpu-0", "gpu-1", "gpu-2"),
            CheckState.FAIL,
            f"a pod would not fit any of 3 nodes even when empty; gpu-0: {SHORT}",
        ),
    ],
)
def test_a_pod_that_fits_no_empty_node_is_refused_before_it_waits_for_ever(
    short_nodes: tuple[str, ...], state: CheckState, where: str
) -> None:
    """One node that is too small is a warning: the others are benchmarked."""
    misfits = tuple(Misfit(node=node, short=SHORT) for node in short_nodes)
    checked = check("room", cluster=cluster(admissions=(ACCEPTED.model_copy(update={"misfits": misfits}),)))

    assert checked.state is state
    assert checked.summary.startswith(where)
    assert ("LimitRange" in checked.resolution) is bool(short_nodes)
