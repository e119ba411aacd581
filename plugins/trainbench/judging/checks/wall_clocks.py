"""Nodes whose clocks are wrong: a finding names them, and the campaign's own clock puts their results in order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bench_image.contract.result import RunResult
from trainbench.core.formats import duration, moment
from trainbench.core.verdicts import Finding, Level

TOLERANCE = timedelta(minutes=1)


def on_our_clock(at: datetime, started_at: datetime, finished_at: datetime) -> datetime:
    """`at` where it can have been: between a campaign's start and its end, by the control plane's clock."""
    return min(max(at, started_at), finished_at)


def campaign_times(
    results: Sequence[RunResult], planned_at: datetime, run_started_at: datetime, now: datetime
) -> tuple[datetime, datetime]:
    """(start, end) of what was measured. Airflow lets a DAG run start anew when some of its tasks are cleared: of a run
    planned before that, the start is when it was planned, and the end when the last pod ended.

    Else last Monday's results, published again, would be tonight's, and close a breach that was opened since.
    """
    if run_started_at <= planned_at:
        return run_started_at, now
    ended = [result.finished_at for result in results if result.context]  # the others were made up when collected
    return planned_at, on_our_clock(max(ended, default=planned_at), planned_at, now)


def clock_findings(results: Sequence[RunResult], started_at: datetime, finished_at: datetime) -> tuple[Finding, ...]:
    """One for each node with a result from after the campaign's end; or from before its start, when others are not.

    All results from before the start are no matter of clocks: a DAG run that was cleared starts anew and keeps them.
    """
    apart: dict[str, timedelta] = {}
    for result in results:
        if result.context is None:  # by the clock of whoever said that there was no result
            continue
        early, late = result.started_at - started_at, result.finished_at - finished_at
        off = late if late > TOLERANCE else early if early < -TOLERANCE else timedelta()
        apart[result.spec.identity.node] = max(apart.get(result.spec.identity.node, off), off, key=abs)
    is_old = apart and all(off < timedelta() for off in apart.values())
    return tuple(
        _finding(node, off, finished_at if off > timedelta() else started_at)
        for node, off in apart.items()
        if off and not is_old
    )


def _finding(node: str, off: timedelta, campaign_at: datetime) -> Finding:
    word, what = ("ahead", "ended") if off > timedelta() else ("behind", "began")
    return Finding(
        level=Level.WARNING,
        category="clock_skew",
        nodes=(node,),
        measured=f"a result of {moment(campaign_at + off)}",
        expected=f"the campaign {what} at {moment(campaign_at)}",
        summary=f"has a clock that is at least {duration(abs(off).total_seconds())} {word}; its results are put in "
        "order by the campaign's own clock",
        resolution="see whether the node keeps time (timedatectl, chrony): logs and certificates go wrong with it, too",
    )
