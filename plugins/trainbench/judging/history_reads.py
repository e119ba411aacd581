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
    """Reads of earlier campaigns; `history.History` documents the rules of each method."""

    def baseline_rates(self, results: Sequence[RunResult]) -> Sequence[Sequence[float]]:
        """Earlier samples/s of each result's node at the same work, hardware and software, oldest first. One call reads
        for all results, on one connection.
        """

    def node_records(self, fingerprints: Collection[str], campaign_id: str, before: datetime) -> Sequence[NodeRecord]:
        """Earlier campaigns of each node at these works, with any driver and image, oldest first."""

    def last_measured(self, since: datetime) -> Mapping[str, datetime]:
        """Node -> start of its last valid run, for nodes with a run since the given time."""

    def undecided_before(self, suite: str, campaign_id: str, before: datetime) -> Mapping[str, Streak]:
        """Node -> its streak of campaigns without a verdict, up to the campaign before."""

    def slower_before(self, suite: str, campaign_id: str, before: datetime) -> Sequence[Slowdown]:
        """Slowdowns with an open warning."""

    def baselines(self) -> Sequence[Baseline]:
        """All accepted baselines, the oldest first."""


class NoHistory:
    """An empty history, for results that others measured."""

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
