"""Are the runs what their names say? One that came back twice, or one GPU under the names of two nodes -> findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench_control.words.formats import listing
from bench_control.words.ordering import natural
from bench_control.words.verdicts import Finding, Level
from bench_image.contract import RunResult


def findings(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    return (*_twice(results), *_two_names(results))


def _twice(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    times = Counter((result.spec.campaign_id, result.spec.node, result.spec.run_id) for result in results)
    return tuple(
        Finding(
            level=Level.WARNING,
            category="duplicate_run",
            subject=run_id,
            measured=f"{num} results",
            expected="one",
            summary=f"came back {num} times; the one that finished last is judged",
            resolution="see who wrote the other one: a folder read twice, or a pod that ran again",
        )
        for (_, _, run_id), num in times.items()
        if num > 1
    )


def _two_names(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """A renamed node, or a machine that was moved, would be compared with itself."""
    nodes_of: dict[str, dict[str, None]] = {}
    for result in results:
        for gpu in result.context.gpus if result.context else ():
            if gpu.uuid:
                nodes_of.setdefault(gpu.uuid, {})[result.spec.node] = None
    shared: dict[tuple[str, ...], list[str]] = {}
    for uuid, nodes in nodes_of.items():
        if len(nodes) > 1:
            shared.setdefault(tuple(sorted(nodes, key=natural)), []).append(uuid)
    return tuple(
        Finding(
            level=Level.WARNING,
            category="same_gpu",
            subject=nodes[-1],
            measured=f"{listing(uuids)} on {listing(nodes)}",
            expected="a GPU on one node only",
            summary=f"has the same GPU as {listing(nodes[:-1])}: one machine under {len(nodes)} names, compared with "
            "itself",
            resolution="was the node renamed while the check ran? Take the old name out of the list, and repeat",
        )
        for nodes, uuids in shared.items()
    )
