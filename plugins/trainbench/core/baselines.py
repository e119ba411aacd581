"""An accepted baseline: after an intended change somebody makes the present level of a node the one to compare with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pydantic import AwareDatetime

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import day, listing


class BaselineError(ValueError):
    """A baseline was not accepted or not taken back; the message is for the person who tried."""


class UnknownBaselineError(BaselineError):
    pass


class Baseline(Frozen):
    """What was measured before `since` is no past of the node at that work. It changes nothing against the peers.
    A node is its GPUs: `other_names` are those that they had when the level was accepted.
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
    def words(self) -> str:
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
    """The newest level that was accepted for what the node does then; None: its whole past counts."""
    known = [each for each in baselines if not each.revoked_at and each.is_about(node, work) and each.since <= at]
    return max(known, key=lambda each: (each.since, each.id), default=None)


def of_nodes(baselines: Sequence[Baseline], nodes: Iterable[str], at: datetime) -> tuple[Baseline, ...]:
    """Those that count for these nodes then, for a report."""
    names = tuple(nodes)
    return tuple(
        each
        for each in baselines
        if not each.revoked_at and each.since <= at and (each.node is None or any(map(each.is_of, names)))
    )
