"""The memory of a command grows so little with each result that 100,000 results of one campaign need less than 1 GB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.builders import make_result

FEW, MANY, GOAL = 500, 2500, 100_000  # results
MOST_BYTES = 1_000_000_000
NODES = 50
# The kernel's count of a child (ru_maxrss) would include the memory of pytest, which started it.
PROGRAM = """
import atexit, sys
from pathlib import Path
status = lambda: Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
file = Path(sys.argv.pop(1))
atexit.register(lambda: file.write_text(status()))
from trainbench.cli.app import app
app()
"""


def test_100_000_results_are_checked_in_less_than_1_gb(tmp_path: Path) -> None:
    """By the peak over 500 and over 2,500 results: 140 MB of programs, and about 7 kB for each result."""
    few, many = (_peak_bytes(tmp_path / str(number), number) for number in (FEW, MANY))
    growth = (many - few) / (MANY - FEW)

    assert growth > 1000, "the peak does not come from the results: the test measures something else"
    assert few + growth * (GOAL - FEW) < MOST_BYTES


def _peak_bytes(folder: Path, num_results: int) -> int:
    """Of `check` over that many results, each with a rate, windows and step times of its own."""
    for number in range(num_results):
        rate = 9.5 + number / 100_000
        result = make_result(f"node-{number % NODES}", rate, round=number // NODES + 1, windows=(1.0, 0.999, 1.001))
        path = folder / "results" / str(number) / "result.json"
        path.parent.mkdir(parents=True)
        path.write_text(result.model_dump_json())
    command = [sys.executable, "-c", PROGRAM, str(folder / "peak"), "check", str(folder / "results"), "--json"]
    environment = os.environ | {"TRAINBENCH_STORE": str(folder / "store"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    return int((folder / "peak").read_text()) * 1024
