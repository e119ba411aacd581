"""Nodes with a network between them: a network namespace each, and one for the switch that they are plugged into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench_image.contract.result import Phase, RunResult, Status, failed_result
from bench_image.contract.spec import RunSpec
from tests.builders import slow_link
from tests.builders.image_processes import environment, finish
from tests.builders.warm_processes import WarmProcess
from trainbench.pods.gangs import combine_ranks


def unavailable() -> str | None:
    """Why there can be none here; None where there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "nodes with a network between them need root on Linux: each is a network namespace"
    if shutil.which("ip") is None:
        return "nodes with a network between them need ip (iproute2)"
    if not slow_link.TUN.exists():
        return f"a slow link between nodes needs {slow_link.TUN}"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return f"no network namespace may be made here: {tried.stderr.strip()}" if tried.returncode else None


class Network:
    """`slow` and `mend` act on the link between a node and the switch."""

    def __init__(self, number: int) -> None:
        self.name = f"tb{os.getpid()}"
        self.address = {f"node-{i}": f"10.77.0.{i}" for i in range(1, number + 1)}
        self._slow: dict[str, subprocess.Popen[str]] = {}
        _call(f"ip netns add {self.name}")
        _call(f"ip -n {self.name} link add switch type bridge", f"ip -n {self.name} link set switch up")
        for node in self.address:
            own = self.namespace(node)
            _call(f"ip netns add {own}", f"ip -n {own} link set lo up")
            self._plug(node)

    def namespace(self, node: str) -> str:
        return f"{self.name}-{node}"

    def slow(self, node: str) -> None:
        """100 Mbit/s and 5 ms each way."""
        own = self.namespace(node)
        _call(f"ip -n {own} link delete eth0")
        command = [sys.executable, "-m", slow_link.__name__, own, "eth0", self.name, node]
        self._slow[node] = link = subprocess.Popen(
            command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert link.stdin
        assert link.stdout
        link.stdout.readline()  # the devices are there
        self._connect(node)
        link.stdin.write("\n")
        link.stdin.flush()

    def mend(self, node: str) -> None:
        link = self._slow.pop(node)
        link.kill()
        link.communicate()
        self._plug(node)

    def _plug(self, node: str) -> None:
        _call(f"ip -n {self.namespace(node)} link add eth0 type veth peer name {node} netns {self.name}")
        self._connect(node)

    def _connect(self, node: str) -> None:
        own = self.namespace(node)
        _call(
            f"ip -n {own} address add {self.address[node]}/24 dev eth0",
            f"ip -n {own} link set eth0 up",
            f"ip -n {self.name} link set {node} master switch up",
        )

    def start(self, spec: RunSpec, folder: Path, hang_share: float = 0.3) -> dict[str, WarmProcess]:
        """The pods of a gang, by node. A rank that is silent for that share of 120 s hangs."""
        nodes = spec.identity.nodes
        meeting = {"MASTER_ADDR": self.address[nodes[0]], "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0"}
        meeting["HANG_SHARE"] = str(hang_share)
        pods = {}
        for rank, node in enumerate(nodes):
            own = {"NODE_RANK": str(rank), "NETNS": self.namespace(node), "TRAINBENCH_SPEC": spec.model_dump_json()}
            arguments = ["tests.builders.in_namespace", "--output", str(folder / node)]
            pods[node] = WarmProcess(arguments, environment(**meeting, **own))
        return pods

    def close(self) -> None:
        for link in self._slow.values():
            link.kill()
            link.communicate()
        for own in (*map(self.namespace, self.address), self.name):
            subprocess.run(["ip", "netns", "delete", own], check=False)


def result_of(spec: RunSpec, pods: Mapping[str, WarmProcess], folder: Path) -> RunResult:
    """Of the whole gang; a pod that was killed is one that vanished."""
    results = []
    for node, pod in pods.items():
        pod.communicate()
        if (folder / node / "result.json").exists():
            results.append(finish(pod, folder / node))
        else:
            gone = {"kind": "vanished", "message": "deleted", "phase": Phase.MEASURE, "status": Status.INCOMPLETE}
            results.append(failed_result(spec, at=results[0].finished_at, **gone))
    return combine_ranks(spec, results)


@contextmanager
def network(number: int) -> Iterator[Network]:
    made = Network(number)
    try:
        yield made
    finally:
        made.close()


def _call(*commands: str) -> None:
    for command in commands:
        subprocess.run(command.split(), check=True)
