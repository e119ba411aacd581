"""Lists our running pods, in the cluster and of local launchers, with their progress."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from bench_image.contract.frozen import Frozen
from trainbench.cluster.kubernetes_api import Cluster, ClusterError
from trainbench.core.formats import NA, degrees, duration, figure, one_line, share
from trainbench.core.natural_order import natural
from trainbench.core.tables import Table, Tone, make_table, number, text
from trainbench.pods.local_pods import FOLDER_PREFIX, POD_FILE, PROGRESS_FILE, PROGRESS_MARK
from trainbench.pods.manifests import CONTAINER, NODE, WORK
from trainbench.pods.time_limits import moment_of

LAST_LINES = 100
READERS = 8
MAX_BYTES = 1_000_000
_FACT = re.compile(r"(\w{1,40})=(\S{1,100})")
_TONES = {"Running": Tone.GOOD, "Failed": Tone.BAD, "Pending": Tone.WARN}


class Progress(Frozen):
    """The program's phase and last figures; None: not reported yet."""

    phase: str | None = None
    step: str | None = None  # "10/20" warm-up steps, or "window 2/3"
    samples_per_s: float | None = None
    gpu_use_pct: float | None = None  # least used GPU of the node
    temperature_c: float | None = None  # hottest GPU of the node


class LivePod(Frozen):
    pod: str
    node: str
    work: str  # with its round or rank, as in Airflow's grid
    state: str
    why: str | None  # why a pod waits, or that its log cannot be read
    age_s: float | None
    progress: Progress = Progress()


def parse_progress(lines: Iterable[str]) -> Progress:
    """The program's lines `phase=warmup step=10/20 samples_per_s=9.5 ...`; other lines are ignored."""
    known: dict[str, str] = {}
    for line in lines:
        if not line.startswith(PROGRESS_MARK):
            continue
        facts = dict(_FACT.findall(line[:1000]))
        if facts.get("phase") != known.get("phase"):
            known.pop("step", None)
            known.pop("window", None)
        known |= facts
    return Progress(
        phase=known.get("phase"),
        step=f"window {known['window']}" if "window" in known else known.get("step"),
        samples_per_s=_number(known.get("samples_per_s")),
        gpu_use_pct=_number(known.get("gpu_use_pct")),
        temperature_c=_number(known.get("temperature_c")),
    )


def cluster_pods(cluster: Cluster, labels: Mapping[str, str], now: datetime) -> tuple[LivePod, ...]:
    """Our pods, by their labels. Raises ClusterError when they cannot be listed; an unreadable log is noted."""
    with ThreadPoolExecutor(READERS) as readers:
        return _ordered(readers.map(lambda pod: _seen(cluster, pod, now), cluster.pods(labels)))


def local_pods(now: datetime, folder: Path | None = None) -> tuple[LivePod, ...]:
    """The pods that this user's local launchers run now. `folder`: of temporary files."""
    files = (folder or Path(tempfile.gettempdir())).glob(f"{FOLDER_PREFIX}*/{POD_FILE}")
    return _ordered(pod for path in files if (pod := _local(path, now)))


def running_pods_table(pods: Sequence[LivePod]) -> Table:
    return make_table(
        pods,
        (
            text("node", lambda pod: pod.node),
            text("work", lambda pod: pod.work),
            text("state", lambda pod: pod.state),
            text("phase", lambda pod: pod.progress.phase or ""),
            text("step", lambda pod: pod.progress.step or ""),
            number("samples/s", lambda pod: pod.progress.samples_per_s, _known(figure)),
            number("GPU use", lambda pod: pod.progress.gpu_use_pct, _known(lambda value: share(value, 0))),
            number("temperature", lambda pod: pod.progress.temperature_c, _known(degrees)),
            number("age", lambda pod: pod.age_s, duration),
            text("why", lambda pod: pod.why or ""),
        ),
        tone=lambda pod: _TONES.get(pod.state, Tone.PLAIN),
    )


def _seen(cluster: Cluster, pod: Mapping[str, Any], now: datetime) -> LivePod:
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    name = str(metadata.get("name", NA))
    state = "Terminating" if metadata.get("deletionTimestamp") else str(status.get("phase") or "Unknown")
    began = moment_of(status.get("startTime") or metadata.get("creationTimestamp"))
    why, progress = _waits_for(status) if state == "Pending" else None, Progress()
    if state == "Running":
        try:
            progress = parse_progress(cluster.log_lines(name, CONTAINER, tail_lines=LAST_LINES))
        except ClusterError as error:
            why = f"its log cannot be read: {one_line(str(error), 120)}"
    return LivePod(
        pod=name,
        node=str(labels.get(NODE) or (pod.get("spec") or {}).get("nodeName") or NA),
        work=str(annotations.get(WORK, name)),
        state=state,
        why=why,
        # the cluster's clock may be ahead of ours
        age_s=max(0.0, (now - began).total_seconds()) if began else None,
        progress=progress,
    )


def _waits_for(status: Mapping[str, Any]) -> str | None:
    """Why a pending pod waits, by a container or else by the scheduler; None: neither has a reason."""
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return one_line(": ".join(filter(None, [waiting["reason"], waiting.get("message")])), 160)
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("message"):
            return one_line(str(condition["message"]), 160)
    return None


def _local(path: Path, now: datetime) -> LivePod | None:
    """The pod that a local launcher describes in `path`; None for a file of another user or of a process that ended."""
    try:
        about = json.loads(_own_text(path))
        pid, metadata = int(about["pid"]), about["metadata"]
        os.kill(pid, 0)
        lines = _own_text(path.with_name(PROGRESS_FILE)).splitlines()
        return LivePod(
            pod=str(metadata["name"]),
            node=str(metadata["labels"][NODE]),
            work=str(metadata["annotations"].get(WORK, metadata["name"])),
            state="Running",
            why=None,
            age_s=max(0.0, now.timestamp() - float(about["started_at"])),
            progress=parse_progress(lines),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _own_text(path: Path) -> str:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or not stat.S_ISREG(status.st_mode):
            raise PermissionError(path)
        return file.read(MAX_BYTES).decode(errors="replace")


def _ordered(pods: Iterable[LivePod]) -> tuple[LivePod, ...]:
    return tuple(sorted(pods, key=lambda pod: (natural(pod.node), pod.pod)))


def _number(text: str | None) -> float | None:
    """The text as a finite number; None for any other text."""
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and abs(value) < 1e15 else None


def _known(write: Callable[[float | None], str]) -> Callable[[float | None], str]:
    """The writer of a column, with an empty cell for an unknown number."""
    return lambda value: "" if value is None else write(value)
