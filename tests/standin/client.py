"""The stand-in in a process of its own, as tests hold it: nodes, faults, pods, recorded requests."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.standin.handle import Handle, Object

PACKAGE = __package__
ABOVE = Path(__file__).resolve().parents[len(PACKAGE.split("."))]  # the folder from which the package is imported
WAIT_S = 300  # for the stand-in's answer, and for its end
TOOLS = ("unshare", "nsenter", "setpriv", "ip", "chroot")


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


class StandinCluster(Handle):
    """A handle on the running stand-in. `images` are known from the start of each test; `set_images` adds others."""

    simulated = True

    def __init__(
        self, folder: Path, images: Mapping[str, Object], *, namespace: str, manifests: Path | None = None
    ) -> None:
        """`folder` takes its files; `manifests` is a folder with a kustomization.yaml that is applied at its start."""
        self.namespace = namespace
        self.kubeconfig = folder / "kubeconfig"
        self.images = dict(images)
        self._folder = folder
        command: list[str | Path] = [sys.executable, "-m", PACKAGE, namespace]
        command += [manifests] if manifests else []
        environment = {**os.environ, "TMPDIR": str(folder)}  # what a killed stand-in leaves lies with the test's files
        self.process = subprocess.Popen(
            command,
            cwd=ABOVE,
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
        self._write_kubeconfig(self.kubeconfig, self.token)
        self._post("images", **self.images)

    def stop(self) -> None:
        """Ends the pods too."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=WAIT_S)
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
        """`node`: product, memory_mib, cpu, resources, ready, labels, taints, unschedulable. The same name again
        changes the node."""
        self._post("node", name=name, gpus=gpus, **node)

    def nodes(self, count: int, gpus: int = 0, holds: Mapping[str, Any] | None = None) -> list[str]:
        """Makes them."""
        names = [f"node-{index + 1}" for index in range(count)]
        for name in names:
            self.add_node(name, gpus=max(gpus, 1))
        return names

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
        self._write_kubeconfig(path, token)
        return path

    def _write_kubeconfig(self, path: Path, token: str) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "standin", "cluster": {"server": self.url}}],
            "users": [{"name": "standin", "user": {"token": token}}],
            "contexts": [
                {"name": "standin", "context": {"cluster": "standin", "user": "standin", "namespace": self.namespace}}
            ],
            "current-context": "standin",
        }
        path.write_text(json.dumps(config))  # which is YAML, too

    def _post(self, what: str, **values: Any) -> None:
        self._call("POST", what, values)

    def _call(self, method: str, what: str, values: Object | None = None) -> Any:
        request = urllib.request.Request(f"{self.url}/_standin/{what}", method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        if values is not None:
            request.data = json.dumps(values).encode()
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode()) from None
