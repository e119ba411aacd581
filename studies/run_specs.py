"""Runs the benchmark program for each spec, one after the other, as pods would: for a machine without a cluster.

    python3 studies/run_specs.py OUTPUT_DIR FILE.json ... [--begin-within-s 480]

FILE.json is a spec, or a result, whose spec is run again. Writes spec.json, result.json and log to
OUTPUT_DIR/<campaign>/<run>; <run> is the file's name, or of a `result.json` its folder's. Its python must hold the
training stack. A run whose result is there already is not repeated, so that a sweep that was cut off goes on where it
stopped. A run on several nodes is as many pods on this machine, each with GPUs of its own; in a campaign whose name
ends in "-tcp" they exchange by TCP alone, as hosts without a faster network do.
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

from bench_image.contract.parse import parse_spec

TCP_CAMPAIGN = "-tcp"
TCP_ONLY = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}


def main() -> int:
    """Returns 1 if any run did not end ok."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUTPUT_DIR")
    parser.add_argument("files", type=spec_file, nargs="+", metavar="FILE.json")
    parser.add_argument("--begin-within-s", type=float, default=math.inf, help="begin no run after so many seconds")
    arguments = parser.parse_args()
    last_begin = time.monotonic() + arguments.begin_within_s
    left, codes = list(arguments.files), []
    while left and time.monotonic() < last_begin:
        file = left.pop(0)
        spec = json.loads(spec_text(file))
        output = arguments.output / spec["identity"]["campaign_id"] / name_of(file)
        output.mkdir(parents=True, exist_ok=True)
        (output / "spec.json").write_text(json.dumps(spec))
        codes.append(run(output / "spec.json", output))
    if left:
        print(f"{len(left)} of {len(arguments.files)} runs are left, from {name_of(left[0])} on", flush=True)
    return int(any(codes))


def name_of(file: Path) -> str:
    return file.parent.name if file.stem == "result" else file.stem


def spec_text(file: Path) -> str:
    """The spec's JSON; of a result, that of its spec."""
    document = json.loads(file.read_text())
    return json.dumps(document.get("spec", document))


def spec_file(text: str) -> Path:
    """The path of a spec or result that can be run: a wrong one is one sentence before anything runs."""
    try:
        parse_spec(spec_text(Path(text)))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be read: {error.strerror}") from None
    except (ValueError, AttributeError) as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None
    return Path(text)


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
    print(f"{output.name}: exit {code}, {time.monotonic() - started:.0f} s", flush=True)
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
