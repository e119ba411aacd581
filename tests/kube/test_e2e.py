"""The suite on a real cluster: what its variables say, and that it runs there as shipped.

The second part starts the stand-in as an outside process that the suite knows by a kubeconfig only: the namespace as
docker/kubernetes/base makes it, an account with the shipped rights, one node, no GPU. Nothing but pods is at hand, as
on somebody's own cluster.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.kube.clusters import ROOT, airflows_kubeconfig
from tests.kube.e2e import E2e, E2eError, read_e2e
from tests.kube.real_cluster import RealCluster
from tests.standin import StandinCluster

SUITE = ("test_doctor.py", "test_housekeeping.py", "test_watch.py", "test_operator.py")
# One case for each way of the operator: the others differ in their fault.
QUICK = "not test_operator or ok or talks-on or no-node"
SKIPS = (
    r"needs (nodes made for it|faults to be injected|an account with fewer rights): only the stand-in has that",
    r"needs 1 nodes with 1 GPUs each: this cluster has 0 that take our pods",
    r"this fault needs the stand-in; E2E_KUBECONFIG names a real cluster",
    r"only the stand-in tells which requests it saw",
    r"the size of a real cluster's nodes is not the test's to choose",
    r"a real cluster's nodes are not tainted by tests",
)


def write(path: Path, **context: str) -> Path:
    contexts = [{"name": "c", "context": {"cluster": "x", "user": "x", **context}}]
    path.write_text(yaml.safe_dump({"current-context": "c", "contexts": contexts}))
    return path


def test_without_a_kubeconfig_the_stand_in_is_used() -> None:
    assert read_e2e({}) == read_e2e({"E2E_KUBECONFIG": ""}) == E2e()


def test_everything_but_the_kubeconfig_has_a_default(tmp_path: Path) -> None:
    path = write(tmp_path / "config")
    assert read_e2e({"E2E_KUBECONFIG": str(path)}) == E2e(path, "trainbench", "trainbench/bench:0.2.0", (), 1.0)
    write(path, namespace="bench")
    assert read_e2e({"E2E_KUBECONFIG": str(path)}).namespace == "bench"
    variables = {"E2E_NAMESPACE": "other", "E2E_IMAGE": "r/b:2", "E2E_NODES": "a, b", "E2E_PATIENCE": "3"}
    assert read_e2e({"E2E_KUBECONFIG": str(path), **variables}) == E2e(path, "other", "r/b:2", ("a", "b"), 3.0)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"E2E_KUBECONFIG": "/nowhere/config"}, "'/nowhere/config', which cannot be read: No such file or directory"),
        ({"E2E_KUBECONFIG": __file__}, "which is no kubeconfig with a current context"),
        ({"E2E_NODES": "a", "E2E_IMAGE": "b"}, "E2E_IMAGE, E2E_NODES is for a real cluster: name its kubeconfig"),
        ({"E2E_PATIENCE": "much"}, "E2E_PATIENCE is 'much': it must be a number above 0"),
        ({"E2E_PATIENCE": "0"}, "E2E_PATIENCE is '0': it must be a number above 0"),
    ],
)
def test_a_wrong_variable_is_answered_with_a_sentence(environ: dict[str, str], message: str) -> None:
    with pytest.raises(E2eError, match=re.escape(message)):
        read_e2e(environ)


@pytest.fixture
def outside(standin: Any) -> StandinCluster:
    if not standin.simulated:
        pytest.skip("these tests are about the stand-in; E2E_KUBECONFIG names a real cluster")
    standin.reset()
    standin.add_node("worker-1", gpus=0)
    return cast(StandinCluster, standin)


def run_suite(kubeconfig: Path, *options: str, **environ: str) -> Any:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("E2E_", "AIRFLOW", "PYTEST"))}
    clean |= {name: value for name, value in os.environ.items() if name == "E2E_PATIENCE"}
    command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "--tb=short", "-p", "no:cacheprovider", *options]
    env = {**clean, "E2E_KUBECONFIG": str(kubeconfig), **environ}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def reasons(output: str) -> list[str]:
    """Why tests were skipped: the last part of pytest's `SKIPPED [n] file:line: reason`."""
    return re.findall(r"^SKIPPED \[\d+\] \S+ (.*)$", output, re.MULTILINE)


@contextmanager
def nodes_seen(cluster: StandinCluster) -> Iterator[set[str]]:
    """The nodes on which pods are seen meanwhile."""
    seen, over = set[str](), threading.Event()

    def look() -> None:
        while not over.wait(0.3):
            seen.update(pod["spec"]["nodeName"] for pod in cluster.pods() if "nodeName" in pod["spec"])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


@pytest.mark.slow
def test_the_suite_runs_as_shipped_with_the_shipped_rights_on_one_node_without_gpus(outside: StandinCluster) -> None:
    """Audit K15: 27 of 32 tests failed on a real cluster, as the shipped quota refused their pods."""
    kubeconfig = airflows_kubeconfig(outside)
    files = [f"tests/kube/{name}" for name in SUITE]
    outside.add_node("a-node-of-others", gpus=0)
    with nodes_seen(outside) as seen:
        done = run_suite(kubeconfig, *files, "-k", QUICK, E2E_NODES="worker-1")

    assert done.returncode == 0, done.stdout[-15000:]
    assert "nodes: worker-1; no other node gets a pod" in done.stdout
    assert seen == {"worker-1"}
    assert [why for why in reasons(done.stdout) if not any(re.fullmatch(known, why) for known in SKIPS)] == []
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) >= 12, done.stdout[-15000:]
    assert outside.pods() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"namespace": "nowhere"}, "namespace: nothing is allowed in the namespace 'nowhere'"),
        ({"nodes": ("worker-1", "elsewhere")}, "E2E_NODES names elsewhere: the cluster has worker-1"),
        ({"image": "no/such:1", "patience": 0.005}, "E2E_IMAGE is 'no/such:1', which does not run on every"),
    ],
)
def test_a_cluster_that_cannot_take_the_suite_is_refused_in_one_sentence(
    outside: StandinCluster, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(pytest.exit.Exception, match=re.escape(message)):
        RealCluster(E2e(airflows_kubeconfig(outside))._replace(**given))


@pytest.mark.slow
def test_what_the_tests_leave_fails_them(outside: StandinCluster, tmp_path: Path) -> None:
    test = tmp_path / "test_leaves_a_pod.py"
    test.write_text(
        "from tests.kube.conftest import standin  # noqa: F401\n"
        "from tests.kube.shell_pods import pod\n\n"
        "def test_it(standin):\n"
        "    standin._api.create_pod(pod('left', 'exec sleep 600'))\n"
    )
    kubeconfig = airflows_kubeconfig(outside)
    done = run_suite(kubeconfig, str(test), f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml"))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "the tests left these on the cluster, and have removed them now: pods/left" in done.stdout
    assert outside.pods() == []
