"""Settings: read from the environment, refused when wrong."""

from __future__ import annotations

import pytest

from bench_control.params import LOCAL_DEFAULTS
from bench_control.settings import Launcher, SettingsError, read_settings


def test_kubernetes_is_the_default() -> None:
    settings = read_settings({})

    assert settings.launcher is Launcher.KUBERNETES
    assert settings.defaults == {}


def test_the_local_launcher_starts_the_form_with_a_tiny_model() -> None:
    settings = read_settings({"TRAINBENCH_LAUNCHER": "local", "TRAINBENCH_LOCAL_NODES": "a,b"})

    assert settings.local_nodes == ("a", "b")
    assert settings.defaults is LOCAL_DEFAULTS


def test_another_launcher_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"TRAINBENCH_LAUNCHER is 'slurm': choose kubernetes or local"):
        read_settings({"TRAINBENCH_LAUNCHER": "slurm"})
