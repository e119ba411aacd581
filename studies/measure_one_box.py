"""Measures what `trainbench run --device cuda` says on one box: alone, beside a neighbour on its GPU, beside busy CPUs.

    python3 studies/measure_one_box.py OUT.json

Runs the nightly check in one new store: twice alone, once beside a process that holds 40 GB and multiplies all the
time, once beside 32 busy processes on the CPU, once alone again. Writes for each the seconds, the exit code, the node
as `--json` has it, and what the GPU's telemetry and probes say. Needs both environments in one, and an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from studies.measure_probes import NEIGHBOUR  # noqa: E402

BUSY = "while True: pass"
CONDITIONS = ("alone", "alone", "neighbour", "busy CPUs", "alone")
CLI = "from trainbench.cli.app import app; app()"


@contextmanager
def beside(condition: str) -> Iterator[None]:
    programs = {"neighbour": [NEIGHBOUR], "busy CPUs": [BUSY] * 32}.get(condition, [])
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for program in programs]
    try:
        if condition == "neighbour" and running[0].stdout:
            running[0].stdout.readline()
        yield
    finally:
        for process in running:
            process.kill()


def check(store: Path) -> dict[str, Any]:
    """One check, as a script sees it."""
    command = [sys.executable, "-c", CLI, "run", "--device", "cuda", "--store", str(store), "--json"]
    began = time.monotonic()
    path = f"{ROOT}:{ROOT / 'plugins'}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=path))
    seconds = time.monotonic() - began
    try:
        data = json.loads(done.stdout)["data"]
    except (ValueError, KeyError):
        return {"seconds": seconds, "exit_code": done.returncode, "error": (done.stdout + done.stderr)[-4000:]}
    return {"seconds": seconds, "exit_code": done.returncode, **_said(data, store)}


def _said(data: Mapping[str, Any], store: Path) -> dict[str, Any]:
    newest = max(store.glob("campaigns/*/runs/*/result.json"), key=lambda path: path.stat().st_mtime)
    result = json.loads(newest.read_text())
    return {
        "nodes": data.get("nodes"),
        "samples_per_second": result["performance"]["samples_per_second"],
        "probes": result["probes"],
        "gpus": result["telemetry"]["gpus"],
        "startup": result["startup"],
        "libraries": result["context"]["libraries"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUT.json")
    output = parser.parse_args().output
    made: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for condition in CONDITIONS:
            with beside(condition):
                made.append({"condition": condition, **check(Path(folder) / "store")})
            output.write_text(json.dumps(made, indent=1))
            last = made[-1]
            said = last["nodes"][0]["reason"] if last.get("nodes") else last.get("error")
            print(f"{condition}: {last['seconds']:.0f} s, exit {last['exit_code']}: {said}", flush=True)


if __name__ == "__main__":
    main()
