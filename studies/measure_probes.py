"""Measures what the probes of a GPU give and take, and what a run says of its GPU alone and beside a neighbour.

    python3 studies/measure_probes.py SPEC.json OUT [--rounds 5]

Writes OUT/probes.json (every probe in several rounds, in a process of its own each, with the seconds that all took),
OUT/quiet/result.json, and OUT/neighbour/result.json beside a process that holds 40 GB and multiplies all the time.
Needs the training stack and an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_image.contract.work import Device
from bench_image.telemetry.gpu_watch import GpuWatch
from studies.argument_types import spec_file
from studies.run_specs import run

NEIGHBOUR_GB = 40
ROUND = """
import json, sys, time, torch
from bench_image.telemetry.probes import probe
class Alone:
    device, world_size = torch.device("cuda", 0), 1
    def max_over_ranks(self, values): return list(values)
torch.ones(1, device="cuda")
began = time.monotonic()
probes, missing = probe(Alone(), torch.cuda.get_device_name(), torch.bfloat16)
seconds = time.monotonic() - began
print(json.dumps({"seconds": seconds, "probes": probes.model_dump(), "missing": missing}))
"""
NEIGHBOUR = f"""
import torch
held = torch.empty({NEIGHBOUR_GB} * 10**9, dtype=torch.uint8, device="cuda")
left, right = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
print("ready", flush=True)
while True:
    torch.mm(left, right)
    torch.cuda.synchronize()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", type=spec_file, metavar="SPEC.json")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    output = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    watch = GpuWatch(Device.CUDA)
    watch_s = time.monotonic() - began
    rounds = [json.loads(_python(ROUND)) for _ in range(arguments.rounds)]
    began = time.monotonic()
    watched = watch.end()
    end_s = time.monotonic() - began
    uuids = list(watch._gpus)
    document = {
        "rounds": rounds,
        "watch": {uuid: watched(uuid)._asdict() for uuid in uuids},
        "seconds_to_begin_the_watch": watch_s,
        "seconds_to_end_the_watch": end_s,
    }
    (output / "probes.json").write_text(json.dumps(document, indent=1))
    run(arguments.spec, output / "quiet")
    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE, text=True)
    try:
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
        run(arguments.spec, output / "neighbour")
    finally:
        neighbour.kill()
        neighbour.wait()


def _python(program: str) -> str:
    """The last line that the program prints."""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()[-1]


if __name__ == "__main__":
    main()
