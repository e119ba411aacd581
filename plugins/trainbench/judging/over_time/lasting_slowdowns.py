"""Slowdowns with an open warning last until the rate is back: the open warning keeps the level before, even where the
series of recent campaigns no longer reaches back to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from trainbench.core.formats import day, figure, share_range
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Finding, Level, RateChange
from trainbench.judging.noise import deviation_pct
from trainbench.judging.over_time.level_changes import STILL_SLOWER
from trainbench.judging.over_time.node_history import NodeRecord
from trainbench.judging.rate_changes import is_back


class Slowdown(NamedTuple):
    """An open warning on one node at one work. `since`: time of its first warning."""

    change: RateChange
    since: datetime


def lasting(
    before: Iterable[Slowdown],
    now: Sequence[NodeRecord],
    known: Collection[tuple[str, str]],
    names: Mapping[str, str] = {},
) -> tuple[Slowdown, ...]:
    """The slowdowns that tonight's rates show to last, with these rates. `known`: (node, fingerprint) that tonight's
    other findings already report as slower; they are left out. `names`: old name of a node -> its name of today.
    """
    rates = {(record.node, record.fingerprint): record.samples_per_second for record in now}
    still: dict[tuple[str, str], Slowdown] = {}
    for slowdown in sorted(before, key=lambda slowdown: slowdown.since):
        was = slowdown.change
        key = (names.get(was.node, was.node), was.fingerprint)
        rate = rates.get(key)
        if rate is None or key in known or is_back(rate, was):
            continue
        change = was.model_copy(update={"node": key[0], "after": rate})
        still.setdefault(key, Slowdown(change, slowdown.since))
    return tuple(still.values())


def lasting_slowdown_findings(slowdowns: Iterable[Slowdown]) -> tuple[Finding, ...]:
    """Findings, one for all slowdowns that were first warned of on the same day."""
    of_day = grouped((slowdown.since.date(), slowdown) for slowdown in slowdowns)
    return tuple(_finding(same) for same in of_day.values())


def _finding(same: Sequence[Slowdown]) -> Finding:
    changes = tuple(slowdown.change for slowdown in same)
    nodes = tuple(dict.fromkeys(change.node for change in changes))
    lost = [-deviation_pct(change.after, change.before) for change in changes]
    worst = changes[lost.index(max(lost))]
    since = day(same[0].since)
    one = len(nodes) == 1
    return Finding(
        level=Level.WARNING,
        category=STILL_SLOWER,
        nodes=nodes,
        measured=f"{figure(worst.after)} samples/s" + ("" if one else f", on {worst.node}"),
        expected=f"{figure(worst.before)} samples/s, as before {since}",
        summary=f"{'is' if one else 'are'} still {share_range(lost)} slower than before {since}",
        resolution="look at what was changed then; if the change was intended, accept the present level as the new "
        "baseline",
        changes=changes,
    )
