"""Messages and HTTP statuses of the API server's errors."""

from __future__ import annotations

import json

from kubernetes.client import ApiException  # type: ignore[import-untyped]

UNREACHABLE = 503  # the status that stands for "no answer at all"


def answer(error: ApiException) -> str:
    """The message of the API server's answer. The HTTP reason alone ("Forbidden") hides a quota or missing right."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)


def http_status_of(error: BaseException) -> int | None:
    """HTTP status of the API's answer that ended the task, searched for behind errors of the provider's clean-up."""
    if isinstance(error, ApiException):
        return int(error.status)
    cause = error.__cause__ or error.__context__
    status = http_status_of(cause) if cause else None
    return status if status in (401, 403) else None
