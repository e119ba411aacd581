"""What one box says, from docs/results/one-box-h200-2026-11-23."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.unit.published.measured import document
from trainbench.params.campaign_params import LOCAL_DEFAULTS

ONE_BOX = "one-box-h200-2026-11-23"
WITH_FAULTS, TODAY = "e45e0a0e", "55c1a729"  # both of 29 November


def note() -> Iterator[str]:
    every = document(f"{ONE_BOX}/drill.json")
    old, today = ([run for run in every if run["program"] == program] for program in (WITH_FAULTS, TODAY))
    for run in (*document(f"{ONE_BOX}/one-box.json"), *today):
        (node,) = run["nodes"]
        state = node["state"].replace("_", " ") + (f": {node['why']}" if node["state"] != "well" else "")
        yield (
            f"| {run['condition']} | {run['seconds']:.0f} | {run['exit_code']} | {run['samples_per_second']:.2f} "
            f"| {state} | {node['reason']} |"
        )
    yield f"The drill takes {LOCAL_DEFAULTS['drill_slowdown_pct']:.0f} %"
    capped_pct = [run["runs"][0]["throttle_share_pct"]["power_cap"] for run in old[:2]]
    yield f"for {capped_pct[0]:.0f} % of the time, usual 0 %"
    yield f"does so for {capped_pct[1]:.0f} % of the time"
    yield f"took {old[0]['seconds']} s and showed"
    yield "its runs took {} s, the nights {} s".format(*(_seconds(runs) for runs in (old[:1], old[1:])))
    drilled, nights = today[1:2], [today[0], *today[2:4]]
    assert len(drilled[0]["causes"]) == 1
    yield "today's drilled runs took {} s, the nights {} s".format(*(_seconds(runs) for runs in (drilled, nights)))
    yield from _quick_checks(document(f"{ONE_BOX}/quick.json"))


def _quick_checks(measured: Mapping[str, Any]) -> Iterator[str]:
    runs = measured["runs"]
    for run in (*runs, *measured["another_h200"]):
        figures = f"{run['exit_code']} | {run['samples_per_second']:.2f} | {run['noise_pct']:.2f} %"
        yield f"| {run['condition']} | {run['seconds']} | {figures} | {run['nodes'][0]['state']} |"
    (night,) = [run for run in runs if run["condition"] == "a night"]
    checks = [run for run in runs if run is not night]
    apart_pct = max(abs(100 * (run["samples_per_second"] / night["samples_per_second"] - 1)) for run in checks)
    noise_pct = [run["noise_pct"] for run in checks]
    yield f"within {math.ceil(10 * apart_pct) / 10} % of the night's"
    yield f"the noise of one run is {min(noise_pct)} to {max(noise_pct)} %"
    steps = [run["step_times_s"] for run in runs]
    yield f"four take {_ms([step for of_run in steps for step in of_run[:4]])} ms"
    yield f"the fifth {_ms([of_run[4] for of_run in steps])} ms"
    yield f"later windows take {_ms([step for run in checks for step in run['step_times_s'][9::5]])} ms"
    rows = measured["power_of_the_run_in_which_it_was_read"]["rows"]  # seconds, W, MHz
    begin = next(place for place, (_, watts, *_) in enumerate(rows) if watts > 700)
    end = next(place for place in range(begin, len(rows)) if rows[place][1] < 600)
    watts, clocks = ([row[column] for row in rows[begin + 1 : end]] for column in (1, 2))
    yield f"begins with {min(watts):.0f} to {max(watts):.0f} W at {min(clocks)} to {max(clocks)} MHz"
    yield f"after {rows[end][0] - rows[begin][0]:.1f} s the driver lowers the clock to {rows[end][2]} MHz"
    yield f"at {rows[end][1]:.0f} W"


def _seconds(nights: Sequence[Mapping[str, Any]]) -> str:
    seconds = [run["seconds"] for night in nights for run in night["runs"]]
    return f"{min(seconds):.0f} to {max(seconds):.0f}"


def _ms(seconds: Sequence[float]) -> str:
    return f"{1e3 * min(seconds):.0f} to {1e3 * max(seconds):.0f}"
