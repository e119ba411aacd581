"""A/A: the same work again and again on one machine. How far apart do equal measurements lie, how long do they take?

    python3 studies/aa_campaign.py presets OUT [--runs 5]      `tuned` and `as_users_run` by turns on one GPU
    python3 studies/aa_campaign.py nights OUT [--nights 5]     the default night on all GPUs: independent, then ddp

Its python must hold the training stack. Each run is a process of its own, as in a pod; the first run of each kind finds
an empty compile cache. After each run OUT holds `runs.tar.gz` with all results so far, `lines.txt` and `summary.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]

from bench_image.contract.frozen import ContractError  # noqa: E402
from bench_image.contract.options import Strategy  # noqa: E402
from bench_image.contract.parse import parse_result  # noqa: E402
from bench_image.contract.result import RunResult, Status  # noqa: E402
from bench_image.contract.spec import RunSpec  # noqa: E402
from bench_image.telemetry.nvml import NvmlError, connect  # noqa: E402
from trainbench.params.campaign_kind import CampaignKind  # noqa: E402
from trainbench.planning.nodes import Fleet, named_nodes  # noqa: E402
from trainbench.planning.planners import PLANNERS  # noqa: E402

NODE = "aa-1"
LEAST_S = 30.0  # a run that could not even start its program in the time left is not begun
END_S = 8.0  # time for a run to write its result after SIGTERM


class Run(NamedTuple):
    """`kind`: runs of one kind do the same work."""

    kind: str
    number: int
    spec: RunSpec

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.number}"


class Outcome(NamedTuple):
    """`wall_s`: from the start of the process to its end. `result` None: it left none."""

    run: Run
    wall_s: float
    result: RunResult | None


def main() -> int:
    """Returns 1 if any run was not ok or was not made."""
    arguments = _arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    given = dict(setting.split("=", 1) for setting in arguments.set)
    gpus = arguments.gpus or _num_gpus()
    make = presets if arguments.what == "presets" else nights
    runs = list(make(arguments.runs, gpus, given))
    campaign = Campaign(arguments.output, arguments.stop_after_s)
    for run in runs:
        campaign.make(run)
    campaign.close()
    return int(campaign.num_ok < len(runs))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["presets", "nights"])
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--runs", "--nights", type=int, default=5, help="runs of each preset, or nights")
    parser.add_argument("--gpus", type=int, help="of a night; without it all that NVML sees, or one")
    parser.add_argument("--stop-after-s", type=float, default=3600.0, help="no run goes on for longer, in all")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a field of the trigger form, e.g. model=tiny"
    )
    return parser.parse_args()


def _num_gpus() -> int:
    try:
        return int(connect().nvmlDeviceGetCount())
    except NvmlError:
        return 1


def presets(num_runs: int, _gpus: int, given: dict[str, Any]) -> Iterator[Run]:
    """By turns, so that a drift of the machine meets both."""
    for number in range(1, num_runs + 1):
        for preset in ("tuned", "as_users_run"):
            (spec,) = _specs({"preset": preset, "strategies": ["single"]} | given, number)
            yield Run(preset.replace("_", "-"), number, spec)


def nights(num_nights: int, gpus: int, given: dict[str, Any]) -> Iterator[Run]:
    """ddp where there is more than one GPU to connect."""
    strategies = [Strategy.INDEPENDENT, *([Strategy.DDP] if gpus > 1 else [])]
    for number in range(1, num_nights + 1):
        for spec in _specs({"strategies": strategies, "gpus_per_node": gpus} | given, number):
            yield Run(f"night-{spec.placement.strategy}", number, spec)


def _specs(form: dict[str, Any], number: int) -> tuple[RunSpec, ...]:
    """As the nightly check's form would plan them, with `form` filled in."""
    planner = PLANNERS[CampaignKind.NODES]
    params = planner.params({"nodes": [NODE]} | form, locally=False)
    return planner.make(params, Fleet(nodes=named_nodes([NODE])), f"aa-{number}").specs


class Campaign:
    """Makes one run after the other and keeps what came of them, also when it is cut off."""

    def __init__(self, output: Path, stop_after_s: float) -> None:
        self._output, self._deadline = output, time.monotonic() + stop_after_s
        self._work = Path(tempfile.mkdtemp(prefix="aa-campaign-"))
        self._outcomes: list[Outcome] = []

    @property
    def num_ok(self) -> int:
        return sum(_is_ok(outcome) for outcome in self._outcomes)

    def make(self, run: Run) -> None:
        """Runs it, unless the time is up; whatever happens to it, the next one can be made."""
        left_s = self._deadline - time.monotonic() - END_S
        if left_s < LEAST_S:
            self._tell(f"{run.name}: not made, {max(0.0, left_s):.0f} s left")
            return
        outcome = _make(run, self._work / "runs" / run.name, self._environment(run.kind), left_s)
        self._outcomes.append(outcome)
        self._tell(line(outcome))
        self._keep()

    def close(self) -> None:
        for text in summary_lines(self._outcomes):
            self._tell(text)
        shutil.rmtree(self._work, ignore_errors=True)

    def _environment(self, kind: str) -> dict[str, str]:
        """One compile cache for each kind, empty at first."""
        cache = self._work / "cache" / kind
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton")}
        return os.environ | caches | {"PYTHONPATH": path}

    def _tell(self, text: str) -> None:
        print(text, flush=True)
        with (self._output / "lines.txt").open("a") as lines:
            lines.write(f"{text}\n")

    def _keep(self) -> None:
        (self._output / "summary.json").write_text(json.dumps(summary(self._outcomes), indent=1) + "\n")
        draft = self._output / ".runs.tar.gz"
        with tarfile.open(draft, "w:gz") as archive:
            archive.add(self._work / "runs", arcname="runs")
        draft.replace(self._output / "runs.tar.gz")


def _make(run: Run, folder: Path, environ: dict[str, str], left_s: float) -> Outcome:
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(run.spec.model_dump_json(indent=1))
    command = [sys.executable, "-m", "bench_image", "--spec", str(folder / "spec.json"), "--output", str(folder)]
    began = time.monotonic()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, env=environ, cwd=ROOT)
        try:
            process.wait(left_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # it writes down what it knows
            process.wait()
    wall_s = time.monotonic() - began
    for leftover in (*folder.glob("rank-*.json"), *folder.glob("arrived-*")):
        leftover.unlink()  # the result holds what they say
    return Outcome(run, wall_s, _read(folder / "result.json"))


def _read(path: Path) -> RunResult | None:
    try:
        return parse_result(path.read_bytes())
    except (OSError, ContractError) as error:
        print(f"{path.parent.name}: {error}", flush=True)
        return None


def _is_ok(outcome: Outcome) -> bool:
    return outcome.result is not None and outcome.result.status is Status.OK


def line(outcome: Outcome) -> str:
    """One run for whoever looks on: rate, windows, seconds; of independent ranks each one's rate."""
    result = outcome.result
    if result is None:
        return f"{outcome.run.name}: no result, {outcome.wall_s:.1f} s"
    figures, startup = result.performance, result.startup
    facts = [f"{outcome.run.name}: {result.status.value}"]
    if result.error:
        facts.append(f"{result.error.kind}: {result.error.message[:300]}")
    if figures.samples_per_second:
        facts.append(f"{figures.samples_per_second:.3f} samples/s")
        facts.append("windows " + " ".join(f"{w.samples_per_second:.3f} ({w.num_steps})" for w in figures.windows))
    own = [rank.performance.samples_per_second or 0.0 for rank in result.ranks if rank.performance]
    if own:
        facts.append("GPUs " + " ".join(f"{rate:.3f}" for rate in own))
    phases = {name: value for name, value in startup if value is not None and name != "total_s"}
    facts.append(" ".join(f"{name.removesuffix('_s')} {value:.1f}" for name, value in phases.items()))
    return ", ".join([*facts, f"start to result {outcome.wall_s:.1f} s"])


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Kind -> rates in samples/s, their mean and spread, seconds from start to result; the first run's stand first."""
    kinds = dict.fromkeys(outcome.run.kind for outcome in outcomes)
    return {kind: _of_kind([o for o in outcomes if o.run.kind == kind and _is_ok(o)]) for kind in kinds}


def _of_kind(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    rates = [outcome.result.performance.samples_per_second or 0.0 for outcome in outcomes if outcome.result]
    by_gpu: dict[str, list[float]] = {}
    for outcome in outcomes:
        for rank in outcome.result.ranks if outcome.result else ():
            if rank.performance and rank.performance.samples_per_second:
                by_gpu.setdefault(f"{rank.rank} {rank.gpu_uuid}", []).append(rank.performance.samples_per_second)
    return {
        "samples_per_second": rates,
        "mean": statistics.fmean(rates) if rates else None,
        "sd_pct": _sd_pct(rates),
        "sd_pct_by_gpu": {gpu: _sd_pct(own) for gpu, own in by_gpu.items()},
        "start_to_result_s": [round(outcome.wall_s, 1) for outcome in outcomes],
    }


def _sd_pct(values: Sequence[float]) -> float | None:
    """Sample standard deviation in percent of the mean; None for fewer than two values."""
    return 100 * statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else None


def summary_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for kind, known in summary(outcomes).items():
        spread = "unknown" if known["sd_pct"] is None else f"{known['sd_pct']:.3f} %"
        yield (
            f"{kind}: {len(known['samples_per_second'])} ok, mean {known['mean'] or 0:.3f} samples/s, SD {spread}, "
            f"start to result {known['start_to_result_s']} s"
        )
        for gpu, sd_pct in known["sd_pct_by_gpu"].items():
            yield f"  GPU {gpu}: SD {'unknown' if sd_pct is None else f'{sd_pct:.3f} %'}"


if __name__ == "__main__":
    sys.exit(main())
