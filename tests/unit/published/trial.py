"""Figures of docs/results/demo-definite-2026-11-24: how far equal nodes of a trial on the CPU are apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench_image.contract.work import Device
from tests.unit.published.measured import document, row
from trainbench.judging.node_runs import PROCESS_SD
from trainbench.judging.noise import median_variance
from trainbench.params.campaign_params import LOCAL_DEFAULTS, RATE_LIMITS_PCT, BenchmarkParams

TRIAL = "demo-definite-2026-11-24"
BEFORE, AGAIN = ("a1615747", "e45e0a0e"), "55c1a729"
KINDS = ALONE, IN_TURNS = "deviations_pct", "in_turns_pct"
BUSY = (0, 1, 2)


def note() -> Iterator[str]:
    runs = document(f"{TRIAL}/runs.json")
    for drill in (None, "node-3"):
        for busy in BUSY:
            if of := [run for run in runs if (run["drill"], run["busy_cores"]) == (drill, busy)]:
                yield _row(of, busy, drill)
        every = [run for run in runs if run["drill"] == drill]
        yield f"{_as_they_should(every)} runs {'with the drill ' if drill else ''}ended as they should"
    yield from _again()
    equal = [math.log1p(pct / 100) for run in runs if not run["drill"] for pct in run[IN_TURNS].values()]
    # Each deviation has the variance of one process and of the median of three.
    yield f"a standard deviation of {100 * statistics.pstdev(equal) / math.sqrt(1 + median_variance(3)):.1f} %"
    yield f"for {100 * PROCESS_SD:.1f} %"
    loads = [run["load_before"] for run in runs]
    yield f"the load was {min(loads):.1f} to {max(loads):.1f}"
    yield f"**The limit is {RATE_LIMITS_PCT[Device.CPU]:.0f} %**"
    default = BenchmarkParams.model_fields["drill_slowdown_pct"].default
    yield f"The drill takes {LOCAL_DEFAULTS.get('drill_slowdown_pct', default):.0f} %"


def _again() -> Iterator[str]:
    every = document(f"{TRIAL}/again.json")
    for program in BEFORE:
        yield f"({program}) {_as_they_should([run for run in every if run['program'] == program])}"
    runs = [run for run in every if run["program"] == AGAIN]
    for drill in (None, "node-3"):
        for busy in BUSY:
            yield _row([run for run in runs if (run["drill"], run["busy_cores"]) == (drill, busy)], busy, drill)
    yield f"**{_as_they_should(runs)}\nruns ended as they should**"
    equal = [run for run in runs if not run["drill"]]
    farthest = max(abs(pct) for run in runs for node, pct in run[IN_TURNS].items() if node != run["drill"])
    yield f"{len(equal)} of four equal nodes and {len(runs) - len(equal)} with the drill"
    yield f"moved by more than {farthest:.1f} % in turns"


def _as_they_should(runs: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(all(_expected(run, node) for node in run['states']) for run in runs)} of {len(runs)}"


def _expected(run: Mapping[str, Any], node: str) -> bool:
    return bool(run["states"][node] == ("drill" if node == run["drill"] else "well"))


def _row(runs: list[Mapping[str, Any]], busy: int, drill: str | None) -> str:
    worst = {
        kind: [max(abs(pct) for node, pct in run[kind].items() if node != drill) for run in runs] for kind in KINDS
    }
    seconds = [run["seconds"] for run in runs]
    return row(
        f"{drill} drilled" if drill else "four equal nodes",
        str(busy),
        _as_they_should(runs),
        *(f"{statistics.median(worst[kind]):.1f}, {max(worst[kind]):.1f}" for kind in KINDS),
        " to ".join(f"{bound:.1f}" for bound in sorted({f([run[IN_TURNS][drill] for run in runs]) for f in (min, max)}))
        if drill
        else "",
        f"{min(seconds):.0f} to {max(seconds):.0f}",
    )
