"""One container: a process in its own mount, host-name and PID namespaces, and its log."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

MAX_TERMINATION_MESSAGE = 4096
PIECE_BYTES = 16_384  # containerd writes a longer line in several pieces, each an entry of its log


class Line(NamedTuple):
    """An entry of the log: a line, or a piece of a long one."""

    at_ns: int
    text: bytes  # with its newline, unless the line goes on or the container ended within it

    @property
    def stamp(self) -> bytes:
        """RFC 3339 with nanoseconds, as a kubelet writes it."""
        second = datetime.fromtimestamp(self.at_ns // 10**9, UTC)
        return f"{second:%Y-%m-%dT%H:%M:%S}.{self.at_ns % 10**9:09d}Z ".encode()


class Container:
    """`exit_code` is None while it runs. `oom_killed` is set by fault injection: no memory limit is enforced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[Line] = []
        self.exit_code: int | None = None
        self.oom_killed = False
        self.start_error: str | None = None  # the image has no such program
        self.process: asyncio.subprocess.Process | None = None
        self.pid: int | None = None  # of the container's process 1, as the host sees it
        self.changed = asyncio.Event()  # a line more, or the end; replaced each time
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
            raise RuntimeError(b"".join(line.text for line in self.lines).decode(errors="replace"))
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
        self._notify()

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

    def termination_message(self, from_log: bool) -> str | None:
        if self.start_error:
            return f"failed to create containerd task: failed to start container: {self.start_error}"
        with suppress(OSError):
            if text := self.message_file.read_text(errors="replace")[:MAX_TERMINATION_MESSAGE]:
                return text
        if from_log and self.exit_code:
            return b"".join(line.text for line in self.lines[-80:])[-2048:].decode(errors="replace") or None
        return None

    async def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        pending = b""
        while chunk := await self.process.stdout.read(65_536):
            *complete, pending = (pending + chunk).split(b"\n")
            for text in complete:
                self._add(text + b"\n")
            self._notify()
        if pending:
            self._add(pending)
        self.exit_code = self._exit_code(await self.process.wait())
        self._ended.set()
        self._notify()

    def _add(self, text: bytes) -> None:
        at_ns, body = time.time_ns(), text.removesuffix(b"\n")
        firsts = range(0, max(len(body), 1), PIECE_BYTES)
        ends = [*firsts[1:], len(text)]
        self.lines += [Line(at_ns, text[first:end]) for first, end in zip(firsts, ends, strict=True)]

    def _exit_code(self, code: int) -> int:
        """The exit code of the container's process 1; its helpers print a message where they cannot pass it on."""
        last = self.lines[-1].text if self.lines else b""
        if code == 127 and last.startswith(b"setpriv: failed to execute"):
            self.start_error = self.lines.pop().text.decode(errors="replace").strip()
            return 128
        if code == 1 and last.startswith(b"unshare: sigprocmask unblock failed"):
            self.lines.pop()
            return 128 + signal.SIGKILL
        return code if code >= 0 else 128 - code

    def _notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()
