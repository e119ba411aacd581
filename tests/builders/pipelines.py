"""The pipeline from measured runs to a campaign, with the few things that a test wants to choose."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from bench_image.contract.result import RunResult
from tests.builders import STARTED_AT
from trainbench import pipeline
from trainbench.core.baselines import Baseline
from trainbench.judging.past import NO_HISTORY, NodeRecord, NoHistory, records_of
from trainbench.planning.plan import Plan
from trainbench.results.campaign import Campaign


@dataclass(frozen=True)
class StubHistory(NoHistory):
    """A history that answers what it was made with."""

    points: Sequence[NodeRecord] = ()
    accepted: Sequence[Baseline] = ()
    measured: Mapping[str, datetime] = field(default_factory=dict)

    def node_records(self, fingerprints: Collection[str], campaign_id: str, before: datetime) -> Sequence[NodeRecord]:
        return [point for point in self.points if point.fingerprint in fingerprints and point.at < before]

    def last_measured(self, since: datetime) -> Mapping[str, datetime]:
        return {node: at for node, at in self.measured.items() if at >= since}

    def baselines(self) -> Sequence[Baseline]:
        return self.accepted


def nights_before(result: RunResult, *rates: float, **fields: Any) -> tuple[NodeRecord, ...]:
    """Earlier nights of the result's node at its work, oldest first, the last one a day before `STARTED_AT`."""
    (known,) = records_of([result], STARTED_AT)
    return tuple(
        replace(
            known,
            campaign_id=f"night-{number}",
            at=STARTED_AT - timedelta(days=len(rates) - number),
            samples_per_second=rate,
            **fields,
        )
        for number, rate in enumerate(rates)
    )


def judged(
    plan: Plan,
    results: Sequence[RunResult],
    history: NoHistory = NO_HISTORY,
    *,
    suite: str = "nightly",
    started_at: datetime = STARTED_AT,
    finished_at: datetime = STARTED_AT + timedelta(minutes=9),
    **more: Any,
) -> pipeline.Judged:
    measured = pipeline.Measured(
        plan=plan,
        results=tuple(results),
        suite=suite,
        started_at=started_at,
        finished_at=finished_at,
        history=history,
        **more,
    )
    return pipeline.judge(measured)


def assessed(
    plan: Plan,
    results: Sequence[RunResult],
    reruns: Sequence[RunResult] = (),
    history: NoHistory = NO_HISTORY,
    *,
    suite: str = "nightly",
    started_at: datetime = STARTED_AT,
    finished_at: datetime = STARTED_AT + timedelta(minutes=9),
    **more: Any,
) -> Campaign:
    """The campaign of a plan whose runs and re-runs are measured."""
    first = judged(plan, results, history, suite=suite, started_at=started_at, finished_at=finished_at, **more)
    return pipeline.assess(first.with_reruns(reruns, finished_at))
