"""What an installation decides once, read from the environment: launcher, nodes, image, store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bench_image.contract.frozen import Frozen
from trainbench.params.campaign_params import WORLD_SIZES
from trainbench.pods.local_pods import LocalImage
from trainbench.pods.manifests import PodSettings, PodVolume
from trainbench.settings.channels import NOTIFY_ENV, Channel, parse_channels

SCHEDULE = "TRAINBENCH_SCHEDULE_"
WEEK_S = 7 * 86_400


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
    """`local_nodes` are names only: with the local launcher, every node is this machine. Empty: see `local_fleet`."""

    launcher: Launcher
    cluster: ClusterSettings
    pods: PodSettings
    local_image: LocalImage
    local_nodes: tuple[str, ...]
    schedules: Mapping[str, str | None]  # DAG id -> cron expression, where it is not the DAG's own; None: by hand only
    world_sizes: tuple[int, ...]  # numbers of GPUs that `strategy_scaling` offers
    store_url: str | None
    history_url: str | None
    notify: tuple[Channel, ...] = ()
    fresh: timedelta = timedelta(hours=36)  # how old a verdict may be for its node to be called well

    def schedule(self, dag_id: str, usual: str | None) -> str | None:
        """A trial on one machine is started by hand: nobody wants it at 02:00, nor the last 02:00 made up for."""
        return self.schedules.get(dag_id, usual) if self.launcher is Launcher.KUBERNETES else None


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Raises SettingsError."""
    chosen = environ.get("TRAINBENCH_LAUNCHER", Launcher.KUBERNETES.value)
    if chosen not in set(Launcher):
        raise SettingsError(f"TRAINBENCH_LAUNCHER is '{chosen}': choose {' or '.join(Launcher)}")
    root = Path(__file__).resolve().parents[3]
    pods = PodSettings(
        namespace=environ.get("TRAINBENCH_NAMESPACE", PodSettings().namespace),
        image=environ.get("TRAINBENCH_IMAGE", PodSettings().image),
        instance=environ.get("TRAINBENCH_INSTANCE", PodSettings().instance),
        image_pull_secret=environ.get("TRAINBENCH_IMAGE_PULL_SECRET"),
        service_account=environ.get("TRAINBENCH_SERVICE_ACCOUNT"),
        priority_class=environ.get("TRAINBENCH_PRIORITY_CLASS"),
        shm_gib=_number(environ, "TRAINBENCH_SHM_GIB", PodSettings().shm_gib, 1024),
        memory_gib=_number(environ, "TRAINBENCH_MEMORY_GIB", 1, 65_536) if "TRAINBENCH_MEMORY_GIB" in environ else None,
        volumes=_volumes(environ),
        service=environ.get("TRAINBENCH_SERVICE", PodSettings().service),
    )
    cluster = ClusterSettings(
        connection_id=environ.get("TRAINBENCH_KUBERNETES_CONNECTION", ClusterSettings().connection_id),
        deferrable=_switch(environ, "TRAINBENCH_DEFERRABLE", ClusterSettings().deferrable),
        queue_timeout_s=_number(environ, "TRAINBENCH_QUEUE_TIMEOUT_S", ClusterSettings().queue_timeout_s, WEEK_S),
        start_timeout_s=_number(environ, "TRAINBENCH_START_TIMEOUT_S", ClusterSettings().start_timeout_s, WEEK_S),
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
        local_nodes=tuple(name for name in environ.get("TRAINBENCH_LOCAL_NODES", "").split(",") if name),
        schedules={
            name.removeprefix(SCHEDULE).lower(): None if text.lower() == "none" else text
            for name, text in environ.items()
            if name.startswith(SCHEDULE)
        },
        world_sizes=_world_sizes(environ),
        store_url=environ.get("TRAINBENCH_STORE"),
        history_url=environ.get("TRAINBENCH_HISTORY_URL"),
        notify=_channels(environ),
        fresh=timedelta(hours=_number(environ, "TRAINBENCH_FRESH_H", 36, WEEK_S)),
    )


def _channels(environ: Mapping[str, str]) -> tuple[Channel, ...]:
    try:
        return parse_channels(environ.get(NOTIFY_ENV, ""))
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _switch(environ: Mapping[str, str], name: str, default: bool) -> bool:
    text = environ.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise SettingsError(f"{name} is '{environ[name]}': choose true or false")
    return text == "true"


def _number(environ: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = environ.get(name, str(default))
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise SettingsError(f"{name} is '{text}': give a whole number, 1 to {most}")
    return int(text)


def _world_sizes(environ: Mapping[str, str]) -> tuple[int, ...]:
    text = environ.get("TRAINBENCH_WORLD_SIZES", ",".join(map(str, WORLD_SIZES)))
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= 65_536 for word in words):
        raise SettingsError(f"TRAINBENCH_WORLD_SIZES is '{text}': give numbers of GPUs, for example 1,2,4")
    return tuple(sorted({int(word) for word in words}))


def _volumes(environ: Mapping[str, str]) -> tuple[PodVolume, ...]:
    text = environ.get("TRAINBENCH_VOLUMES") or "[]"
    try:
        return TypeAdapter(tuple[PodVolume, ...]).validate_json(text)
    except ValidationError as error:
        example = '[{"mount_path": "/data", "source": {"persistentVolumeClaim": {"claimName": "datasets"}}}]'
        problem = error.errors(include_url=False)[0]
        raise SettingsError(f"TRAINBENCH_VOLUMES: {problem['msg']}: give JSON such as {example}") from None
