"""Accepted baselines: after an intended change a node is compared with its new level instead of its past."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pydantic import AwareDatetime

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import day, listing


class Baseline(Frozen):
    """Measurements of this work before `since` no longer count as the node's past. The comparison with peers stays.
    A node is its GPUs: `other_names` are the names that they had before the level was accepted.
    """

    id: int
    node: str | None  # None: all nodes
    fingerprint: str | None  # of the work; None: every work
    since: AwareDatetime
    who: str
    why: str
    accepted_at: AwareDatetime
    revoked_at: AwareDatetime | None = None
    revoked_by: str | None = None
    other_names: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """ "Baseline of node-1 since 20 Nov 2026, accepted by ada on 22 Nov 2026: driver 580 is meant to be slower".
        Of a renamed node "Baseline of node-1 (the same GPUs were named old-1) since ...".
        """
        of = self.node or "all nodes"
        if self.other_names:
            of += f" (the same GPUs were named {listing(self.other_names)})"
        work = f" at work {self.fingerprint}" if self.fingerprint else ""
        accepted = f"accepted by {self.who} on {day(self.accepted_at)}: {self.why}"
        return f"Baseline of {of}{work} since {day(self.since)}, {accepted}"

    def is_of(self, node: str) -> bool:
        return self.node in (None, node) or node in self.other_names

    def is_about(self, node: str, work: str) -> bool:
        return self.is_of(node) and self.fingerprint in (None, work)


def in_force(baselines: Iterable[Baseline], node: str, work: str, at: datetime) -> Baseline | None:
    """The newest baseline of the node and work at that time; None: the whole past counts."""
    known = [each for each in baselines if not each.revoked_at and each.is_about(node, work) and each.since <= at]
    return max(known, key=lambda each: (each.since, each.id), default=None)


def of_nodes(baselines: Sequence[Baseline], nodes: Iterable[str], at: datetime) -> tuple[Baseline, ...]:
    """The baselines in force for these nodes at that time, for a report."""
    names = tuple(nodes)
    return tuple(
        each
        for each in baselines
        if not each.revoked_at and each.since <= at and (each.node is None or any(map(each.is_of, names)))
    )
