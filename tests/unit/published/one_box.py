"""What one box says, from docs/results/one-box-h200-2026-11-23."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.published.measured import document

ONE_BOX = "one-box-h200-2026-11-23"


def note() -> Iterator[str]:
    for run in document(f"{ONE_BOX}/one-box.json"):
        (node,) = run["nodes"]
        state = node["state"].replace("_", " ") + (f": {node['why']}" if node["state"] != "well" else "")
        yield (
            f"| {run['condition']} | {run['seconds']:.0f} | {run['exit_code']} | {run['samples_per_second']:.2f} "
            f"| {state} | {node['reason']} |"
        )
