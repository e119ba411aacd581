"""What one box says, from docs/results/one-box-h200-2026-11-23."""

from __future__ import annotations

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
    quick = [run["runs"][0]["step_times_s"] for run in today[4:]]
    fifth = [run["runs"][0]["step_times_s"][4] for run in nights]
    yield f"four took {_ms([step for steps in quick for step in steps[:-1]])} ms"
    yield f"the last one {_ms([steps[-1] for steps in quick])} ms"
    yield f"did, {_ms(fifth)} ms"
    (steps,) = {len(run["runs"][0]["step_times_s"]) for run in nights}
    yield f"a night's {steps} steps"


def _seconds(nights: Sequence[Mapping[str, Any]]) -> str:
    seconds = [run["seconds"] for night in nights for run in night["runs"]]
    return f"{min(seconds):.0f} to {max(seconds):.0f}"


def _ms(seconds: Sequence[float]) -> str:
    return f"{1e3 * min(seconds):.0f} to {1e3 * max(seconds):.0f}"
