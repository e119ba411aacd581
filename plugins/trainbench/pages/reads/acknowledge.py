"""The notices in the history, and who acknowledges them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select
from sqlalchemy.exc import IntegrityError

from trainbench.core.verdicts import State
from trainbench.history.marks import Mark, read_marks
from trainbench.history.notices import Acknowledgement, Notice, notice_of, select_notices
from trainbench.history.tables import acknowledgements, marks, notices
from trainbench.pages.reads.filters import Scope, is_text
from trainbench.pages.reads.rows import Notices

MAX_NOTICES = 500
_IS_RED = notices.c.state.in_([State.RED.value, State.DRILL.value])


def open_notices(connection: Connection, scope: Scope) -> Notices:
    """Open notices, unacknowledged ones first, then red ones, then the oldest. The filters' time does not hide any."""
    order = (acknowledgements.c.notice_id.is_not(None), _IS_RED.desc(), notices.c.opened_at, notices.c.id)
    return _notices(connection, scope.notices & notices.c.closed_at.is_(None), *order)


def closed_notices(connection: Connection, scope: Scope, most: int | None = None) -> Notices:
    """At most `most` notices closed within the filters' time, the last one first."""
    closed = and_(notices.c.closed_at.is_not(None), *scope.within(notices.c.closed_at))
    order = (notices.c.closed_at.desc(), notices.c.id.desc())
    return _notices(connection, scope.notices & closed, *order, most=most)


def notices_of(connection: Connection, scope: Scope, node: str) -> tuple[Notice, ...]:
    """The notices of one node, open or closed, the last opened first."""
    of_node = scope.notices & (notices.c.node == node)
    return _notices(connection, of_node, notices.c.opened_at.desc(), notices.c.id.desc()).rows


def marks_of(connection: Connection, scope: Scope, node: str) -> tuple[Mark, ...]:
    """The marks that kept other work away from the node, the last one first."""
    return read_marks(connection, (marks.c.node == node) & marks.c.dag_id.in_(scope.suites))


def notice_by_id(connection: Connection, scope: Scope, notice_id: int) -> Notice | None:
    rows = _notices(connection, scope.notices & (notices.c.id == notice_id), notices.c.id).rows
    return rows[0] if rows else None


def _notices(connection: Connection, which: ColumnElement[bool], *order: Any, most: int | None = None) -> Notices:
    limit = MAX_NOTICES if most is None else min(most, MAX_NOTICES)
    rows = connection.execute(select_notices().where(which).order_by(*order).limit(limit)).all()
    num_total = len(rows)
    if num_total == limit:
        num_total = connection.execute(select(func.count()).select_from(notices).where(which)).scalar_one()
    return Notices(rows=tuple(map(notice_of, rows)), num_total=num_total)


MAX_REASON = 500
MAX_WHO = 200
MAX_ID = 2**31 - 1


class Problem(StrEnum):
    UNKNOWN = "unknown"  # also of a DAG that this person may not see, so that the answer does not reveal it
    CLOSED = "closed"
    ALREADY = "already"
    REASON = "reason"
    WHO = "who"


class AcknowledgeError(ValueError):
    """The notice was not acknowledged; the message is for the reader."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


def check_reason(reason: str) -> str:
    """The reason without surrounding white space. Raises AcknowledgeError."""
    text = reason.strip()
    if not text:
        raise AcknowledgeError(Problem.REASON, "the reason is empty: say in one sentence why it may stand")
    if len(text) > MAX_REASON:
        raise AcknowledgeError(
            Problem.REASON, f"the reason has {len(text)} characters, at most {MAX_REASON} are allowed: say it shorter"
        )
    if not is_text(text):
        raise AcknowledgeError(Problem.REASON, "the reason holds characters that are no text: write it in plain text")
    return text


def acknowledge(
    connection: Connection, scope: Scope, notice_id: int, who: str, reason: str, at: datetime
) -> Acknowledgement:
    """Store the acknowledgement. Raises AcknowledgeError."""
    text = check_reason(reason)
    if not who.strip() or len(who) > MAX_WHO or not is_text(who):
        raise AcknowledgeError(Problem.WHO, f"the user's name must be 1 to {MAX_WHO} characters of text")
    notice = notice_by_id(connection, scope, notice_id) if 0 < notice_id <= MAX_ID else None
    if notice is None:
        raise AcknowledgeError(Problem.UNKNOWN, f"there is no notice {notice_id}: open the Benchmarks page again")
    if notice.closed_at is not None:
        ended = f"{notice.ended} since {notice.closed_at:%Y-%m-%d %H:%M} UTC"
        raise AcknowledgeError(Problem.CLOSED, f"{notice.name} is {ended}: nothing to do")
    if notice.acknowledgement is not None:
        seen = notice.acknowledgement
        raise AcknowledgeError(
            Problem.ALREADY, f"{notice.name} was acknowledged by {seen.who} on {seen.at:%Y-%m-%d %H:%M} UTC"
        )
    of_notice = {"notice_id": notice_id, "node": notice.node, "state": notice.state.value}
    try:
        connection.execute(insert(acknowledgements).values({**of_notice, "who": who, "at": at, "reason": text}))
    except IntegrityError:
        raise AcknowledgeError(Problem.ALREADY, f"{notice.name} was acknowledged by somebody else just now") from None
    return Acknowledgement(who=who, at=at, reason=text)
