"""Is the demo definite? Runs `make demo` many times, on request beside a process that keeps a core busy.

    python studies/repeat_demo.py --times 10 --burn [--drill node-3] [--out docs/results/demo]

Writes a table of the verdicts and seconds of each run, `demo.json` or `drill-node-3.json` and the same as .md, anew
after each run. A run counts as definite when it ended as it should: four nodes `ok`, or the drilled node in breach
and the three others `ok`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NODES = tuple(f"node-{number}" for number in range(1, 5))
# A row of the verdict's table: its cells are apart by two spaces or more; the last one is the state.
ROW = re.compile(r"^ +(node-\d) {2,}.* {2,}(\S.*?) *$", re.MULTILINE)
NAMELESS = re.compile(r"^  \d\d:\d\d:\d\d  (?!node-\d|all nodes)", re.MULTILINE)
TIMEOUT_S = 900


def main() -> int:
    """0: all runs were definite."""
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    done: list[dict[str, Any]] = []
    for number in range(1, arguments.times + 1):
        with _burner(arguments.burn):
            done.append(run_once(arguments.drill))
        print(f"{number}/{arguments.times}: {_row(number, done[-1])}", flush=True)
        _write(arguments.out, arguments.drill, arguments.burn, done)
    return 0 if all(run["is_definite"] for run in done) else 1


def run_once(drill: str | None) -> dict[str, Any]:
    """One demo: its seconds, exit status and each node's state."""
    command = [sys.executable, str(ROOT / "scripts" / "demo.py"), "--port", str(_free_port())]
    started_at, began, load = datetime.now(UTC), time.monotonic(), os.getloadavg()[0]
    done = subprocess.run(
        [*command, *(["--drill", drill] if drill else [])], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    states = states_of(done.stdout)
    return {
        "started_at": started_at.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 1),
        "load_before": round(load, 1),
        "exit_code": done.returncode,
        "states": states,
        "is_definite": is_definite(states, done.returncode, drill),
        "lines_without_a_node": len(NAMELESS.findall(done.stdout)),
        "error": None if states else (done.stdout + done.stderr)[-500:],
    }


def states_of(output: str) -> dict[str, str]:
    """Node -> its state in the verdict's table."""
    return {node: state for node, state in ROW.findall(output)}


def is_definite(states: Mapping[str, str], exit_code: int, drill: str | None) -> bool:
    """Whether each node has the state that it should have, and the exit status says the same."""
    wanted = {node: "breach" if node == drill else "ok" for node in NODES}
    reached = {node: re.split(r"[:,]", state)[0] for node, state in states.items()}
    return reached == wanted and exit_code == (1 if drill else 0)


def table(runs: Sequence[Mapping[str, Any]], drill: str | None, burn: bool) -> str:
    definite = sum(run["is_definite"] for run in runs)
    seconds = sorted(run["seconds"] for run in runs)
    command = f"make demo DRILL={drill}" if drill else "make demo"
    beside = "beside a process that kept one core busy" if burn else "with nothing beside it"
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    head = (
        f"# `{command}`, {len(runs)} runs {beside}\n\n{definite} of {len(runs)} ended as they should, in "
        f"{seconds[0]:.0f} to {seconds[-1]:.0f} s. {machine}; written by `studies/repeat_demo.py`.\n\n"
        "| run | seconds | load before | exit | node-1 | node-2 | node-3 | node-4 |\n"
        "|---:|---:|---:|---:|---|---|---|---|\n"
    )
    return head + "\n".join(_row(number, run) for number, run in enumerate(runs, 1)) + "\n"


def _row(number: int, run: Mapping[str, Any]) -> str:
    cells = [
        number,
        run["seconds"],
        run["load_before"],
        run["exit_code"],
        *(run["states"].get(n, "n/a") for n in NODES),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _write(folder: Path, drill: str | None, burn: bool, runs: Sequence[Mapping[str, Any]]) -> None:
    name = f"drill-{drill}" if drill else "demo"
    document = {"drill": drill, "burner": burn, "num_cpus": os.cpu_count(), "runs": runs}
    (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / f"{name}.md").write_text(table(runs, drill, burn))


@contextmanager
def _burner(wanted: bool) -> Iterator[None]:
    """A process that keeps one core busy, for as long as the demo runs."""
    if not wanted:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="how often (default 10)")
    parser.add_argument("--burn", action="store_true", help="keep one core busy beside each run")
    parser.add_argument("--drill", metavar="NODE", choices=NODES, help="slow this node on purpose")
    parser.add_argument("--out", type=Path, default=ROOT / ".trainbench" / "demo-runs", help="folder of the tables")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
