"""A real cluster as the tests' fixture: its own nodes, its namespace as docker/kubernetes/base makes it, few rights.

What a test needs and this cluster has not skips the test with that reason. Only pods with the label of this run of the
tests are looked at or deleted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

import pytest
from kubernetes.client import ApiException, CoreV1Api

from tests.kube.e2e import BENCH_IMAGE, E2E, INSTANCE, E2e
from tests.kube.shell_pods import PRIORITY_CLASS, container, pod
from tests.standin import Handle, Object
from trainbench.cluster import doctor
from trainbench.cluster.doctor import CheckState
from trainbench.cluster.kubernetes_api import ClusterError, Refused, open_cluster
from trainbench.pods.manifests import CONTAINER
from trainbench.pods.placement import never_fits
from trainbench.pods.pod_end import pod_end
from trainbench.settings.environment import Settings, read_settings

HOSTNAME = "kubernetes.io/hostname"
INSTANCE_LABEL = "app.kubernetes.io/instance"
TOLERATED = "nvidia.com/gpu"  # the taint that all our pods tolerate
PULL_S = 600
GONE_S = 300  # until the pods of a test are gone, also where a test shortens its other waits
KINDS = ("pod", "service", "config_map")  # as the official client names them
NEEDS_STANDIN = {
    "add_node": "nodes made for it",
    "fault": "faults to be injected",
    "kubeconfig_of": "an account with fewer rights",
    "requests": "the API server's log of requests",
    "set_images": "an image made for it",
}
MAX_NODES = 2  # that are used where E2E_NODES names none
OF_THE_INSTALLATION = ("GPUs", "store", "history")  # checks of the doctor that no test here depends on
NODES_UNLISTED = "not allowed: list nodes (to find the GPU nodes)"
ROOM = "room"  # tests with a benchmark's pod are skipped where it does not fit; most pods ask for 20m CPU


class RealCluster(Handle):
    """Ends the tests with one sentence where they could not run at all."""

    simulated = False

    def __init__(self, e2e: E2e) -> None:
        assert e2e.kubeconfig is not None
        self.kubeconfig, self.namespace, self.patience = e2e.kubeconfig, e2e.namespace, e2e.patience
        self._left: list[str] = []
        try:
            settings = e2e_settings(e2e)
            self._api = open_cluster(settings, str(e2e.kubeconfig))
            self._api.version()
            self._nodes = self._usable(e2e.nodes)
            self._check_ready(settings)
            self._pull(e2e.image)
        except ClusterError as error:
            _exit(str(error))

    def pods(self) -> list[Object]:
        return self._objects("pod")

    def nodes(self, count: int, gpus: int = 0, holds: Mapping[str, Any] | None = None) -> list[str]:
        able = [node for node in self._nodes if _gpus(node) >= gpus]
        if len(able) < count:
            what = f"{count} nodes" + (f" with {gpus} GPUs each" if gpus else "")
            pytest.skip(f"needs {what}: this cluster has {len(able)} that take our pods")
        if holds is not None:
            stored = self._api.dry_run({**holds, "metadata": {**holds["metadata"], "name": f"{INSTANCE}-fits"}})
            short = {_name(node): never_fits(stored, node) for node in able if node.get("status")}
            able = [node for node in able if not short.get(_name(node))]
            if len(able) < count:
                reasons = "; ".join(f"{name}: {why}" for name, why in short.items() if why)
                pytest.skip(f"needs {count} nodes that a benchmark's pod fits when they are empty: {reasons}")
        return [_name(node) for node in able[:count]]

    def reset(self) -> None:
        """Before a test. What is there then has leaked from the program under test: it is remembered for the end."""
        self._left += [f"pods/{item['metadata']['name']}" for item in self.pods() if not _is_going(item)]
        self.end_test()

    def end_test(self) -> None:
        """A test's own pods may be left at its end."""
        for item in self.pods():
            self._delete(item["metadata"]["name"])
        self.wait_for_pods(lambda pods: not pods, GONE_S / min(1.0, self.patience))

    def clear(self) -> list[str]:
        """Removes what these tests left, and says what that was."""
        left = self._left
        for kind in KINDS:
            try:
                left += [f"{kind}s/{item['metadata']['name']}" for item in self._objects(kind) if not _is_going(item)]
            except Refused:  # an account that may not list this kind could not make one either
                continue
        self.end_test()
        return left

    def __getattr__(self, name: str) -> Any:
        if name not in NEEDS_STANDIN:
            raise AttributeError(name)
        pytest.skip(f"needs {NEEDS_STANDIN[name]}: only the stand-in has that")

    def _objects(self, kind: str) -> list[Object]:
        selector = f"{INSTANCE_LABEL} in ({INSTANCE},{INSTANCE}-theirs)"
        return list(self._api._list(f"list_namespaced_{kind}", self._api.namespace, label_selector=selector))

    def _delete(self, name: str) -> None:
        try:
            CoreV1Api(self._api.api).delete_namespaced_pod(name, self._api.namespace, grace_period_seconds=1)
        except ApiException as refused:
            if refused.status != 404:
                raise

    def _usable(self, names: tuple[str, ...]) -> list[Object]:
        try:
            listed = self._api.nodes()
        except Refused as refused:
            if not names:
                _exit(f"the nodes cannot be listed ({refused.message}): name some in E2E_NODES")
            return [{"metadata": {"name": name}} for name in names]
        known = {_name(node): node for node in listed}
        if unknown := [name for name in names if name not in known]:
            _exit(f"E2E_NODES names {', '.join(unknown)}: the cluster has {', '.join(known)}")
        if names:
            return [known[name] for name in names]
        return [node for node in listed if _takes_pods(node)][:MAX_NODES] or _exit(
            f"none of the cluster's {len(listed)} nodes is ready, not cordoned and without taints that our pods do not "
            f"tolerate (they tolerate {TOLERATED})"
        )

    def _check_ready(self, settings: Settings) -> None:
        """By the product's own doctor, as far as it looks at the cluster."""
        deadline_s = doctor.DEADLINE_S * max(1.0, E2E.patience)
        checks = doctor.examine(settings, lambda: self._api, deadline_s=deadline_s)
        failed = [c for c in checks if c.state is CheckState.FAIL and c.name not in (*OF_THE_INSTALLATION, ROOM)]
        if failed := [c for c in failed if c.summary != NODES_UNLISTED]:  # E2E_NODES names them
            _exit(f"{doctor.refusal(failed)} The tests need a namespace made by docker/kubernetes/base")

    def _pull(self, image: str) -> None:
        """To every node, so that no test waits for it."""
        for index, node in enumerate(self._nodes):
            pinned = {"nodeSelector": {HOSTNAME: _name(node)}, "containers": [container("true", image=image)]}
            self._api.create_pod(pod(f"{INSTANCE}-pull-{index}", **pinned))
        ended = ("Succeeded", "Failed")
        with suppress(TimeoutError):  # what is not done says why below
            self.wait_for_pods(lambda pods: all(p["status"]["phase"] in ended for p in pods), PULL_S)
        failed = [item for item in self.pods() if item["status"]["phase"] != "Succeeded"]
        self.end_test()
        if failed:
            why = pod_end(failed[0], CONTAINER, "it was not done in time").message
            _exit(f"E2E_IMAGE is '{image}', which does not run on every node: {why}")


def e2e_settings(e2e: E2e = E2E, **environ: str) -> Settings:
    """Of the installation under test, with a store of its own."""
    return read_settings(
        {
            "TRAINBENCH_NAMESPACE": e2e.namespace,
            "TRAINBENCH_INSTANCE": INSTANCE,
            "TRAINBENCH_IMAGE": e2e.image if e2e.kubeconfig else BENCH_IMAGE,
            "TRAINBENCH_PRIORITY_CLASS": PRIORITY_CLASS,
            "TRAINBENCH_SERVICE_ACCOUNT": "trainbench-bench",
            "TRAINBENCH_STORE": tempfile.gettempdir(),
            **environ,
        }
    )


def _takes_pods(node: Mapping[str, Any]) -> bool:
    spec = node.get("spec", {})
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
    shut = [t for t in spec.get("taints", ()) if t["effect"] != "PreferNoSchedule" and t["key"] != TOLERATED]
    return ready and not spec.get("unschedulable") and not shut


def _gpus(node: Mapping[str, Any]) -> int:
    return int(node.get("status", {}).get("allocatable", {}).get("nvidia.com/gpu", 0))


def _name(node: Mapping[str, Any]) -> str:
    """By which pods are pinned to it."""
    return str(node["metadata"].get("labels", {}).get(HOSTNAME, node["metadata"]["name"]))


def _is_going(item: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in item["metadata"]


def _exit(why: str) -> NoReturn:
    pytest.exit(f"the tests cannot run on the cluster of E2E_KUBECONFIG: {why}", returncode=pytest.ExitCode.USAGE_ERROR)
