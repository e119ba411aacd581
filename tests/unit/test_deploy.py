"""The deployment fits the code: manifests, rights, settings, images, compose file and the page on them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.builders import make_spec
from trainbench import __version__
from trainbench.cluster.kubernetes_api import NEEDED
from trainbench.cluster.node_marks import NEEDED_TO_MARK
from trainbench.pods.manifests import PORT, RENDEZVOUS, PodSettings, installation_labels, manifests
from trainbench.settings.environment import Launcher, read_settings

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
KUBERNETES = DOCKER / "kubernetes"
VERSION = "1.33"
DOCKERFILES = sorted(DOCKER.glob("*/*Dockerfile"))
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
Document = dict[str, Any]


def documents(folder: Path) -> list[Document]:
    """The manifests that a kustomization of this folder lists, without its bases."""
    listed = kustomization(folder)
    names = [name for name in listed["resources"] if name.endswith(".yaml")]
    return [document for name in names for document in yaml.safe_load_all((folder / name).read_text())]


def kustomization(folder: Path) -> Document:
    loaded: Document = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return loaded


FOLDERS = sorted(path.parent for path in KUBERNETES.rglob("kustomization.yaml"))
BASE = documents(KUBERNETES / "base")
EVERY = [(folder, document) for folder in FOLDERS for document in documents(folder)]
VALUES: Document = yaml.safe_load((DOCKER / "helm" / "values.yaml").read_text())
HELM_ENV = {variable["name"]: variable["value"] for variable in VALUES["env"]}


def one(kind: str, name: str) -> Document:
    (result,) = (d for d in BASE if d["kind"] == kind and d["metadata"]["name"] == name)
    return result


def compose_scheduler() -> Document:
    """The scheduler's service by the compose file, with the example's values and secrets in docker/.env."""
    text = (DOCKER / "compose.yaml").read_text()
    filled = VARIABLE.sub(lambda m: (m[3] or "") if m[2] == "-" else "a-secret", text)
    service: Document = yaml.safe_load(filled)["services"]["scheduler"]
    return service


ENVIRONMENTS = {"helm": HELM_ENV, "compose": compose_scheduler()["environment"]}


def helm_config_map(name: str) -> tuple[str, str]:
    """Path and text of the only file of a ConfigMap, as the values mount it."""
    ((key, text),) = yaml.safe_load(VALUES["extraConfigMaps"][name]["data"]).items()
    (volume,) = (v for v in VALUES["volumes"] if v.get("configMap", {}).get("name") == name)
    (mount,) = (m for m in VALUES["volumeMounts"] if m["name"] == volume["name"])
    return f"{mount['mountPath']}/{key}", text


def sent_pods(environ: dict[str, str]) -> list[Document]:
    """A single pod and a gang's as Airflow sends them under these settings."""
    environ = {name: value for name, value in environ.items() if name != "TRAINBENCH_POD_TEMPLATE"}
    settings = read_settings(environ)
    gang = make_spec(strategy="ddp", nodes=2, peers=("node-2",))
    return [*manifests(make_spec(), settings), *manifests(gang, settings)]


PODS = [(name, pod) for name, environ in ENVIRONMENTS.items() for pod in sent_pods(environ)]


def test_the_folder_of_campaign_files_is_mounted_where_the_setting_says() -> None:
    assert str(Path(helm_config_map("trainbench-campaigns")[0]).parent) == HELM_ENV["TRAINBENCH_CAMPAIGNS"]
    _, target, mode = next(volume for volume in compose_scheduler()["volumes"] if "campaigns" in volume).split(":")
    assert (target, mode) == (ENVIRONMENTS["compose"]["TRAINBENCH_CAMPAIGNS"], "ro")


# ---------------------------------------------------------------- manifests


def test_kubernetes_accepts_every_manifest_strictly() -> None:
    for _, document in EVERY:
        kubernetes_validate.validate(document, VERSION, strict=True)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_kustomization_lists_all_files_beside_it_and_only_such(folder: Path) -> None:
    listed = kustomization(folder)
    named = {*listed["resources"], *(patch["path"] for patch in listed.get("patches", ()))}

    assert {name for name in named if name.endswith(".yaml")} == {p.name for p in folder.glob("*.yaml")} - {
        "kustomization.yaml"
    }
    assert all((folder / name).exists() for name in named)


def test_the_rights_are_those_that_the_code_needs() -> None:
    role, nodes = one("Role", "trainbench-launcher"), one("ClusterRole", "trainbench-node-reader")
    granted = {(v, r, False) for rule in role["rules"] for r in rule["resources"] for v in rule["verbs"]}
    granted |= {(v, r, True) for rule in nodes["rules"] for r in rule["resources"] for v in rule["verbs"]}

    assert granted == {
        (p.verb, f"{p.resource}/{p.subresource}" if p.subresource else p.resource, p.is_cluster_wide) for p in NEEDED
    }


def test_the_right_to_mark_nodes_is_apart_from_the_base_and_no_wider_than_what_the_code_does() -> None:
    marker, binding = documents(KUBERNETES / "node-marker")
    (base_binding,) = (d for d in BASE if d["kind"] == "ClusterRoleBinding")
    needed = {each.verb for each in NEEDED_TO_MARK} | {"list"}

    assert marker["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": sorted(needed)}]
    assert (binding["roleRef"]["name"], binding["subjects"]) == (marker["metadata"]["name"], base_binding["subjects"])


def test_the_rights_belong_to_airflow_s_account_and_the_pods_have_none() -> None:
    (account,) = (d for d in documents(KUBERNETES / "airflow") if d["kind"] == "ServiceAccount")
    subject = {"kind": "ServiceAccount", **{key: account["metadata"][key] for key in ("name", "namespace")}}
    bindings = [d for d in BASE if d["kind"].endswith("Binding")]

    assert [binding["subjects"] for binding in bindings] == [[subject], [subject]]
    assert all(d["automountServiceAccountToken"] is False for d in BASE if d["kind"] == "ServiceAccount")


def test_the_values_mount_the_pod_template_where_the_setting_names_it(tmp_path: Path) -> None:
    path, text = helm_config_map("trainbench-pod-template")
    assert HELM_ENV["TRAINBENCH_POD_TEMPLATE"] == path
    template = tmp_path / "pod-template.yaml"
    template.write_text(text)
    settings = PodSettings(pod_template=template)
    assert manifests(make_spec(), settings) == manifests(make_spec(), PodSettings())


def test_the_service_is_the_one_by_which_gangs_meet() -> None:
    service = one("Service", PodSettings().service)
    spec = service["spec"]

    assert service["metadata"]["namespace"] == PodSettings().namespace
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert spec["selector"] == {RENDEZVOUS: "true"}
    assert [port["port"] for port in spec["ports"]] == [PORT]


def test_the_priority_class_displaces_nothing_and_the_namespace_takes_no_other() -> None:
    (priority,) = (d for d in BASE if d["kind"] == "PriorityClass")
    (term,) = one("ResourceQuota", "benchmark-priority-only")["spec"]["scopeSelector"]["matchExpressions"]

    assert (priority["preemptionPolicy"], priority["value"] < 0) == ("Never", True)
    assert (term["operator"], term["values"]) == ("NotIn", [priority["metadata"]["name"]])
    assert {pod["spec"]["priorityClassName"] for _, pod in PODS} == {priority["metadata"]["name"]}


@pytest.mark.parametrize(("name", "pod"), PODS, ids=lambda value: value if isinstance(value, str) else "")
def test_the_namespace_has_what_the_pods_name(name: str, pod: Document) -> None:
    """Whether its pod security lets them in, tests/kube/test_doctor.py asks."""
    kubernetes_validate.validate(pod, VERSION, strict=True)
    assert one("Namespace", pod["metadata"]["namespace"])
    assert one("ServiceAccount", pod["spec"]["serviceAccountName"])


def test_network_policies_shut_everything_but_names_and_gang_peers() -> None:
    single = installation_labels(PodSettings())
    gang = next(pod for _, pod in PODS if RENDEZVOUS in pod["metadata"]["labels"])["metadata"]["labels"]
    stranger = {"app": "other"}

    assert [policies_of(labels) for labels in (stranger, single, gang)] == [
        {"deny-all"},
        {"deny-all", "allow-dns"},
        {"deny-all", "allow-dns", "allow-gang-peers"},
    ]
    peers = one("NetworkPolicy", "allow-gang-peers")["spec"]
    (ingress,), (egress,) = peers["ingress"], peers["egress"]
    assert [set(ingress), set(egress)] == [{"from"}, {"to"}], "any port: NCCL chooses its own"
    assert ingress["from"] == egress["to"] == [{"podSelector": peers["podSelector"]}]
    assert "ingress" not in one("NetworkPolicy", "deny-all")["spec"]


def policies_of(labels: dict[str, str]) -> set[str]:
    return {
        d["metadata"]["name"]
        for d in BASE
        if d["kind"] == "NetworkPolicy"
        and (d["spec"]["podSelector"].get("matchLabels") or {}).items() <= labels.items()
    }


def test_a_pod_s_requests_lie_within_the_fence() -> None:
    fence = one("ResourceQuota", "fence")["spec"]["hard"]
    gpus = [c["resources"].get("limits", {}) for _, pod in PODS for c in pod["spec"]["containers"] if "resources" in c]

    assert set(fence) == {
        "pods",
        "requests.nvidia.com/gpu",
        "services",
        "services.nodeports",
        "services.loadbalancers",
    }, "a quota on CPU or memory would refuse pods that do not ask for any"
    assert max(int(limits["nvidia.com/gpu"]) for limits in gpus) <= int(fence["requests.nvidia.com/gpu"])
    assert int(fence["pods"]) >= 1000, "a night of 1,000 nodes"


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize("environ", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_the_settings_are_valid_and_name_what_the_manifests_make(environ: dict[str, str]) -> None:
    settings = read_settings(environ)
    connection = json.loads(environ["AIRFLOW_CONN_KUBERNETES_DEFAULT"])

    assert settings.launcher is Launcher.KUBERNETES
    assert settings.namespace == connection["extra"]["namespace"] == "trainbench"
    assert one("ServiceAccount", settings.service_account or "")
    assert connection["conn_type"] == "kubernetes"


def test_airflow_s_containers_have_a_read_only_root_and_write_to_volumes_only() -> None:
    """Airflow writes /tmp, its logs and the store; the entry point a password file, Airflow a configuration file where
    the chart mounts none.
    """
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    ours = [service for name, service in compose.items() if name != "postgres"]
    image = (DOCKER / "airflow" / "Dockerfile").read_text()
    entrypoint = (DOCKER / "airflow" / "entrypoint.sh").read_text()
    passwords = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"

    assert VALUES["securityContexts"]["containers"]["readOnlyRootFilesystem"] is True
    (volume,) = (v["name"] for v in VALUES["volumes"] if "emptyDir" in v)
    assert {"name": volume, "mountPath": "/tmp"} in VALUES["volumeMounts"]
    assert [(service["read_only"], "/tmp" in service["volumes"]) for service in ours] == [(True, True)] * 5
    assert all(service["environment"]["AIRFLOW_CONFIG"].startswith("/tmp/") for service in ours)
    assert f"{passwords}=/tmp/" in image
    assert f'>"${passwords}"' in entrypoint


def test_helm_runs_what_needs_the_cluster_with_the_account_that_has_the_rights() -> None:
    accounts = {
        name: VALUES[name]["serviceAccount"] for name in ("scheduler", "triggerer", "dagProcessor", "apiServer")
    }

    assert accounts["scheduler"] == accounts["triggerer"] == {"create": False, "name": "trainbench-airflow"}
    assert not any(accounts[name]["automountServiceAccountToken"] for name in ("dagProcessor", "apiServer"))
    assert VALUES["triggerer"]["enabled"]
    assert (VALUES["rbac"]["create"], VALUES["allowPodLaunching"]) == (False, False)
    (claim,) = (d for d in documents(KUBERNETES / "airflow") if d["kind"] == "PersistentVolumeClaim")
    assert VALUES["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert VALUES["volumeMounts"][0]["mountPath"] == HELM_ENV["TRAINBENCH_STORE"]


def test_a_component_has_the_secrets_that_it_needs_and_a_memory_limit() -> None:
    names = ("scheduler", "triggerer", "dagProcessor", "apiServer", "migrateDatabaseJob")
    components = {name: VALUES[name] for name in names} | VALUES["workers"]
    secrets = {name: [row["name"] for row in values.get("env", ())] for name, values in components.items()}
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    history, password = "TRAINBENCH_HISTORY_URL", "AIRFLOW_ADMIN_PASSWORD"

    assert "extraEnv" not in VALUES  # every component would have it
    assert {name: names for name, names in secrets.items() if names} == {
        "scheduler": [history],
        "apiServer": [history, password],
        "celery": [history],
        "kubernetes": [history],
    }
    assert [name for name, service in services.items() if password in service["environment"]] == ["api-server"]
    assert all("memory" in values["resources"]["limits"] for values in components.values())
    assert all("mem_limit" in service for service in services.values())


def test_images_carry_the_project_s_version() -> None:
    version = __version__

    assert HELM_ENV["TRAINBENCH_IMAGE"] == PodSettings().image == f"trainbench/bench:{version}"
    assert VALUES["images"]["airflow"]["tag"] == VALUES["defaultAirflowTag"] == version
    (airflow,) = re.findall(r"^apache-airflow==(\S+)", (ROOT / "requirements/control.txt").read_text(), re.MULTILINE)
    assert VALUES["airflowVersion"] == airflow


# ---------------------------------------------------------------- compose


def test_compose_starts_every_component_checks_it_and_listens_on_this_machine_only() -> None:
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    commands = {name: service["command"][1] for name, service in services.items() if "command" in service}

    assert commands == {
        "init": "db",
        "api-server": "api-server",
        "scheduler": "scheduler",
        "dag-processor": "dag-processor",
        "triggerer": "triggerer",
    }
    assert {name for name, service in services.items() if "healthcheck" in service} == {*services} - {"init"}
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"api-server": ["${AIRFLOW_LISTEN:-127.0.0.1}:${AIRFLOW_PORT:-8080}:8080"]}


def test_the_environment_example_names_every_variable_and_holds_no_secret() -> None:
    lines = (DOCKER / ".env.example").read_text().splitlines()
    example = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    used = VARIABLE.findall((DOCKER / "compose.yaml").read_text())

    assert set(example) == {name for name, _, _ in used}
    assert {name for name, value in example.items() if not value} == {name for name, sign, _ in used if sign == "?"}
    assert ".env" in (DOCKER / ".gitignore").read_text().split()


# ---------------------------------------------------------------- images


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: str(path.relative_to(DOCKER)))
def test_dockerfiles_copy_what_there_is_pin_their_base_and_end_without_root(path: Path) -> None:
    text = path.read_text()
    steps = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines()
    instructions = [step.split(maxsplit=1) for step in steps if step]
    sources = [
        word
        for name, rest in instructions
        if name == "COPY" and not rest.startswith("--from=")
        for word in rest.split()[:-1]
    ]

    assert all((ROOT / source).exists() for source in sources)
    assert all(is_in_context(source) for source in sources), "see .dockerignore"
    bases = [rest.split("=", 1)[1] for name, rest in instructions if name == "ARG" and "IMAGE=" in rest]
    assert bases
    assert all(re.search(r":\d[\w.-]+$", base) for base in bases)
    users = [rest for name, rest in instructions if name == "USER"]
    assert re.fullmatch(r"[1-9]\d*:\d+", users[-1])
    assert "--mount" not in text, "BuildKit only: buildah and older builders stop there"
    assert "<<" not in text, "BuildKit only: buildah and older builders stop there"


def is_in_context(source: str) -> bool:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [rule[1:] for rule in rules if rule.startswith("!")]
    return "*" in rules and any(Path(source).match(rule) or Path(source).is_relative_to(rule) for rule in allowed)
