"""The findings of a campaign that alert people: one for each node that needs attention."""

from __future__ import annotations

from collections.abc import Iterator

from trainbench.core.verdicts import DRILL_UNDETECTED, Finding, Level, by_level
from trainbench.judging.checks.missing_nodes import ATTENDANCE
from trainbench.judging.conditions_of_campaign import conditions
from trainbench.judging.diagnosis.diagnose import UNSTEADY
from trainbench.judging.mark_findings import OF_MARKS
from trainbench.judging.node_condition import TRAITS, Condition, NodeCondition
from trainbench.judging.over_time.baseline_deviation import HISTORY
from trainbench.judging.over_time.level_changes import SLOWER
from trainbench.judging.peers.slow_node_warnings import WATCHED
from trainbench.results.campaign import Campaign

# Condition -> the categories of the findings that explain it.
WARNED = {
    Condition.BEHIND: HISTORY,
    Condition.UNSTEADY: frozenset({UNSTEADY}),
    Condition.WATCHED: frozenset({WATCHED}),
    Condition.UNDECIDED: frozenset({"too_noisy", "too_few_nodes"}),
}
NEXT_STEP = "open the report of the run"


def alerts(campaign: Campaign) -> tuple[Finding, ...]:
    """The campaign's alerts: alarms, one for each node by its condition, dated slowdowns, nodes without a run, changes
    of a node's mark, and failed runs that judge no node. Errors, which turn the run red, come first.
    """
    return by_level((*campaign.alarms, *_of_nodes(campaign), *_of_findings(campaign), *_of_runs(campaign)))


def _of_nodes(campaign: Campaign) -> Iterator[Finding]:
    """One alert for each node by its condition; dated slowdowns have findings of their own."""
    red = {node.node for node in campaign.red_nodes}
    is_dated = {node for finding in campaign.findings if finding.category in SLOWER for node in finding.nodes}
    for node in conditions(campaign):
        if node.node in red:
            yield _error(campaign, node)
        elif node.condition in WARNED and not (node.condition is Condition.BEHIND and node.node in is_dated):
            yield _warning(campaign, node)


def _error(campaign: Campaign, node: NodeCondition) -> Finding:
    """The diagnosis of a red node, which names the work at which it is red; else its condition."""
    errors = (f for f in campaign.findings if f.level is Level.ERROR and f.category != DRILL_UNDETECTED)
    mine = (finding for finding in errors if finding.nodes == (node.node,) and finding.item is None)
    return next(mine, _plain(campaign, node, Level.ERROR))


def _warning(campaign: Campaign, node: NodeCondition) -> Finding:
    mine = (finding for finding in campaign.findings if finding.nodes == (node.node,))
    fitting = (f for f in mine if f.category in WARNED[node.condition] and f.level is Level.WARNING)
    return next(fitting, _plain(campaign, node, Level.WARNING))


def _plain(campaign: Campaign, node: NodeCondition, level: Level) -> Finding:
    """A finding made from the condition, where no finding explains it."""
    why = f": {node.reason}" if node.reason else ""
    steps = (finding.resolution for finding in campaign.findings if finding.nodes == (node.node,))
    return Finding(
        level=level,
        category=node.condition.value,
        nodes=(node.node,),
        measured=node.condition.value,
        expected=Condition.WELL.value,
        summary=f"{TRAITS[node.condition].one}{why}",
        resolution=next(steps, NEXT_STEP),
        is_drill=node.condition is Condition.DRILL,
    )


def _of_findings(campaign: Campaign) -> Iterator[Finding]:
    """Findings on dated slowdowns, on nodes without a run, and on marks that keep other work away from nodes."""
    yield from (finding for finding in campaign.findings if finding.category in SLOWER)
    missed = (finding for finding in campaign.findings if finding.category in ATTENDANCE)
    # Never red: nothing ran there, and the cluster's own monitoring watches such nodes.
    yield from (finding for finding in missed if finding.level is not Level.INFO)
    yield from (finding for finding in campaign.findings if finding.category in OF_MARKS)


def _of_runs(campaign: Campaign) -> Iterator[Finding]:
    for result in campaign.unjudged_failures:
        if result.error:
            yield Finding(
                level=Level.ERROR,
                category=f"run_{result.status.value}",
                nodes=(result.spec.identity.node,),
                item=result.spec.identity.run_id,
                measured=result.status.value,
                expected="a figure",
                summary=f"{result.status.value}, {result.error.message}",
                resolution=NEXT_STEP,
                is_drill=result.spec.drill is not None,
            )
