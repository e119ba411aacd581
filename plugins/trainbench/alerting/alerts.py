"""Campaign -> alerts: one for each node that needs somebody to look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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


class _Draft(NamedTuple):
    """An alert without its DAG run."""

    level: Level
    node: str | None
    condition: Condition | None
    text: str
    resolution: str


def alerts(campaign: Campaign, dag_id: str, run_id: str) -> tuple[Alert, ...]:
    """Red ones first: one for each alarm, one for each node by its condition, one for each dated slowdown, one for each
    node that nothing ran on, one for each drill that was not found, one for each failed run that judges no node.
    """
    drafts = (*_of_alarms(campaign), *_of_nodes(campaign), *_of_findings(campaign), *_of_runs(campaign))
    return tuple(
        Alert(
            **draft._asdict(),
            is_drill=draft.condition is Condition.DRILL,
            red=draft.level is Level.ERROR,
            dag_id=dag_id,
            run_id=run_id,
        )
        for draft in sorted(drafts, key=lambda draft: draft.level is not Level.ERROR)
    )


def _of_alarms(campaign: Campaign) -> Iterator[_Draft]:
    for finding in campaign.alarms:
        text = f"{finding.subject}: {finding.explanation}"
        yield _Draft(Level.ERROR, None, None, text, finding.resolution)


def _of_nodes(campaign: Campaign) -> Iterator[_Draft]:
    """A node that is slower since a known date is left to the finding with that date."""
    red = {node.node for node in campaign.red_nodes}
    is_dated = {node for finding in campaign.findings if finding.category in SLOWER for node in finding.nodes}
    for node in conditions(campaign):
        of_past = node.condition is Condition.BEHIND
        if node.node in red or (node.condition in WARNED and not (of_past and node.node in is_dated)):
            drill = "DRILL: " if node.condition is Condition.DRILL else ""
            level = Level.ERROR if node.node in red else Level.WARNING
            step = _resolution(campaign, node.node, of_its_past=of_past)
            yield _Draft(level, node.node, node.condition, f"{drill}{node.phrase}", step)


def _of_findings(campaign: Campaign) -> Iterator[_Draft]:
    """Dated slowdowns, then nodes that nothing ran on, then drills that were not found."""
    for finding in campaign.findings:
        if finding.category in SLOWER:
            node = finding.nodes[0] if len(finding.nodes) == 1 else None
            yield _Draft(finding.level, node, Condition.BEHIND, finding.headline, finding.resolution)
    for finding in campaign.findings:
        if finding.category in ATTENDANCE and finding.level is not Level.INFO:
            # Never red: nothing ran there, and the cluster's own monitoring is the judge.
            yield _Draft(Level.WARNING, finding.subject, None, finding.headline, finding.resolution)
    for missed in drills.undetected(campaign.findings):
        yield _Draft(Level.ERROR, missed.subject, Condition.DRILL, missed.headline, missed.resolution)


def _of_runs(campaign: Campaign) -> Iterator[_Draft]:
    for result in campaign.unjudged_failures:
        if result.error:
            text = f"{result.spec.identity.run_id}: {result.status.value}, {result.error.message}"
            condition = Condition.DRILL if result.spec.drill else Condition.FAILED
            yield _Draft(Level.ERROR, None, condition, text, "open the report of the run")


def _resolution(campaign: Campaign, node: str, *, of_its_past: bool = False) -> str:
    """The next step of the node's first finding: against its past, or of any other kind."""
    mine = (finding for finding in campaign.findings if finding.nodes == (node,))
    fitting = (finding.resolution for finding in mine if (finding.category in HISTORY) is of_its_past)
    return next(fitting, "open the report of the run")
