"""One pod on its node, from the first container's start to the last one's end."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.standin import pod_status, sandbox
from tests.standin.container import Container
from tests.standin.store import timestamp

if TYPE_CHECKING:
    from tests.standin.kubelet import Kubelets

Object = dict[str, Any]
RETRY_S = 1.0  # a kubelet's pull back-off starts at 10 s; tests do not wait that long


class Ending(NamedTuple):
    """Why the pod is being stopped before its containers ended by themselves."""

    grace_s: float
    reason: str | None = None
    message: str | None = None


class Blocked(Exception):
    """A container that cannot be started now: (waiting reason, message); tried again later."""


class PodRun:
    def __init__(self, kubelets: Kubelets, pod: Object) -> None:
        self._kubelets = kubelets
        self.pod = pod
        self.spec: Object = pod["spec"]
        self.folder = kubelets.folder / pod["metadata"]["uid"]
        self.containers: dict[str, Container] = {}
        self.ended = asyncio.Event()
        self._stopping: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._node_answers = asyncio.Event()  # not set: the node is dead, and nothing of the pod changes
        self._node_answers.set()
        self._started_at: dict[str, str] = {}
        (self.folder / "volumes").mkdir(parents=True)

    @property
    def finished(self) -> bool:
        return self.ended.is_set()

    def stop(self, ending: Ending) -> None:
        if not self._stopping.done():
            self._stopping.set_result(ending)
        elif ending.grace_s == 0:
            for container in self.containers.values():
                container.kill(signal.SIGKILL)

    def freeze(self) -> None:
        """The node is gone, and its kubelet with it: nobody enforces a deadline or reports an end."""
        self._node_answers.clear()
        for container in self.containers.values():
            container.freeze(signal.SIGSTOP)

    def thaw(self) -> None:
        self._node_answers.set()
        for container in self.containers.values():
            container.freeze(signal.SIGCONT)

    async def run(self) -> None:
        await self._node_answers.wait()
        self.pod["status"] |= pod_status.initial_status(self.spec, self.pod["status"].get("hostIP", "127.0.0.1"))
        self._publish()
        work = asyncio.gather(*(self._live(spec) for spec in self.spec["containers"]))
        await asyncio.wait(
            (work, self._stopping), timeout=self.spec.get("activeDeadlineSeconds"), return_when=asyncio.FIRST_COMPLETED
        )
        await self._node_answers.wait()
        ending = None
        if not work.done():
            ending = self._stopping.result() if self._stopping.done() else self._deadline()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await asyncio.gather(*(container.stop(ending.grace_s) for container in self.containers.values()))
        else:
            work.result()
        self._finish(ending)

    def _deadline(self) -> Ending:
        message = "Pod was active on the node longer than the specified deadline"
        self._kubelets.events.record(self.pod, "Normal", "DeadlineExceeded", message)
        return Ending(self.spec.get("terminationGracePeriodSeconds", 30), "DeadlineExceeded", message)

    async def _live(self, spec: Object) -> None:
        container = await self._bring_up(spec)
        if all(own["ready"] for own in self.pod["status"]["containerStatuses"]):
            self._kubelets.moment(self.pod, "running")
        await container.wait()
        self._set_terminated(spec["name"])
        if spec is self.spec["containers"][0]:
            self._kubelets.moment(self.pod, "ended")

    async def _bring_up(self, spec: Object) -> Container:
        while True:
            try:
                container = await self._start(spec)
                break
            except Blocked as blocked:
                reason, message = blocked.args
                self._set_state(spec["name"], pod_status.waiting(reason, message))
            await asyncio.sleep(RETRY_S)
        self._started_at[spec["name"]] = timestamp()
        status = self._status(spec["name"])
        status |= {"ready": True, "started": True, "containerID": f"standin://{container.folder.name}"}
        status["imageID"] = f"standin/{spec['image']}"
        self._set_state(spec["name"], pod_status.running(self._started_at[spec["name"]]))
        self._record("Normal", "Started", f"Started container {spec['name']}")
        return container

    async def _start(self, spec: Object) -> Container:
        image = await self._pull(spec)
        await self._node_answers.wait()
        user = self._user(spec)
        mounts = self._mounts(spec)
        container = Container(self.folder / spec["name"])
        container.folder.mkdir(exist_ok=True)
        container.message_file.touch()
        container.message_file.chmod(0o666)
        self.containers[spec["name"]] = container
        mounts.append(sandbox.Mount(container.message_file, spec.get("terminationMessagePath", "/dev/termination-log")))
        mounts += [sandbox.Mount(Path(path), path, read_only=True) for path in image.get("paths", [])]
        process = self.process(spec, image, user)
        own = spec.get("securityContext") or {}
        root = container.folder / "root"
        root.mkdir(exist_ok=True)
        script = sandbox.script(
            root, self.hostname, mounts, process, container.started_file, bool(own.get("readOnlyRootFilesystem"))
        )
        self._record("Normal", "Created", f"Created container: {spec['name']}")
        try:
            await container.start(script, self._kubelets.network)
        except RuntimeError as error:
            await container.wait()
            raise Blocked("RunContainerError", f"failed to create containerd task: {error}") from None
        return container

    async def _pull(self, spec: Object) -> Object:
        """The image, once it is there. An image that nobody mapped cannot be pulled."""
        name = spec["image"]
        if (image := self._kubelets.images.get(name)) is not None:
            await asyncio.sleep(image.get("pull_s", 0))
            self._record("Normal", "Pulled", f'Container image "{name}" already present on machine')
            return image
        if "ImagePull" in self._status(spec["name"])["state"].get("waiting", {}).get("reason", ""):
            self._record("Normal", "BackOff", f'Back-off pulling image "{name}"')
            self._record("Warning", "Failed", "Error: ImagePullBackOff")
            raise Blocked("ImagePullBackOff", f'Back-off pulling image "{name}": ErrImagePull: not found')
        cause = f'failed to pull and unpack image "{name}": failed to resolve reference "{name}": not found'
        self._record("Normal", "Pulling", f'Pulling image "{name}"')
        self._record("Warning", "Failed", f'Failed to pull image "{name}": rpc error: code = NotFound desc = {cause}')
        self._record("Warning", "Failed", "Error: ErrImagePull")
        raise Blocked("ErrImagePull", f"rpc error: code = NotFound desc = {cause}")

    def _user(self, spec: Object) -> int | None:
        in_pod, own = self.spec.get("securityContext") or {}, spec.get("securityContext") or {}
        user = own.get("runAsUser", in_pod.get("runAsUser"))
        if own.get("runAsNonRoot", in_pod.get("runAsNonRoot")) and user in (None, 0):
            raise Blocked("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")
        return int(user) if user is not None else None

    def _mounts(self, spec: Object) -> list[sandbox.Mount]:
        mounts = [sandbox.Mount(self.folder / "hosts", "/etc/hosts")]
        volumes = {volume["name"]: volume for volume in self.spec.get("volumes", [])}
        for mount in spec.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if "emptyDir" not in volume:
                kinds = ", ".join(key for key in volume if key != "name")
                self._record(
                    "Warning", "FailedMount", f'MountVolume.SetUp failed for volume "{mount["name"]}": {kinds}'
                )
                raise Blocked("ContainerCreating", None)
            source = self.folder / "volumes" / mount["name"] / mount.get("subPath", "")
            source.mkdir(parents=True, exist_ok=True)
            source.chmod(0o777)
            mounts.append(sandbox.Mount(source, mount["mountPath"], mount.get("readOnly", False)))
        return mounts

    def process(self, spec: Object, image: Object, user: int | None) -> sandbox.Process:
        """The container's program."""
        env = self._environment(spec, image)
        in_pod, own = self.spec.get("securityContext") or {}, spec.get("securityContext") or {}
        return sandbox.Process(
            argv=[_expanded(part, env) for part in (*spec.get("command", ()), *spec.get("args", ()))],
            env=env,
            workdir=spec.get("workingDir", "/"),
            user=user,
            group=own.get("runAsGroup", in_pod.get("runAsGroup")),
            fs_group=in_pod.get("fsGroup"),
            no_new_privileges=own.get("allowPrivilegeEscalation") is False,
            drop_capabilities="ALL" in ((own.get("capabilities") or {}).get("drop") or []),
        )

    def _environment(self, spec: Object, image: Object) -> dict[str, str]:
        env: dict[str, str] = {"PATH": sandbox.PATH, "HOME": "/", "HOSTNAME": self.hostname, **image.get("env", {})}
        for variable in spec.get("env") or []:
            source = variable.get("valueFrom")
            if source is None:
                env[variable["name"]] = _expanded(variable.get("value", ""), env)
            elif "fieldRef" in source:
                env[variable["name"]] = self._field(source["fieldRef"]["fieldPath"])
            else:
                raise Blocked("CreateContainerConfigError", f"{', '.join(source)} not found")
        return env

    def _field(self, path: str) -> str:
        if match := re.match(r"^metadata\.(labels|annotations)\['([^']+)'\]$", path):
            return str((self.pod["metadata"].get(match[1]) or {}).get(match[2], ""))
        value: Any = self.pod
        for key in path.split("."):
            value = value.get(key, "")
        return str(value)

    @property
    def hostname(self) -> str:
        return str(self.spec.get("hostname") or self.pod["metadata"]["name"])[:63]

    def write_hosts(self, published: Sequence[str]) -> None:
        names = self.hostname
        if subdomain := self.spec.get("subdomain"):
            names = f"{names}.{subdomain}.{self.pod['metadata']['namespace']}.svc.cluster.local {names}"
        lines = ["127.0.0.1 localhost", f"{self.pod['status']['podIP']} {names}", *published]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")

    def _finish(self, ending: Ending | None) -> None:
        status = self.pod["status"]
        for own in status.get("containerStatuses", []):
            if "running" in own["state"]:
                self._set_terminated(own["name"])
        if ending is not None and ending.reason:
            status |= {"phase": "Failed", "reason": ending.reason, "message": ending.message}
        elif ending is not None:
            status["phase"] = pod_status.phase(status)
            status["phase"] = "Failed" if status["phase"] == "Pending" else status["phase"]
        self.ended.set()
        pod_status.set_readiness(status)
        self._kubelets.store.touch("pods", self.pod)

    def _set_terminated(self, name: str) -> None:
        container, status = self.containers[name], self._status(name)
        status |= {"ready": False, "started": False}
        state = pod_status.terminated(container, self._started_at[name], status["containerID"])
        self._set_state(name, state)

    def _set_state(self, name: str, state: Object) -> None:
        status = self._status(name)
        if status["state"] != state:
            status["state"] = state
            self._publish()

    def _publish(self) -> None:
        status = self.pod["status"]
        status["phase"] = pod_status.phase(status)
        pod_status.set_readiness(status)
        self._kubelets.store.touch("pods", self.pod)

    def _status(self, name: str) -> Object:
        return next(own for own in self.pod["status"]["containerStatuses"] if own["name"] == name)

    def _record(self, kind: str, reason: str, message: str) -> None:
        self._kubelets.events.record(self.pod, kind, reason, message)


def _expanded(text: str, env: dict[str, str]) -> str:
    """`$(NAME)` of a known variable; `$$(NAME)` is an escaped one; unknown names stay as they are."""

    def value(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        return env.get(match[1], match[0])

    return re.sub(r"\$?\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)", value, text)
