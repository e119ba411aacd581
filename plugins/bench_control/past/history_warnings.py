"""The warnings of the history: opened by a finding about a node that is not red, closed by the campaign without it."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from bench_control.collecting.campaign import Campaign
from bench_control.judging.attendance import ATTENDANCE
from bench_control.judging.step_changes import SLOWER
from bench_control.judging.trend import HISTORY_SLOWER
from bench_control.past.history_tables import runs
from bench_control.past.notice_tables import warnings
from bench_control.past.summary_tables import campaigns
from bench_control.words.verdicts import RED, Finding, Level, State
from bench_image.contract import fingerprint

SLOWDOWNS = frozenset({HISTORY_SLOWER, *SLOWER})
WARNED = SLOWDOWNS | ATTENDANCE
MORE = re.compile(r" and \d+ more$")
MEASURED = frozenset({State.OK, State.NOTICE, State.INSUFFICIENT})


def update_warnings(connection: Connection, campaign: Campaign) -> None:
    """What this campaign warns of is opened unless it is open; what it could have said again and did not is closed.

    Only the newest campaign of its DAG has a say: one that is recorded late changes nothing. A node that it left out,
    or did not measure, stays as it is; so does one that is red now.
    """
    if not campaign.judges_nodes or is_old(connection, campaign):
        return
    told = {(finding.subject, finding.category): finding for finding in warned(campaign)}
    of_dag = (warnings.c.dag_id == campaign.suite) & warnings.c.closed_at.is_(None)
    rows = connection.execute(select(warnings).where(of_dag)).all()
    known: dict[str, set[str]] = {}
    for row in rows:
        if (row.node, row.category) in told or _lasts(connection, row, campaign, told):
            known.setdefault(row.category, set()).add(row.node)
        else:
            end = {"closed_at": campaign.finished_at, "closed_by_campaign_id": campaign.campaign_id}
            connection.execute(update(warnings).where(warnings.c.id == row.id).values(end))
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
        for finding in told.values()
        if not _is_known(finding.subject, known.get(finding.category, set()))
    ]
    if opened:
        connection.execute(insert(warnings), opened)


def warned(campaign: Campaign) -> tuple[Finding, ...]:
    """The findings to warn of: not of nodes that are red, which have a breach, nor of those slowed down on purpose."""
    others = _red_or_drilled(campaign)
    return tuple(
        finding
        for finding in campaign.findings
        if finding.category in WARNED and finding.level is Level.WARNING and finding.subject not in others
    )


def named(subject: str) -> set[str]:
    """The nodes that a finding about several names: "node-1, node-2 and node-3", "node-1, node-2 and 7 more"."""
    return set(re.split(r", | and ", MORE.sub("", subject)))


def _is_known(subject: str, open_subjects: Collection[str]) -> bool:
    """Whether open warnings name the same nodes. A long list names its first only: then one of them is enough."""
    nodes, known = named(subject), set[str]().union(*map(named, open_subjects))
    is_cut = any(MORE.search(told) for told in (subject, *open_subjects))
    return bool(nodes & known) if is_cut else nodes <= known


def _lasts(connection: Connection, row: Row[Any], campaign: Campaign, told: Collection[tuple[str, str]]) -> bool:
    """Whether the warning is not over though this campaign does not say it again.

    A slowdown is said otherwise once its date is known, or once another node shares it; it is not seen where the past
    starts anew with a driver, nor by a campaign of other work.
    """
    nodes = named(row.node)
    if not all(_could_tell(campaign, node) for node in nodes):
        return True
    if row.category not in SLOWDOWNS:
        return False
    slow = {node for subject, category in told if category in SLOWDOWNS for node in named(subject)}
    unseen = {State.BREACH, State.NO_BASELINE} if row.category == HISTORY_SLOWER else {State.BREACH}
    slow |= {past.node for past in campaign.history if past.state in unseen}
    return bool(nodes & slow) or not _did_its_work(connection, row, nodes, campaign)


def _did_its_work(connection: Connection, row: Row[Any], nodes: Collection[str], campaign: Campaign) -> bool:
    """Whether the nodes did some of the work that they were warned of for; also when nobody knows any more."""
    of_opening = (runs.c.campaign_id == row.campaign_id) & runs.c.node.in_(nodes)
    then = set(connection.execute(select(runs.c.fingerprint).where(of_opening).distinct()).scalars())
    now = {fingerprint(result.work) for result in campaign.results if result.spec.node in nodes}
    return not then or not now or not then.isdisjoint(now)


def _could_tell(campaign: Campaign, node: str) -> bool:
    """Whether its silence means something: it measured the node, or looked at every node that there is."""
    states = {verdict.state for verdict in campaign.nodes if verdict.node == node}
    if states:
        return states <= MEASURED and node not in _red_or_drilled(campaign)
    return not campaign.params.get("nodes")


def _red_or_drilled(campaign: Campaign) -> set[str]:
    return {node.node for node in campaign.nodes if node.state in RED or node.is_drill}


def is_old(connection: Connection, campaign: Campaign) -> bool:
    """Whether a later campaign of its DAG is recorded already."""
    latest = select(func.max(campaigns.c.finished_at)).where(campaigns.c.suite == campaign.suite)
    found = connection.execute(latest.where(campaigns.c.campaign_id != campaign.campaign_id)).scalar_one()
    return found is not None and found > campaign.finished_at
