"""The pipeline from measured runs to a campaign, with the few things that a test wants to choose."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bench_image.contract.result import RunResult
from tests.builders import STARTED_AT
from trainbench import pipeline
from trainbench.judging.history_reads import NO_HISTORY, HistoryReads, NoHistory
from trainbench.judging.over_time.lasting_slowdowns import Slowdown
from trainbench.judging.over_time.node_history import NodeRecord
from trainbench.judging.over_time.undecided_streaks import Streak
from trainbench.planning.plan import Plan
from trainbench.results.campaign import Campaign


@dataclass(frozen=True)
class StubHistory(NoHistory):
    """A history that answers what it was made with; `rates`: a result -> earlier samples/s of its node."""

    rates: Callable[[RunResult], Sequence[float]] = lambda _: ()
    points: Sequence[NodeRecord] = ()
    undecided: Mapping[str, Streak] = field(default_factory=dict)
    slowdowns: Sequence[Slowdown] = ()

    def baseline_rates(self, results: Sequence[RunResult]) -> Sequence[Sequence[float]]:
        return [self.rates(result) for result in results]

    def node_records(self, fingerprints: Collection[str], campaign_id: str, before: datetime) -> Sequence[NodeRecord]:
        return [point for point in self.points if point.fingerprint in fingerprints]

    def undecided_before(self, suite: str, campaign_id: str, before: datetime) -> Mapping[str, Streak]:
        return self.undecided

    def slower_before(self, suite: str, campaign_id: str, before: datetime) -> Sequence[Slowdown]:
        return self.slowdowns


def judged(
    plan: Plan,
    results: Sequence[RunResult],
    history: HistoryReads = NO_HISTORY,
    *,
    suite: str = "nightly",
    started_at: datetime = STARTED_AT,
    finished_at: datetime = STARTED_AT + timedelta(minutes=9),
) -> pipeline.Judged:
    measured = pipeline.Measured(
        plan=plan,
        results=tuple(results),
        suite=suite,
        started_at=started_at,
        finished_at=finished_at,
        history=history,
    )
    return pipeline.judge(measured)


def assessed(
    plan: Plan,
    results: Sequence[RunResult],
    reruns: Sequence[RunResult] = (),
    history: HistoryReads = NO_HISTORY,
    *,
    suite: str = "nightly",
    started_at: datetime = STARTED_AT,
    finished_at: datetime = STARTED_AT + timedelta(minutes=9),
) -> Campaign:
    """The campaign of a plan whose runs and re-runs are measured."""
    first = judged(plan, results, history, suite=suite, started_at=started_at, finished_at=finished_at)
    return pipeline.assess(first.with_reruns(reruns, finished_at))
