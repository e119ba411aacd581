"""What alerts people of a DAG run: alarms, and each node that is red or asks for a look; and its summary, bounded in
size: the extra of its asset events and the note on its page.

A DAG that an asset event starts reads from the event's extra which nodes need attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from trainbench.alerting.links import absolute_url, benchmarks_page, prefix_of, report_tab, run_page
from trainbench.alerting.run_note import HEAD
from trainbench.core.formats import one_line
from trainbench.core.markdown import escape
from trainbench.core.verdicts import OF_MARKS, Finding, Level, State, Why, by_level
from trainbench.judging.checks import ATTENDANCE
from trainbench.pods.gangs import failed_nodes
from trainbench.reporting import verdict_text
from trainbench.results.campaign import Campaign


def alerts(campaign: Campaign) -> tuple[Finding, ...]:
    """Errors, which turn the run red, come first. A finding on several nodes is one alert."""
    told = [
        campaign.finding_of(node)
        for node in sorted(campaign.node_states, key=lambda node: node.urgency())
        if node.state in (State.RED, State.LOOK) or (node.state is State.DRILL and node.why is Why.SLOW)
    ]
    raised = [*campaign.alarms, *(finding for finding in told if finding.level is not Level.INFO)]
    raised += (
        Finding(
            level=Level.ERROR,
            category=f"run_{result.status.value}",
            nodes=failed_nodes(result),
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


MAX_ALERTS = 50
MAX_TEXT = 500
NOTE_CHARS = 700  # Airflow's column takes 1,000; the rest is for people
Extra = dict[str, Any]


def results_extra(campaign: Campaign, dag_id: str, run_id: str, base_url: str | None) -> Extra:
    """The extra of the event "results are published": their campaign, their number by status, and links."""
    statuses = Counter(result.status.value for result in campaign.results)
    runs = {"total": len(campaign.results), **dict(sorted(statuses.items()))}
    return {**_head(campaign, dag_id, run_id, base_url), "runs": runs}


def breaches_extra(
    campaign: Campaign, alerts: Sequence[Finding], dag_id: str, run_id: str, base_url: str | None
) -> Extra:
    """The extra of the event "the nodes were judged", red alerts first. A good night's has `num_red` 0."""
    shown = [alert.model_dump(mode="json", exclude={"evidence"}) for alert in alerts[:MAX_ALERTS]]
    return {
        **_head(campaign, dag_id, run_id, base_url),
        "num_red": sum(alert.level is Level.ERROR for alert in alerts),
        "num_alerts": len(alerts),
        "alerts": [{name: _short(value) for name, value in alert.items()} for alert in shown],
        "left_off": len(alerts) - len(shown),
    }


def note(campaign: Campaign, alerts: Sequence[Finding], dag_id: str, run_id: str, base_url: str | None) -> str:
    """The note as Markdown of at most NOTE_CHARS: the headline, the next step of each alert that fits, red ones first,
    and the report's address.
    """
    links = f"[Report]({report_tab(dag_id, run_id)}) · [Benchmarks]({benchmarks_page(prefix_of(base_url))})"
    parts = [f"{HEAD} {escape(one_line(verdict_text.verdict(campaign), most=300))}"]
    steps = []
    for alert in alerts:
        is_of_node = alert.item is None and (alert.why is not None or len(alert.nodes) == 1)
        step = f"{alert.subject}: {alert.resolution}" if is_of_node else alert.text
        steps.append(f"- {escape(one_line(step, most=160))}")
    for number, line in enumerate(steps):
        more = f"- and {len(steps) - number} more"
        if len("\n".join([*parts, line, more, "", links])) > NOTE_CHARS:
            parts.append(more)
            break
        parts.append(line)
    return "\n".join([*parts, "", links])


def _head(campaign: Campaign, dag_id: str, run_id: str, base_url: str | None) -> Extra:
    links = {
        "run": run_page(dag_id, run_id),
        "report": report_tab(dag_id, run_id),
        "benchmarks": benchmarks_page(prefix_of(base_url)),
    }
    states = Counter(node.state.value for node in campaign.node_states)
    return {
        "dag_id": dag_id,
        "run_id": run_id,
        "campaign_id": campaign.campaign_id,
        "campaign_kind": campaign.campaign_kind.value,
        "title": _short(campaign.title),
        "verdict": _short(verdict_text.verdict(campaign)),
        "is_drill": campaign.is_drill,
        "nodes": {"judged": states.total(), **dict(sorted(states.items()))},
        "links": {name: absolute_url(base_url, link) or link for name, link in links.items()},
    }


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return value[:MAX_ALERTS]
    return one_line(value, most=MAX_TEXT) if isinstance(value, str) else value
