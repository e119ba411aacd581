"""The warnings of the history: a finding on a node that is not red opens one; it closes when the finding is over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from bench_image.contract.result import Status
from trainbench.core.verdicts import ALARMS, RED, Finding, NodeVerdict, RateChange, State
from trainbench.history.notice_tables import warnings
from trainbench.history.run_tables import runs
from trainbench.history.summary_tables import campaigns
from trainbench.judging.over_time.node_history import records_of
from trainbench.judging.rate_changes import is_back, is_worse
from trainbench.judging.warning_findings import (
    ACTS,
    ENDED,
    OVER,
    WarningKind,
    alarm_findings,
    changes_of,
    red_or_drilled,
    warnings_of,
)
from trainbench.results.campaign import Campaign

FORGOTTEN_DAYS = 14  # a warning closes when its node was not measured at the work for so long
FORGOTTEN = f"not measured at that work for {FORGOTTEN_DAYS} days"
WELL = frozenset({State.OK, State.NOTICE})
ATTENDED = WELL | {State.INSUFFICIENT}
Rates = Mapping[tuple[str, str], float]  # (node, fingerprint) -> samples/s


def update_warnings(connection: Connection, campaign: Campaign) -> None:
    """Open the campaign's new warnings, close those that are over, and replace those that became worse. A replacement
    is over at the same level as the first warning.

    Only the newest campaign of its DAG changes warnings; one that is recorded late changes none.
    """
    if is_old(connection, campaign):
        return
    tonight = {**alarm_findings(campaign), **(warnings_of(campaign) if campaign.judges_nodes else {})}
    records = records_of(campaign.results, campaign.started_at)
    rates = {(record.node, record.fingerprint): record.samples_per_second for record in records}
    of_dag = (warnings.c.dag_id == campaign.suite) & warnings.c.closed_at.is_(None)
    opened = []
    for row in connection.execute(select(warnings).where(of_dag).order_by(warnings.c.id)).all():
        if row.node and not campaign.judges_nodes:
            continue
        finding = tonight.pop((row.node, WarningKind(row.kind)), None)
        if finding is None:
            if ended := _end(connection, row, campaign, rates):
                _close(connection, row, campaign, ended)
            continue
        then, now = stored_changes(row.changes), changes_of(campaign, row.node)
        both = {change.fingerprint: change for change in (*now, *then)}  # keeps the level before from the first warning
        if _is_worse(now, then) and row.campaign_id != campaign.campaign_id:
            _close(connection, row, campaign, None)
            opened.append(_values(campaign, row.node, WarningKind(row.kind), finding, _as_of_now(both, now)))
        elif len(both) > len(then):
            stored = update(warnings).where(warnings.c.id == row.id)
            connection.execute(stored.values(changes=changes_json(tuple(both.values()))))
    opened += [
        _values(campaign, node, kind, finding, changes_of(campaign, node) if kind is WarningKind.SLOW else ())
        for (node, kind), finding in tonight.items()
    ]
    if opened:
        connection.execute(insert(warnings), opened)


def stored_changes(text: str) -> tuple[RateChange, ...]:
    return tuple(RateChange.model_validate(change) for change in json.loads(text))


def _is_worse(now: Sequence[RateChange], then: Sequence[RateChange]) -> bool:
    known = {change.fingerprint: change for change in then}
    return any(change.fingerprint in known and is_worse(change, known[change.fingerprint]) for change in now)


def _as_of_now(changes: Mapping[str, RateChange], now: Sequence[RateChange]) -> tuple[RateChange, ...]:
    after = {change.fingerprint: change.after for change in now}
    return tuple(
        change.model_copy(update={"after": after.get(change.fingerprint, change.after)}) for change in changes.values()
    )


def _end(connection: Connection, row: Row[Any], campaign: Campaign, rates: Rates) -> str | None:
    """The end of a warning that this campaign does not repeat; None: it lasts, or the campaign cannot decide."""
    kind = WarningKind(row.kind)
    if kind.value in ALARMS:
        return ENDED[kind]
    verdicts = [verdict for verdict in campaign.nodes if verdict.node == row.node]
    if kind in ACTS:
        is_over = kind is WarningKind.NOT_MARKED and any(verdict.state in WELL for verdict in verdicts)
        return ENDED[kind] if campaign.marks_are_known or is_over else None
    if row.node in red_or_drilled(campaign):
        # Red nodes count as judged.
        is_judged = kind is WarningKind.UNDECIDED and any(verdict.state in RED for verdict in verdicts)
        return ENDED[kind] if is_judged else None
    if kind not in (WarningKind.SLOW, WarningKind.UNSTEADY, WarningKind.UNDECIDED):
        states = {verdict.state for verdict in verdicts}
        is_seen = states <= ATTENDED if states else not campaign.params.get("nodes")
        return ENDED.get(kind, OVER) if is_seen else None
    changes = stored_changes(row.changes)
    known = {work: rates.get((row.node, work)) for work in (change.fingerprint for change in changes)}
    if changes and None not in known.values():
        is_over = all(is_back(rate, change) for change in changes if (rate := known[change.fingerprint]) is not None)
        return ENDED[kind] if is_over and not any(verdict.is_watched for verdict in verdicts) else None
    if not changes and verdicts and all(_is_over(kind, verdict) for verdict in verdicts):
        return ENDED[kind]
    return FORGOTTEN if _is_forgotten(connection, row, campaign, list(known)) else None


def _is_over(kind: WarningKind, verdict: NodeVerdict) -> bool:
    still = {WarningKind.SLOW: verdict.is_watched, WarningKind.UNSTEADY: verdict.is_unsteady}.get(kind, False)
    return verdict.state in WELL and not still


def _is_forgotten(connection: Connection, row: Row[Any], campaign: Campaign, works: Sequence[str]) -> bool:
    of_node = (runs.c.node == row.node) & (runs.c.status == Status.OK.value) & ~runs.c.is_drill
    last = select(func.max(runs.c.started_at)).where(of_node & runs.c.fingerprint.in_(works) if works else of_node)
    measured_at = connection.execute(last).scalar_one() or row.opened_at
    return bool(measured_at < campaign.finished_at - timedelta(days=FORGOTTEN_DAYS))


def _close(connection: Connection, row: Row[Any], campaign: Campaign, ended: str | None) -> None:
    end = {"closed_at": campaign.finished_at, "closed_by_campaign_id": campaign.campaign_id, "ended": ended}
    connection.execute(update(warnings).where(warnings.c.id == row.id).values(end))


def _values(
    campaign: Campaign, node: str, kind: WarningKind, finding: Finding, changes: Sequence[RateChange]
) -> dict[str, Any]:
    return {
        "dag_id": campaign.suite,
        "node": node,
        "kind": kind.value,
        "finding": finding.model_dump_json(),
        "changes": changes_json(changes),
        "campaign_id": campaign.campaign_id,
        "dag_run_id": campaign.dag_run_id,
        "opened_at": campaign.finished_at,
    }


def changes_json(changes: Sequence[RateChange]) -> str:
    return json.dumps([change.model_dump() for change in changes])


def is_old(connection: Connection, campaign: Campaign) -> bool:
    """Whether a later campaign of its DAG is recorded already."""
    latest = select(func.max(campaigns.c.finished_at)).where(campaigns.c.suite == campaign.suite)
    last_finished_at = connection.execute(latest.where(campaigns.c.campaign_id != campaign.campaign_id)).scalar_one()
    return last_finished_at is not None and last_finished_at > campaign.finished_at
