"""The findings of a campaign that alert people: alarms, and one for each node that is red or asks for a look."""

from __future__ import annotations

from trainbench.core.verdicts import OF_MARKS, Finding, Level, State, Why, by_level
from trainbench.judging.checks.missing_nodes import ATTENDANCE
from trainbench.judging.node_findings import finding_of
from trainbench.results.campaign import Campaign


def alerts(campaign: Campaign) -> tuple[Finding, ...]:
    """Errors, which turn the run red, come first. A finding on several nodes is one alert."""
    told = [
        finding_of(campaign, node)
        for node in sorted(campaign.node_states, key=lambda node: node.urgency())
        if node.state in (State.RED, State.LOOK) or (node.state is State.DRILL and node.why is Why.SLOW)
    ]
    raised = [*campaign.alarms, *(finding for finding in told if finding.level is not Level.INFO)]
    raised += (
        Finding(
            level=Level.ERROR,
            category=f"run_{result.status.value}",
            nodes=(result.spec.identity.node,),
            item=result.spec.identity.run_id,
            measured=result.status.value,
            expected="a figure",
            summary=f"{result.status.value}, {result.error.message}",
            resolution="open the report of the run",
            is_drill=result.spec.drill is not None,
        )
        for result in campaign.unjudged_failures
        if result.error
    )
    raised += [
        finding
        for finding in campaign.findings
        if finding.category in OF_MARKS or (finding.category in ATTENDANCE and finding.level is not Level.INFO)
    ]
    return by_level({id(finding): finding for finding in raised}.values())
