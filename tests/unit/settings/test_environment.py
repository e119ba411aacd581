"""Settings: read from the environment, refused when wrong."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from trainbench.settings import environment
from trainbench.settings.environment import SettingsError, default_store, read_settings


def test_what_the_cluster_and_the_pods_need_is_read() -> None:
    settings = read_settings(
        {
            "TRAINBENCH_DEFERRABLE": "False",
            "TRAINBENCH_QUEUE_TIMEOUT_S": "7200",
            "TRAINBENCH_FRESH_H": "180",
            "TRAINBENCH_QUARANTINE": "gpu-1,gpu-2",
            "TRAINBENCH_WORLD_SIZES": "8, 1,2",
            "TRAINBENCH_SCHEDULE_NODE_CONSISTENCY": "0 3 * * *",
            "TRAINBENCH_SCHEDULE_HOUSEKEEPING": "None",
            "TRAINBENCH_VOLUMES": '[{"mount_path": "/data", "source": {"emptyDir": {}}}]',
            "TRAINBENCH_COMPILE_CACHE": '{"persistentVolumeClaim": {"claimName": "kernels"}}',
            "TRAINBENCH_MEMORY_GIB": "64",
        }
    )

    assert (settings.deferrable, settings.queue_timeout_s) == (False, 7200)
    assert settings.quarantine == ("gpu-1", "gpu-2")
    assert settings.world_sizes == (1, 2, 8)
    assert settings.cron("node_consistency", "0 2 * * *") == "0 3 * * *"
    assert settings.cron("housekeeping", "0 6 * * *") is None
    assert settings.cron("strategy_scaling", "0 4 * * 6") == "0 4 * * 6"
    assert settings.volumes[0].source == {"emptyDir": {}}
    assert settings.compile_cache == {"persistentVolumeClaim": {"claimName": "kernels"}}
    assert settings.memory_gib == 64
    assert settings.fresh == timedelta(hours=180)


def test_with_the_local_launcher_nothing_starts_by_itself_unless_a_schedule_says_so() -> None:
    settings = read_settings({"TRAINBENCH_LAUNCHER": "local", "TRAINBENCH_SCHEDULE_NODE_CONSISTENCY": "0 3 * * *"})

    assert settings.cron("node_consistency", "0 2 * * *") == "0 3 * * *"
    assert settings.cron("housekeeping", "0 6 * * *") is None


@pytest.mark.parametrize("name", ["TRAINBENCH_SCHEDULE_METRICS", "AIRFLOW__TRAINBENCH__SCHEDULE_METRICS"])
def test_a_wrong_schedule_is_named_with_its_variable(name: str) -> None:
    """Airflow would say "Exactly 5, 6 or 7 columns" of the DAG's file."""
    with pytest.raises(
        SettingsError, match=rf"^{name} is '0 3 \* \*': give a cron expression such as '0 2 \* \* \*', or"
    ):
        read_settings({name: "0 3 * *"})


def claim(name: str) -> str:
    return json.dumps({"persistentVolumeClaim": {"claimName": name}})


def volumes(*mount_paths: str) -> str:
    return json.dumps([{"mount_path": path, "source": {"emptyDir": {}}} for path in mount_paths])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TRAINBENCH_DEFERRABLE", "maybe", "is 'maybe': give true or false"),
        ("TRAINBENCH_QUEUE_TIMEOUT_S", "1h", "give a whole number"),
        ("TRAINBENCH_WORLD_SIZES", "1,two", "give numbers of GPUs, for example 1,2,4"),
        ("TRAINBENCH_VOLUMES", "/data", "give JSON such as"),
        ("TRAINBENCH_VOLUMES", '[{"mount_path": "data", "source": {}}]', "should match pattern"),
        (
            "TRAINBENCH_VOLUMES",
            volumes("/data", "/scratch/"),
            "1.mount_path: /scratch would hide /scratch, which the benchmark",
        ),
        ("TRAINBENCH_VOLUMES", volumes("/opt"), "0.mount_path: /opt would hide /opt/bench and /opt/trainbench, which"),
        ("TRAINBENCH_VOLUMES", volumes("/data", "//data/."), "1.mount_path: /data is the path of another volume too"),
        ("TRAINBENCH_COMPILE_CACHE", "/var/cache", "give JSON such as"),
        ("TRAINBENCH_GPU_RESOURCES", "nvidia", "'nvidia' is not a resource such as nvidia.com/gpu or nvidia.com/mig-*"),
        ("TRAINBENCH_GPU_RESOURCES", ",", "give at least one resource such as nvidia.com/gpu"),
        ("TRAINBENCH_GPU_RESOURCES", "nvidia.com/gpu.shared", "a share of a GPU that others use at the same time"),
        ("TRAINBENCH_NAMESPACE", "A B", "is 'A B': Kubernetes refuses it: at most 63 lower-case letters"),
        ("TRAINBENCH_SERVICE", "ü", "Kubernetes refuses it: at most 63 .* first a letter"),
        ("TRAINBENCH_INSTANCE", "a/b", "Kubernetes refuses it: at most 63 letters"),
        ("TRAINBENCH_SERVICE_ACCOUNT", "a_b", "Kubernetes refuses it: lower-case letters"),
        ("TRAINBENCH_IMAGE", "bench: latest", "Kubernetes refuses it: a reference such as"),
        ("TRAINBENCH_NODE_SELECTOR", "a b=c", "Kubernetes refuses it: a label selector is such as pool=gpu"),
        (
            "TRAINBENCH_TOPOLOGY_LABEL",
            "a b",
            "Kubernetes refuses it: a label's name is such as topology.kubernetes.io/zone",
        ),
        ("TRAINBENCH_COMPILE_CACHE", claim("A B"), "persistentVolumeClaim.claimName is 'A B': Kubernetes refuses it"),
        ("TRAINBENCH_VOLUMES", f'[{{"mount_path": "/data", "source": {claim("ü")}}}]', "claimName is 'ü': Kubernetes"),
        ("TRAINBENCH_QUARANTINE", "gpu-1,GPU 2", "Kubernetes refuses it: lower-case letters"),
        ("TRAINBENCH_PRICES_FILE", "/x", r"is no setting \(did you mean 'TRAINBENCH_PRICES'\?\): correct its name"),
        ("TRAINBENCH_VOLUMES_OF_THE_TEAM", "/x", r"is no setting \(did you mean 'TRAINBENCH_VOLUMES'\?\)"),
        ("TRAINBENCH_SCHEDULE_NODE_CONSISTENCI", "none", "did you mean 'TRAINBENCH_SCHEDULE_NODE_CONSISTENCY'"),
        ("TRAINBENCH_RETENTION_DAYS", "-1", "give at least 0"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(name: str, value: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as error:
        read_settings({name: value})
    assert name in str(error.value)


def test_the_fleet_is_chosen_by_resources_and_labels() -> None:
    environ = {
        "TRAINBENCH_GPU_RESOURCES": "nvidia.com/gpu, nvidia.com/mig-*,amd.com/gpu",
        "TRAINBENCH_NODE_SELECTOR": "pool=gpu,tier!=dev",
    }
    settings = read_settings(environ)
    assert settings.gpu_resources == ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu")
    assert settings.node_selector == "pool=gpu,tier!=dev"
    assert read_settings({}).gpu_resources == ("nvidia.com/gpu",)


def test_an_empty_variable_is_not_set() -> None:
    assert read_settings({"TRAINBENCH_IMAGE": "", "TRAINBENCH_STORE": ""}) == read_settings({})


@pytest.mark.parametrize(
    ("home", "is_checkout", "folder"),
    [
        ("/opt/airflow", True, "/opt/airflow/trainbench/store"),
        ("$HOME/af", False, "/home/me/af/trainbench/store"),
        ("", False, "/home/me/airflow/trainbench/store"),
        ("", True, f"{environment.ROOT}/.trainbench/store"),
    ],
)
def test_the_default_store_is_one_folder_from_wherever_a_command_is_started(
    home: str, is_checkout: bool, folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was below the working directory: a history for each folder in which somebody called `trainbench`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(environment, "IS_CHECKOUT", is_checkout)
    assert str(default_store({"AIRFLOW_HOME": home})) == folder


def test_variables_of_other_programs_are_no_misspelt_settings() -> None:
    of_others = ("TRAINBENCH_LOCAL_IMAGE", "TRAINBENCH_STORE_SERVICE_HOST", "TRAINBENCH_IMAGE_PORT_80_TCP_ADDR", "X")

    assert read_settings(dict.fromkeys(of_others, "x")) == read_settings({})


@pytest.mark.parametrize("selector", ["pool=gpu,tier!=dev", "a.b/c in (x, y),!old", "gpu", "a==b, c notin (d)"])
def test_label_selectors_of_kubernetes_are_taken(selector: str) -> None:
    assert read_settings({"TRAINBENCH_NODE_SELECTOR": selector}).node_selector == selector
