"""The parts put together: store, scheduler loop, kubelets, faults."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.standin import defaults
from tests.standin.admission import check_quotas
from tests.standin.events import Recorder
from tests.standin.faults import Faults, PodFault
from tests.standin.kubelet import Kubelets
from tests.standin.pod_status import set_condition
from tests.standin.scheduler import Unschedulable, place, stay_s
from tests.standin.status import failure
from tests.standin.store import Store, timestamp
from tests.standin.validate import check_names, check_schema, check_security

Object = dict[str, Any]
FASTER = 0.01  # 300 s on a dead node become 3 s


class Cluster:
    def __init__(self, namespace: str, folder: Path, network: list[str], manifests: Path | None = None) -> None:
        self.namespace = namespace
        self._manifests = manifests
        self._folder = folder
        self._network = network
        self.images: dict[str, Object] = {}
        self._furnish()

    def _furnish(self) -> None:
        self.store = Store()
        self.events = Recorder(self.store)
        self.faults = Faults()
        self.kubelets = Kubelets(self.store, self.events, self._folder, self._network, self._at_moment, self.schedule)
        self.kubelets.images = self.images
        defaults.furnish(self.store, self.namespace, self._manifests)

    async def reset(self) -> None:
        """Ends every pod and forgets everything but the images."""
        self.faults.clear()
        await self.kubelets.stop_all()
        self._furnish()

    def create_pod(self, pod: Object, namespace: str, dry_run: bool) -> Object:
        """In the API server's order: can it be read, is there the namespace, defaults, is it valid, pod security, and
        quota as the last. Raises ApiError."""
        check_schema(pod)
        labels = self.namespace_labels(namespace)
        pod = copy.deepcopy(pod) | {"kind": "Pod", "apiVersion": "v1"}
        defaults.admit_pod(pod, namespace, self.store)
        check_names("Pod", pod["metadata"])
        check_security(pod, labels)
        check_quotas(pod, self.store)
        if pod["spec"]["restartPolicy"] != "Never" or pod["spec"].get("initContainers"):
            raise failure(501, "the stand-in runs pods with restartPolicy Never and without init containers only")
        if dry_run:
            return pod
        self.store.create("pods", pod)
        asyncio.get_running_loop().call_soon(self.schedule)
        return pod

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Raises the 404 of a namespace that does not exist."""
        labels: Mapping[str, str] = self.store.get("namespaces", "", namespace)["metadata"].get("labels", {})
        return labels

    def set_node(self, name: str, values: Mapping[str, Any]) -> None:
        """Makes the node, or makes it anew."""
        made = defaults.node(name, **values)
        if self.store.has("nodes", "", name):
            known = self.store.get("nodes", "", name)
            known["metadata"]["labels"] = made["metadata"]["labels"]
            known |= {"spec": made["spec"], "status": made["status"]}
            self.store.touch("nodes", known)
        else:
            known = self.store.create("nodes", made)
        self.leave_tainted(known)
        self.schedule()

    def leave_tainted(self, node: Object, faster: float = 1.0) -> None:
        """The taint manager: pods go that do not tolerate one of the node's NoExecute taints, or not for long: their
        time, times `faster`."""
        for pod in self.store.all("pods"):
            if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                self._leave(pod, node, faster)

    def _leave(self, pod: Object, node: Object, faster: float = 1.0) -> None:
        after_s = stay_s(pod, node["spec"].get("taints", []))
        if after_s is not None and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            asyncio.get_running_loop().call_later(after_s * faster, self._taint_evict, pod, node)

    def _taint_evict(self, pod: Object, node: Object) -> None:
        is_tainted = stay_s(pod, node["spec"].get("taints", [])) is not None  # may have been taken off meanwhile
        if is_tainted and "deletionTimestamp" not in pod["metadata"]:
            self.kubelets.taint_evict(pod)

    def _kill_node(self, name: str) -> None:
        """The machine is gone. As the node controller sees it 40 s after the last report: conditions and taints of the
        node, and of its pods only that they are not ready; they are evicted once they no longer tolerate that.
        """
        node, now = self.store.get("nodes", "", name), timestamp()
        ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
        ready |= {"status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": now}
        ready["message"] = "Kubelet stopped posting node status."
        node["spec"]["taints"] = [
            {"key": defaults.UNREACHABLE, "effect": effect, "timeAdded": now} for effect in ("NoSchedule", "NoExecute")
        ]
        self.store.touch("nodes", node)
        for pod in self.store.all("pods"):
            if pod["spec"].get("nodeName") == name and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                self.events.record(pod, "Warning", "NodeNotReady", "Node is not ready")
                set_condition(pod["status"], "Ready", False)
                self.store.touch("pods", pod)
        self.kubelets.die(name)
        self.leave_tainted(node, FASTER)

    def schedule(self) -> None:
        """Binds every waiting pod that fits, the highest priority first."""
        waiting = [
            pod
            for pod in self.store.all("pods")
            if not pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["spec"]["schedulerName"] == "default-scheduler"  # another one's pods wait for it
        ]
        for pod in sorted(waiting, key=lambda pod: -pod["spec"]["priority"]):
            nodes = self.store.all("nodes")
            try:
                name = place(pod, nodes, self.store.all("pods"))
            except Unschedulable as error:
                if set_condition(pod["status"], "PodScheduled", False, "Unschedulable", str(error)):
                    self.store.touch("pods", pod)
                    self.events.record(pod, "Warning", "FailedScheduling", str(error))
                continue
            pod["spec"]["nodeName"] = name
            set_condition(pod["status"], "PodScheduled", True)
            metadata = pod["metadata"]
            where = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {name}"
            self.events.record(pod, "Normal", "Scheduled", where)
            self.kubelets.start(pod)
            self._leave(pod, self.store.get("nodes", "", name))

    def _at_moment(self, pod: Object, moment: str) -> None:
        for fault in self.faults.for_pod(pod["metadata"]["name"], moment):
            if fault.delay_s:
                asyncio.get_running_loop().call_later(fault.delay_s, self.inflict, fault, pod)
            else:
                self.inflict(fault, pod)

    def inflict(self, fault: PodFault, pod: Object) -> None:
        kubelets = self.kubelets
        match fault.action:
            case "lose_node":
                self._kill_node(pod["spec"]["nodeName"])
                if fault.deadline_s is not None:
                    pod["spec"]["activeDeadlineSeconds"] = fault.deadline_s
                    self.store.touch("pods", pod)
            case "vanish":
                kubelets.delete(pod, 0)
            case "oom":
                kubelets.oom(pod)
            case "evict":
                kubelets.evict(pod)
            case _:
                kubelets.preempt(pod)
