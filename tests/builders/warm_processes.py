"""Python programs as processes that are forked from one that has imported the libraries, which costs more than a run.

`WarmProcess` has what tests use of subprocess.Popen. The process, and those that its supervisor starts, are processes
like any other, but for their arguments and environment, which /proc shows as those of the first one.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

LIBRARIES = [
    "torch", "torch.distributed.run", "transformers.models.llama.modeling_llama",
    "transformers.models.mistral.modeling_mistral", "peft", "bitsandbytes",
]  # fmt: skip
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(LIBRARIES)


class WarmProcess:
    """`python -m MODULE ARGUMENTS`, whose output is kept. `forks`: what it starts is forked, too: Python programs."""

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], folder: Path | None = None, *, forks: bool = True
    ) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"  # the libraries read it when they are imported
        self._out, self._err = (Path(mkdtemp(), name) for name in ("out", "err"))
        files = str(self._out), str(self._err)
        self._process = CONTEXT.Process(
            target=_be, args=(list(arguments), dict(environ), str(folder or "."), forks, *files)
        )
        self._process.start()
        assert self._process.pid
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int:
        self.communicate()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, signum: signal.Signals) -> None:
        os.kill(self.pid, signum)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a warm process", timeout or 0)
        return tuple(path.read_text() if path.exists() else "" for path in (self._out, self._err))  # type: ignore[return-value]


def run_warm(
    arguments: Sequence[str], environ: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """`python -m ARGUMENTS` in that folder, to its end."""
    process = WarmProcess(arguments, environ, folder)
    out, err = process.communicate(timeout=1800)
    return subprocess.CompletedProcess(arguments, process.returncode or 0, out, err)


class Forked:
    """Of subprocess.Popen what the supervisor and torchrun use; forks instead of starting Python anew."""

    def __init__(self, args: Sequence[str], env: Mapping[str, str], stdout: Any, **_: Any) -> None:
        self.args, self._code = args, None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setsid()
                if stdout:
                    os.dup2(stdout.fileno(), 1)
                run([word for word in args[1:] if word not in ("-u", "-m")], env)
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code: int | None = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def wait(self, timeout: float = 1800) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.01)
        assert self._code is not None
        return self._code


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Runs `python -m ARGUMENTS`, or a script, in this process, which begins as if it had been started so."""
    os.environ.clear()
    os.environ.update(environ)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL)
    module, *sys.argv[1:] = arguments
    if module.endswith(".py"):
        sys.argv[0] = module
        runpy.run_path(module, run_name="__main__")
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _be(arguments: Sequence[str], environ: Mapping[str, str], folder: str, forks: bool, out: str, err: str) -> None:
    os.chdir(folder)
    for descriptor, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), descriptor)
    sys.stdout, sys.stderr = (open(descriptor, "w", closefd=False, buffering=1) for descriptor in (1, 2))  # noqa: SIM115
    if forks:
        from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

        from bench_image.process import children

        subprocess_handler.Popen = Forked  # type: ignore[assignment, misc]
        children.subprocess = SimpleNamespace(Popen=Forked, TimeoutExpired=subprocess.TimeoutExpired)  # type: ignore[attr-defined]
    run(arguments, environ)
