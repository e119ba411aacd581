"""pytest's `cluster`: the stand-in with the shipped manifests, or the real cluster that E2E_KUBECONFIG names."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kube.e2e import BENCH_IMAGE, E2E, IS_REAL, NAMESPACE
from tests.standin import Object, StandinCluster, python_image, roles, unavailable

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "docker" / "kubernetes" / "base"
MARKER_ROLES = roles(ROOT / "docker" / "kubernetes" / "node-marker")
SHELL = E2E.image  # has sh
LINES = Path(tempfile.mkdtemp(prefix="trainbench-lines-"))  # files that pods of the image LARGE read
LINES.chmod(0o755)
LARGE = "test/lines:1"
SLOW = SHELL if IS_REAL else "test/slow:1"  # the same, but it takes its time to be pulled


def bench_image() -> Object:
    """The benchmark program of this checkout with the environment that `make setup` made for it."""
    code = ROOT / "bench_image"
    return python_image(ROOT / ".venv-image" / "bin" / "python", code, PYTHONPATH=str(ROOT))


ACCOUNT = "system:serviceaccount:airflow:trainbench-airflow"
IMAGES = {
    BENCH_IMAGE: bench_image(),
    SHELL: {},
    SLOW: {"pull_s": 1.5},
    LARGE: {"paths": [str(LINES)]},
    "test/python:1": python_image(Path(sys.executable)),
}


def shipped_roles(*without: str) -> list[dict[str, Any]]:
    """The shipped Role and ClusterRole, without these verbs ("create pods")."""
    made = roles(MANIFESTS)
    for rule in [rule for role in made for rule in role["rules"]]:
        (resource,) = rule["resources"]
        rule["verbs"] = [verb for verb in rule["verbs"] if f"{verb} {resource}" not in without]
    return made


def start_standin(folder: Path, images: Mapping[str, Object] = IMAGES) -> StandinCluster:
    """A stand-in whose namespace is as `kubectl apply -k docker/kubernetes/base` leaves it."""
    cluster = StandinCluster(folder, images, namespace=NAMESPACE, manifests=MANIFESTS)
    cluster.patience = E2E.patience
    return cluster


def airflows_kubeconfig(cluster: Any, also: Sequence[Object] = ()) -> Path:
    """The kubeconfig of Airflow's account, with the shipped rights and these; a real cluster's as it is given."""
    path: Path = cluster.kubeconfig
    return cluster.kubeconfig_of(ACCOUNT, [*shipped_roles(), *also]) if cluster.simulated else path


def connection(cluster: Any, also: Sequence[Object] = ()) -> str:
    """The value of an AIRFLOW_CONN_... variable. `also`: roles beside the shipped ones."""
    kubeconfig = str(airflows_kubeconfig(cluster, also))
    extra = {"in_cluster": False, "kube_config_path": kubeconfig, "namespace": cluster.namespace}
    return json.dumps({"conn_type": "kubernetes", "extra": extra})


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The stand-in, or the real cluster that E2E_KUBECONFIG names, on which nothing may be left."""
    if IS_REAL:
        from tests.kube.real_cluster import RealCluster  # which imports the product

        real = RealCluster(E2E)
        yield real
        left = real.clear()
        assert not left, f"the tests left these on the cluster, and have removed them now: {', '.join(left)}"
        return
    if why := unavailable():
        pytest.skip(why)
    running = start_standin(tmp_path_factory.mktemp("standin"))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def cluster(standin: Any) -> Iterator[Any]:
    """Without pods of these tests at the start of each; the stand-in without nodes, too."""
    standin.reset()
    yield standin
    standin.end_test()
