"""Where the seconds from a rank's start to its last window go: `profile_start.py SPEC.json --output DIR`.

Runs one rank of the spec in this process with empty compile caches, looks 100 times a second at what its main thread
does, and prints the number of compiled graphs and, for each phase, the seconds of wall time below each function, the
largest first. `--warm` keeps the compile caches that the environment names. The first run after a boot also reads the
libraries from disk. Where a Python has no byte code of its libraries and may write none (PYTHONDONTWRITEBYTECODE), each
process compiles their sources first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_image.contract.parse import parse_spec
from bench_image.contract.pod_io import SPEC_ENV
from bench_image.process.rank_report import STARTED_ENV
from bench_image.process.supervisor import rank_environment
from studies.argument_types import spec_file

INTERVAL_S = 0.01
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
PACKAGE = re.compile(r".*(?:site-packages|dist-packages|lib/python3\.\d+)/")
LINES = 40


class StackSampler:
    """Counts, by phase, in how many samples of the main thread each function was under way."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.seconds: dict[str, float] = defaultdict(float)
        self.phase = "launch"
        self._main, self._stop = threading.main_thread().ident, threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        before = time.perf_counter()
        while not self._stop.wait(INTERVAL_S):
            now = time.perf_counter()
            self.add(sys._current_frames().get(self._main or 0), now - before)
            before = now

    def add(self, frame: FrameType | None, seconds: float) -> None:
        """A sample that stands for `seconds`: a function counts once, however often it is on the stack."""
        names = set()
        while frame is not None:
            names.add(f"{PACKAGE.sub('', frame.f_code.co_filename)}:{frame.f_code.co_name}")
            frame = frame.f_back
        self.seconds[self.phase] += seconds
        for name in names:
            self.counts[self.phase][name] += seconds


def largest(seconds: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])[:count]


def main() -> int:
    """Returns the rank's exit status."""
    arguments = _arguments()
    spec = parse_spec(arguments.spec.read_text())
    arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache:
        if not arguments.warm:
            os.environ |= {name: f"{cache}/{name}" for name in CACHES}
        os.environ |= rank_environment(spec, arguments.output, os.environ, time.time())
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", SPEC_ENV: spec.of_one_rank.model_dump_json()}
        code, sampler = _sampled_rank()
    report = {
        phase: {name: round(s, 2) for name, s in largest(counts, 200)} for phase, counts in sampler.counts.items()
    }
    (arguments.output / "profile.json").write_text(json.dumps(report, indent=1) + "\n")
    print(compiled())
    for phase, seconds in sampler.seconds.items():
        print(f"{phase}: {seconds:.1f} s")
        for name, below in largest(sampler.counts[phase], arguments.lines):
            print(f"  {below:6.2f}  {name}")
    sys.stdout.flush()
    return code


def compiled() -> str:
    """How many graphs torch compiled, and where it could not follow the code and cut one."""
    from torch._dynamo.utils import counters

    cuts = [f"\n  {count} cuts: {' '.join(cause.split())[:200]}" for cause, count in counters["graph_break"].items()]
    return f"{counters['stats']['unique_graphs']} compiled graphs" + "".join(cuts)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", type=spec_file)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--warm", action="store_true", help="keep the compile caches")
    parser.add_argument("--lines", type=int, default=LINES, help="of each phase")
    return parser.parse_args()


def _sampled_rank() -> tuple[int, StackSampler]:
    from bench_image.process import rank_report, worker
    from bench_image.process.parent_death import PARENT_ENV

    os.environ.pop(PARENT_ENV, None)  # no supervisor: nobody to follow
    sampler = StackSampler()
    enter = rank_report.Journal.enter

    def entering(self: rank_report.Journal, phase: object, at: float | None = None) -> None:
        enter(self, phase, at)  # type: ignore[arg-type]
        sampler.phase = str(self.report.phase.value)

    rank_report.Journal.enter = entering  # type: ignore[method-assign, assignment]
    os.environ[STARTED_ENV] = repr(time.time())
    sampler.start()
    code = worker.main()
    sampler.stop()
    return code, sampler


if __name__ == "__main__":
    status = main()
    os._exit(status)  # as the rank itself
