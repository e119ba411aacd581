"""Nodes with wrong clocks: findings on them, and times corrected by the control plane's clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bench_image.contract.result import RunResult
from trainbench.core.formats import duration, moment
from trainbench.core.verdicts import Finding, Level

TOLERANCE = timedelta(minutes=1)


def on_our_clock(at: datetime, started_at: datetime, finished_at: datetime) -> datetime:
    """`at`, moved into the campaign's start and end by the control plane's clock."""
    return min(max(at, started_at), finished_at)


def campaign_times(
    results: Sequence[RunResult], planned_at: datetime, run_started_at: datetime, now: datetime
) -> tuple[datetime, datetime]:
    """The (start, end) of the campaign's measurements.

    When tasks of a DAG run are cleared, Airflow gives the run a new start. A campaign that was planned before that
    start begins with its plan and ends with its last pod. Otherwise last Monday's results, published again, would count
    as tonight's and close a breach that was opened since.
    """
    if run_started_at <= planned_at:
        return run_started_at, now
    ended = [
        result.finished_at for result in results if result.context
    ]  # a result without context was made by the collector
    return planned_at, on_our_clock(max(ended, default=planned_at), planned_at, now)


def clock_findings(results: Sequence[RunResult], started_at: datetime, finished_at: datetime) -> tuple[Finding, ...]:
    """Findings on nodes with results from after the campaign's end, or, unlike their peers', from before its start.

    Where all results are from before the start, the DAG run was cleared and the clocks are right.
    """
    apart: dict[str, timedelta] = {}
    for result in results:
        if result.context is None:  # the collector made it, by the control plane's clock
            continue
        early, late = result.started_at - started_at, result.finished_at - finished_at
        off = late if late > TOLERANCE else early if early < -TOLERANCE else timedelta()
        apart[result.spec.identity.node] = max(apart.get(result.spec.identity.node, off), off, key=abs)
    is_old = apart and all(off < timedelta() for off in apart.values())
    findings = []
    for node, off in apart.items():
        if not off or is_old:
            continue
        is_ahead = off > timedelta()
        word, what, campaign_at = ("ahead", "ended", finished_at) if is_ahead else ("behind", "began", started_at)
        findings.append(
            Finding(
                level=Level.WARNING,
                category="clock_skew",
                nodes=(node,),
                measured=f"a result of {moment(campaign_at + off)}",
                expected=f"the campaign {what} at {moment(campaign_at)}",
                summary=f"has a clock that is at least {duration(abs(off).total_seconds())} {word}; its results are "
                "put in order by the campaign's own clock",
                resolution="see whether the node keeps time (timedatectl, chrony): logs and certificates go wrong with "
                "it, too",
            )
        )
    return tuple(findings)
