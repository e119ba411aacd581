"""Sentences on unsteady nodes: the scatter of a node's own runs, and its disturbed runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from trainbench.core.formats import figure, listing
from trainbench.core.verdicts import Finding, GroupVerdict, Level, NodeVerdict
from trainbench.judging.noise import Run, deviation_pct
from trainbench.judging.peers.scatter import OwnScatter


def scatter_phrase(runs: Sequence[Run], own: OwnScatter) -> str:
    """A phrase on the scatter of its windows or rounds against the peers', with the one that is farthest off."""
    times = f"{own.factor:.0f}" if own.factor >= 10 else f"{own.factor:.1f}"
    where = _odd_window(runs) if own.what == "windows" else _odd_round(runs)
    return f"its {own.what} scatter {times} times more than its peers' ({where})"


def _odd_window(runs: Sequence[Run]) -> str:
    """The window that is farthest from the median of its run."""
    repeated = [run for run in runs if len(run.windows) > 1]
    offs = [
        (abs(deviation_pct(rate, statistics.median(run.windows))), -run.round, -i, run)
        for run in repeated
        for i, rate in enumerate(run.windows)
    ]
    _, _, place, run = max(offs, key=lambda off: off[:3])
    others = statistics.median(rate for i, rate in enumerate(run.windows) if i != -place)
    rate = run.windows[-place]
    return (
        f"round {run.round}: window {1 - place} of {len(run.windows)} at {figure(rate)} samples/s, "
        f"the others {figure(others)}"
    )


def _odd_round(runs: Sequence[Run]) -> str:
    """The run that is farthest from the median of all."""
    middle = statistics.median(run.rate for run in runs)
    odd = max(runs, key=lambda run: (abs(run.rate - middle), -run.round))
    others = statistics.median(run.rate for run in runs if run is not odd)
    return f"round {odd.round} at {figure(odd.rate)} samples/s, the others {figure(others)}"


def disturbed_node_findings(groups: Sequence[GroupVerdict]) -> tuple[Finding, ...]:
    """Findings, for information only, on nodes with a few disturbed runs: their other runs judge them."""
    return tuple(_disturbed(node) for group in groups for node in group.nodes if node.disturbed_rounds)


def _disturbed(node: NodeVerdict) -> Finding:
    rounds = listing(map(str, node.disturbed_rounds))
    return Finding(
        level=Level.INFO,
        category="disturbed_run",
        nodes=(node.node,),
        measured=f"round {rounds}",
        expected="rounds as close together as its peers'",
        summary=f"was disturbed in round {rounds}, and not in most of its {node.num_runs} runs, which judge it",
        resolution="nothing now; if it recurs, find what disturbs the node",
    )
