"""A PostgreSQL server for the tests: the one that TRAINBENCH_TEST_POSTGRES_URL names, else one of Debian's."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from bench_image.process.parent_death import die_with_parent

NAMED_BY = "TRAINBENCH_TEST_POSTGRES_URL"
DEBIAN = Path("/usr/lib/postgresql")
OWNER = "postgres"  # whom root starts it as: a server refuses to be root's
START_S = 600
# Nothing of it has to outlive the tests.
SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=16MB", "listen_addresses=")


class NoPostgres(RuntimeError):
    """One sentence: what is missing and what to do."""


def is_named() -> bool:
    """Whether TRAINBENCH_TEST_POSTGRES_URL names a server."""
    return bool(os.environ.get(NAMED_BY))


def server() -> str:
    """Its URL; started on first use, stopped with this process. Raises NoPostgres, and RuntimeError where a server is
    installed and does not start.
    """
    url = _outcome()
    if isinstance(url, RuntimeError):
        raise url
    return url


@cache  # of a failure as well: hundreds of tests ask
def _outcome() -> str | RuntimeError:
    try:
        return _url()
    except RuntimeError as error:
        return error


def _url() -> str:
    if importlib.util.find_spec("psycopg") is None:
        raise NoPostgres("PostgreSQL's driver is not installed: pip install 'psycopg[binary]'")
    return os.environ.get(NAMED_BY) or start_debian().url


def start_debian() -> Debian:
    """A new server of Debian's; it is stopped with this process. Raises NoPostgres and RuntimeError."""
    return Debian(_programs())


def _programs() -> Path:
    """The folder of the newest server's programs."""
    on_path = shutil.which("initdb")
    newest = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))[-1:]
    if not on_path and not newest:
        raise NoPostgres(f"no PostgreSQL here: install the package postgresql, or name a server with {NAMED_BY}")
    return (Path(on_path) if on_path else newest[0]).resolve().parent


class Debian:
    """A server in a folder of its own, reached by a socket there. `url` names the database `postgres`."""

    def __init__(self, programs: Path) -> None:
        folder = Path(tempfile.mkdtemp(prefix="trainbench-postgres-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self._programs, self._folder = programs, folder
        self._owner: dict[str, Any] = {"cwd": folder}
        if os.geteuid() == 0:
            shutil.chown(folder, OWNER, OWNER)
            self._owner |= {"user": OWNER, "group": OWNER, "extra_groups": []}
        # trainbench itself waits 15 s for a connection, which a busy machine may exceed.
        self.url = f"postgresql+psycopg://{OWNER}@/postgres?host={folder}&connect_timeout=300"
        self._make()
        self.start()
        atexit.register(self.stop)

    def _make(self) -> None:
        make: list[str | Path] = [self._programs / "initdb", "--pgdata", "data", "--username", OWNER]
        done = subprocess.run([*make, "--auth", "trust", "--no-sync"], capture_output=True, text=True, **self._owner)
        if done.returncode != 0:
            raise RuntimeError(f"`{self._programs}/initdb` failed: {done.stderr.strip() or done.stdout.strip()}")

    def start(self) -> None:
        """Until it answers. Raises RuntimeError."""
        settings = [part for setting in SETTINGS for part in ("-c", setting)]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", "data", "-k", self._folder, *settings],
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
                **self._owner,
            )
        _wait_until_ready(self.url, self._process, self._folder / "log")

    def stop(self) -> None:
        """At once, whoever is connected."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    from sqlalchemy.exc import OperationalError

    from trainbench.history.database import connect

    give_up = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < give_up:
        try:
            connect(url).connect().close()
        except OperationalError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the server did not start within {START_S} s: {log.read_text().strip()[-300:]}")
