"""The parts put together: store, scheduler loop, kubelets, faults."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.standin import dead_nodes, defaults
from tests.standin.admission import check_quotas
from tests.standin.events import Recorder
from tests.standin.faults import Faults, PodFault
from tests.standin.kubelet import Kubelets
from tests.standin.pod_status import set_condition
from tests.standin.scheduler import Unschedulable, place
from tests.standin.status import failure
from tests.standin.store import Store
from tests.standin.taints import stay_s
from tests.standin.validate import check_pod, check_schema, check_security

Object = dict[str, Any]
FAST_TOLERATION = 0.01  # 300 s become 3 s


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
        self._held: set[str] = set()
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
        check_pod(pod)
        check_security(pod, labels)
        check_quotas("pods", pod, self.store)
        if pod["spec"]["restartPolicy"] != "Never":
            raise failure(501, "the stand-in runs pods with restartPolicy Never only")
        if dry_run:
            return pod
        self.store.create("pods", pod)
        self._at_moment(pod, "created")
        asyncio.get_running_loop().call_soon(self.schedule)
        return pod

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Raises the 404 of a namespace that does not exist."""
        labels: Mapping[str, str] = self.store.get("namespaces", "", namespace)["metadata"].get("labels", {})
        return labels

    def set_node(self, name: str, values: Mapping[str, Any]) -> None:
        """Makes the node, or makes it anew; with `evict_after_s`, a node that is not ready loses its pods then."""
        values = dict(values)
        evict_after_s = values.pop("evict_after_s", None)
        made = defaults.node(name, **values)
        if self.store.has("nodes", "", name):
            known = self.store.get("nodes", "", name)
            known["metadata"]["labels"] = made["metadata"]["labels"]
            known |= {"spec": made["spec"], "status": made["status"]}
            self.store.touch("nodes", known)
        else:
            known = self.store.create("nodes", made)
        if not values.get("ready", True):
            self._lose(name, evict_after_s)
        else:
            self.leave_tainted(known)
        self.schedule()

    def leave_tainted(self, node: Object) -> None:
        """The taint manager: pods go that do not tolerate one of the node's NoExecute taints, or not for long."""
        for pod in self.store.all("pods"):
            if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                self._leave(pod, node)

    def _leave(self, pod: Object, node: Object) -> None:
        after_s = stay_s(pod, node["spec"].get("taints", []))
        if after_s is not None and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            asyncio.get_running_loop().call_later(after_s, self._taint_evict, pod, node)

    def _taint_evict(self, pod: Object, node: Object) -> None:
        is_tainted = stay_s(pod, node["spec"].get("taints", [])) is not None  # may have been taken off meanwhile
        if is_tainted and "deletionTimestamp" not in pod["metadata"]:
            self.kubelets.taint_evict(pod)

    def _lose(self, node: str, evict_after_s: float | None) -> None:
        for pod in self.store.all("pods"):
            if pod["spec"].get("nodeName") == node:
                self.events.record(pod, "Warning", "NodeNotReady", "Node is not ready")
                set_condition(pod["status"], "Ready", False, "NodeNotReady")
                self.store.touch("pods", pod)
                if evict_after_s is not None:
                    asyncio.get_running_loop().call_later(evict_after_s, self.kubelets.taint_evict, pod)

    def kill_node(self, name: str, toleration_scale: float) -> None:
        """The machine is gone. Its pods are evicted once they no longer tolerate it: after 300 s unless they say
        otherwise, times `toleration_scale`.
        """
        dead_nodes.report(self.store, self.events, name)
        self.kubelets.die(name)
        for pod in self.store.all("pods"):
            tolerated_s = dead_nodes.tolerated_s(pod)
            if pod["spec"].get("nodeName") == name and tolerated_s is not None:
                asyncio.get_running_loop().call_later(tolerated_s * toleration_scale, self._evict_from_dead, pod)

    def _evict_from_dead(self, pod: Object) -> None:
        if not self.kubelets.answers(pod):
            self.kubelets.taint_evict(pod)

    def _cordon(self, name: str) -> None:
        node = self.store.get("nodes", "", name)
        node["spec"]["unschedulable"] = True
        self.store.touch("nodes", node)

    def revive_node(self, name: str) -> None:
        dead_nodes.report_well(self.store, name)
        self.kubelets.revive(name)
        self.schedule()

    def _let_go(self, uid: str) -> None:
        self._held.discard(uid)
        self.schedule()

    def schedule(self) -> None:
        """Binds every waiting pod that fits, the highest priority first."""
        waiting = [
            pod
            for pod in self.store.all("pods")
            if not pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["metadata"]["uid"] not in self._held
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
        if fault.action == "hold":
            self._held.add(pod["metadata"]["uid"])
            if fault.for_s is not None:
                asyncio.get_running_loop().call_later(fault.for_s, self._let_go, pod["metadata"]["uid"])
        elif fault.action == "cordon":
            self._cordon(fault.node)
        elif fault.action == "lose_node":
            self.kill_node(pod["spec"]["nodeName"], FAST_TOLERATION)
            if fault.deadline_s is not None:
                pod["spec"]["activeDeadlineSeconds"] = fault.deadline_s
                self.store.touch("pods", pod)
        elif fault.action == "vanish":
            self.kubelets.delete(pod, 0)
        elif fault.action == "delete":
            self.kubelets.delete(pod, fault.grace_s)
        elif fault.action == "oom":
            self.kubelets.oom(pod)
        elif fault.action == "drain":
            self._cordon(pod["spec"]["nodeName"])
            self.kubelets.evict_by_api(pod, fault.grace_s)
        elif fault.action == "evict":
            self.kubelets.evict(pod, fault.grace_s, fault.resource)
        elif fault.action == "no_image":
            self.kubelets.without_registry.add(pod["metadata"]["uid"])
        else:
            self.kubelets.preempt(pod, fault.grace_s)
