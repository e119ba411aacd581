"""A/A: the same work again and again on one machine. How far apart do equal measurements lie, how long do they take?

    python3 studies/aa_campaign.py presets OUT [--runs 5]      `tuned` and `as_users_run` by turns on one GPU
    python3 studies/aa_campaign.py nights OUT [--nights 5]     the default night on all GPUs: independent, then ddp

Its python must hold the training stack. Each run is a process of its own, as in a pod; the first run of each kind finds
an empty compile cache. OUT gets each run's spec and result, and after each run a `summary.json` of all so far.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]

from bench_image.contract.options import Strategy  # noqa: E402
from bench_image.contract.parse import parse_result  # noqa: E402
from bench_image.contract.result import RunResult, Status  # noqa: E402
from bench_image.contract.spec import RunSpec  # noqa: E402
from studies.measure_start import CACHES  # noqa: E402
from studies.run_specs import run  # noqa: E402
from trainbench.params.campaign_kind import CampaignKind  # noqa: E402
from trainbench.planning.nodes import Fleet, named_nodes  # noqa: E402
from trainbench.planning.planners import PLANNERS  # noqa: E402

NODE = "aa-1"


class Run(NamedTuple):
    """`kind`: runs of one kind do the same work."""

    kind: str
    number: int
    spec: RunSpec


class Outcome(NamedTuple):
    """`wall_s`: from the start of the process to its end."""

    run: Run
    wall_s: float
    result: RunResult


def main() -> int:
    """Returns 1 if any run did not end ok."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["presets", "nights"])
    parser.add_argument("output", type=Path, metavar="OUT", help="without results of earlier runs")
    parser.add_argument("--runs", "--nights", type=int, default=5, help="runs of each preset, or nights")
    parser.add_argument("--gpus", type=int, default=1, help="of a night")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a field of the trigger form, e.g. model=tiny"
    )
    arguments = parser.parse_args()
    given = dict(setting.split("=", 1) for setting in arguments.set)
    make = presets if arguments.what == "presets" else nights
    outcomes: list[Outcome] = []
    for one in make(arguments.runs, arguments.gpus, given):
        folder = arguments.output / f"{one.kind}-{one.number}"
        folder.mkdir(parents=True)
        (folder / "spec.json").write_text(one.spec.model_dump_json(indent=1))
        os.environ |= {name: str(arguments.output.resolve() / "cache" / one.kind / name) for name in CACHES}
        began = time.monotonic()
        run(folder / "spec.json", folder)
        wall_s = time.monotonic() - began
        outcomes.append(Outcome(one, wall_s, parse_result((folder / "result.json").read_bytes())))
        (arguments.output / "summary.json").write_text(json.dumps(summary(outcomes), indent=1) + "\n")
    print(json.dumps(summary(outcomes), indent=1))
    return int(any(outcome.result.status is not Status.OK for outcome in outcomes))


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


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Kind -> rates in samples/s, their mean and spread, seconds from start to result; the first run's stand first."""
    kinds = dict.fromkeys(outcome.run.kind for outcome in outcomes)
    good = [outcome for outcome in outcomes if outcome.result.status is Status.OK]
    return {kind: _of_kind([outcome for outcome in good if outcome.run.kind == kind]) for kind in kinds}


def _of_kind(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    rates = [outcome.result.performance.samples_per_second or 0.0 for outcome in outcomes]
    by_gpu: dict[str, list[float]] = {}
    for outcome in outcomes:
        for rank in outcome.result.ranks:
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


if __name__ == "__main__":
    sys.exit(main())
