"""Accepts the present level as the new baseline; lists and revokes accepted baselines. They hold for all names of
a node, which its GPUs' UUIDs identify.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, func, insert, select, update

from trainbench.core.baselines import Baseline
from trainbench.core.user_error import MAX_REASON, MAX_WHO, EntryError, UnknownEntryError, entered
from trainbench.core.verdicts import Against, Metric, Why
from trainbench.history.notices import Notice, notice_of, select_notices
from trainbench.history.tables import OURS, baselines, notices, runs


def read_baselines(connection: Connection) -> tuple[Baseline, ...]:
    """All accepted baselines, revoked ones included, the oldest first."""
    rows = connection.execute(select(baselines).order_by(baselines.c.accepted_at, baselines.c.id))
    return tuple(Baseline.model_validate(row._asdict() | {"other_names": json.loads(row.other_names)}) for row in rows)


def accept(
    connection: Connection,
    node: str | None,
    who: str,
    why: str,
    at: datetime,
    since: datetime | None = None,
    fingerprint: str | None = None,
) -> Baseline:
    """Accept a node's present level. `node`: None for all nodes. `since`: by default the night that opened a notice of
    a node that is slower than its past, or of the named node by its samples/s, else the last night.

    This closes these notices. It holds for all names that the node's GPUs have had. Raises EntryError.
    """
    who, why = entered(who, "the name of who accepts", MAX_WHO), entered(why, "the reason", MAX_REASON)
    _refuse_unknown(connection, node, fingerprint)
    others = other_names(connection, node) if node else ()
    names = (node, *others) if node else ()
    is_open = select_notices().where(notices.c.closed_at.is_(None), ~notices.c.is_drill)
    slower = [
        notice
        for notice in map(notice_of, connection.execute(is_open))
        if (notice.node in names and notice.metric is Metric.SAMPLES_PER_SECOND)
        or (_is_below_past(notice) and (not names or notice.node in names))
    ]
    since = since or _level_since(connection, names, [notice.campaign_id for notice in slower])
    if since > at:
        raise EntryError(f"since {since:%Y-%m-%d %H:%M} UTC lies in the future: give a time up to now")
    values = {"node": node, "fingerprint": fingerprint, "since": since, "who": who, "why": why, "accepted_at": at}
    stored = insert(baselines).values(**values, other_names=json.dumps(others)).returning(baselines.c.id)
    accepted = Baseline.model_validate({"id": connection.execute(stored).scalar_one(), **values, "other_names": others})
    end = {"closed_at": at, "ended": f"accepted as the new level by {who}: {why}"}
    for notice in slower:
        of_notice = [runs.c[name] == getattr(notice, name) for name in ("campaign_id", "group_id", "node")]
        works = connection.execute(select(runs.c.fingerprint).where(*of_notice)).scalars().all()
        if fingerprint is None or fingerprint in works:
            connection.execute(update(notices).where(notices.c.id == notice.id).values(end))
    return accepted


def revoke(connection: Connection, baseline_id: int, who: str, at: datetime) -> Baseline:
    """Revoke an accepted baseline: the past before it counts again from the next campaign on. Raises EntryError."""
    who = entered(who, "the name of who takes it back", MAX_WHO)
    known = {each.id: each for each in read_baselines(connection)}
    baseline = known.get(baseline_id)
    if baseline is None:
        ids = ", ".join(map(str, known)) or "none"
        raise UnknownEntryError(f"there is no baseline {baseline_id}: choose from {ids}")
    if baseline.revoked_at is not None:
        when = f"{baseline.revoked_at:%Y-%m-%d %H:%M} UTC"
        raise EntryError(f"baseline {baseline_id} was taken back by {baseline.revoked_by} on {when}: nothing to do")
    end = {"revoked_at": at, "revoked_by": who}
    connection.execute(update(baselines).where(baselines.c.id == baseline_id).values(end))
    return baseline.model_copy(update=end)


def _refuse_unknown(connection: Connection, node: str | None, fingerprint: str | None) -> None:
    of_node = select(runs.c.run_id).where(OURS).limit(1)
    of_node = of_node if node is None else of_node.where(runs.c.node == node)
    if connection.execute(of_node).first() is None:
        names = connection.execute(select(runs.c.node).where(OURS).distinct().order_by(runs.c.node).limit(20)).scalars()
        known = ", ".join(names)
        advice = f"choose from {known}" if known else "no run of this installation is recorded"
        raise UnknownEntryError(f"nothing was ever measured on {f'{node!r}' if node else 'any node'}: {advice}")
    if fingerprint and connection.execute(of_node.where(runs.c.fingerprint == fingerprint)).first() is None:
        raise UnknownEntryError(f"the work '{fingerprint}' was never measured there: leave it out to mean every work")


def _is_below_past(notice: Notice) -> bool:
    """Whether it is about a node that is slower than its own past."""
    off = (each for each in notice.finding.evidence if each.is_off)
    return notice.why is Why.CHANGED or Against.PAST in (notice.against, *(each.against for each in off))


def _level_since(connection: Connection, names: Sequence[str], campaign_ids: Sequence[str]) -> datetime:
    """Start of the first of these campaigns; without any, of the last one. `names`: of the node; empty: of all."""
    last = select(runs.c.campaign_id).where(OURS).order_by(runs.c.started_at.desc()).limit(1)
    if names:
        last = last.where(runs.c.node.in_(names))
    ids = campaign_ids or connection.execute(last).scalars().all()
    since: datetime = connection.execute(
        select(func.min(runs.c.started_at)).where(runs.c.campaign_id.in_(ids))
    ).scalar_one()
    return since


def other_names(connection: Connection, node: str) -> tuple[str, ...]:
    """The earlier and later names of `node`'s present GPUs, the oldest first. Two names in use at the same time are two
    nodes between which a GPU was moved.
    """
    known = runs.c.gpu_uuids.is_not(None) & ~runs.c.is_drill
    last = select(runs.c.campaign_id).where(known, runs.c.node == node).order_by(runs.c.started_at.desc()).limit(1)
    gpus = select(runs.c.gpu_uuids).where(known, runs.c.node == node, runs.c.campaign_id == last.scalar_subquery())
    named = select(runs.c.node).where(known, runs.c.gpu_uuids.in_(gpus))
    began, ended = func.min(runs.c.started_at), func.max(runs.c.started_at)
    dated = select(runs.c.node, began, ended).where(runs.c.node.in_(named)).group_by(runs.c.node).order_by(began)
    spans = {name: (first, last) for name, first, last in connection.execute(dated)}
    own = spans.pop(node, None)
    return tuple(name for name, (first, last) in spans.items() if own and (last < own[0] or own[1] < first))
