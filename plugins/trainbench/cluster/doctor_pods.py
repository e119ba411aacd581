"""The pods that `doctor` tries: a sample for a dry run, and a real one for what a dry run cannot show.

A real one is needed for the image's pull, the driver, and names of the Service.
"""

from __future__ import annotations

import copy
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from trainbench.cluster.doctor_check import Check, Manifests, Site, examination, fail, ok
from trainbench.cluster.kubernetes_api import Cluster, ClusterError
from trainbench.core.formats import listing
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.nodes import Fleet, GpuNode, fleet_of
from trainbench.planning.plan import make_plan
from trainbench.planning.planners import PLANNERS
from trainbench.pods.manifests import CONTAINER, RENDEZVOUS, PodSettings, manifests
from trainbench.pods.pod_end import EndKind, pod_end
from trainbench.settings.environment import Launcher, Settings

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


def sample_pods(settings: Settings, fleet: Fleet) -> Manifests:
    """The pods of one run of the nightly check on one GPU of the first node of each GPU resource that there is. Raises
    PodTemplateError.
    """
    first = {node.gpu_resource: GpuNode(name=node.name, gpu_resource=node.gpu_resource) for node in fleet.nodes[::-1]}
    pods = []
    for node in [first[name] for name in sorted(first)] or [GpuNode(name="any-node")]:
        form = {"nodes": [node.name], "rounds": 1, "force": True, "gpus_per_node": 1}
        params = PLANNERS[CampaignKind.NODES].params(form, locally=settings.launcher is Launcher.LOCAL)
        pods += manifests(make_plan(params, Fleet(nodes=(node,)), "doctor").specs[0], settings)
    return pods


def probe_pod(pod: Mapping[str, Any], settings: PodSettings) -> dict[str, Any]:
    """A benchmark's pod with another program, for any node with a free GPU, selected by the Service."""
    probing: dict[str, Any] = copy.deepcopy(dict(pod))
    name = f"tb-probe-{secrets.token_hex(4)}"
    probing["metadata"] |= {"name": name, "labels": {**probing["metadata"]["labels"], RENDEZVOUS: "true"}}
    probing["spec"] |= {"hostname": name, "subdomain": settings.service, "activeDeadlineSeconds": round(WAIT_S)}
    probing["spec"].pop("affinity", None)
    base = next(container for container in probing["spec"]["containers"] if container["name"] == CONTAINER)
    base["command"] = ["python", "-c", PROGRAM, f"{name}.{settings.service}.{settings.namespace}.svc"]
    return probing


@examination(lambda _, reason: fail("probe", reason, "fix what it names, then probe again"))
def probe(site: Site) -> Iterator[Check]:
    """Create the pod, wait for its end, and delete it in any case."""
    cluster, settings = site.cluster, site.settings
    assert isinstance(cluster, Cluster)
    fleet = fleet_of(cluster.nodes(), settings.quarantine, settings.gpu_resources)
    pod = probe_pod(sample_pods(settings, fleet)[0], settings)
    name = pod["metadata"]["name"]
    uid = cluster.create_pod(pod)["metadata"]["uid"]
    try:
        ended = _ended(cluster, name)
        log = cluster.log(name, CONTAINER) if ended["status"].get("phase") in ("Succeeded", "Failed") else ""
    finally:
        with suppress(ClusterError):  # housekeeping deletes a pod that could not be deleted here
            cluster.delete_pod(name, uid)
    line = next((line for line in log.splitlines() if line.startswith(MARK)), None)
    if line is None:
        yield probe.silent(site, pod_end(ended, CONTAINER, "it was not done in time").message)
        return
    found = json.loads(line.removeprefix(MARK))
    where, address = f"a pod on {ended['spec'].get('nodeName', 'an unknown node')}", found["address"]
    if found["resolves"]:
        yield ok("DNS", f"{where} found its own name by the Service, at {address}")
    else:
        advice = "check the cluster's DNS, and that no NetworkPolicy forbids pods to query it"
        yield fail("DNS", f"{where} did not find its own name by the Service: {address}", advice)
    if found["gpus"]:
        yield ok("driver", f"{where} sees {listing(found['gpus'], most=2)}")
    else:
        advice = "check the driver and NVIDIA's container runtime on that node"
        yield fail("driver", f"{where} has a GPU by its manifest, and no nvidia-smi that lists one", advice)


def _ended(cluster: Cluster, name: str) -> dict[str, Any]:
    """The pod's last state: ended, or without an image or a node in useful time."""
    started = time.monotonic()
    while True:
        pod = cluster.pod(name)
        waited_s = time.monotonic() - started
        is_placed = bool(pod["spec"].get("nodeName"))
        has_ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        if has_ended or waited_s > (WAIT_S if is_placed else PLACE_WAIT_S):
            return pod
        if pod_end(pod, CONTAINER, "").kind is EndKind.NO_IMAGE:
            return pod
        time.sleep(POLL_S)
