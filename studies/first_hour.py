"""How long README's three quickstarts take from an empty home: clones, sets up and runs each, three times.

    python studies/first_hour.py OUTPUT.json                # half an hour on a quiet machine with two cores
    python studies/first_hour.py OUTPUT.json --device cuda  # where there is a GPU; else the box is a trial on the CPU

Every step has the time by the clock, the CPU time of its processes, and the load before it. The set-ups of all rounds
share a cache of pip, which a first set-up fills: `filling_s` has its downloads, the rounds have none. Run it with
nothing else on the machine; a figure taken beside other programs is an upper bound.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KEPT = ("PIP_", "SSL_", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
LIMIT_S = 3600
TAIL = 3000  # characters of a failed step's output


class Step(NamedTuple):
    """A command of a shell, in the clone. `exits`: the statuses that README's reader may see; 1 and 3 are verdicts."""

    name: str
    command: str
    is_setup: bool = False
    exits: tuple[int, ...] = (0,)


VERDICTS = (0, 1, 3)
AIRFLOW = "export AIRFLOW_HOME=$HOME/airflow AIRFLOW__CORE__LOAD_EXAMPLES=False TRAINBENCH_LAUNCHER=local"
AIRFLOW += (
    " TRAINBENCH_LOCAL_PYTHON=$PWD/.venv-image/bin/python TRAINBENCH_LOCAL_PYTHONPATH=$PWD PATH=$HOME/own/bin:$PATH"
)
LINK = """ln -s "$(python -c 'import sys; print(sys.prefix)')/share/trainbench/dags" "$AIRFLOW_HOME/dags/trainbench\""""
FOUR = """{"quick": true, "nodes": ["node-1", "node-2", "node-3", "node-4"]}"""


def quickstarts(device: str) -> Mapping[str, Sequence[Step]]:
    """Those of README, in its order; the Airflow that one has is a new one, with the local launcher."""
    return {
        "laptop": (
            Step("set-up", "make setup-demo", is_setup=True),
            Step("demo", "make demo", exits=(0, 2)),  # make's 2: a node is red, as on a busy machine
            Step("run", ".venv/bin/trainbench run --set quick=true", exits=VERDICTS),
        ),
        "one box": (
            Step("set-up", "make setup", is_setup=True),
            Step("doctor", ".venv/bin/trainbench doctor", exits=(0, 1)),
            Step("run", f".venv/bin/trainbench run --device {device}", exits=VERDICTS),
        ),
        "own Airflow": (
            Step("training stack", "make setup-demo", is_setup=True),
            Step(
                "Airflow",
                "python3 -m venv $HOME/own && "
                "$HOME/own/bin/pip install -q --require-hashes --no-deps -r requirements/control.txt",
                is_setup=True,
            ),
            Step("install", f"{AIRFLOW} && pip install '.[control]' && mkdir -p $AIRFLOW_HOME/dags && {LINK}"),
            Step("database", f"{AIRFLOW} && airflow db migrate"),
            Step("doctor", f"{AIRFLOW} && trainbench doctor", exits=(0, 1)),
            Step("night", f"{AIRFLOW} && airflow dags test node_consistency --conf '{FOUR}'", exits=(0, 1)),
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", choices=quickstarts("cpu"), help="this quickstart alone")
    arguments = parser.parse_args()
    chosen = quickstarts(arguments.device)
    if arguments.only:
        chosen = {arguments.only: chosen[arguments.only]}
    document: dict[str, Any] = {"at": f"{datetime.now(UTC):%Y-%m-%d}", "machine": _machine(), "commit": _commit()}
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        cache, filled = Path(folder) / "pip", {}
        for name, steps in chosen.items():
            filled[name] = _walk(steps, Path(folder) / f"filling-{name}", cache, only_setup=True)
        rounds = [
            {name: _walk(steps, Path(folder) / f"{round_}-{name}", cache) for name, steps in chosen.items()}
            for round_ in range(1, arguments.times + 1)
        ]
    document |= {"filling_s": {name: _total(walk["steps"]) for name, walk in filled.items()}}
    document |= {"rounds": rounds, "medians": medians(rounds)}
    arguments.output.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document["medians"], indent=1))


def _walk(steps: Sequence[Step], folder: Path, cache: Path, *, only_setup: bool = False) -> dict[str, Any]:
    """A new clone with a new home; both go away, since ten environments would fill the disk."""
    home, clone = folder / "home", folder / "trainbench"
    home.mkdir(parents=True)
    path = f"{Path(sys.base_prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    environ = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    environ |= {"HOME": str(home), "PATH": path, "PIP_CACHE_DIR": str(cache), "LANG": "C.UTF-8"}
    done = [_timed(Step("clone", f"git clone -q {ROOT} {clone}"), folder, environ)]
    done += [_timed(step, clone, environ) for step in steps if step.is_setup or not only_setup]
    disk_bytes = sum(file.lstat().st_size for file in folder.rglob("*"))
    shutil.rmtree(folder)
    return {"steps": done, "disk_gb": round(disk_bytes / 1e9, 2)}


def _timed(step: Step, folder: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    load, cpu, begun = os.getloadavg()[0], _cpu_s(), time.monotonic()
    done = subprocess.run(
        ["/bin/bash", "-c", step.command], cwd=folder, env=environ, capture_output=True, text=True, timeout=LIMIT_S
    )
    wall_s = time.monotonic() - begun
    if done.returncode not in step.exits:
        sys.exit(f"{step.command}\nended with {done.returncode}:\n{done.stdout[-TAIL:]}{done.stderr[-TAIL:]}")
    print(f"{step.name}: {wall_s:.1f} s, exit status {done.returncode}", flush=True)
    return {
        "step": step.name,
        "is_setup": step.is_setup,
        "wall_s": round(wall_s, 1),
        "cpu_s": round(_cpu_s() - cpu, 1),
        "load_before": round(load, 2),
        "exit_status": done.returncode,
    }


def medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Of each quickstart: seconds of all of it, of its set-up, and of the rest; the median over the rounds."""
    return {
        name: {
            "total_s": statistics.median(_total(each[name]["steps"]) for each in rounds),
            "setup_s": statistics.median(_total(each[name]["steps"], of_setup=True) for each in rounds),
            "rest_s": statistics.median(_total(each[name]["steps"], of_setup=False) for each in rounds),
            "disk_gb": statistics.median(each[name]["disk_gb"] for each in rounds),
        }
        for name in rounds[0]
    }


def _total(steps: Sequence[Mapping[str, Any]], of_setup: bool | None = None) -> float:
    return round(sum(step["wall_s"] for step in steps if of_setup in (None, step["is_setup"])), 1)


def _cpu_s() -> float:
    """Of all processes that ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _commit() -> str:
    command = ["/usr/bin/env", "git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
