"""`trainbench doctor`: one list of checks on whether everything is ready for a benchmark, each fault with its remedy.

Nothing is made on the cluster, pods are tried by a dry run; but for `probe`, a real pod for what that cannot show: the
image's pull, the driver, and names of the Service.
"""

from __future__ import annotations

import copy
import json
import os
import re
import secrets
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from bench_image.contract.frozen import Frozen
from bench_image.contract.spec import WHOLE_GPU
from trainbench.cluster.kubernetes_api import NEEDED, Cluster, ClusterError, Permission, Refused, open_cluster
from trainbench.cluster.local_nodes import visible_gpus
from trainbench.cluster.node_marks import GRANT, NEEDED_TO_MARK, Node, name_of
from trainbench.core.formats import capitalised, count, listing, one_line, sentence
from trainbench.core.tables import Table, make_table, text
from trainbench.history.database import HISTORY_ENV
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import Fleet, GpuNode, fleet_of
from trainbench.planning.plan import make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.pods.manifests import CONTAINER, PORT, RENDEZVOUS, PodSettings, manifest
from trainbench.pods.placement import MAKE_IT_FIT, MAKE_IT_WELCOME, never_fits, refused_by
from trainbench.pods.pod_end import EndKind, pod_end
from trainbench.pods.time_limits import has_ended
from trainbench.results.artefacts import open_store
from trainbench.results.store_files import STORE_ENV
from trainbench.settings.channels import Channel
from trainbench.settings.environment import NOTIFY_ENV, KeepAway, Launcher, Settings


class CheckState(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


OK, WARN, FAIL, UNKNOWN = CheckState


class Answer(NamedTuple):
    """How it is, and what to do; nothing where all is well."""

    state: CheckState
    summary: str
    resolution: str = ""


class Check(Frozen):
    """One check of `doctor`. `resolution` is empty where there is nothing to do."""

    name: str
    state: CheckState
    summary: str
    resolution: str = ""

    @property
    def sentences(self) -> str:
        """How it is, and what to do."""
        advice = capitalised(self.resolution)
        return sentence(self.summary) + (f" {sentence(advice)}" if advice else "")


@dataclass(frozen=True)
class Site:
    """The installation, and what its API server answers, asked once. `opened`: the cluster, or why it could not be
    opened; None with the local launcher. `asks_airflow`: the cluster is that of the Airflow connection.
    """

    settings: Settings
    opened: Cluster | Exception | None = None
    asks_airflow: bool = False

    @property
    def cluster(self) -> Cluster:
        if isinstance(self.opened, Cluster):
            return self.opened
        raise self.opened or ValueError("no cluster")

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return self.cluster.nodes()

    @cached_property
    def fleet(self) -> Fleet:
        """Empty where the nodes cannot be listed: a pod can be tried without."""
        nodes: Sequence[Node] = ()
        with suppress(Refused):
            nodes = self.nodes
        return fleet_of(nodes, self.settings.quarantine, self.settings.gpu_resources)

    @cached_property
    def missing(self) -> tuple[Permission, ...]:
        """The rights that the settings need and the account has not."""
        wanted = NEEDED if self.settings.keep_away is KeepAway.OFF else (*NEEDED, *NEEDED_TO_MARK)
        with ThreadPoolExecutor(NUM_QUESTIONS_AT_ONCE) as pool:
            answers = list(pool.map(self.cluster.is_allowed, wanted))
        return tuple(permission for permission, is_allowed in zip(wanted, answers, strict=True) if not is_allowed)

    @cached_property
    def account(self) -> str | None:
        return self.cluster.identity()

    @cached_property
    def stored(self) -> dict[str, dict[str, Any]]:
        """GPU resource -> the spec of a benchmark's pod as the API server would store it (dry run)."""
        pods = sample_pods(self.settings, self.fleet)
        return {resource: self.cluster.dry_run(pod).get("spec") or {} for resource, pod in pods.items()}


class Row(NamedTuple):
    """A row of the list of checks. `remedy` and `silent`: the advice and the state where `look` fails. `needs`: the row
    without which this one says nothing new.
    """

    name: str
    look: Callable[[Site], Answer]
    remedy: str
    needs: str | None = None
    silent: CheckState = FAIL

    def answer(self, site: Site) -> Check:
        try:
            answer = self.look(site)
        except Exception as error:  # doctor reports every fault; none of them may end it
            return self.without_answer(one_line(str(error)) or type(error).__name__)
        return Check(name=self.name, **answer._asdict())

    def without_answer(self, reason: str) -> Check:
        return Check(name=self.name, state=self.silent, summary=reason, resolution=self.remedy)


GPUS = "GPUs"
APPLY = "apply the deployment's manifests (docs/deploy.md)"
MIN_PEERS = 3  # with fewer nodes of one kind the wrong one cannot be identified
NUM_QUESTIONS_AT_ONCE = 8

# (pattern of the API server's refusal of a pod, the remedy)
REFUSALS = (
    (r"namespaces? \S+ not found", f"{APPLY}, or set TRAINBENCH_NAMESPACE to one that exists"),
    (r"violates PodSecurity",
     "the pods are made for 'restricted': take what it names out of the Pod template, or relabel the namespace"),
    (r"RuntimeClass \S+ not found",
     "name one that `kubectl get runtimeclasses` lists in the Pod template, or take it out"),
    (r"no PriorityClass",
     f"{APPLY}, or set TRAINBENCH_PRIORITY_CLASS to a class that `kubectl get priorityclasses` lists"),
    (r"exceeded quota|failed quota",
     "raise the namespace's ResourceQuota, or wait for what uses it: see `kubectl describe quota`"),
    (r"serviceaccount \S+ not found", f"{APPLY}, or set TRAINBENCH_SERVICE_ACCOUNT to one that exists"),
    (r"cannot create resource", f"{APPLY}: they bind the rights"),
    (r"admission webhook|denied the request", "a policy of the cluster refuses the pod: ask the policy's owner"),
)  # fmt: skip


def server(site: Site) -> Answer:
    answered = site.cluster.version()  # first, to stop early where no server answers
    as_user = f", as {site.account}" if site.account else ""
    return Answer(OK, f"Kubernetes {answered}, namespace {site.settings.namespace}{as_user}")


def namespace(site: Site) -> Answer:
    """The API server checks rights before existence: without any right, its answers are about rights even where the
    namespace does not exist. Rights, pod and Service would then fail for the same reason.
    """
    name = site.settings.namespace
    if all(each in site.missing for each in NEEDED if not each.is_cluster_wide):
        try:
            site.cluster.read_namespace()
        except Refused as refused:
            problem = f"there is no namespace '{name}'"
            if refused.status != 404:
                account = site.account or "the account of the Airflow workers"
                either = f"either it does not exist, or no right in it is bound to {account}"
                problem = f"nothing is allowed in the namespace '{name}': {either}"
            remedy = f"set TRAINBENCH_NAMESPACE to the namespace of the deployment's manifests, or {APPLY}"
            return Answer(FAIL, problem, remedy)
    return Answer(OK, name)


def permissions(site: Site) -> Answer:
    if not site.missing:
        return Answer(OK, "all required verbs are allowed")
    needed = [each for each in site.missing if each.is_required]
    names = listing((f"{each.name} (to {each.purpose})" for each in needed or site.missing), most=4)
    if not needed and set(site.missing) <= set(NEEDED_TO_MARK):
        return Answer(WARN, f"TRAINBENCH_KEEP_AWAY is {site.settings.keep_away}, and not allowed is {names}", GRANT)
    grant = f"grant it to {site.account or 'the account of the Airflow workers'}: {APPLY}"
    if needed:
        return Answer(FAIL, f"not allowed: {names}", grant)
    return Answer(WARN, f"not allowed, and not required: {names}", grant)


def pod(site: Site) -> Answer:
    """By a dry run of a pod for each GPU resource: a quota on one says nothing of the others."""
    try:
        kinds = " and ".join(map(_kind, site.stored))
    except Refused as refused:
        said = refused.message
        for pattern, remedy in REFUSALS:
            if re.search(pattern, said, re.IGNORECASE | re.DOTALL):
                return Answer(FAIL, said, remedy)
        if refused.status in (409, 429) or refused.status >= 500:
            return Answer(UNKNOWN, f"the API server could not say whether it takes a pod: {said}")
        return Answer(FAIL, f"the API server would not take the pod: {said}", "fix what it names")
    merged = f"; {site.settings.pod_template} is merged into it" if site.settings.pod_template else ""
    return Answer(OK, f"the API server would take {kinds}: security, quota and schema are in order (dry run){merged}")


def _kind(resource: str) -> str:
    return "a pod" if resource == WHOLE_GPU else f"a pod with {resource}"


def priority(site: Site) -> Answer:
    spec, name = next(iter(site.stored.values())), site.settings.priority_class
    value, policy = spec.get("priority"), spec.get("preemptionPolicy")
    if name is None:
        summary = "benchmark pods have the default priority, like production"
        return Answer(WARN, summary, "set TRAINBENCH_PRIORITY_CLASS, for example to trainbench-benchmark")
    if value is None:
        return Answer(OK, f"{name} is accepted")
    summary = f"{name}: priority {value}, preemption policy {policy or 'unknown'}"
    if policy == "PreemptLowerPriority":
        return Answer(WARN, f"{summary}: a benchmark could displace other work", "set preemptionPolicy: Never")
    if value > 0:
        return Answer(WARN, f"{summary}: production at 0 does not displace a benchmark", "give it a value below 0")
    return Answer(OK, summary)


def room(site: Site) -> Answer:
    """Whether the pod that the API server would store fits the nodes when they are empty: else it waits for ever."""
    num_nodes = len(site.fleet.nodes)
    for resource, spec in site.stored.items():
        names = {node.name for node in site.fleet.nodes if node.gpu_resource == resource}
        nodes = [node for node in site.nodes if name_of(node) in names] if names else []
        if misfits := dict(_misfits({"spec": spec}, nodes, resource)):
            # One node that is too small does not stop the check of the others.
            some, (name, (short, advice)) = len(misfits) < num_nodes, next(iter(misfits.items()))
            where = listing(misfits) if some else f"any of {count(num_nodes, 'node')}"
            summary = f"{_kind(resource)} would not fit {where} even when empty; {name}: {short}"
            return Answer(WARN if some else FAIL, summary, advice)
    kinds = " and ".join(map(_kind, site.stored))
    return Answer(OK, f"{kinds} would fit each of {count(num_nodes, 'node')} when it is empty")


def _misfits(pod: Mapping[str, Any], nodes: Sequence[Node], gpu_resource: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each node that could not take the pod even if it were empty, with why and what to do. The number of GPUs is
    chosen for each node.
    """
    for node in nodes:
        if rule := refused_by(node, pod):
            yield name_of(node), (rule, MAKE_IT_WELCOME)
        elif short := never_fits(pod, node, without=(gpu_resource,)):
            yield name_of(node), (short, MAKE_IT_FIT)


def gpus_of_nodes(site: Site) -> Answer:
    fleet, settings, _ = site.fleet, site.settings, site.nodes  # which raises where they cannot be listed
    away = "; ".join(f"{node.name}: {node.reason}" for node in fleet.absent[:3])
    away += f" and {len(fleet.absent) - 3} more" if len(fleet.absent) > 3 else ""
    if not fleet.nodes:
        selector = settings.node_selector
        selected = f" of those by TRAINBENCH_NODE_SELECTOR={selector}" if selector else ""
        look = f"look at these: {away}" if away else "install the vendor's GPU operator, or its device plugin"
        resources = " or ".join(settings.gpu_resources)
        return Answer(FAIL, f"no node{selected} is ready and has allocatable {resources}", look)
    num_gpus = sum(node.num_gpus or 0 for node in fleet.nodes)
    kinds = Counter((n.num_gpus, n.gpu_product or "GPUs of an unknown product") for n in fleet.nodes)
    of_kinds = listing(f"{number} x {each} {product}" for (each, product), number in kinds.items())
    summary = f"{count(len(fleet.nodes), 'node')} with {count(num_gpus, 'GPU')}: {of_kinds}"
    others = [f"{n.name}: {listing(n.other_gpu_resources)}" for n in fleet.nodes if n.other_gpu_resources]
    unlabelled = [n.name for n in fleet.nodes if n.gpu_product is None or n.gpu_memory_bytes is None]
    lost = [f"{n.num_gpus_lost} of {n.name}" for n in fleet.nodes if n.num_gpus_lost]
    few = [str(kind) for kind, number in Counter(n.gpu_product for n in fleet.nodes).items() if number < MIN_PEERS]
    # The first that holds is said.
    for holds, doubt, advice in (
        (others, f"also offered, and not benchmarked: {listing(others)}",
         "of each node the first of TRAINBENCH_GPU_RESOURCES is benchmarked: put another one first, if you like"),
        (unlabelled, f"product or memory is not labelled on {listing(unlabelled)}",
         "install GPU feature discovery; until then nothing is skipped for lack of GPU memory"),
        (lost, f"not allocatable, but in the node's capacity: {listing(lost)}",
         "look at its driver and device plugin (Xids in the kernel's log): runs take the GPUs that are left"),
        (any(node.expected for node in fleet.absent), f"not usable: {away}", "repair them, or put them in quarantine"),
        (few, f"fewer than {MIN_PEERS} nodes of {listing(few)}",
         "nodes are compared with nodes of the same GPU only: such a node is compared with its own past alone"),
    ):  # fmt: skip
        if holds:
            return Answer(WARN, f"{summary}; {doubt}", advice)
    return Answer(OK, summary + (f"; left out: {away}" if away else ""))


def image(site: Site) -> Answer:
    name = site.settings.image
    tag = re.search(r":([^/]+)$", name)
    if "@" not in name and (tag is None or tag[1] == "latest"):
        return Answer(WARN, f"{name} names no fixed version: two nodes may run different programs", "name a tag")
    return Answer(OK, f"{name} names a fixed version; --probe pulls it on one node")


def service(site: Site) -> Answer:
    name = f"'{site.settings.service}'"
    try:
        spec = site.cluster.service(site.settings.service).get("spec") or {}
    except Refused as refused:
        if refused.status != 404:
            raise
        return Answer(FAIL, f"there is no Service {name}: the pods of a gang cannot find each other", APPLY)
    faults = {
        "clusterIP is not None": spec.get("clusterIP") != "None",
        "publishNotReadyAddresses is not true": not spec.get("publishNotReadyAddresses"),
        f'its selector is not {RENDEZVOUS}: "true"': spec.get("selector") != {RENDEZVOUS: "true"},
        f"it has no port {PORT}": PORT not in [port["port"] for port in spec.get("ports") or ()],
    }
    if found := [fault for fault, is_there in faults.items() if is_there]:
        return Answer(FAIL, f"{name}: {listing(found)}: the pods of a gang would not find each other", APPLY)
    return Answer(OK, f"{name} is headless and selects the pods of gangs")


WAIT_S = 600.0  # enough for an image of 10 GB
PLACE_WAIT_S = 120.0  # on a busy cluster, a free GPU may take hours
POLL_S = 2.0
MARK = "trainbench-probe "
# A headless Service lists a new pod after a moment; the pod resolves its own name.
PROGRAM = f"""
import json, shutil, socket, subprocess, sys, time
address = "no answer"
for _ in range(30):
    try:
        address = socket.getaddrinfo(sys.argv[1], None)[0][4][0]
        break
    except OSError as error:
        address = str(error)
        time.sleep(1)
resolves = address[:1].isdigit()
smi = shutil.which("nvidia-smi")
gpus = subprocess.run([smi, "-L"], capture_output=True, text=True).stdout.splitlines() if smi else []
print({MARK!r} + json.dumps({{"resolves": resolves, "address": address, "gpus": gpus}}), flush=True)
"""


def sample_pods(settings: Settings, fleet: Fleet) -> dict[str, dict[str, Any]]:
    """GPU resource -> the pod of one run of the nightly check on one GPU of the first node that has it, under a free
    name. Raises PodTemplateError.
    """
    first = {node.gpu_resource: node.name for node in fleet.nodes[::-1]} or {WHOLE_GPU: "any-node"}
    pods = {}
    for resource, name in sorted(first.items()):
        node = GpuNode(name=name, gpu_resource=resource)
        form = {"nodes": [name], "rounds": 1, "force": True, "gpus_per_node": 1}
        params = PLANNERS[CampaignKind.NODES].params(form, locally=settings.launcher is Launcher.LOCAL)
        pods[resource] = manifest(make_plan(params, Fleet(nodes=(node,)), "doctor").specs[0], settings)
        pods[resource]["metadata"]["name"] = f"tb-doctor-{secrets.token_hex(4)}"
    return pods


def probe_pod(pod: dict[str, Any], settings: PodSettings) -> dict[str, Any]:
    """A benchmark's pod with another program, for any node with a free GPU, selected by the Service."""
    probing = copy.deepcopy(pod)
    name = f"tb-probe-{secrets.token_hex(4)}"
    probing["metadata"] |= {"name": name, "labels": {**probing["metadata"]["labels"], RENDEZVOUS: "true"}}
    probing["spec"] |= {"hostname": name, "subdomain": settings.service, "activeDeadlineSeconds": round(WAIT_S)}
    probing["spec"].pop("affinity", None)
    base = next(container for container in probing["spec"]["containers"] if container["name"] == CONTAINER)
    base["command"] = ["python", "-c", PROGRAM, f"{name}.{settings.service}.{settings.namespace}.svc"]
    return probing


def probe(site: Site) -> Answer:
    """Create the pod, wait for its end, and delete it in any case."""
    cluster = site.cluster
    made = probe_pod(next(iter(sample_pods(site.settings, site.fleet).values())), site.settings)
    name = made["metadata"]["name"]
    uid = cluster.create_pod(made)["metadata"]["uid"]
    try:
        ended = _ended(cluster, name)
        log = [*cluster.log_lines(name, CONTAINER)] if has_ended(ended, CONTAINER) else []
    finally:
        with suppress(ClusterError):  # housekeeping deletes a pod that could not be deleted here
            cluster.delete_pod(name, uid)
    line = next((line for line in log if line.startswith(MARK)), None)
    if line is None:
        reason = pod_end(ended, CONTAINER, "it was not done in time").message
        return Answer(FAIL, reason, "fix what it names, then probe again")
    found = json.loads(line.removeprefix(MARK))
    where, address = f"a pod on {ended['spec'].get('nodeName', 'an unknown node')}", found["address"]
    faults, advice = [], []
    if not found["resolves"]:
        faults.append(f"did not find its own name by the Service: {address}")
        advice.append("check the cluster's DNS, and that no NetworkPolicy forbids pods to query it")
    if not found["gpus"]:
        faults.append("has a GPU by its manifest, and no nvidia-smi that lists one")
        advice.append("check the driver and NVIDIA's container runtime on that node")
    if faults:
        return Answer(FAIL, f"{where} {' and '.join(faults)}", "; ".join(advice))
    gpus = listing(found["gpus"], most=2)
    return Answer(OK, f"{where} found its own name by the Service, at {address}, and sees {gpus}")


def _ended(cluster: Cluster, name: str) -> dict[str, Any]:
    """The pod's last state: ended, or without an image or a node in useful time."""
    started = time.monotonic()
    while True:
        pod, waited_s = cluster.pod(name), time.monotonic() - started
        if pod is None:
            raise ClusterError(f"somebody deleted the pod {name}")
        is_placed = bool(pod["spec"].get("nodeName"))
        if has_ended(pod, CONTAINER) or waited_s > (WAIT_S if is_placed else PLACE_WAIT_S):
            return pod
        if pod_end(pod, CONTAINER, "").kind is EndKind.NO_IMAGE:
            return pod
        time.sleep(POLL_S)


PROVIDER = "apache-airflow-providers-cncf-kubernetes"
DEEPSPEED = "deepspeed"
IMAGE_MODULES = ("torch", "transformers", "peft", "bitsandbytes", "psutil", "pydantic", "bench_image", DEEPSPEED)
INTERPRETER_TIMEOUT_S = 20
NO_DISK_BYTES = 500_000_000


def template(site: Site) -> Answer:
    sample_pods(site.settings, Fleet())  # raises PodTemplateError
    return Answer(OK, f"{site.settings.pod_template} is merged into every pod")


def airflow(site: Site) -> Answer:
    from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

    name = site.settings.kubernetes_connection
    KubernetesHook.get_connection(name)  # raises Airflow's errors where it cannot be read
    airflow, provider = map(_installed, ("apache-airflow", PROVIDER))
    return Answer(OK, f"Airflow {airflow}, provider {provider}, connection '{name}'")


def interpreter(site: Site) -> Answer:
    """The interpreter that replaces the image: it lists the modules that it can find, without importing them."""
    image = site.settings.local_image
    if not os.access(image.python, os.X_OK):
        return Answer(FAIL, image.absent, image.remedy)
    program = (
        "import importlib.util as u, platform, sys; print(platform.python_version(), "
        "*[name for name in sys.argv[1:] if u.find_spec(name) is None])"
    )
    try:
        answer = subprocess.run(
            [image.python, "-c", program, *IMAGE_MODULES],
            env={**os.environ, "PYTHONPATH": image.pythonpath},
            capture_output=True,
            text=True,
            timeout=INTERPRETER_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Answer(FAIL, f"{image.python} does not run: {one_line(str(error))}", image.remedy)
    number, *missing = answer.stdout.split()
    if required := sorted({*missing} - {DEEPSPEED}):
        return Answer(FAIL, f"{image.python} lacks {', '.join(required)}", image.remedy)
    if missing:
        summary = f"{image.python} lacks {DEEPSPEED}: zero2 and zero3 cannot run"
        return Answer(WARN, summary, "run `pip install deepspeed` in its environment")
    return Answer(OK, f"{image.python}, Python {number}, has the training stack")


def gpus_here(_: Site) -> Answer:
    if gpus := visible_gpus():
        return Answer(OK, f"{gpus.num_gpus} x {gpus.gpu_product}, {(gpus.gpu_memory_bytes or 0) / 1e9:.1f} GB each")
    return Answer(OK, "nvidia-smi lists none: only trials on the CPU can run here")  # no warning: trials run


def store(site: Site) -> Answer:
    """By writing, reading and deleting a small object."""
    store = open_store(site.settings.store)
    address = store.probe()
    summary = f"{address}: written, read and deleted"
    if store.is_local:
        free_bytes = shutil.disk_usage(address).free
        summary += f"; {free_bytes / 1e9:,.1f} GB free"
        if free_bytes < NO_DISK_BYTES:
            return Answer(FAIL, summary, f"free space, or set {STORE_ENV} to another place")
    if site.settings.launcher is Launcher.KUBERNETES and site.settings.store is None:
        advice = f"set {STORE_ENV} to a folder that all Airflow workers share, or to s3://... or gs://..."
        return Answer(WARN, f"{summary}; it is the default folder, which other workers do not see", advice)
    return Answer(OK, summary)


def history(site: Site) -> Answer:
    """By comparing the database's schema with ours; nothing is changed, and no file is made."""
    from sqlalchemy.exc import SQLAlchemyError

    from trainbench.history.database import HistoryError, cause_of, connect, revision_of, without_secrets
    from trainbench.history.tables import REVISION
    from trainbench.history.upgrade import READS

    engine = connect(site.settings.history_url, open_store(site.settings.store))
    where, revision = without_secrets(engine.url), None
    file = Path(str(engine.url.database)).absolute() if engine.dialect.name == "sqlite" else None
    if file:
        present = next(path for path in (file, *file.parents) if path.exists())
        if not os.access(present, os.W_OK):
            raise PermissionError(f"{present} cannot be written by this user")
    try:
        if file is None or file.exists():
            with engine.connect() as connection:
                revision = revision_of(connection)
    except SQLAlchemyError as error:
        raise HistoryError(f"{where}: {cause_of(engine.url, error)}") from None
    if revision is None:
        return Answer(OK, f"{where} is empty: the first run makes its tables")
    if revision in (READS, REVISION):
        return Answer(OK, f"{where}, revision {revision}")
    summary = f"{where} is at revision {revision}, which this version does not know"
    return Answer(FAIL, summary, f"set {HISTORY_ENV} to an empty database, then run trainbench reindex")


def channels(site: Site) -> Answer:
    """By reading each channel's connection; no message is sent. At worst a warning, because a night without messages
    still judges its nodes.
    """
    names = ", ".join(channel.name for channel in site.settings.notify)
    if not site.asks_airflow:
        return Answer(OK, f"{names}; their connections were not looked at")
    if wrong := [f"{c.name}: {problem}" for c in site.settings.notify if (problem := channel_problem(c))]:
        return Answer(WARN, "; ".join(wrong), f"make the connection in Airflow, or change {NOTIFY_ENV}")
    return Answer(OK, names)


def channel_problem(channel: Channel) -> str | None:
    """Why no notice can be sent by this channel; None: its connection exists and has the right type."""
    from airflow.sdk import Connection

    wanted, package = channel.needs
    if _installed(package) is None:
        return f"{package} is not installed"
    try:
        connection = Connection.get(channel.connection)
    except Exception as error:  # Airflow has several errors for a missing connection
        return f"the connection '{channel.connection}' cannot be read: {one_line(str(error))}"
    if connection.conn_type != wanted:
        return f"the connection '{channel.connection}' is of type {connection.conn_type}, not {wanted}"
    return None


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


TEMPLATE = Row("pod template", template, "fix what it names: docs/pod-template.md")
ON_CLUSTER = (
    Row("cluster", server, "check --kubeconfig, KUBECONFIG or the Airflow connection, the network and the API server"),
    Row("namespace", namespace, "the API server does not say which rights are granted", "cluster", UNKNOWN),
    Row("permissions", permissions, "", "namespace", UNKNOWN),
    Row(GPUS, gpus_of_nodes, f"{APPLY}, or name the nodes by the parameter 'nodes'", "cluster"),
    Row("pod", pod, "fix what it names: docs/pod-template.md", "namespace"),
    Row("priority class", priority, "", "pod"),
    Row("room", room, "", "pod"),
    Row("image", image, "", "cluster"),
    Row("Service", service, "only gangs need it", "namespace", UNKNOWN),
)
AIRFLOW = Row("Airflow", airflow, "make that connection, of type kubernetes, or set TRAINBENCH_KUBERNETES_CONNECTION")
HERE = (Row("interpreter", interpreter, "set TRAINBENCH_LOCAL_PYTHON"), Row(GPUS, gpus_here, "", "interpreter"))
STORE = Row("store", store, f"check {STORE_ENV}, its credentials and the network")
HISTORY = Row("history", history, f"check {HISTORY_ENV}, and that the database answers")
CHANNELS = Row("notifications", channels, f"check {NOTIFY_ENV}", silent=WARN)
PROBE = Row("probe", probe, "fix what it names, then probe again")

DEADLINE_S = 30.0
IN_THIS_THREAD = (AIRFLOW, CHANNELS)  # a task requests a connection from its supervisor
NOT_PROBED = Check(
    name="probe",
    state=UNKNOWN,
    summary="only a pod can tell whether pods find each other by the Service and see their GPUs",
    resolution="--probe runs one",
)
OUTAGES = ("cluster", "store", "history")  # checks that fail where something gives no answer
SIGNS = {OK: "✓", WARN: "!", FAIL: "✗", UNKNOWN: "?"}


def examine(
    settings: Settings,
    opened: Callable[[], Cluster] | None = None,
    with_probe: bool = False,
    deadline_s: float | None = None,
) -> tuple[Check, ...]:
    """The checks' outcomes, in the order in which their faults should be fixed, in seconds (`with_probe`: minutes).
    Never raises. `opened`: opens the cluster without the Airflow connection, which is not checked then. `deadline_s`:
    of all answers together.
    """
    try:
        cluster: Cluster | Exception | None = None
        is_cluster, asks_airflow = settings.launcher is Launcher.KUBERNETES, opened is None
        if is_cluster:
            try:
                cluster = (opened or partial(open_cluster, settings))()
            except Exception as error:  # the cluster's check tells of it
                cluster = error
        site = Site(settings, cluster, asks_airflow)
        groups = (
            ON_CLUSTER if is_cluster else (*HERE, *((TEMPLATE,) if settings.pod_template else ())),
            (AIRFLOW,) if is_cluster and asks_airflow else (),
            (STORE,),
            (HISTORY,),
            (CHANNELS,) if settings.notify else (),
        )
        checks = _answers(groups, site, DEADLINE_S if deadline_s is None else deadline_s)
        states = {check.name: check.state for check in checks}
        if states.get("cluster") is OK:
            checks.append(PROBE.answer(site) if with_probe and states.get("pod") is OK else NOT_PROBED)
        return tuple(checks)
    except Exception as error:  # a broken doctor must not stop a benchmark that could run
        summary = f"the examination itself failed: {type(error).__name__}: {one_line(str(error))}"
        return (Check(name="doctor", state=UNKNOWN, summary=summary, resolution="please report this"),)


def _answers(groups: Sequence[tuple[Row, ...]], site: Site, deadline_s: float) -> list[Check]:
    """The checks of all groups, which are looked at side by side in daemon threads: one that hangs does not delay the
    answer past the deadline.
    """
    answers: dict[tuple[Row, ...], list[Check]] = {}

    def fill(rows: tuple[Row, ...]) -> None:
        checks: dict[str, Check] = {}
        for row in rows:
            if row.needs is None or (row.needs in checks and checks[row.needs].state in (OK, WARN)):
                checks[row.name] = row.answer(site)
        answers[rows] = list(checks.values())

    threads = []
    for rows in groups:
        if set(rows) <= set(IN_THIS_THREAD):
            fill(rows)
        else:
            threads.append(threading.Thread(target=fill, args=(rows,), daemon=True))
            threads[-1].start()
    give_up = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, give_up - time.monotonic()))
    late = f"no answer within {deadline_s:g} s"
    return [check for rows in groups for check in answers.get(rows, [rows[0].without_answer(late)] if rows else [])]


def refusal(checks: Sequence[Check], uses_gpus: bool = True) -> str | None:
    """A sentence on why no run is possible; None: runs are possible. A trial on CPUs ignores the check of GPUs."""
    failed = _failed(checks, uses_gpus)
    if not failed:
        return None
    more = f" Also not ready: {', '.join(check.name for check in failed[1:])}." if failed[1:] else ""
    return f"{failed[0].name}: {failed[0].sentences}{more}"


def may_pass(checks: Sequence[Check], uses_gpus: bool = True) -> bool:
    """Whether the `refusal` may be over in minutes: nothing failed but checks of OUTAGES."""
    return all(check.name in OUTAGES for check in _failed(checks, uses_gpus))


def _failed(checks: Sequence[Check], uses_gpus: bool) -> list[Check]:
    return [check for check in checks if check.state is FAIL and (uses_gpus or check.name != GPUS)]


def verdict(checks: Sequence[Check]) -> str:
    if failed := _failed(checks, uses_gpus=True):
        return f"Not ready: {', '.join(check.name for check in failed)}."
    warned = sum(check.state is WARN for check in checks)
    return f"Ready, with {count(warned, 'warning')}." if warned else "Ready."


def table(checks: Sequence[Check]) -> Table:
    return make_table(
        checks,
        (
            text("", lambda check: SIGNS[check.state]),
            text("what", lambda check: check.name),
            text("how it is, and what to do", lambda check: check.sentences),
        ),
    )
