"""Campaign -> alerts: one for each node that needs somebody to look."""

from __future__ import annotations

from bench_image.contract.frozen import Frozen
from trainbench.core.verdicts import Level
from trainbench.judging.campaign_conditions import conditions
from trainbench.judging.checks import drills
from trainbench.judging.checks.missing_nodes import ATTENDANCE
from trainbench.judging.condition import Condition
from trainbench.judging.over_time.step_changes import SLOWER
from trainbench.judging.over_time.trend import HISTORY
from trainbench.results.campaign import Campaign

WARNED = {Condition.BEHIND, Condition.UNSTEADY, Condition.WATCHED, Condition.UNDECIDED}


class Alert(Frozen):
    """`red` turns the DAG run red; the rest is for people to know. `condition`: None where nothing ran, so that nobody
    was judged.
    """

    level: Level
    node: str | None
    condition: Condition | None
    is_drill: bool
    red: bool
    text: str
    resolution: str
    dag_id: str
    run_id: str


def alerts(campaign: Campaign, dag_id: str, run_id: str) -> tuple[Alert, ...]:
    """Red ones first: one for each alarm, one for each node by its condition, one for each dated slowdown, one for each
    node that nothing ran on, one for each drill that was not found, one for each failed run that judges no node.
    """

    def alert(level: Level, node: str | None, condition: Condition | None, text: str, next_step: str) -> Alert:
        return Alert(
            level=level,
            node=node,
            condition=condition,
            is_drill=condition is Condition.DRILL,
            red=level is Level.ERROR,
            text=text,
            resolution=next_step,
            dag_id=dag_id,
            run_id=run_id,
        )

    red = {node.node for node in campaign.red_nodes}
    dated = [finding for finding in campaign.findings if finding.category in SLOWER]
    is_dated = {node for finding in dated for node in finding.about}
    told = [
        alert(Level.ERROR, None, None, f"{finding.subject} {finding.summary}: {finding.measured}", finding.resolution)
        for finding in campaign.alarms
    ]
    for node in conditions(campaign):
        of_past = node.condition is Condition.BEHIND
        if node.node in red or (node.condition in WARNED and not (of_past and node.node in is_dated)):
            drill = "DRILL: " if node.condition is Condition.DRILL else ""
            level = Level.ERROR if node.node in red else Level.WARNING
            step = _resolution(campaign, node.node, of_its_past=of_past)
            told.append(alert(level, node.node, node.condition, f"{drill}{node.phrase}", step))
    for finding in dated:
        subject = finding.about[0] if len(finding.about) == 1 else None
        text = f"{finding.subject} {finding.summary}"
        told.append(alert(finding.level, subject, Condition.BEHIND, text, finding.resolution))
    for finding in campaign.findings:
        if finding.category in ATTENDANCE and finding.level is not Level.INFO:
            # Never red: nothing ran there, and the cluster's own monitoring is the judge.
            text = f"{finding.subject} {finding.summary}"
            told.append(alert(Level.WARNING, finding.subject, None, text, finding.resolution))
    for missed in drills.undetected(campaign.findings):
        told.append(alert(Level.ERROR, missed.subject, Condition.DRILL, drills.headline(missed), missed.resolution))
    for result in campaign.unjudged_failures:
        if result.error:
            text = f"{result.spec.run_id}: {result.status.value}, {result.error.message}"
            condition = Condition.DRILL if result.spec.drill else Condition.FAILED
            told.append(alert(Level.ERROR, None, condition, text, "open the report of the run"))
    return tuple(sorted(told, key=lambda alert: not alert.red))


def _resolution(campaign: Campaign, node: str, *, of_its_past: bool = False) -> str:
    """The next step of the node's first finding: against its past, or of any other kind."""
    mine = (finding for finding in campaign.findings if finding.subject == node)
    fitting = (finding.resolution for finding in mine if (finding.category in HISTORY) is of_its_past)
    return next(fitting, "open the report of the run")
