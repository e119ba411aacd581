"""Messages and HTTP statuses of the API server's errors, and the message of a failed run's result."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kubernetes.client import ApiException  # type: ignore[import-untyped]

UNREACHABLE = 503  # the status that stands for "no answer at all"


def answer(error: ApiException) -> str:
    """The message of the API server's answer. The HTTP reason alone ("Forbidden") hides a quota or missing right."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)


def failure(result: Mapping[Any, Any]) -> str:
    """Kind and message of a failed run's error."""
    error = result.get("error") if isinstance(result, Mapping) else None
    return f"{error.get('kind')}: {error.get('message')}" if isinstance(error, Mapping) else "failed: see the result"


def http_status_of(error: BaseException) -> int | None:
    """HTTP status of the API's answer that ended the task, searched for behind errors of the provider's clean-up."""
    if isinstance(error, ApiException):
        return int(error.status)
    cause = error.__cause__ or error.__context__
    status = http_status_of(cause) if cause else None
    return status if status in (401, 403) else None


def handshake_status(error: BaseException | None) -> int:
    """HTTP status with which a request was refused. For a websocket, the client has it only in the message of an error
    in the chain of causes.
    """
    while error is not None:
        if isinstance(error, ApiException) and error.status:
            return int(error.status)
        if match := re.search(r"Handshake status (\d{3})", str(error)):
            return int(match[1])
        error = error.__cause__ or error.__context__
    return UNREACHABLE
