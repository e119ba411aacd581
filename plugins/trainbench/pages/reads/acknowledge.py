"""Acknowledges a notice, and keeps who, when and why for ever."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection, insert
from sqlalchemy.exc import IntegrityError

from trainbench.history.notice_tables import acknowledgements
from trainbench.history.notices import Acknowledgement
from trainbench.pages.reads.breach_rows import notice_by_id
from trainbench.pages.reads.filters import Scope, is_text

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
