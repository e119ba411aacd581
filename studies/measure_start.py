"""How long a pod's program takes to its first measured step: `measure_start.py SPEC.json --output DIR [--rounds 2]`.

Runs the spec in each round with empty caches of compiled code, and again with those that this filled, and prints the
seconds of each phase. A first run, not printed, reads the libraries from disk and writes their byte code below DIR,
which an image has from its build.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from studies.run_specs import run, spec_file

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
PHASES = ("launch_s", "import_s", "build_s", "probe_s", "autotune_s", "warmup_s", "compile_s")


def main() -> int:
    """Returns 1 if any run did not end ok."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", type=spec_file, metavar="SPEC.json")
    parser.add_argument("--output", type=Path, metavar="DIR", required=True, help="without results of earlier runs")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    if any(arguments.output.glob("*/result.json")):  # those runs would be skipped, and their caches be missing
        parser.error(f"--output {arguments.output} holds results of earlier runs: choose a new folder")
    arguments.output.mkdir(parents=True, exist_ok=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(arguments.output.resolve() / "byte-code")
    codes = []
    for turn in range(arguments.rounds + 1):
        with tempfile.TemporaryDirectory() as cache:
            os.environ |= {name: f"{cache}/{name}" for name in CACHES}
            for name in ("cold", "warm") if turn else ("first",):
                folder = arguments.output / f"{name}-{turn}"
                codes.append(run(arguments.spec, folder))
                print(line(json.loads((folder / "result.json").read_text())) if turn else "", flush=True)
    return int(any(codes))


def line(result: dict[str, Any]) -> str:
    """The seconds to the first measured step, of each phase, the speed, and the first and last measured loss."""
    if result["error"]:
        return f"  {result['error']}"
    measured, startup = result["performance"], result["startup"]
    phases = ", ".join(f"{name.removesuffix('_s')} {startup[name]:.1f}" for name in PHASES if startup[name] is not None)
    return (
        f"  first measured step after {measured['windows'][0]['started_s']:.1f} s ({phases}); "
        f"{measured['tokens_per_second']:,.0f} tokens/s, losses {measured['first_loss']:.6f} to "
        f"{measured['last_loss']:.6f}"
    )


if __name__ == "__main__":
    sys.exit(main())
