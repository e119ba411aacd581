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


class Settings(Frozen):
    """`local_nodes` are names only: with the local launcher, every node is this machine."""

    launcher: Launcher
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
        priority_class=environ.get("TRAINBENCH_PRIORITY_CLASS"),
    )
    return Settings(
        launcher=Launcher(chosen),
        pods=pods,
        local_image=LocalImage(
            python=environ.get("TRAINBENCH_LOCAL_PYTHON", str(root / ".venv-image" / "bin" / "python")),
            pythonpath=environ.get("TRAINBENCH_LOCAL_PYTHONPATH", str(root)),
        ),
        local_nodes=tuple(environ.get("TRAINBENCH_LOCAL_NODES", "node-1,node-2,node-3,node-4").split(",")),
        store_url=environ.get("TRAINBENCH_STORE"),
        history_url=environ.get("TRAINBENCH_HISTORY_URL"),
    )
