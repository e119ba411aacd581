"""Nodes of the local launcher: names for this machine, with the GPUs that the driver lists."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Callable, Mapping

from bench_image.contract.spec import NODE_NAME
from bench_image.contract.work import Device
from trainbench.params.campaign_params import BenchmarkParams
from trainbench.planning.nodes import Fleet, GpuNode
from trainbench.planning.plan import PlanError
from trainbench.settings.environment import Settings

TRIAL_NODES = ("node-1", "node-2", "node-3", "node-4")  # without GPUs: enough nodes to compare
QUERY = ("nvidia-smi", "--query-gpu=index,uuid,memory.total,name", "--format=csv,noheader,nounits")
TIMEOUT_S = 30.0


def local_fleet(settings: Settings, params: BenchmarkParams, gpus: GpuNode | None = None) -> Fleet:
    """The fleet of names for this machine, with the GPUs of `gpus` or those that are visible. With GPUs and without
    names it has one node: several would share them. Raises PlanError for nodes by label.
    """
    if params.node_labels and not params.nodes:
        raise PlanError(
            f"node_labels is '{params.node_labels}', and this machine is no node with labels: name it by nodes"
        )
    if params.work.device is Device.CPU:
        gpus = None
    elif gpus is None:
        gpus = visible_gpus()
    is_alone = params.work.device is Device.CUDA or params.work.own_job.command
    usual = (machine_name(),) if is_alone else TRIAL_NODES
    names = params.nodes or settings.local_nodes or usual
    if gpus is None:
        return Fleet(nodes=tuple(GpuNode(name=name) for name in names))
    return Fleet(nodes=tuple(gpus.model_copy(update={"name": name}) for name in names))


def machine_name() -> str:
    """The host's name where it is valid as a node's."""
    name = socket.gethostname().lower()
    return name if re.match(NODE_NAME, name) else "this-machine"


def listed_gpus() -> str | None:
    try:
        return subprocess.run(QUERY, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def visible_gpus(
    environ: Mapping[str, str] = os.environ, query: Callable[[], str | None] | None = None
) -> GpuNode | None:
    """This machine with its visible GPUs, named after the first; None where the driver's tool is missing or lists none:
    the benchmark then counts them.
    """
    listed = [line.split(", ", 3) for line in ((query or listed_gpus)() or "").splitlines()]
    gpus = [fields for fields in listed if len(fields) == 4 and fields[2].isdecimal()]
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:  # by index, or by the beginning of the UUID
        words = [word.strip() for word in chosen.split(",")]
        gpus = [
            [index, uuid, *rest]
            for word in filter(None, words)
            for index, uuid, *rest in gpus
            if word == index or (not word.isdecimal() and uuid.startswith(word))
        ]
    if not gpus:
        return None
    _, _, mebibytes, product = gpus[0]
    return GpuNode(
        name=machine_name(),
        num_gpus=len(gpus),
        gpu_product=product.strip(),
        gpu_memory_bytes=int(mebibytes) * 2**20,
    )
