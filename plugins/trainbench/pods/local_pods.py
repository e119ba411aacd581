"""Runs a Pod manifest as local processes: the flow without a cluster.

It does what the benchmark needs of a kubelet: command, environment, `emptyDir` volumes as folders, the deadline, the
grace period, one process group per pod, and that the pods of a gang find each other. It does not simulate images,
isolation, users, GPU limits or scheduling.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.options import Strategy
from bench_image.contract.pod_io import (
    ADDRESS_ENV,
    HOST_PYTHONPATH_ENV,
    IMAGE_ENV,
    MEETING_ENV,
    NCCL_PREFIX,
    OUTPUT_DIR_ENV,
    TRACES_ENV,
)
from bench_image.contract.result_lines import ABSENT, ResultLinesError, ResultReader
from trainbench.core.user_error import UserError
from trainbench.pods.machine_turns import MachineTurns
from trainbench.pods.manifests import CONTAINER, STRATEGY
from trainbench.pods.pod_end import PodEnd, pod_end
from trainbench.pods.pod_log import LogTail

PREFIX = "TRAINBENCH_"
FOLDER_PREFIX = "trainbench-pod-"
HERE = "127.0.0.1"  # all pods of a gang are this machine, and it has no cluster DNS
DEADLINE_EXCEEDED = "DeadlineExceeded"
MAX_SAID = 300  # characters of the log's last line
POD_FILE, PROGRESS_FILE = "pod.json", "progress"
PROGRESS_MARK = "phase="  # how a line begins in which the program tells where it is


class LocalPodError(UserError, RuntimeError):
    """The pod could not be started; the message says why and what to do."""


class LocalOutcome(Frozen):
    """How a pod ended. `result_text` None: it left no whole result, `missing` says what is missing. `ended_by`: why the
    launcher stopped it. `log`: the last part of its output.
    """

    exit_code: int
    result_text: str | None
    missing: str = ABSENT
    ended_by: str | None = None
    log: str = ""

    @property
    def end(self) -> PodEnd | None:
        """Why it left no whole result, in the words for a pod of a cluster; None where it left one."""
        if self.result_text is not None:
            return None
        said = next((line for line in reversed(self.log.splitlines()) if line), "it wrote nothing")[:MAX_SAID]
        if self.ended_by:
            said = f"it was ended ({self.ended_by}): {said}"
        state = {"terminated": {"exitCode": self.exit_code, "message": said}}
        reason = self.ended_by if self.ended_by == DEADLINE_EXCEEDED else None
        status = {"reason": reason, "containerStatuses": [{"name": CONTAINER, "state": state}]}
        return pod_end({"status": status}, CONTAINER, "", missing=self.missing)


class LocalImage(Frozen):
    """The stand-in for the container image: an interpreter with the training stack, and the folder of `bench_image`."""

    python: str
    pythonpath: str
    remedy: str = "set TRAINBENCH_LOCAL_PYTHON"  # what to do where the interpreter or the training stack is missing

    @property
    def absent(self) -> str:
        """The sentence for an interpreter that is not there."""
        return f"no interpreter at {self.python}" if self.python else "no interpreter with PyTorch on this machine"


class LocalPod:
    """One pod as a process group. `run` blocks; `stop` may be called from another thread or a signal handler."""

    def __init__(self, manifest: Mapping[str, Any], image: LocalImage, turns: MachineTurns | None = None) -> None:
        """`turns`: where the pod shares the machine with others of its campaign."""
        self._turns = turns
        self._spec = manifest["spec"]
        self._metadata = manifest["metadata"]
        self._container = next(c for c in self._spec["containers"] if c["name"] == CONTAINER)
        self._image = image
        self._has_own_job = self._metadata["labels"].get(STRATEGY) == Strategy.OWN
        self._process: subprocess.Popen[str] | None = None
        self._ended_by: str | None = None

    def run(self, on_line: Callable[[str], None]) -> LocalOutcome:
        """Starts the pod, hands each line of its output to `on_line`, and returns when it and its children are gone."""
        try:
            return self._run(on_line)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            where = f"a pod needs room for its files below {tempfile.gettempdir()}"
            raise LocalPodError(f"{where}: {error.strerror}") from None

    def _run(self, on_line: Callable[[str], None]) -> LocalOutcome:
        if not os.access(self._image.python, os.X_OK):
            raise LocalPodError(f"{self._image.absent}: {self._image.remedy}")
        for name, place in (("envFrom", self._container), ("initContainers", self._spec)):
            if place.get(name):
                raise LocalPodError(f"the Pod template's {name} needs a cluster: unset TRAINBENCH_POD_TEMPLATE here")
        with ExitStack() as stack:
            turn = self._turns.admitted(lambda: self._ended_by is not None) if self._turns else None
            locks = [stack.enter_context(turn)] if turn else []
            if self._ended_by:
                return LocalOutcome(exit_code=-signal.SIGTERM, result_text=None, ended_by=self._ended_by)
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX)))
            command = [self._image.python, *self._container["command"][1:], *self._container.get("args", [])]
            self._process = subprocess.Popen(
                command,
                env=self._environment(root),
                cwd=root,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                pass_fds=locks,
                start_new_session=True,  # so that the whole pod can be stopped, and nothing else
            )
            if self._ended_by:  # stopped meanwhile, by another thread
                self._kill(signal.SIGKILL)
            deadline = threading.Timer(self._spec["activeDeadlineSeconds"], self.stop, (DEADLINE_EXCEEDED,))
            deadline.daemon = True
            deadline.start()
            # For `trainbench watch`, which runs as another process.
            about = {"pid": self._process.pid, "started_at": time.time(), "metadata": self._metadata}
            (root / POD_FILE).write_text(json.dumps(about))
            try:
                reader = ResultReader()
                log = self._follow(root / PROGRESS_FILE, reader, on_line)
                exit_code = self._process.wait()
            finally:
                deadline.cancel()
                self._kill(signal.SIGKILL)
                self._process.stdout.close()  # type: ignore[union-attr]
            ended = {"exit_code": exit_code, "ended_by": self._ended_by, "log": log}
            try:
                return LocalOutcome(result_text=reader.text(), **ended)
            except ResultLinesError as error:
                return LocalOutcome(result_text=None, missing=str(error), **ended)

    def _follow(self, progress_file: Path, reader: ResultReader, on_line: Callable[[str], None]) -> str:
        """Read the output to its end, the result with the reader; return the last part of the rest."""
        assert self._process is not None
        assert self._process.stdout is not None
        tail = LogTail()
        with progress_file.open("w", buffering=1) as progress:
            for line in self._process.stdout:
                if reader.add(line):
                    continue
                if line.startswith(PROGRESS_MARK):
                    progress.write(line)
                tail.add(line.rstrip("\n"))
                on_line(line.rstrip("\n"))
        return tail.text

    def stop(self, why: str) -> None:
        """SIGTERM, the manifest's grace period, then SIGKILL, to the pod's whole process group."""
        if self._ended_by:
            return
        self._ended_by = why
        if self._process is None:
            return  # it waits for its turn, and will not start
        self._kill(signal.SIGTERM)
        give_up = time.monotonic() + float(self._spec["terminationGracePeriodSeconds"])
        while self._process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.1)
        self._kill(signal.SIGKILL)

    def kill(self, why: str) -> None:
        """Ends the pod at once, without a result."""
        if self._has_own_job:
            self.stop(why)  # our program ends the command's processes, of which torchrun's are in groups of their own
        self._ended_by = self._ended_by or why
        self._kill(signal.SIGKILL)

    def _kill(self, signum: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signum)

    def _environment(self, root: Path) -> dict[str, str]:
        """The manifest's variables, mount paths inside `root`; of the host's what a process needs to start, NCCL's,
        which results show, and the folder for traces.
        """
        mounts = {mount["mountPath"]: root / mount["mountPath"][1:] for mount in self._container["volumeMounts"]}
        for folder in mounts.values():
            folder.mkdir(parents=True, exist_ok=True)
        if self._has_own_job:  # the command runs as in the shell: only what our program needs comes from the manifest
            return {**os.environ, **self._of_program(root)}
        needed = ("PATH", "LANG", "LD_LIBRARY_PATH")
        passed = {name: value for name, value in os.environ.items() if name in needed or name.startswith(NCCL_PREFIX)}
        passed |= self._turns.environment if self._turns else {}
        if traces := os.environ.get(TRACES_ENV):
            passed[TRACES_ENV] = str(Path(traces).resolve())
        passed |= {"PYTHONPATH": self._image.pythonpath, "TMPDIR": str(root / "tmp"), "PYTHONUNBUFFERED": "1"}
        for variable in self._container["env"]:
            value = self._value(variable)
            within = next((path for path in mounts if value == path or value.startswith(f"{path}/")), None)
            passed[variable["name"]] = f"{mounts[within]}{value[len(within) :]}" if within else value
        return passed

    def _of_program(self, root: Path) -> dict[str, str]:
        """The manifest's variables for our program beside a command of the user's own, and where it lies."""
        own = {
            each["name"]: self._value(each)
            for each in self._container["env"]
            if each["name"].startswith(PREFIX) or each["name"] in MEETING_ENV
        }
        del own[IMAGE_ENV]  # here is no image
        host = {HOST_PYTHONPATH_ENV: os.environ.get("PYTHONPATH", ""), "PYTHONPATH": self._image.pythonpath}
        return own | host | {OUTPUT_DIR_ENV: str(root / "results")}

    def _value(self, variable: Mapping[str, Any]) -> str:
        if variable["name"] == ADDRESS_ENV:
            return HERE
        if "value" in variable:
            return str(variable["value"])
        section, _, field = variable["valueFrom"].get("fieldRef", {}).get("fieldPath", "").partition(".")
        if section != "metadata" or field not in ("name", "namespace"):
            what = f"the variable {variable['name']} of the Pod template gets its value from a cluster"
            raise LocalPodError(f"{what}: unset TRAINBENCH_POD_TEMPLATE here")
        return str(self._metadata[field])
