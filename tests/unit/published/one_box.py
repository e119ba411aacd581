"""What one box says, from docs/results/one-box-h200-2026-11-23."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.published.measured import document
from trainbench.params.campaign_params import LOCAL_DEFAULTS

ONE_BOX = "one-box-h200-2026-11-23"


def note() -> Iterator[str]:
    drilled = document(f"{ONE_BOX}/drill.json")
    for run in (*document(f"{ONE_BOX}/one-box.json"), *drilled):
        (node,) = run["nodes"]
        state = node["state"].replace("_", " ") + (f": {node['why']}" if node["state"] != "well" else "")
        yield (
            f"| {run['condition']} | {run['seconds']:.0f} | {run['exit_code']} | {run['samples_per_second']:.2f} "
            f"| {state} | {node['reason']} |"
        )
    yield f"The drill takes {LOCAL_DEFAULTS['drill_slowdown_pct']:.0f} %"
    capped_pct = [run["runs"][0]["throttle_share_pct"]["power_cap"] for run in drilled[:2]]
    yield f"for {capped_pct[0]:.0f} % of the time, usual 0 %"
    yield f"does so for {capped_pct[1]:.0f} % of the time"
    seconds = [[run["seconds"] for night in nights for run in night["runs"]] for nights in (drilled[:1], drilled[1:])]
    yield "The drilled runs took {} s, the nights {} s".format(*(f"{min(of):.0f} to {max(of):.0f}" for of in seconds))
