"""The template reaches every pod as the provider would merge it, and takes nothing from the benchmark."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
from kubernetes.client import ApiClient

from bench_image.contract.pod_io import TEMPLATE_ENV
from bench_image.contract.spec import RunSpec
from tests.builders import make_spec
from trainbench.pods.manifests import Owner, PodSettings, manifest, manifests, node_of
from trainbench.pods.pod_template import PodTemplateError, digest, read_template

Template = Callable[[dict[str, Any] | str], PodSettings]
GANG = make_spec(node="gpu-0", nodes=2, peers=("gpu-1",), strategy="ddp")
EVERY_SETTING = {
    "priority_class": "low",
    "service_account": "bench",
    "image_pull_secret": "registry",
    "memory_gib": 64,
    "volumes": ({"mount_path": "/data", "source": {"emptyDir": {}}},),
    "compile_cache": {"persistentVolumeClaim": {"claimName": "kernels"}},
}


@pytest.fixture
def template(tmp_path: Path) -> Template:
    def settings(pod: dict[str, Any] | str) -> PodSettings:
        path = tmp_path / "template.yaml"
        text = pod if isinstance(pod, str) else yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **pod})
        path.write_text(text)
        return PodSettings(**EVERY_SETTING, pod_template=path)

    return settings


def base(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "base", **fields}]}}


def test_it_reaches_the_pod_beside_what_the_benchmark_sets(template: Template) -> None:
    settings = template(
        {
            "metadata": {"labels": {"team": "ml"}, "annotations": {"k8s.v1.cni.cncf.io/networks": "a/ib0"}},
            "spec": {
                "runtimeClassName": "nvidia",
                "schedulerName": "bin-packer",
                "nodeSelector": {"pool": "gpu"},
                "hostNetwork": True,
                "tolerations": [{"key": "dedicated", "operator": "Exists"}],
                "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
                "initContainers": [{"name": "warm", "image": "busybox", "command": ["true"]}],
                "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}],
                "containers": [
                    {
                        "name": "base",
                        "imagePullPolicy": "Always",
                        "env": [{"name": "TRAINBENCH_TRACES", "value": "/traces"}],
                        "envFrom": [{"configMapRef": {"name": "nccl"}}],
                        "resources": {"limits": {"rdma/hca": 1}, "requests": {"cpu": 16}},
                        "volumeMounts": [
                            {"name": "models", "mountPath": "/models", "subPath": "llama", "readOnly": True}
                        ],
                    }
                ],
            },
        }
    )
    plain = manifest(make_spec(), settings.model_copy(update={"pod_template": None}))
    pod = manifest(make_spec(), settings)
    kubernetes_validate.validate(pod, "1.33", strict=True)
    spec, container = pod["spec"], pod["spec"]["containers"][0]

    assert pod["metadata"]["labels"] == plain["metadata"]["labels"] | {"team": "ml"}
    assert pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "a/ib0"
    assert (spec["runtimeClassName"], spec["schedulerName"], spec["hostNetwork"]) == ("nvidia", "bin-packer", True)
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert [toleration["key"] for toleration in spec["tolerations"]] == [
        "dedicated", "nvidia.com/gpu", "trainbench.io/breach",
    ]  # fmt: skip
    assert (node_of(pod), "podAntiAffinity" in spec["affinity"]) == ("node-1", True)
    assert [volume["name"] for volume in spec["volumes"]] == [
        "models", "shm", "scratch", "results", "data-0", "kernels",
    ]  # fmt: skip
    assert [init["name"] for init in spec["initContainers"]] == ["warm"]
    assert container["env"][0] == {"name": "TRAINBENCH_TRACES", "value": "/traces"}
    assert container["env"][1:-1] == plain["spec"]["containers"][0]["env"]
    assert container["resources"] == {
        "limits": {"rdma/hca": "1", "nvidia.com/gpu": "1", "memory": "64Gi"},
        "requests": {"cpu": "16"},
    }
    assert container["volumeMounts"][0]["subPath"] == "llama"
    assert container["securityContext"] == plain["spec"]["containers"][0]["securityContext"]


def test_without_a_template_the_pod_is_the_same_as_with_an_empty_one(template: Template) -> None:
    settings = template({})
    without = settings.model_copy(update={"pod_template": None})

    assert manifests(GANG, settings) == manifests(GANG, without)


def test_a_security_context_replaces_the_benchmark_s_as_a_whole(template: Template) -> None:
    """So that OpenShift's constraint may choose the user id."""
    spec = manifest(make_spec(), template({"spec": {"securityContext": {"runAsNonRoot": True}}}))["spec"]

    assert spec["securityContext"] == {"runAsNonRoot": True}


def test_the_merge_is_the_provider_s_own_where_it_keeps_one_of_two(template: Template) -> None:
    """The merged pod is the provider's for the same two pods, except for tolerations, affinity and resources: of those
    the provider keeps one side, and both are needed.
    """
    text = {"metadata": {"labels": {"team": "ml"}}, **base(env=[{"name": "NCCL_DEBUG", "value": "INFO"}])}
    settings = template(text)
    plain = manifest(make_spec(), settings.model_copy(update={"pod_template": None}))
    own = {"name": TEMPLATE_ENV, "value": digest(settings.pod_template or Path())}
    plain["spec"]["containers"][0]["env"].append(own)
    models = [PodGenerator.deserialize_model_dict(pod) for pod in (text, plain)]

    assert manifest(make_spec(), settings) == ApiClient().sanitize_for_serialization(
        PodGenerator.reconcile_pods(*models)
    )


# ---------------------------------------------------------------- what it must not say


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """(path, value) of everything that a pod sets; of lists only the benchmark's container is followed."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif path == ("spec", "containers"):
        yield from leaves(value[0], (*path, 0))
    else:
        yield path, value


def only(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """A pod that sets this one field, and what the schema requires beside it."""
    nested = value
    for key in reversed(path):
        nested = {key: nested} if isinstance(key, str) else [{"name": "base"} | nested]
    return copy.deepcopy(nested)


FREE = {"tolerations", "enableServiceLinks", "securityContext"}  # joined, or the template's to choose


@pytest.mark.parametrize("spec", [make_spec(), GANG], ids=["single", "gang"])
def test_nothing_that_the_benchmark_sets_can_be_set_by_the_template(spec: RunSpec, template: Template) -> None:
    plain = manifest(spec, template({}).model_copy(update={"pod_template": None}), Owner(dag_id="d", dag_run_id="r"))
    tried = []
    for path, value in leaves({"metadata": plain["metadata"], "spec": plain["spec"]}):
        if FREE & set(path) or (path[-1] == "name" and path[-2:-1] == (0,)):
            continue
        with pytest.raises(PodTemplateError, match=str(path[1]).split("/")[0]):
            manifest(spec, template(only(path, value)))
        tried.append(path[-1])

    assert {"nvidia.com/gpu", "memory", "env", "volumeMounts", "volumes", "restartPolicy", "image"} <= set(tried)


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        ({"spec": {"nodeName": "gpu-7"}}, "spec.nodeName: the plan pins each pod"),
        ({"spec": {"hostPID": True}}, "spec.hostPID: programs of the node or of another container"),
        ({"spec": {"hostNetwork": True, "dnsPolicy": "Default"}}, "spec.dnsPolicy: with hostNetwork"),
        ({"spec": {"automountServiceAccountToken": True}}, "get no token"),
        ({"spec": {"affinity": {"nodeAffinity": {}}}}, "spec.affinity.nodeAffinity: the plan pins"),
        ({"metadata": {"name": "mine"}}, "metadata.name: only labels and annotations"),
        ({"metadata": {"finalizers": ["a/b"]}}, "metadata.finalizers: only labels and annotations"),
        ({"metadata": {"labels": {"dag_id": "x"}}}, "metadata.labels.dag_id"),
        ({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": "x"}}}, "pod-group-name"),
        (base(command=["sleep"]), r"spec.containers\[0\].command: the benchmark's own program"),
        (base(livenessProbe={"exec": {"command": ["true"]}}), "livenessProbe: it would run or stop"),
        (base(env=[{"name": "RANK", "value": "0"}]), r"env\[0\]: RANK is set by the program"),
        (base(env=[{"name": "A", "value": "1"}, {"name": "PET_NNODES", "value": "2"}]), r"env\[1\]: PET_NNODES"),
        (base(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]), "CUDA_VISIBLE_DEVICES"),
        (base(resources={"limits": {"nvidia.com/mig-1g.5gb": 1}}), "mig-1g.5gb: each run sets how many"),
        (base(resources={"limits": {"memory": "4Gi"}}), "memory: set TRAINBENCH_MEMORY_GIB"),
        (base(volumeMounts=[{"name": "x", "mountPath": "/results/x"}]), "/results/x would hide /results"),
        (base(volumeMounts=[{"name": "x", "mountPath": "/opt"}]), "/opt would hide /opt/bench"),
        ({"spec": {"containers": [{"name": "main"}]}}, "'main' must be 'base'"),
        ({"spec": {"containers": [{"name": "base"}, {"name": "agent"}]}}, "another container would share"),
        ({"spec": {"initContainers": [{"name": "base", "image": "x"}]}}, "the name of another container"),
        (
            {"spec": {"initContainers": [{"name": "x", "resources": {"limits": {"amd.com/gpu": 1}}}]}},
            r"initContainers\[0\].resources.limits.amd.com/gpu",
        ),
    ],
)
def test_a_field_that_the_benchmark_needs_is_refused_with_the_reason(
    pod: dict[str, Any], message: str, template: Template
) -> None:
    with pytest.raises(PodTemplateError, match=f"^TRAINBENCH_POD_TEMPLATE .*{message}"):
        manifest(make_spec(), template(pod))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: v1\nkind: Deployment", "is not a Pod: begin it with apiVersion: v1 and kind: Pod"),
        ("- a", "is not a Pod"),
        ("a: [", "is not one YAML document"),
        ("apiVersion: v1\nkind: Pod\n---\nkind: Pod", "is not one YAML document"),
        ("apiVersion: v1\nkind: Pod\nspec: {hostIPC: true, hostIPC: false}", "the key 'hostIPC' stands twice"),
        ("apiVersion: v1\nkind: Pod\nspec: {containers: []}", "spec.containers is empty"),
        ("apiVersion: v1\nkind: Pod\nstatus: {}", "status: the cluster sets it"),
        ("x" * 1_000_001, "larger than the 1,000,000 bytes"),
    ],
)
def test_a_file_that_is_no_template_is_refused(text: str, message: str, template: Template) -> None:
    with pytest.raises(PodTemplateError, match=message):
        manifest(make_spec(), template(text))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(PodTemplateError, match=r"^TRAINBENCH_POD_TEMPLATE /nowhere.yaml cannot be read: No such file"):
        manifest(make_spec(), PodSettings(pod_template=Path("/nowhere.yaml")))


def test_a_template_that_was_changed_is_read_again(template: Template) -> None:
    settings = template({"spec": {"schedulerName": "first"}})
    assert settings.pod_template
    assert read_template(settings.pod_template)["spec"]["schedulerName"] == "first"
    template({"spec": {"schedulerName": "the-second"}})
    assert manifest(make_spec(), settings)["spec"]["schedulerName"] == "the-second"


def test_kueue_admits_the_pods_of_a_gang_together(template: Template) -> None:
    settings = template({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "bench"}}})
    pods = [pod["metadata"] for pod in manifests(GANG, settings)]
    (alone,) = manifests(make_spec(), settings)

    assert {pod["labels"]["kueue.x-k8s.io/pod-group-name"] for pod in pods} == {pods[0]["labels"]["trainbench.io/gang"]}
    assert [pod["annotations"]["kueue.x-k8s.io/pod-group-total-count"] for pod in pods] == ["2", "2"]
    assert [pod["annotations"]["kueue.x-k8s.io/retriable-in-group"] for pod in pods] == ["false", "false"]
    assert "kueue.x-k8s.io/pod-group-name" not in alone["metadata"]["labels"]


def digests(template: Template, *pods: dict[str, Any] | str) -> list[str | None]:
    """The value by which the pod's result will name each template."""
    found = []
    for pod in pods:
        env = manifest(make_spec(), template(pod))["spec"]["containers"][0]["env"]
        found.append(next((each["value"] for each in env if each["name"] == TEMPLATE_ENV), None))
    return found


def test_the_pod_s_result_names_the_template_and_equal_templates_alike(template: Template) -> None:
    one, same, other = digests(
        template,
        base(env=[{"name": "NCCL_ALGO", "value": "Ring"}]),
        "# equal\nkind: Pod\napiVersion: v1\nspec: {containers: [{env: [{value: Ring, name: NCCL_ALGO}], name: base}]}",
        base(env=[{"name": "NCCL_ALGO", "value": "Tree"}]),
    )
    assert one == same != other
    assert one
    assert re.fullmatch("[0-9a-f]{12}", one)


@pytest.mark.parametrize(
    "field",
    [
        {"runtimeClassName": "nvidia"},
        {"schedulerName": "bin-packer"},
        {"hostNetwork": True},
        {"containers": [{"name": "base", "resources": {"requests": {"cpu": 16}}}]},
        {"containers": [{"name": "base", "envFrom": [{"configMapRef": {"name": "nccl"}}]}]},
    ],
    ids=lambda field: next(iter(field)),
)
def test_each_field_that_can_change_a_measurement_changes_the_digest(template: Template, field: dict[str, Any]) -> None:
    assert digests(template, {"spec": field})[0] is not None


def test_where_a_pod_may_run_changes_no_digest(template: Template) -> None:
    """The plan pins each pod to its node."""
    where = {"tolerations": [{"key": "dedicated", "operator": "Exists"}], "nodeSelector": {"pool": "gpu"}}
    runtime = {"runtimeClassName": "nvidia"}

    assert digests(template, {}, {"spec": where}) == [None, None]
    assert len(set(digests(template, {"spec": runtime}, {"spec": runtime | where}))) == 1


FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples" / "pod-templates"
PAGE = FOLDER.parents[1] / "pod-template.md"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))


def pod_of(name: str) -> dict[str, Any]:
    return manifest(GANG, PodSettings(pod_template=FOLDER / f"{name}.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_makes_pods_that_kubernetes_accepts_strictly(path: Path) -> None:
    settings = PodSettings(pod_template=path)
    for pod in (*manifests(make_spec(), settings), *manifests(GANG, settings)):
        kubernetes_validate.validate(pod, "1.33", strict=True)


def test_the_page_names_every_example_and_no_other() -> None:
    page = PAGE.read_text()
    assert {path.name for path in EXAMPLES} == {
        name for name in (path.name for path in EXAMPLES) if f"examples/pod-templates/{name}" in page
    }
    assert page.count("examples/pod-templates/") == len(EXAMPLES)


def test_the_pods_of_a_tainted_pool_tolerate_its_taint_and_name_its_runtime() -> None:
    spec = pod_of("tainted-pool")["spec"]
    assert spec["runtimeClassName"] == "nvidia"
    assert [t["key"] for t in spec["tolerations"]] == ["dedicated", "nvidia.com/gpu", "trainbench.io/breach"]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "16", "memory": "64Gi"}


def test_infiniband_has_both_interfaces_and_both_adapters() -> None:
    pod = pod_of("infiniband")
    base = pod["spec"]["containers"][0]
    assert pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"].count(",") == 1
    assert base["resources"]["limits"] == {"rdma/ib_rail_0": "1", "rdma/ib_rail_1": "1", "nvidia.com/gpu": "1"}
    assert base["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"], "drop": ["ALL"]}


def test_openshift_s_pods_fix_no_user_and_keep_the_rest_of_their_security() -> None:
    pod = pod_of("openshift")
    contexts = [pod["spec"]["securityContext"], pod["spec"]["containers"][0]["securityContext"]]
    assert not any({"runAsUser", "runAsGroup", "fsGroup"} & set(context) for context in contexts)
    assert contexts[0]["runAsNonRoot"] is True
    assert contexts[1]["capabilities"] == {"drop": ["ALL"]}


def test_amd_s_pods_belong_to_the_devices_groups() -> None:
    spec = pod_of("amd")["spec"]
    assert spec["securityContext"]["supplementalGroups"] == [44, 109]
    assert spec["containers"][0]["volumeMounts"][0] == {
        "name": "tuned-kernels",
        "mountPath": "/miopen",
        "subPath": "gfx942",
        "readOnly": True,
    }


# ---------------------------------------------------------------- its schema


@pytest.mark.parametrize(
    ("pod", "fault"),
    [
        ({"spec": {"tolerationz": []}}, "spec.tolerationz: unknown field"),
        ({"spec": {"tolerations": [{"efect": "x"}]}}, r"spec.tolerations\[0\].efect: unknown field"),
        ({"spec": {"securityContext": None}}, "spec.securityContext: unknown field, or no value"),
        (base(ports=[{"containerPort": "80"}]), r"spec.containers\[0\].ports\[0\].containerPort: '80' is of the wrong"),
        (base(ports=[{"containerPort": True}]), "containerPort: True is of the wrong kind"),
        ({"spec": {"hostNetwork": "false"}}, "spec.hostNetwork: 'false' is of the wrong kind"),
        ({"spec": {"tolerations": {"key": "a"}}}, "spec.tolerations: {'key': 'a'} is of the wrong kind"),
        ({"spec": {"nodeSelector": {"pool": True}}}, "spec.nodeSelector.pool: True is of the wrong kind"),
        ({"spec": {"nodeSelector": ["a"]}}, "not a Pod by Kubernetes' schema"),
        (base(env=[{"value": "1"}]), "schema: Invalid value for `name`, must not be `None`"),
        ({"spec": "x"}, "schema: Invalid value for `containers`"),
    ],
)
def test_what_the_models_drop_or_change_is_named_with_its_path(
    pod: dict[str, Any], fault: str, template: Template
) -> None:
    with pytest.raises(PodTemplateError, match=f"template.yaml: .*{fault}"):
        read_template(template(pod).pod_template or Path())


@pytest.mark.parametrize(
    "pod",
    [
        base(resources={"limits": {"cpu": 0.5, "memory": "8Gi"}}),
        base(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        {"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "terminationGracePeriodSeconds": 5}},
        {"metadata": {"labels": {"a": 1}, "annotations": {"a/b": "[1]"}}},
    ],
)
def test_what_they_keep_is_taken(pod: dict[str, Any], template: Template) -> None:
    assert read_template(template(pod).pod_template or Path())
