"""Runs the benchmark program for each spec file, one after the other, as pods would: for a machine without a cluster.

    python3 studies/run_specs.py OUTPUT_DIR SPEC.json ...      -> OUTPUT_DIR/<spec's name>/{result.json,log}

Its python must hold the training stack. A run whose result is there already is not repeated, so that a sweep that was
cut off goes on where it stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    """Returns 1 if any run did not end ok."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUTPUT_DIR")
    parser.add_argument("specs", type=Path, nargs="+", metavar="SPEC.json")
    arguments = parser.parse_args()
    codes = [run(spec, arguments.output / spec.stem) for spec in arguments.specs]
    return int(any(codes))


def run(spec: Path, output: Path) -> int:
    """The program's exit status; 0 for a run that was made before."""
    if (output / "result.json").exists():
        return 0
    output.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    command = [sys.executable, "-m", "bench_image", "--spec", str(spec), "--output", str(output)]
    with (output / "log").open("wb") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    print(f"{spec.stem}: exit {code}, {time.monotonic() - started:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
