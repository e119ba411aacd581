"""Campaign -> alerts: one for each node that needs somebody to look."""

from __future__ import annotations

from bench_control.collecting.campaign import Campaign
from bench_control.judging.attendance import ATTENDANCE, UNMEASURED
from bench_control.judging.limits import NAMES, UNITS
from bench_control.judging.step_changes import SLOWER
from bench_control.judging.trend import HISTORY
from bench_control.words.formats import percent, signed
from bench_control.words.verdicts import RED, Confirmation, Level, NodeVerdict, State
from bench_image.contract import Frozen


class Alert(Frozen):
    """`red` turns the DAG run red; the rest is for people to know."""

    level: Level
    node: str | None
    state: State
    is_drill: bool
    red: bool
    text: str
    resolution: str
    dag_id: str
    run_id: str


def alerts(campaign: Campaign, dag_id: str, run_id: str) -> tuple[Alert, ...]:
    """Red ones first; then what could not be judged, and nodes that fell behind their own past."""
    measured = {result.spec.node for result in campaign.results}
    told = [
        Alert(
            level=Level.ERROR if node.state in RED else Level.WARNING,
            node=node.node,
            state=node.state,
            is_drill=node.is_drill,
            red=node.state in RED,
            text=_sentence(node),
            resolution=_resolution(campaign, node.node),
            dag_id=dag_id,
            run_id=run_id,
        )
        for node in campaign.nodes
        if node.state not in (State.OK, State.NOTICE, State.BUSY)
    ]
    told += [
        Alert(
            level=Level.WARNING,
            node=past.node,
            state=past.state,
            is_drill=False,
            red=False,  # one night against its past, which no re-run has confirmed
            text=f"{past.node} fell behind its own past: {past.reason}",
            resolution=_resolution(campaign, past.node, of_its_past=True),
            dag_id=dag_id,
            run_id=run_id,
        )
        for past in campaign.history
        if past.state is State.BREACH
    ]
    told += [
        Alert(
            level=finding.level,
            node=finding.subject if finding.subject in measured else None,
            state=State.BREACH,
            is_drill=False,
            red=False,  # as fast as its peers, or they fell behind together
            text=f"{finding.subject} {finding.summary}",
            resolution=finding.resolution,
            dag_id=dag_id,
            run_id=run_id,
        )
        for finding in campaign.findings
        if finding.category in SLOWER
    ]
    told += [
        Alert(
            level=finding.level,
            node=finding.subject,
            state=State.BUSY if finding.category == UNMEASURED else State.MISSING,
            is_drill=False,
            red=False,  # nothing ran there: the cluster's own monitoring is the judge
            text=f"{finding.subject} {finding.summary}",
            resolution=finding.resolution,
            dag_id=dag_id,
            run_id=run_id,
        )
        for finding in campaign.findings
        if finding.category in ATTENDANCE and finding.level is not Level.INFO
    ]
    told += [
        Alert(
            level=Level.ERROR,
            node=None,
            state=State.FAILED,
            is_drill=result.spec.drill is not None,
            red=True,
            text=f"{result.spec.run_id}: {result.status.value}, {result.error.message}",
            resolution="open the report of the run",
            dag_id=dag_id,
            run_id=run_id,
        )
        for result in campaign.unjudged_failures
        if result.error
    ]
    return tuple(sorted(told, key=lambda alert: not alert.red))


def _sentence(node: NodeVerdict) -> str:
    drill = "DRILL: " if node.is_drill else ""
    if node.state is not State.BREACH:
        return f"{drill}{node.node}: {node.state.value}, {node.reason}"
    parts = [
        f"{NAMES[m.metric]} {signed(m.deviation, unit)} against its peers (limit ±{m.limit:g}{unit})"
        for m, unit in ((metric, UNITS[metric.metric]) for metric in node.metrics)
        if m.state is State.BREACH and m.deviation is not None
    ]
    parts += [f"{NAMES[m.metric]}: {m.reason}" for m in node.metrics if m.state is State.BREACH and m.deviation is None]
    again = {
        Confirmation.CONFIRMED: f", confirmed by a re-run ({percent(node.confirm_deviation_pct)} samples/s)"
        if node.confirm_deviation_pct is not None
        else ", confirmed by a re-run",
        Confirmation.INCONCLUSIVE: ", the re-run gave no answer",
    }.get(node.confirmation, "")
    return f"{drill}{node.node} is in breach: {'; '.join(parts)}{again}"


def _resolution(campaign: Campaign, node: str, *, of_its_past: bool = False) -> str:
    """The next step of the node's first finding: against its past, or of any other kind."""
    mine = (finding for finding in campaign.findings if finding.subject == node)
    fitting = (finding.resolution for finding in mine if (finding.category in HISTORY) is of_its_past)
    return next(fitting, "open the report of the run")
