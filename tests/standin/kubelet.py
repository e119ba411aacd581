"""The kubelets of all nodes, which run their pods: containers, volumes, names, deadlines, status, deletion."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.standin.events import Recorder
from tests.standin.pod_run import Ending, PodRun
from tests.standin.pod_status import set_condition
from tests.standin.store import Store, timestamp

Object = dict[str, Any]


class Kubelets:
    """The kubelets of all nodes. `images` maps an image's name to what stands for it (see README.md)."""

    def __init__(
        self,
        store: Store,
        events: Recorder,
        folder: Path,
        network: list[str],
        on_moment: Callable[[Object, str], None],
        on_end: Callable[[], None],
    ) -> None:
        self.store = store
        self.events = events
        self.folder = folder
        self.network = network  # the command that enters the pods' network
        self.images: dict[str, Object] = {}
        self.runs: dict[str, PodRun] = {}
        self.dead: set[str] = set()  # nodes that do not answer
        self._orphans: list[PodRun] = []  # still there on dead nodes, though their objects were removed by force
        self._on_moment = on_moment
        self._on_end = on_end
        self._tasks: set[asyncio.Task[None]] = set()
        self._addresses = itertools.count(2)

    def start(self, pod: Object) -> None:
        number = next(self._addresses)
        pod["status"]["podIP"] = f"127.0.{number // 250}.{number % 250 + 1}"
        pod["status"]["podIPs"] = [{"ip": pod["status"]["podIP"]}]
        run = PodRun(self, pod)
        self.runs[pod["metadata"]["uid"]] = run
        if not self.answers(pod):
            run.freeze()
        self.refresh_hosts()
        self._spawn(self._live(run))

    async def _live(self, run: PodRun) -> None:
        await run.run()
        if "deletionTimestamp" in run.pod["metadata"]:
            self._forget(run.pod)
        self._on_end()

    def moment(self, pod: Object, moment: str) -> None:
        self._on_moment(pod, moment)

    def answers(self, pod: Object) -> bool:
        """Whether the pod's node does."""
        return pod["spec"].get("nodeName") not in self.dead

    def die(self, node: str) -> None:
        self.dead.add(node)
        for run in self.runs.values():
            if run.spec.get("nodeName") == node:
                run.freeze()

    def delete(self, pod: Object, grace_s: float | None = None) -> None:
        """As the API's DELETE: at once if nothing of it runs or `grace_s` is 0, otherwise when its containers have
        ended, which the kubelet of a dead node never reports.
        """
        metadata, run = pod["metadata"], self.runs.get(pod["metadata"]["uid"])
        if grace_s is None:
            grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
        if run is None or run.finished or grace_s == 0:
            self._forget(pod)
        elif "deletionTimestamp" not in metadata:
            until = datetime.now(UTC) + timedelta(seconds=grace_s)
            metadata |= {"deletionTimestamp": timestamp(until), "deletionGracePeriodSeconds": int(grace_s)}
            self.store.touch("pods", pod)
            if self.answers(pod):
                name = pod["spec"]["containers"][0]["name"]
                self.events.record(pod, "Normal", "Killing", f"Stopping container {name}")
                run.stop(Ending(grace_s))

    def evict(self, pod: Object) -> None:
        message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 91804Ki. "
        self.events.record(pod, "Warning", "Evicted", message)
        self._disrupt(pod, "TerminationByKubelet", message)
        self.runs[pod["metadata"]["uid"]].stop(Ending(0, "Evicted", message))

    def preempt(self, pod: Object) -> None:
        node = pod["spec"].get("nodeName")
        self.events.record(
            pod, "Normal", "Preempted", f"Preempted by pod 0c6f5ad5-3ac5-4b1c-9d2e-52b0f3a5e6a7 on node {node}"
        )
        self._disrupt(
            pod, "PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"
        )
        self.delete(pod)

    def taint_evict(self, pod: Object) -> None:
        if not self.store.has("pods", pod["metadata"]["namespace"], pod["metadata"]["name"]):
            return
        self.events.record(
            pod,
            "Normal",
            "TaintManagerEviction",
            f"Marking for deletion Pod {pod['metadata']['namespace']}/{pod['metadata']['name']}",
        )
        self._disrupt(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
        self.delete(pod)

    def oom(self, pod: Object) -> None:
        container = self.runs[pod["metadata"]["uid"]].containers[pod["spec"]["containers"][0]["name"]]
        container.oom_killed = True
        container.kill(signal.SIGKILL)

    def _disrupt(self, pod: Object, reason: str, message: str) -> None:
        set_condition(pod["status"], "DisruptionTarget", True, reason, message)
        self.store.touch("pods", pod)

    def _forget(self, pod: Object) -> None:
        self.store.remove("pods", pod)
        run = self.runs.pop(pod["metadata"]["uid"], None)
        if run is not None and not self.answers(pod):
            self._orphans.append(run)
        elif run is not None:
            self._end(run)
        self.refresh_hosts()
        self._on_end()

    def _end(self, run: PodRun) -> None:
        run.stop(Ending(0))
        self._spawn(self._clean(run))

    async def _clean(self, run: PodRun) -> None:
        await run.ended.wait()
        await asyncio.to_thread(shutil.rmtree, run.folder, True)

    async def stop_all(self) -> None:
        self.dead.clear()
        for run in (*self.runs.values(), *self._orphans):
            run.thaw()
            self._end(run)
        for run in list(self.runs.values()):
            self._forget(run.pod)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=120)

    def refresh_hosts(self) -> None:
        """Writes each running pod's /etc/hosts anew, in place: it is bind-mounted into the containers."""
        published = [line for run in self.runs.values() if (line := self._published(run.pod))]
        for run in self.runs.values():
            if not run.finished:
                run.write_hosts(published)

    def _published(self, pod: Object) -> str | None:
        """The DNS record that a headless Service gives a pod with `hostname` and `subdomain`."""
        spec, space = pod["spec"], pod["metadata"]["namespace"]
        service = spec.get("subdomain")
        if not spec.get("hostname") or not service or not self.store.has("services", space, service):
            return None
        rules = self.store.get("services", space, service)["spec"]
        labels = pod["metadata"].get("labels", {})
        if rules.get("clusterIP") != "None" or any(labels.get(k) != v for k, v in rules.get("selector", {}).items()):
            return None
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        if not ready and not rules.get("publishNotReadyAddresses"):
            return None
        name = f"{spec['hostname']}.{service}"
        return f"{pod['status']['podIP']} {name}.{space}.svc.cluster.local {name}.{space}.svc {name}.{space} {name}"

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
