"""The base of errors that a user can fix."""

from __future__ import annotations


class UserError(Exception):
    """Its message is one sentence that says what is wrong and what to do. The command line prints it, and no stack."""
