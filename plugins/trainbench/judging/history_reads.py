"""The reads of the history that judging needs, as an interface: `history.History` answers them from its database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from bench_image.contract.result import RunResult
from trainbench.core.baselines import Baseline
from trainbench.judging.over_time.lasting_slowdowns import Slowdown
from trainbench.judging.over_time.node_history import NodeRecord
from trainbench.judging.over_time.undecided_streaks import Streak


class HistoryReads(Protocol):
    """Earlier campaigns of the nodes that are judged; see `history.History` for each method's rules."""

    def baseline_rates(self, results: Sequence[RunResult]) -> Sequence[Sequence[float]]:
        """For each result the earlier samples/s of its node at the same work, hardware and software, oldest first. One
        call for all results: a database answers thousands of queries on one connection in a second.
        """

    def node_records(self, fingerprints: Collection[str], campaign_id: str, before: datetime) -> Sequence[NodeRecord]:
        """Each node's earlier campaigns at these works, whatever driver and image it had then, oldest first."""

    def last_measured(self, since: datetime) -> Mapping[str, datetime]:
        """Node -> when its last valid run began, for nodes that had one since then."""

    def undecided_before(self, suite: str, campaign_id: str, before: datetime) -> Mapping[str, Streak]:
        """Node -> since when it could not be judged, up to the campaign before."""

    def slower_before(self, suite: str, campaign_id: str, before: datetime) -> Sequence[Slowdown]:
        """Slowdowns with an open warning."""

    def baselines(self) -> Sequence[Baseline]:
        """All baselines that somebody accepted, the oldest first."""


class NoHistory:
    """The history of results that others measured: empty."""

    def baseline_rates(self, results: Sequence[RunResult]) -> Sequence[Sequence[float]]:
        return [()] * len(results)

    def node_records(self, fingerprints: Collection[str], campaign_id: str, before: datetime) -> Sequence[NodeRecord]:
        return ()

    def last_measured(self, since: datetime) -> Mapping[str, datetime]:
        return {}

    def undecided_before(self, suite: str, campaign_id: str, before: datetime) -> Mapping[str, Streak]:
        return {}

    def slower_before(self, suite: str, campaign_id: str, before: datetime) -> Sequence[Slowdown]:
        return ()

    def baselines(self) -> Sequence[Baseline]:
        return ()


NO_HISTORY = NoHistory()
