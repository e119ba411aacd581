"""The demo's Airflow: what is missing is one sentence, and every descendant is found, orphans too."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections import namedtuple

import pytest

import local_airflow
from local_airflow import LocalAirflow, LocalAirflowError

Usage = namedtuple("Usage", "total used free")


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10e9, 9.8e9, 0.2e9))

    with pytest.raises(LocalAirflowError, match=r"the disk has 0\.2 GB free and 1 GB is needed: free some space"):
        local_airflow._check_disk()


def test_a_taken_or_impossible_port_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LocalAirflowError, match=f"port {port} is not free"), LocalAirflow(port, False):
            pass
    with pytest.raises(LocalAirflowError, match="port 99999 is not free"), LocalAirflow(99999, False):
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
def test_descendants_end_even_when_their_parent_died_and_they_ignore_sigterm() -> None:
    """In a process of its own: pytest's own children are none of our business."""
    program = """
import subprocess, sys, time
import psutil
from local_airflow import _adopt_orphans, stop_descendants
_adopt_orphans()
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
start = f"subprocess.Popen([sys.executable, '-c', {stubborn!r}], start_new_session=True)"
parent = f"import subprocess, sys; {start}.wait(1)"
subprocess.run([sys.executable, "-c", parent], stderr=subprocess.DEVNULL)
assert len(psutil.Process().children()) == 1, "the orphan was not adopted"
stop_descendants(grace_s=0.5)
print(len(psutil.Process().children(recursive=True)))
"""
    paths = f"{local_airflow.ROOT / 'scripts'}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, env={"PYTHONPATH": paths}
    )

    assert done.stdout.split() == ["0"], done.stderr
