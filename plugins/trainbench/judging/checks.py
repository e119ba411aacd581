"""Checks of the evidence itself: figures, missing nodes, drills, clocks.

A campaign in which no run gave a figure is never green: it checked nothing. An unmeasured node is not a healthy one.
A drill slows nodes on purpose: the check must detect them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from bench_image.contract.result import RunResult, Status
from trainbench.core.formats import count, duration, listing, moment, one_line, percent
from trainbench.core.grouping import grouped
from trainbench.core.states import word
from trainbench.core.verdicts import (
    DRILL_UNDETECTED,
    IMPOSSIBLE_WORK,
    NO_FIGURE,
    Finding,
    GroupVerdict,
    Level,
    Metric,
    NodeVerdict,
    State,
    Why,
)
from trainbench.planning.nodes import AbsentNode, GpuNode
from trainbench.planning.plan import Plan
from trainbench.pods.gangs import failed_rank, node_at_fault
from trainbench.pods.pod_end import NOT_FREE, EndKind
from trainbench.results.readings import impossible_works

MAX_CAUSE = 160  # characters of the first error message of each cause
MAX_REFUSAL = 500  # of the message that tells what to change
_CAUSES = {
    EndKind.BUSY.value: "found no free node",
    EndKind.PREEMPTED.value: "lost the node to other work",
    EndKind.WITHDRAWN.value: "lost a node that was taken out of service",
}


def no_figure_findings(campaign_id: str, results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """One alarm that names each cause with its number of runs; empty where a run gave a figure, and where the work is
    impossible or a node ended a gang, which says it all.
    """
    told = impossible_works(results) or any(map(node_at_fault, results))
    if any(result.error is None for result in results) or told:
        return ()
    causes = []
    for kind, errors in grouped((error.kind, error) for result in results if (error := result.error)).items():
        runs, message = count(len(errors), "run"), one_line(errors[0].message, most=MAX_CAUSE)
        why = f"{_CAUSES[kind]} ({message})" if kind in _CAUSES else f"failed ({kind}: {message})"
        causes.append(f"{runs} {why}")
    return (
        Finding(
            level=Level.ERROR,
            category=NO_FIGURE,
            item=campaign_id,
            measured="no figure",
            expected=f"a figure from at least one of {count(len(results), 'run')}" if results else "at least one run",
            summary="no run gave a figure",
            cause=listing(causes) if causes else "there was no run",
            resolution=_next_step(results),
        ),
    )


def impossible_work_findings(plan: Plan, results: Sequence[RunResult]) -> Iterator[Finding]:
    """One alarm for each refusal of works that could begin on no node."""
    impossible = impossible_works(results)
    refusals = grouped((runs[0].error.message, runs) for runs in impossible.values() if runs[0].error)
    for message, of_works in refusals.items():
        runs = [run for runs in of_works for run in runs]
        works = {run.spec.identity.group_id: None for run in runs}
        is_all = len(works) == len({run.spec.identity.group_id for run in results})
        which = "" if is_all else f" of {listing(plan.labels.get(work, work) for work in works)}"
        nodes = {node for run in runs for node in run.spec.identity.nodes}
        tried = f"{count(len(runs), 'run')} on {count(len(nodes), 'node')}"
        yield Finding(
            level=Level.ERROR,
            category=IMPOSSIBLE_WORK,
            item=plan.campaign_id,
            measured=f"refused in {tried}",
            expected="work that can begin",
            summary=f"the work{which} could begin on no node, so the campaign is at fault and no node",
            cause=f"Each of {tried} says: {one_line(message, most=MAX_REFUSAL)}",
            resolution="change what the error names (the campaign's model, dimensions, weights or command, or the "
            "image) and try it on one machine: `trainbench run`",
        )


def _next_step(results: Sequence[RunResult]) -> str:
    if not results:
        return "read why each node was skipped, and change the form"
    if all(result.error and result.error.kind in NOT_FREE for result in results):
        return (
            "no node was checked: run it again when nodes are free, raise TRAINBENCH_QUEUE_TIMEOUT_S, or reserve a "
            "slot for it"
        )
    if all(result.status is Status.OOM for result in results):
        return "choose less work: a smaller micro-batch, shorter sequences, or a recipe that needs less memory"
    return "no node was checked: fix the causes above, then run it again"


UNMEASURED_DAYS = 3  # a node that was busy for longer gets a finding
GONE_DAYS = 7  # a node that the cluster no longer lists is reported for so long
ABSENT, GONE, LOST_GPUS, UNMEASURED = "absent_node", "gone_node", "lost_gpus", "unmeasured_node"
ATTENDANCE = frozenset({ABSENT, GONE, LOST_GPUS, UNMEASURED})


def missing_node_findings(
    plan: Plan,
    groups: Sequence[GroupVerdict],
    old_names: Iterable[str],
    last_measured: Mapping[str, datetime],
    at: datetime,
) -> tuple[Finding, ...]:
    """Findings on nodes that nothing ran on, nodes that were busy for days, and nodes that the cluster no longer lists.

    `last_measured`: node -> its last valid run before this campaign. Where the form names the nodes, no other node is
    reported as missing; a node's old names never are.
    """
    known = (*plan.nodes, *(node.name for node in plan.absent), *old_names)
    misses = plan.judges_nodes and not plan.params.nodes
    return (
        *absent_node_findings(plan.absent, plan.known),
        *unmeasured_node_findings([node for group in groups for node in group.nodes], last_measured, at),
        *(gone_node_findings(known, last_measured, at) if misses else ()),
    )


def absent_node_findings(absent: Iterable[AbsentNode], known: Iterable[GpuNode]) -> Iterator[Finding]:
    """Findings on skipped nodes, as a notice where that is wanted (quarantine, cordon), and on unhealthy GPUs."""
    repair = "repair the node, or put it into quarantine with the reason"
    for node in absent:
        yield _finding(
            node.name,
            ABSENT,
            measured=node.reason,
            expected="ready, with allocatable GPUs",
            summary=f"was not measured: {node.reason}",
            resolution=repair if node.expected else "nothing to do",
            is_missed=node.expected,
        )
    for one in known:
        if one.num_gpus_lost:
            yield _finding(
                one.name,
                LOST_GPUS,
                measured=f"{count(one.num_gpus or 0, 'GPU')} allocatable",
                expected=f"{count((one.num_gpus or 0) + one.num_gpus_lost, 'GPU')}, its capacity",
                summary=f"has {count(one.num_gpus_lost, 'GPU')} that its device plugin calls unhealthy",
                resolution="look for Xid errors in the node's kernel log; reset the GPU or drain the node",
            )


def gone_node_findings(listed: Iterable[str], last_measured: Mapping[str, datetime], at: datetime) -> Iterator[Finding]:
    """Findings on nodes that were measured within GONE_DAYS and that the cluster no longer lists."""
    here, since = set(listed), at - timedelta(days=GONE_DAYS)
    for node, last in sorted(last_measured.items()):
        if node not in here and last >= since:
            yield _finding(
                node,
                GONE,
                measured="not in the cluster's list of nodes",
                expected=f"there, as on {last:%Y-%m-%d}",
                summary=f"was measured on {last:%Y-%m-%d}, and the cluster no longer lists it",
                resolution=f"nothing to do if it was taken out; this is reported for {GONE_DAYS} days",
            )


def unmeasured_node_findings(
    nodes: Sequence[NodeVerdict], last_measured: Mapping[str, datetime], at: datetime
) -> Iterator[Finding]:
    """Findings on busy nodes without a valid run for UNMEASURED_DAYS."""
    for name in dict.fromkeys(node.node for node in nodes if node.why is Why.BUSY):
        last = last_measured.get(name)
        if last is None or at - last >= timedelta(days=UNMEASURED_DAYS):
            since = f"since {last:%Y-%m-%d}" if last else "as far back as the history goes"
            yield _finding(
                name,
                UNMEASURED,
                measured=f"no valid run {since}",
                expected=f"one within {UNMEASURED_DAYS} days",
                summary=f"is busy with other work each time, and has not been measured {since}",
                resolution="run the check by hand when it is free, raise TRAINBENCH_QUEUE_TIMEOUT_S, or reserve a time "
                "for it",
                is_missed=last is not None,
            )


def _finding(node: str, category: str, *, is_missed: bool = True, **words: str) -> Finding:
    level, why = (Level.WARNING, Why.ABSENT) if is_missed else (Level.INFO, None)
    return Finding(level=level, category=category, nodes=(node,), why=why, **words)


_AGAIN = {
    Why.BUSY: "run the drill again when the node is free",
    **dict.fromkeys((Why.FAILED, Why.BROKEN_GPU), "repair the node, then drill it again"),
}


def undetected_drill_findings(groups: Sequence[GroupVerdict], results: Sequence[RunResult]) -> Iterator[Finding]:
    """Findings on drilled nodes that no group judges too slow, one for each node."""
    impossible = impossible_works(results)
    drills = {
        result.spec.identity.node: result.spec.drill.slowdown_pct
        for result in results
        if result.spec.drill and result.spec.identity.group_id not in impossible
    }
    verdicts = grouped((node.node, node) for group in groups for node in group.nodes)
    for node, slowdown_pct in drills.items():
        of_node = verdicts.get(node, [])
        if any(verdict.state is State.DRILL and verdict.why is Why.SLOW for verdict in of_node):
            continue
        # Of several works, and of several expectations, the one by which it was slowest.
        rates = [c.deviation for v in of_node for c in v.comparisons if c.metric is Metric.SAMPLES_PER_SECOND]
        worst = min(of_node, key=NodeVerdict.urgency, default=None)
        found = f"{word(worst)}: {worst.reason}" if worst else "not judged"
        is_shown = rates and worst and not worst.is_red
        measured = f"slowed by {slowdown_pct:g} %, {f'measured {percent(min(rates))}' if is_shown else found}"
        again = "drill it again with more rounds or a larger drill_slowdown_pct: a node this slow is not detected here"
        yield Finding(
            level=Level.ERROR,
            category=DRILL_UNDETECTED,
            nodes=(node,),
            is_drill=True,
            measured=measured,
            expected="slow",
            summary=f"was slowed on purpose, and the check did not detect it: {measured}",
            resolution=_AGAIN.get(worst.why, again) if worst else again,
        )


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
        node = result.spec.identity.nodes[failed_rank(result) or 0]  # a gang's times are of this one's clock
        apart[node] = max(apart.get(node, off), off, key=abs)
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
