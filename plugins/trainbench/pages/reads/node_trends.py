"""The node page: figures of each work from campaign to campaign, and the events between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, and_, func, or_, select

from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Finding, State, Why
from trainbench.history.baselines import read_baselines
from trainbench.history.fleet_state import nodes_now
from trainbench.history.node_histories import SETUP, stored_setup
from trainbench.history.notices import Notice
from trainbench.history.summaries import LIMITS
from trainbench.history.tables import campaigns, marks, node_verdicts, notices, runs, works
from trainbench.pages.reads.filters import Scope, is_text
from trainbench.pages.reads.notices import notices_of
from trainbench.pages.reads.rows import EventKind, NodeEvent, NodePage, NodePoint
from trainbench.results.setups import versions

MAX_POINTS = 3000
MAX_RUNS = 3000
MAX_EVENTS = 200
_WORK = ("group_id", "label", "gpu_name", "model", "recipe", "strategy", "preset")
_LIMITS = tuple(LIMITS.values())


def node_page(connection: Connection, scope: Scope, node: str, now: datetime, fresh: timedelta) -> NodePage | None:
    """The node's page; None where the reader may see no verdict on it."""
    if not is_text(node):
        return None
    # The points, newest first.
    columns = (*verdict_columns(), *(works.c[name] for name in _WORK))
    query = select(*columns).select_from(joined()).where(node_verdicts.c.node == node, scope.works)
    points = connection.execute(query.order_by(works.c.at.desc(), works.c.id).limit(MAX_POINTS)).all()
    setups = _runs(connection, scope, node)
    of_node = notices_of(connection, scope, node)
    if not points and not setups and not of_node:
        return None
    accepted = [each for each in read_baselines(connection) if each.is_of(node)]
    events = [*_setup_events(setups), *_notice_events(of_node)]
    for each in accepted:
        events.append(NodeEvent(each.since, EventKind.BASELINE, "baseline", each.description))
        if each.revoked_at:
            text = f"Taken back by {each.revoked_by}: {each.description}"
            events.append(NodeEvent(each.revoked_at, EventKind.BASELINE, "baseline", text))
    of_marks = select(marks).where(marks.c.node == node, marks.c.dag_id.in_(scope.suites))
    for row in connection.execute(of_marks.order_by(marks.c.opened_at.desc()).limit(MAX_EVENTS)):
        summary = Finding.model_validate_json(row.finding).summary
        events.append(NodeEvent(row.opened_at, EventKind.MARKED, "mark", summary))
        if row.closed_at:
            events.append(NodeEvent(row.closed_at, EventKind.FREED, "mark", row.ended))
    events = sorted(events, key=lambda event: event.at, reverse=True)
    of_notices = scope.notices & (notices.c.node == node)
    by_work = grouped((str([getattr(row, name) for name in _WORK]), verdict_point(row)) for row in reversed(points))
    stands = nodes_now(connection, {node}, now, fresh, scope.works, scope.works_of_any_time, of_notices)
    state = next(each.state for each in stands if each.node == node)  # absent nodes are among them
    if state.state is State.WELL:
        state = state._replace(since=_well_since(connection, scope, node))
    return NodePage(
        node=node,
        state=state,
        series=tuple(tuple(by_work[work]) for work in sorted(by_work)),
        events=tuple(events[:MAX_EVENTS]),
        open_notices=tuple(notice for notice in of_node if notice.closed_at is None),
        baselines=tuple(each for each in accepted if each.revoked_at is None),
        is_cut=len(points) == MAX_POINTS or len(setups) == MAX_RUNS or len(events) > MAX_EVENTS,
    )


def _well_since(connection: Connection, scope: Scope, node: str) -> datetime | None:
    """The first verdict after the last one that did not find it well; drills say nothing of a node."""
    of_node = (node_verdicts.c.node == node, node_verdicts.c.is_drill.is_(False), scope.works_of_any_time)
    unwell = (
        select(func.max(works.c.at)).select_from(joined()).where(*of_node, node_verdicts.c.node_state != State.WELL)
    )
    last = connection.execute(unwell).scalar()
    first = select(func.min(works.c.at)).select_from(joined()).where(*of_node)
    since: datetime | None = connection.execute(first if last is None else first.where(works.c.at > last)).scalar()
    return since


def verdict_columns() -> tuple[Any, ...]:
    """The columns of a verdict, its work and its campaign for `verdict_point`."""
    of_campaign = (campaigns.c[name] for name in ("dag_run_id", *_LIMITS))
    return *node_verdicts.c, works.c.at, works.c.campaign_id, works.c.suite, *of_campaign


def joined() -> Any:
    return node_verdicts.join(works, works.c.id == node_verdicts.c.work_id).join(
        campaigns, campaigns.c.campaign_id == works.c.campaign_id
    )


def verdict_point(row: Row[Any]) -> NodePoint:
    values, expected = row._mapping, None
    if row.samples_per_second is not None and row.deviation_pct is not None and row.deviation_pct > -100:
        expected = row.samples_per_second / (1 + row.deviation_pct / 100)  # value = expected x (1 + deviation)
    enums = {"state": State(row.state), "why": Why(row.why)}
    return NodePoint(**{**values, **enums, "peers_expected": expected, "dag_id": row.suite})


def _runs(connection: Connection, scope: Scope, node: str) -> Sequence[Row[Any]]:
    """The runs with a known setup, newest first."""
    columns = (runs.c.started_at, runs.c.suite, runs.c.campaign_id, runs.c.gpu_name, *(runs.c[n] for n in SETUP))
    has_setup = or_(runs.c.image.is_not(None), runs.c.driver.is_not(None))
    of_scope = runs.c.work_id.in_(select(works.c.id).where(scope.works))
    query = select(*columns).where(and_(runs.c.node == node, has_setup), of_scope)
    return connection.execute(query.order_by(runs.c.started_at.desc()).limit(MAX_RUNS)).all()


def _setup_events(newest_first: Sequence[Row[Any]]) -> Iterator[NodeEvent]:
    """Changes of the setup within each DAG, as two DAGs may use two images. Only a GPU that is new on the node is an
    event, because a pod on a node with many GPUs may get another one each night.
    """
    known: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    for row in reversed(newest_first):
        setup = stored_setup(*(getattr(row, name) for name in SETUP))
        before = known.setdefault(row.suite, {})
        now = versions(setup) | ({"GPU": row.gpu_name} if row.gpu_name else {})
        changed = [
            (what, f"{what} went from {was} to {value}")
            for what, value in now.items()
            if (was := before.get(what, value)) != value
        ]
        if seen and (fresh := setup.gpu_uuids - seen):
            changed.append(("GPUs", f"GPUs: {', '.join(sorted(fresh))}, never seen on this node before"))
        yield from (NodeEvent(row.started_at, EventKind.SETUP, what, text, row.campaign_id) for what, text in changed)
        before |= now
        seen |= setup.gpu_uuids


def _notice_events(of_node: Sequence[Notice]) -> Iterator[NodeEvent]:
    for each in of_node:
        drill, word = "drill: " if each.is_drill else "", each.word
        yield NodeEvent(each.opened_at, EventKind.OPENED, word, f"{drill}{word}, {each.reason}", each.campaign_id)
        if each.worsened_at is not None:
            yield NodeEvent(each.worsened_at, EventKind.OPENED, word, "turned red")
        if (seen := each.acknowledgement) is not None:
            yield NodeEvent(seen.at, EventKind.ACKNOWLEDGED, word, f"acknowledged by {seen.who}: {seen.reason}")
        if each.closed_at is not None:
            ended = f"{drill}{each.ended}"
            yield NodeEvent(each.closed_at, EventKind.CLOSED, word, ended, each.closed_by_campaign_id)
