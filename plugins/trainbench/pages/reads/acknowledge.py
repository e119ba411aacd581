"""Acknowledges a breach, and keeps who, when and why for ever."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection, insert
from sqlalchemy.exc import IntegrityError

from trainbench.history.breach import Acknowledgement, Breach
from trainbench.history.summary_tables import acknowledgements
from trainbench.pages.reads.breach_rows import breach_by_id
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
    """The breach was not acknowledged; the message is for the reader."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


def check_reason(reason: str) -> str:
    """The reason without surrounding white space. Raises AcknowledgeError."""
    text = reason.strip()
    if not text:
        raise AcknowledgeError(Problem.REASON, "the reason is empty: say in one sentence why the breach may stand")
    if len(text) > MAX_REASON:
        raise AcknowledgeError(
            Problem.REASON, f"the reason has {len(text)} characters, at most {MAX_REASON} are allowed: say it shorter"
        )
    if not is_text(text):
        raise AcknowledgeError(Problem.REASON, "the reason holds characters that are no text: write it in plain text")
    return text


def acknowledge(
    connection: Connection, scope: Scope, breach_id: int, who: str, reason: str, at: datetime
) -> Acknowledgement:
    """Store the acknowledgement. Raises AcknowledgeError."""
    text = check_reason(reason)
    if not who.strip() or len(who) > MAX_WHO or not is_text(who):
        raise AcknowledgeError(Problem.WHO, f"the user's name must be 1 to {MAX_WHO} characters of text")
    breach = breach_by_id(connection, scope, breach_id) if 0 < breach_id <= MAX_ID else None
    if breach is None:
        raise AcknowledgeError(Problem.UNKNOWN, f"there is no breach {breach_id}: open the Benchmarks page again")
    _refuse(breach)
    of_breach = {"breach_id": breach_id, "node": breach.node, "group_id": breach.group_id}
    try:
        connection.execute(insert(acknowledgements).values({**of_breach, "who": who, "at": at, "reason": text}))
    except IntegrityError:
        raise AcknowledgeError(Problem.ALREADY, f"{breach.node} was acknowledged by somebody else just now") from None
    return Acknowledgement(who=who, at=at, reason=text)


def _refuse(breach: Breach) -> None:
    if breach.closed_at is not None:
        ended = f"{breach.ended} since {breach.closed_at:%Y-%m-%d %H:%M} UTC"
        raise AcknowledgeError(Problem.CLOSED, f"{breach.node} is {ended}: nothing to do")
    if breach.acknowledgement is not None:
        seen = breach.acknowledgement
        raise AcknowledgeError(
            Problem.ALREADY, f"{breach.node} was acknowledged by {seen.who} on {seen.at:%Y-%m-%d %H:%M} UTC"
        )
