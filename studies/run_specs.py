"""Runs the benchmark program for each spec file, one after the other, as pods would: for a machine without a cluster.

    python3 studies/run_specs.py OUTPUT_DIR SPEC.json ... [--begin-within-s 480]

Writes OUTPUT_DIR/<campaign>/<spec's name>/{result.json,log}. Its python must hold the training stack. A run whose
result is there already is not repeated, so that a sweep that was cut off goes on where it stopped. A run on several
nodes is as many pods on this machine, each with GPUs of its own; in a campaign whose name ends in "-tcp" they exchange
by TCP alone, as hosts without a faster network do.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from studies.argument_types import spec_file

TCP_CAMPAIGN = "-tcp"
TCP_ONLY = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}


def main() -> int:
    """Returns 1 if any run did not end ok."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUTPUT_DIR")
    parser.add_argument("specs", type=spec_file, nargs="+", metavar="SPEC.json")
    parser.add_argument("--begin-within-s", type=float, default=math.inf, help="begin no run after so many seconds")
    arguments = parser.parse_args()
    last_begin = time.monotonic() + arguments.begin_within_s
    left, codes = list(arguments.specs), []
    while left and time.monotonic() < last_begin:
        spec = left.pop(0)
        campaign = json.loads(spec.read_text())["identity"]["campaign_id"]
        codes.append(run(spec, arguments.output / campaign / spec.stem))
    if left:
        print(f"{len(left)} of {len(arguments.specs)} runs are left, from {left[0].stem} on", flush=True)
    return int(any(codes))


def run(spec: Path, output: Path) -> int:
    """Runs all pods of a spec; the first writes the result. Returns 0, or the exit status of a pod that failed; 0 for a
    run that was made before.
    """
    if (output / "result.json").exists():
        return 0
    output.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    pods = []
    with tempfile.TemporaryDirectory() as elsewhere:
        for number, env in enumerate(environments(json.loads(spec.read_text()))):
            folder = output if number == 0 else Path(elsewhere, str(number))
            folder.mkdir(exist_ok=True)
            command = [sys.executable, "-m", "bench_image", "--spec", str(spec), "--output", str(folder)]
            with (output / f"log{number or ''}").open("wb") as log:
                pods.append(subprocess.Popen(command, env=os.environ | env, stdout=log, stderr=subprocess.STDOUT))
        code = max(abs(pod.wait()) for pod in pods)
    print(f"{spec.stem}: exit {code}, {time.monotonic() - started:.0f} s", flush=True)
    return code


def environments(spec: dict[str, Any]) -> list[dict[str, str]]:
    """Variables of each pod's environment; of several pods: its number, the address of the first, and its GPUs."""
    nodes, gpus = spec["placement"]["nodes"], spec["placement"]["gpus_per_node"]
    if nodes == 1:
        return [{}]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    if spec["identity"]["campaign_id"].endswith(TCP_CAMPAIGN):
        shared |= TCP_ONLY
    first = range(0, nodes * gpus, gpus)
    visible = [",".join(str(gpu) for gpu in range(start, start + gpus)) for start in first]
    return [shared | {"NODE_RANK": str(number), "CUDA_VISIBLE_DEVICES": own} for number, own in enumerate(visible)]


if __name__ == "__main__":
    sys.exit(main())
