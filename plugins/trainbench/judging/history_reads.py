"""What judging reads from the history: an interface, so that the judgement needs no database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from trainbench.core.baselines import Baseline
from trainbench.judging.past import NodeRecord


class HistoryReads(Protocol):
    """Reads of earlier campaigns; `history.History` documents the rules of each method."""

    def node_records(self, fingerprints: Collection[str], campaign_id: str, before: datetime) -> Sequence[NodeRecord]:
        """Earlier campaigns of each node at these works, with any driver and image, oldest first."""

    def last_measured(self, since: datetime) -> Mapping[str, datetime]:
        """Node -> start of its last valid run, for nodes with a run since the given time."""

    def baselines(self) -> Sequence[Baseline]:
        """All accepted baselines, the oldest first."""


class NoHistory:
    """An empty history, for results that others measured."""

    def node_records(self, fingerprints: Collection[str], campaign_id: str, before: datetime) -> Sequence[NodeRecord]:
        return ()

    def last_measured(self, since: datetime) -> Mapping[str, datetime]:
        return {}

    def baselines(self) -> Sequence[Baseline]:
        return ()


NO_HISTORY = NoHistory()
