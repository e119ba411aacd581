"""pytest's `cluster`: the stand-in in a process of its own, or the real cluster that E2E_KUBECONFIG names."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.standin.__main__ import kubeconfig
from tests.standin.e2e import E2E, IS_REAL, NAMESPACE
from tests.standin.handle import Handle, Object

ROOT = Path(__file__).resolve().parents[2]
SHELL = E2E.image  # has sh and pgrep
SLOW = SHELL if IS_REAL else "test/slow:1"  # the same, but it takes its time to be pulled
TOOLS = ("unshare", "nsenter", "setpriv", "ip", "chroot")


def python_image(python: Path, *paths: Path, **env: str) -> Object:
    """An image whose `python` is this interpreter, with these further paths of the host in it."""
    prefix, base = python.absolute().parents[1], python.resolve().parents[1]
    return {
        "env": {"PATH": f"{prefix / 'bin'}:/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED": "1", **env},
        "paths": sorted({str(path) for path in (prefix, base, *paths)}),
    }


def scripted_image(folder: Path, script: Path, *paths: Path, **env: str) -> Object:
    """An image whose `python` runs this script with the tests' interpreter, whatever its arguments."""
    image = python_image(Path(sys.executable), folder, script, *paths, **env)
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    wrapper.chmod(0o755)
    image["env"]["PATH"] = f"{folder}:{image['env']['PATH']}"
    return image


def shell_image() -> Object:
    """sh, sleep, pgrep and what else the host's system folders have."""
    return {"cmd": ["sh"]}


def bench_image() -> Object:
    """The benchmark program of this checkout with the environment that `make setup` made for it."""
    code = ROOT / "bench_image"
    return python_image(ROOT / ".venv-image" / "bin" / "python", code, PYTHONPATH=str(ROOT))


class StandinCluster(Handle):
    """A handle on the running stand-in. `images` are known from the start of each test; `set_images` adds others."""

    simulated = True

    def __init__(self, folder: Path, images: Mapping[str, Object]) -> None:
        self.namespace = NAMESPACE
        self.kubeconfig = folder / "kubeconfig"
        self.images = dict(images)
        self._folder = folder
        (folder / "images.json").write_text(json.dumps(self.images))
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "tests.standin",
            "--until-stdin-closes",
            "--images",
            folder / "images.json",
        ]
        command += [
            "--namespace",
            NAMESPACE,
            "--kubeconfig",
            self.kubeconfig,
        ]
        environment = {**os.environ, "TMPDIR": str(folder)}  # what a killed stand-in leaves lies with the test's files
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr.log").open("w"),
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the stand-in did not start:\n{(folder / 'stderr.log').read_text()}")
        reached = json.loads(line)
        self.url, self.token = reached["url"], reached["token"]

    def stop(self) -> None:
        """Ends the pods too."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def reset(self) -> None:
        """No nodes, pods, faults or recorded requests; the images of the start."""
        self._post("reset")
        self._post("images", **self.images)

    def end_test(self) -> None:
        self.reset()

    def set_images(self, images: Mapping[str, Object]) -> None:
        """For the rest of this test, besides those of the start."""
        self._post("images", **{**self.images, **images})

    def add_node(self, name: str, gpus: int = 1, **node: Any) -> None:
        """`node`: product, memory_mib, cpu, ready, labels, taints, unschedulable. The same name again changes the node;
        with ready=False and `evict_after_s` its pods are deleted that much later, as by the taint manager."""
        self._post("node", name=name, gpus=gpus, **node)

    def nodes(self, count: int, gpus: int = 0, holds: Mapping[str, Any] | None = None) -> list[str]:
        """Makes them."""
        names = [f"node-{index + 1}" for index in range(count)]
        for name in names:
            self.add_node(name, gpus=max(gpus, 1))
        return names

    def kill_node(self, name: str, toleration_scale: float = 1.0) -> None:
        """The machine is gone: its processes stop, its pods stay as they were, and after 300 s (or what they tolerate)
        times `toleration_scale` they are to be deleted, which nobody carries out."""
        self._post("dead_node", name=name, toleration_scale=toleration_scale)

    def revive_node(self, name: str) -> None:
        """It answers again, and ends the pods that should have gone."""
        self._post("live_node", name=name)

    def fault(self, **fault: Any) -> None:
        """A reply's (fields of `faults.ReplyFault`) or, with `action`, a pod's (fields of `faults.PodFault`)."""
        self._post("fault", **fault)

    def pods(self) -> list[Object]:
        return list(self._call("GET", "pods"))

    def requests(self) -> list[Object]:
        """{t, verb, uri, code, ua} of each request in the order of arrival, with the name of what was created."""
        return list(self._call("GET", "requests"))

    def kubeconfig_of(self, user: str, roles: Sequence[Mapping[str, Any]]) -> Path:
        """For a user who may do what these Role and ClusterRole manifests say, and nothing else."""
        token = secrets.token_hex(8)
        self._post("identity", user=user, token=token, roles=list(roles))
        path = self._folder / f"kubeconfig-{token}"
        path.write_text(kubeconfig(self.url, token, self.namespace))
        return path

    def _post(self, what: str, **values: Any) -> None:
        self._call("POST", what, values)

    def _call(self, method: str, what: str, values: Object | None = None) -> Any:
        request = urllib.request.Request(f"{self.url}/_standin/{what}", method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        if values is not None:
            request.data = json.dumps(values).encode()
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode()) from None


def connection(cluster: Handle, sidecar_image: str = SHELL, kubeconfig_path: Path | None = None) -> str:
    """The value of an AIRFLOW_CONN_... variable; the sidecar that it asks for passes restricted pod security."""
    sidecar_security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    extra = {
        "in_cluster": False,
        "kube_config_path": str(kubeconfig_path or cluster.kubeconfig),
        "namespace": cluster.namespace,
        "xcom_sidecar_container_image": sidecar_image,
        "xcom_sidecar_container_security_context": json.dumps(sidecar_security),
    }
    return json.dumps({"conn_type": "kubernetes", "extra": extra})


def unavailable() -> str | None:
    """Why the stand-in cannot run here; None when it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "the Kubernetes stand-in needs root on Linux: it gives each container namespaces of its own"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"the Kubernetes stand-in needs {', '.join(missing)} (util-linux, iproute2)"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--net", "--uts", "--fork", "true"], capture_output=True, text=True, check=False
    )
    return f"the Kubernetes stand-in may not make namespaces here: {tried.stderr.strip()}" if tried.returncode else None


IMAGES = {
    "trainbench/bench:0.1.0": bench_image(),
    SHELL: shell_image(),
    SLOW: {**shell_image(), "pull_s": 1.5},
    "test/python:1": python_image(Path(sys.executable)),
}


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The stand-in, or the real cluster that E2E_KUBECONFIG names, on which nothing may be left."""
    if IS_REAL:
        from tests.kube.real_cluster import RealCluster

        real = RealCluster(E2E)
        yield real
        left = real.clear()
        assert not left, f"the tests left these on the cluster, and have removed them now: {', '.join(left)}"
        return
    if why := unavailable():
        pytest.skip(why)
    running = StandinCluster(tmp_path_factory.mktemp("standin"), IMAGES)
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
