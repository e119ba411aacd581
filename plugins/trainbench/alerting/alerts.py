"""The findings of a campaign that alert people: alarms, and one for each node that is red or asks for a look."""

from __future__ import annotations

from collections.abc import Iterator

from trainbench.core.verdicts import OF_MARKS, Finding, Level, State, Why, by_level
from trainbench.judging.checks.missing_nodes import ATTENDANCE
from trainbench.judging.node_findings import finding_of
from trainbench.results.campaign import Campaign


def alerts(campaign: Campaign) -> tuple[Finding, ...]:
    """Errors, which turn the run red, come first. A finding on several nodes is one alert."""
    raised = [*campaign.alarms, *_of_nodes(campaign), *_of_runs(campaign)]
    raised += [
        finding
        for finding in campaign.findings
        if finding.category in OF_MARKS or (finding.category in ATTENDANCE and finding.level is not Level.INFO)
    ]
    once: list[Finding] = []
    for finding in raised:
        if not any(finding is known for known in once):
            once.append(finding)
    return by_level(once)


def _of_nodes(campaign: Campaign) -> Iterator[Finding]:
    for node in sorted(campaign.node_states, key=lambda node: node.urgency()):
        is_detected = node.state is State.DRILL and node.why is Why.SLOW
        if is_detected or node.state in (State.RED, State.LOOK):
            finding = finding_of(campaign, node)
            if finding.level is not Level.INFO:
                yield finding


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
                resolution="open the report of the run",
                is_drill=result.spec.drill is not None,
            )
