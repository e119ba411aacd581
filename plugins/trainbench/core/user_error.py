"""The base of errors that a user can fix."""

from __future__ import annotations


class UserError(Exception):
    """Its message is one sentence that says what is wrong and what to do. The command line prints it, and no stack."""


class EntryError(UserError, ValueError):
    """What a person entered cannot be done; the message is for that person."""


class UnknownEntryError(EntryError):
    """It is about something that does not exist."""


MAX_REASON, MAX_WHO = 500, 200


def entered(text: str, what: str, most: int) -> str:
    """The text as one line. Raises EntryError where it is empty, too long, or no text."""
    line = " ".join(text.split())
    if not 0 < len(line) <= most or not line.isprintable():
        raise EntryError(f"{what} has {len(line)} characters: 1 to {most} are allowed, in plain text")
    return line
