"""One container: a process in its own mount, host-name and PID namespaces, and its log."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

MAX_TERMINATION_MESSAGE = 4096


class Container:
    """`exit_code` is None while it runs. `oom_killed` is set by fault injection: no memory limit is enforced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[bytes] = []  # of its log, each with its newline
        self.exit_code: int | None = None
        self.oom_killed = False
        self.process: asyncio.subprocess.Process | None = None
        self.pid: int | None = None  # of the container's process 1, as the host sees it
        self._ended = asyncio.Event()

    @property
    def message_file(self) -> Path:
        return self.folder / "termination-log"

    @property
    def started_file(self) -> Path:
        return self.folder / "started"

    async def start(self, script: str, network: list[str]) -> None:
        """Returns when the container's own program is about to run; raises RuntimeError if its root cannot be made."""
        self.process = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL", "--", *network),
            *("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "sh", "-c", script),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        reading = asyncio.create_task(self._read())
        while not self.started_file.exists() and not reading.done():
            await asyncio.sleep(0.02)
        if not self.started_file.exists():
            raise RuntimeError(b"".join(self.lines).decode(errors="replace"))
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with suppress(OSError, ValueError, IndexError):
            self.pid = int(children.read_text().split()[0])

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.exit_code is not None
        return self.exit_code

    def kill(self, signum: signal.Signals) -> None:
        """To process 1: as in a real container, SIGTERM does nothing to a program that has no handler for it."""
        if self.exit_code is None and self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def freeze(self, signum: signal.Signals) -> None:
        """SIGSTOP or SIGCONT to all its processes, parents first: connections stay open, and nobody answers."""
        pending = [self.pid] if self.exit_code is None and self.pid is not None else []
        for pid in pending:  # grows while it is walked
            with suppress(OSError):
                os.kill(pid, signum)
                pending += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    async def stop(self, grace_s: float) -> None:
        if self.process is not None and self.pid is None and self.exit_code is None:
            # Still making its root. The whole session: a child that unshare has just forked does not yet die with it.
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.kill(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), grace_s)
        self.kill(signal.SIGKILL)
        if self.process is not None:
            await self._ended.wait()

    def termination_message(self) -> str:
        with suppress(OSError):
            return self.message_file.read_text(errors="replace")[:MAX_TERMINATION_MESSAGE]
        return ""

    async def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        pending = b""
        while chunk := await self.process.stdout.read(65_536):
            *complete, pending = (pending + chunk).split(b"\n")
            self.lines += [text + b"\n" for text in complete]
        if pending:
            self.lines.append(pending)
        self.exit_code = self._exit_code(await self.process.wait())
        self._ended.set()

    def _exit_code(self, code: int) -> int:
        """The exit code of the container's process 1; its helper prints a message where it cannot pass it on."""
        if code == 1 and self.lines and self.lines[-1].startswith(b"unshare: sigprocmask unblock failed"):
            self.lines.pop()
            return 128 + signal.SIGKILL
        return code if code >= 0 else 128 - code
