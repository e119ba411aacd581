"""Notices: what people are told of, from the night that opened it to the night that closed it.

Each node of a DAG has at most one open notice, each kind of alarm of its runs too. Red opens at once, `look` in the
second night in a row, `not checked` in the third. What a deviation opened closes after two nights in a row that are
well or below half of it; the rest in the first night in which the node is measured and well. A notice that flaps stays
the same notice. A drill's notice opens and ends with its run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, NamedTuple

from pydantic import AwareDatetime
from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, insert, or_, select, true, update

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import moment
from trainbench.core.states import STATE_WORDS, TRAITS, NodeState, deviation_text
from trainbench.core.states import word as word_of
from trainbench.core.user_error import MAX_REASON, MAX_WHO, EntryError, UnknownEntryError, entered
from trainbench.core.verdicts import (
    DRILL_UNDETECTED,
    IMPOSSIBLE_WORK,
    NO_FIGURE,
    NODE_OF_GANGS,
    OTHER_WORK,
    PART_FAILED,
    Against,
    Comparison,
    Finding,
    Level,
    Metric,
    State,
    Why,
)
from trainbench.history.summaries import WorkSummary, absent_nodes, decided
from trainbench.history.tables import SETTING, acknowledgements, campaigns, node_verdicts, notices, works
from trainbench.judging.checks import GONE_DAYS
from trainbench.results.campaign import Campaign

NIGHTS_TO_OPEN = {State.RED: 1, State.LOOK: 2, State.NOT_CHECKED: 3}
NIGHTS_TO_CLOSE = 2  # of what a deviation opened
CLOSES_BELOW = 0.5  # of the deviation that opened it
BY_DEVIATION = frozenset(
    {Why.SLOW, Why.HOT, Why.HEAVY, Why.CHANGED, Why.BEHIND, Why.PAIR, Why.ONCE, Why.UNSTEADY}
)  # fmt: skip
BY_ONE = frozenset({Why.HOT, Why.HEAVY})  # of whose deviations, from peers and past, a night keeps one only
# The columns of `node_verdicts` with the deviations of earlier nights.
DEVIATIONS = {
    (Metric.SAMPLES_PER_SECOND, Against.PEERS): "deviation_pct",
    (Metric.SAMPLES_PER_SECOND, Against.PAST): "past_deviation_pct",
    (Metric.SAMPLES_PER_SECOND, Against.LEVEL): "level_deviation_pct",
    **{(Metric.MEMORY_GB, against): "memory_deviation_pct" for against in Against},
    **{(Metric.TEMPERATURE_C, against): "temperature_deviation_c" for against in Against},
}
WELL_AGAIN, LESS, CHECKED = "well again", "below half of what it was", "checked again"
REMOVED, OVER, JUDGED_ANEW = "no longer in the cluster", "over with its run", "its run was judged anew, without it"
ENDED = {
    NO_FIGURE: "a later run gave figures",
    IMPOSSIBLE_WORK: "a later run could begin its work",
    NODE_OF_GANGS: "no node ended a gang of a later run",
    PART_FAILED: "a later run was judged without a failure",
    OTHER_WORK: "a later run computed the same on all its nodes",
    DRILL_UNDETECTED: "its run is over",
}
LAST_CAMPAIGNS = 30  # in which a node's nights before are looked for
Key = tuple[str, str]  # node, category
Values = dict[str, Any]
REOPENED: Values = {"closed_at": None, "closed_by_campaign_id": None, "ended": None}


class Acknowledgement(Frozen):
    who: str
    at: AwareDatetime
    reason: str


class Notice(Frozen):
    """What it tells is of the last night in its state: `reason`, `finding`, and `metric`, `against` and `deviation` of
    the comparison that decided, in percent or degrees C. The finding's evidence is of the night that opened it.
    """

    id: int
    node: str  # "": an alarm of the whole run
    category: str = ""  # of an alarm
    dag_id: str
    state: State  # an alarm is red
    why: Why | None  # None: an alarm
    reason: str = ""  # of the verdict, with its figures
    metric: Metric | None = None
    against: Against | None = None
    deviation: float | None = None
    finding: Finding
    group_id: str | None = None  # this and the next four: the work; None: nothing ran
    gpu_name: str | None = None
    model: str | None = None
    recipe: str | None = None
    strategy: str | None = None
    campaign_id: str  # that opened it
    dag_run_id: str | None = None
    opened_at: AwareDatetime
    worsened_at: AwareDatetime | None = None  # when it turned red; None: it began red, or never was
    closed_at: AwareDatetime | None = None
    closed_by_campaign_id: str | None = None
    ended: str | None = None  # its end as a phrase; None while it is open
    is_drill: bool = False
    acknowledgement: Acknowledgement | None = None  # of its present state

    @property
    def name(self) -> str:
        """The node, or the run of an alarm."""
        return self.node or self.finding.subject

    @property
    def is_red(self) -> bool:
        return self.state in (State.RED, State.DRILL)

    @property
    def level(self) -> Level:
        return Level.ERROR if self.is_red else Level.WARNING

    @property
    def word(self) -> str:
        """ "red: slow"; of an alarm "red: alarm"."""
        return word_of(self.node_state) if self.why else f"{STATE_WORDS[self.state]}: alarm"

    @property
    def node_state(self) -> NodeState:
        """The state that it says its node is in."""
        return NodeState(self.node, self.state, self.why or Why.FAILED, self.reason, self.worsened_at or self.opened_at)

    @property
    def deviations(self) -> tuple[tuple[Metric, Against, float], ...]:
        """Those that opened it, whatever it tells of since: each of them must be over before it ends."""
        return tuple((c.metric, c.against, c.deviation) for c in self.finding.evidence)

    @property
    def deviation_text(self) -> str:
        return deviation_text(self.metric, self.against, self.deviation)

    @property
    def phrase(self) -> str:
        """What follows the name: "is slow: samples/s -7.3 % against its peers"; of an alarm the finding's summary."""
        if self.why is None:
            return self.finding.summary
        why = self.deviation_text or self.reason
        return f"{TRAITS[self.why].one}: {why}" if why else TRAITS[self.why].one


# A new database may repeat an id, so the node identifies the notice too.
OF_NOTICE = and_(
    acknowledgements.c.notice_id == notices.c.id,
    acknowledgements.c.node == notices.c.node,
    acknowledgements.c.state == notices.c.state,
)


def select_notices() -> Select[Any]:
    """The query whose rows `notice_of` reads."""
    seen = acknowledgements.c.who, acknowledgements.c.at, acknowledgements.c.reason.label("seen_because")
    return select(notices, *seen).select_from(notices.outerjoin(acknowledgements, OF_NOTICE))


def notice_of(row: Row[Any]) -> Notice:
    seen = Acknowledgement(who=row.who, at=row.at, reason=row.seen_because) if row.who is not None else None
    values = {column.name: row._mapping[column.name] for column in notices.c}
    return Notice(**values | {"finding": Finding.model_validate_json(row.finding), "acknowledgement": seen})


def acknowledge(connection: Connection, notice_id: int, who: str, reason: str, at: datetime) -> Acknowledgement:
    """Store that somebody knows of the notice's present state. Raises EntryError."""
    seen = Acknowledgement(
        who=entered(who, "the name of who acknowledges", MAX_WHO),
        at=at,
        reason=entered(reason, "the reason", MAX_REASON),
    )
    row = connection.execute(select_notices().where(notices.c.id == notice_id)).first()
    if row is None:
        raise UnknownEntryError(f"there is no notice {notice_id}: open the Benchmarks page again")
    notice = notice_of(row)
    if notice.closed_at is not None:
        raise EntryError(f"{notice.name} is {notice.ended} since {moment(notice.closed_at)}: nothing to do")
    if notice.acknowledgement is not None:
        by = notice.acknowledgement
        raise EntryError(f"{notice.name} was acknowledged by {by.who} on {moment(by.at)}: nothing to do")
    of_notice = {"notice_id": notice_id, "node": notice.node, "state": notice.state.value}
    connection.execute(insert(acknowledgements).values(of_notice | seen.model_dump()))
    return seen


class Night(NamedTuple):
    """One campaign's state of a node. `deviations`: by work, metric and source."""

    at: datetime
    state: State
    why: Why
    deviations: dict[tuple[str, Metric, Against], float]

    def is_good(self, notice: Notice) -> bool:
        """Whether all that opened the notice are below half of what they were; well, where no deviation opened it or
        none of them is known tonight.
        """
        if self.state is State.RED or (self.why is notice.why and self.why in BY_ONE):
            return False
        known = [
            tonight * opened < CLOSES_BELOW * opened**2  # on the same side: one that turned to the other side is over
            for metric, against, opened in notice.deviations
            if (tonight := self.deviations.get((notice.group_id or "", metric, against))) is not None
        ]
        return all(known) if known else self.state is State.WELL


def is_old(connection: Connection, campaign: Campaign) -> bool:
    """Whether a later campaign of its DAG is recorded already."""
    latest = select(func.max(campaigns.c.finished_at)).where(campaigns.c.suite == campaign.suite)
    last_finished_at = connection.execute(latest.where(campaigns.c.campaign_id != campaign.campaign_id)).scalar_one()
    return last_finished_at is not None and last_finished_at > campaign.finished_at


def last_judged(connection: Connection, node: str, of_works: ColumnElement[bool]) -> datetime | None:
    of_node = select(func.max(works.c.at)).join(node_verdicts, works.c.id == node_verdicts.c.work_id)
    at: datetime | None = connection.execute(of_node.where(node_verdicts.c.node == node, of_works)).scalar()
    return at


def update_notices(connection: Connection, campaign: Campaign, done: Sequence[WorkSummary]) -> None:
    """Open, change and close the notices of the campaign's DAG. `done`: its works, whose verdicts are recorded.

    Only the newest campaign of its DAG changes notices. Recorded again, it replaces what it did.
    """
    if is_old(connection, campaign):
        return
    recent = connection.execute(
        select(campaigns.c.campaign_id, campaigns.c.finished_at, campaigns.c.absent)
        .where(campaigns.c.suite == campaign.suite)
        .order_by(campaigns.c.finished_at.desc())
        .limit(LAST_CAMPAIGNS)
    ).all()
    tonight = _Tonight(campaign, done)
    before, own, ends = _known(connection, campaign, recent[-1].finished_at)
    changes = {key: dict(REOPENED) for key, notice in before.items() if notice.closed_at is not None}
    wanted = {("", alarm.category): tonight.alarm(alarm) for alarm in reversed(campaign.alarms)}
    over = [key for key in before if not key[0] and wanted.pop(key, None) is None]
    changes |= {key: tonight.end(ENDED.get(key[1], OVER)) for key in over}
    if campaign.judges_nodes:
        states = {node.node: node for node in campaign.node_states}
        unwell = {name for name, node in states.items() if node.state is not State.WELL}
        asked = unwell | {name for name, _ in before if name}
        nights = _nights(connection, recent, asked)
        for name in sorted(asked):
            key, node = (name, ""), states.get(name)
            if node is None:  # not judged: its notice stays, unless the node is gone
                if _is_removed(connection, campaign, before[key]):
                    changes[key] = tonight.end(REMOVED)
            elif key in before and node.state is not State.DRILL:
                changes[key] = changes.get(key, {}) | _after(before[key], node, nights[name], tonight)
            elif values := _beginning(node, nights[name], ends.get(name), tonight):
                wanted[key] = values
    # In this order, since a node has one open notice at a time.
    updates = [(own[key], tonight.end(JUDGED_ANEW)) for key in own.keys() - wanted.keys() if own[key].closed_at is None]
    updates += [(before[key], values) for key, values in changes.items() if values]
    updates += [(own[key], REOPENED | wanted[key]) for key in own.keys() & wanted.keys() if _is_ours(own[key])]
    for notice, values in updates:
        connection.execute(update(notices).where(notices.c.id == notice.id).values(values))
    if new := [values for key, values in wanted.items() if key not in own]:
        connection.execute(insert(notices), new)


def _known(
    connection: Connection, campaign: Campaign, since: datetime
) -> tuple[dict[Key, Notice], dict[Key, Notice], dict[str, datetime]]:
    """The notices of the DAG that were open before this campaign, those that it opened when it was recorded before, and
    node -> when its last notice ended, if `since` then.
    """
    before: dict[Key, Notice] = {}
    own: dict[Key, Notice] = {}
    ends: dict[str, datetime] = {}
    mine = campaign.campaign_id
    counts = or_(notices.c.closed_at.is_(None), notices.c.closed_at >= since, notices.c.campaign_id == mine)
    of_dag = select_notices().where(notices.c.dag_id == campaign.suite, counts).order_by(notices.c.closed_at)
    for notice in map(notice_of, connection.execute(of_dag)):
        if notice.campaign_id == mine:
            own[notice.node, notice.category] = notice
        elif notice.closed_at is None or notice.closed_by_campaign_id == mine:
            before[notice.node, notice.category] = notice
        elif notice.closed_at < campaign.finished_at and not notice.is_drill:
            ends[notice.node] = notice.closed_at
    return before, own, ends


def _is_ours(notice: Notice) -> bool:
    """Whether the campaign that opened it may still say what it is: nobody else closed it."""
    return notice.closed_at is None or notice.closed_by_campaign_id == notice.campaign_id


def _beginning(node: NodeState, nights: Sequence[Night], ended_at: datetime | None, tonight: _Tonight) -> Values:
    """A new notice on the node, where its state lasts for enough nights since the last one ended; else nothing."""
    if node.state is State.DRILL:
        is_found = node.why is Why.SLOW
        return tonight.says(node) | tonight.begin(node.node, is_drill=True) | tonight.end(OVER) if is_found else {}
    since = [night for night in nights if ended_at is None or night.at > ended_at]
    lasts = list(takewhile(lambda night: night.state is node.state, since))
    opens = len(lasts) >= NIGHTS_TO_OPEN.get(node.state, LAST_CAMPAIGNS + 1)
    said = tonight.says(node) if opens else {}
    return said | tonight.begin(node.node) if said else {}


def _after(notice: Notice, node: NodeState, nights: Sequence[Night], tonight: _Tonight) -> Values:
    """The changes of an open notice by tonight's state."""
    is_same = (node.state, node.why) == (notice.state, notice.why)
    again = tonight.says(node, notice.finding.evidence) if is_same else {}
    if node.state is State.RED:
        if notice.state is not State.RED:
            return tonight.says(node) | {"worsened_at": tonight.campaign.finished_at}
        return tonight.says(node, notice.finding.evidence)  # for tonight's reason; what opened it still has to be over
    if notice.why in BY_DEVIATION or (notice.state is State.RED and notice.deviations):
        last = nights[:NIGHTS_TO_CLOSE]
        if len(last) == NIGHTS_TO_CLOSE and all(night.is_good(notice) for night in last):
            return tonight.end(WELL_AGAIN if node.state is State.WELL else LESS)
        return again
    if node.state is State.WELL:
        return tonight.end(WELL_AGAIN)
    if node.state is State.LOOK and node.why is not Why.ABSENT:
        # What was wrong is over: the look that is left opens its own notice, but a red one stays until it is well.
        return tonight.says(node) if notice.state is State.RED else tonight.end(CHECKED)
    return again


def _is_removed(connection: Connection, campaign: Campaign, notice: Notice) -> bool:
    """Whether the cluster has not listed the node for GONE_DAYS, as far as a campaign of the whole cluster knows."""
    if campaign.params.get("nodes") or notice.node in {node.name for node in campaign.known}:
        return False
    last = max(notice.opened_at, last_judged(connection, notice.node, true()) or notice.opened_at)
    return last < campaign.finished_at - timedelta(days=GONE_DAYS)


def _nights(
    connection: Connection, recent: Sequence[Row[Any, Any, Any]], names: Collection[str]
) -> Mapping[str, Sequence[Night]]:
    """Node -> its nights of these campaigns, the latest first, without drills."""
    found: dict[str, dict[str, Night]] = {name: {} for name in names}
    for row in recent:
        for name in found.keys() & absent_nodes(row.absent):
            found[name][row.campaign_id] = Night(row.finished_at, State.LOOK, Why.ABSENT, {})
    columns = ("node", "node_state", "node_why", *dict.fromkeys(DEVIATIONS.values()))
    query = (
        select(works.c.campaign_id, works.c.at, works.c.group_id, *(node_verdicts.c[name] for name in columns))
        .join(works, works.c.id == node_verdicts.c.work_id)
        .where(works.c.campaign_id.in_([row.campaign_id for row in recent]))
        .where(node_verdicts.c.node.in_(found), node_verdicts.c.node_state != State.DRILL.value)
    )
    for row in connection.execute(query):
        tonight = Night(row.at, State(row.node_state), Why(row.node_why), {})
        deviations = found[row.node].setdefault(row.campaign_id, tonight).deviations
        for source, column in DEVIATIONS.items():
            if (deviation := row._mapping[column]) is not None:
                deviations[row.group_id, *source] = deviation
    return {name: sorted(of.values(), key=lambda night: night.at, reverse=True) for name, of in found.items()}


class _Tonight:
    """Values of the notices that the campaign opens, changes and ends."""

    def __init__(self, campaign: Campaign, done: Sequence[WorkSummary]) -> None:
        self.campaign = campaign
        self._works = {(work.group_id, node): work for work in done for node in work.verdicts}
        verdicts = [(group.group_id, verdict) for group in campaign.groups for verdict in group.nodes]
        self._verdicts = {(verdict.node, verdict.why): (group_id, verdict) for group_id, verdict in reversed(verdicts)}

    def says(self, node: NodeState, opened_by: Sequence[Comparison] = ()) -> Values:
        """Its state and what it is of; `opened_by`: of an open notice, else tonight's. Empty where nobody need know."""
        group_id, verdict = self._verdicts.get((node.node, node.why), (None, None))
        finding = self.campaign.finding_of(node, group_id)
        if node.why is Why.ABSENT and finding.level is Level.INFO:  # kept out on purpose
            return {}
        work = self._works.get((group_id or "", node.node))
        shown = verdict.decides if verdict else None
        opens = dict.fromkeys((shown, *verdict.off)) if verdict and shown else ()
        finding = finding.model_copy(update={"evidence": tuple(opened_by or opens)})
        return {
            "state": node.state.value,
            "why": node.why.value,
            "reason": node.reason,
            **decided(shown),
            "finding": finding.model_dump_json(),
            "group_id": group_id,
            **{name: work.values[name] if work else None for name in SETTING},
        }

    def alarm(self, finding: Finding) -> Values:
        nothing = dict.fromkeys(("why", "metric", "against", "deviation", "group_id", *SETTING))
        of = {"state": State.RED.value, "reason": "", "finding": finding.model_dump_json()}
        return nothing | of | self.begin("", finding.category, finding.is_drill)

    def begin(self, node: str, category: str = "", is_drill: bool = False) -> Values:
        return {
            "node": node,
            "category": category,
            "dag_id": self.campaign.suite,
            "campaign_id": self.campaign.campaign_id,
            "dag_run_id": self.campaign.dag_run_id,
            "opened_at": self.campaign.finished_at,
            "is_drill": is_drill,
        } | REOPENED

    def end(self, ended: str) -> Values:
        by = self.campaign
        return {"closed_at": by.finished_at, "closed_by_campaign_id": by.campaign_id, "ended": ended}
