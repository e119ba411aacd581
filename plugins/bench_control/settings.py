"""What an installation decides once, read from the environment: launcher, nodes, image, store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from bench_control.local_pods import LocalImage
from bench_control.params import LOCAL_DEFAULTS
from bench_control.pods import PodSettings
from bench_image.contract import Frozen


class Launcher(StrEnum):
    KUBERNETES = "kubernetes"
    LOCAL = "local"


class SettingsError(ValueError):
    """An environment variable has a value that is not allowed; the message names both."""


class ClusterSettings(Frozen):
    """How the cluster is reached, and how long a pod may wait there."""

    connection_id: str = "kubernetes_default"  # the Airflow connection; without one, the pod's own service account
    deferrable: bool = True  # waiting pods hold no worker slot
    queue_timeout_s: int = 3600  # for a place on its node: a shared cluster is busy at times
    start_timeout_s: int = 900  # from then on, until the container runs: an image of 10 GB takes its time
    quarantine: tuple[str, ...] = ()  # nodes that are not benchmarked


class Settings(Frozen):
    """`local_nodes` are names only: with the local launcher, every node is this machine."""

    launcher: Launcher
    cluster: ClusterSettings
    pods: PodSettings
    local_image: LocalImage
    local_nodes: tuple[str, ...]
    store_url: str | None
    history_url: str | None

    @property
    def defaults(self) -> Mapping[str, Any]:
        """What the trigger form starts with where it differs from the nightly check on GPUs."""
        return LOCAL_DEFAULTS if self.launcher is Launcher.LOCAL else {}


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Raises SettingsError."""
    chosen = environ.get("TRAINBENCH_LAUNCHER", Launcher.KUBERNETES.value)
    if chosen not in set(Launcher):
        raise SettingsError(f"TRAINBENCH_LAUNCHER is '{chosen}': choose {' or '.join(Launcher)}")
    root = Path(__file__).resolve().parents[2]
    pods = PodSettings(
        namespace=environ.get("TRAINBENCH_NAMESPACE", PodSettings().namespace),
        image=environ.get("TRAINBENCH_IMAGE", PodSettings().image),
        instance=environ.get("TRAINBENCH_INSTANCE", PodSettings().instance),
        priority_class=environ.get("TRAINBENCH_PRIORITY_CLASS"),
        service=environ.get("TRAINBENCH_SERVICE", PodSettings().service),
    )
    cluster = ClusterSettings(
        connection_id=environ.get("TRAINBENCH_KUBERNETES_CONNECTION", ClusterSettings().connection_id),
        deferrable=_switch(environ, "TRAINBENCH_DEFERRABLE", ClusterSettings().deferrable),
        queue_timeout_s=_seconds(environ, "TRAINBENCH_QUEUE_TIMEOUT_S", ClusterSettings().queue_timeout_s),
        start_timeout_s=_seconds(environ, "TRAINBENCH_START_TIMEOUT_S", ClusterSettings().start_timeout_s),
        quarantine=tuple(name for name in environ.get("TRAINBENCH_QUARANTINE", "").split(",") if name),
    )
    return Settings(
        launcher=Launcher(chosen),
        pods=pods,
        cluster=cluster,
        local_image=LocalImage(
            python=environ.get("TRAINBENCH_LOCAL_PYTHON", str(root / ".venv-image" / "bin" / "python")),
            pythonpath=environ.get("TRAINBENCH_LOCAL_PYTHONPATH", str(root)),
        ),
        local_nodes=tuple(environ.get("TRAINBENCH_LOCAL_NODES", "node-1,node-2,node-3,node-4").split(",")),
        store_url=environ.get("TRAINBENCH_STORE"),
        history_url=environ.get("TRAINBENCH_HISTORY_URL"),
    )


def _switch(environ: Mapping[str, str], name: str, default: bool) -> bool:
    text = environ.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise SettingsError(f"{name} is '{environ[name]}': choose true or false")
    return text == "true"


def _seconds(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, str(default))
    if not text.isdecimal() or not 1 <= int(text) <= 7 * 86_400:
        raise SettingsError(f"{name} is '{text}': give whole seconds, 1 to {7 * 86_400}")
    return int(text)
