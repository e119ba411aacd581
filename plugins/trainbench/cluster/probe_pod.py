"""Runs one real pod for the checks that a dry run cannot make: image pull, GPU, names of the Service."""

from __future__ import annotations

import copy
import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.cluster.installation_facts import Unknown
from trainbench.cluster.kubernetes_api import Cluster, ClusterError
from trainbench.pods.manifests import CONTAINER, RENDEZVOUS, PodSettings
from trainbench.pods.pod_end import EndKind, pod_end

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


class ProbeFacts(Frozen):
    """Facts of the probe pod. `gpus`: from nvidia-smi; `address`: the name's address, or why it has none."""

    node: str
    name: str
    resolves: bool
    address: str
    gpus: tuple[str, ...]


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


def run_probe(cluster: Cluster, pod: Mapping[str, Any], wait_s: float = WAIT_S) -> ProbeFacts | Unknown:
    """Create the pod, wait for its end, and delete it in any case. Raises ClusterError."""
    name = pod["metadata"]["name"]
    uid = cluster.create_pod(pod)["metadata"]["uid"]
    try:
        ended = _ended(cluster, name, wait_s)
        log = cluster.log(name, CONTAINER) if ended["status"].get("phase") in ("Succeeded", "Failed") else ""
    finally:
        with suppress(ClusterError):  # housekeeping deletes a pod that could not be deleted here
            cluster.delete_pod(name, uid)
    line = next((line for line in log.splitlines() if line.startswith(MARK)), None)
    if line is None:
        return Unknown(reason=pod_end(ended, CONTAINER, "it was not done in time").message)
    facts = json.loads(line.removeprefix(MARK))
    return ProbeFacts(node=ended["spec"].get("nodeName", "an unknown node"), name=pod["spec"]["hostname"], **facts)


def _ended(cluster: Cluster, name: str, wait_s: float) -> dict[str, Any]:
    """The pod's last state: ended, or without an image or a node in useful time."""
    started = time.monotonic()
    while True:
        pod = cluster.pod(name)
        waited_s = time.monotonic() - started
        is_placed = bool(pod["spec"].get("nodeName"))
        has_ended = pod["status"].get("phase") in ("Succeeded", "Failed")
        if has_ended or waited_s > (wait_s if is_placed else min(wait_s, PLACE_WAIT_S)):
            return pod
        if pod_end(pod, CONTAINER, "").kind is EndKind.NO_IMAGE:
            return pod
        time.sleep(POLL_S)
