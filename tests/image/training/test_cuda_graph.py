"""The guard of a rank that replays a graph; tests/gpu/test_gang_graphs_gpu.py has the graphs themselves."""

from __future__ import annotations

import subprocess
import sys

from tests.builders.image_processes import environment

STUCK = """
import threading
from bench_image.training.cuda_graph import HangGuard
forever = threading.Event()
closed, guard = HangGuard(5.0), HangGuard(0.2)  # on a busy machine some time passes until the first is closed
closed.progress()
closed.close()
forever.wait(6.0)
print("closed", flush=True)
guard.progress()
forever.wait()
"""


def test_a_process_that_makes_no_progress_ends_with_its_stack() -> None:
    """A closed guard ends nothing."""
    ended = subprocess.run(
        [sys.executable, "-c", STUCK], env=environment(), capture_output=True, text=True, timeout=1500
    )

    assert (ended.returncode, ended.stdout) == (1, "closed\n")
    assert "Timeout" in ended.stderr
    assert "threading.py" in ended.stderr
