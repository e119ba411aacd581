"""The warnings of the history: opened by a finding about a node that is not red, closed by the campaign without it."""

from __future__ import annotations

from sqlalchemy import Connection, func, insert, select, update

from bench_control.attendance import ATTENDANCE
from bench_control.campaign import Campaign
from bench_control.notice_tables import warnings
from bench_control.step_changes import SLOWER
from bench_control.summary_tables import campaigns
from bench_control.trend import HISTORY_SLOWER
from bench_control.verdicts import Finding, Level

WARNED = frozenset({HISTORY_SLOWER, *SLOWER, *ATTENDANCE})


def update_warnings(connection: Connection, campaign: Campaign) -> None:
    """What this campaign warns of is opened unless it is open; what it could have said again and did not is closed.

    Only the newest campaign of its DAG has a say: one that is recorded late changes nothing. A node that it left out
    stays as it is.
    """
    if not campaign.judges_nodes or _is_old(connection, campaign):
        return
    told = {(finding.subject, finding.category): finding for finding in warned(campaign)}
    of_dag = (warnings.c.dag_id == campaign.suite) & warnings.c.closed_at.is_(None)
    rows = connection.execute(select(warnings).where(of_dag)).all()
    seen = {node.node for node in campaign.nodes}
    for row in rows:
        if (row.node, row.category) not in told and (row.node in seen or _is_whole(campaign)):
            end = {"closed_at": campaign.finished_at, "closed_by_campaign_id": campaign.campaign_id}
            connection.execute(update(warnings).where(warnings.c.id == row.id).values(end))
    known = {(row.node, row.category) for row in rows}
    opened = [
        {
            "dag_id": campaign.suite,
            "node": finding.subject,
            "category": finding.category,
            "summary": finding.summary.removeprefix(f"{finding.subject} "),
            "resolution": finding.resolution,
            "campaign_id": campaign.campaign_id,
            "dag_run_id": campaign.dag_run_id,
            "opened_at": campaign.finished_at,
        }
        for key, finding in told.items()
        if key not in known
    ]
    if opened:
        connection.execute(insert(warnings), opened)


def warned(campaign: Campaign) -> tuple[Finding, ...]:
    """The findings to warn of: not of nodes that are red, which have a breach, nor of those slowed down on purpose."""
    others = {node.node for node in campaign.red_nodes} | {node.node for node in campaign.nodes if node.is_drill}
    return tuple(
        finding
        for finding in campaign.findings
        if finding.category in WARNED and finding.level is Level.WARNING and finding.subject not in others
    )


def _is_whole(campaign: Campaign) -> bool:
    """Whether it looked at every node that there is."""
    return not campaign.params.get("nodes")


def _is_old(connection: Connection, campaign: Campaign) -> bool:
    latest = select(func.max(campaigns.c.finished_at)).where(campaigns.c.suite == campaign.suite)
    found = connection.execute(latest.where(campaigns.c.campaign_id != campaign.campaign_id)).scalar_one()
    return found is not None and found > campaign.finished_at
