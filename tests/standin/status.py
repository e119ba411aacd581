"""Refusals of the API server: `Status` objects with the codes, reasons and messages of the real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ApiError(Exception):
    """Becomes a `Status` reply."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details
        self.headers: dict[str, str] = {}

    def body(self) -> dict[str, Any]:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
        }
        return status | ({"details": self.details} if self.details else {})


REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def failure(code: int, message: str) -> ApiError:
    return ApiError(code, REASONS.get(code, ""), message)


def not_found(resource: str, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource} "{name}" not found', {"name": name, "kind": resource})


def already_exists(resource: str, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists', {"name": name, "kind": resource})


def forbidden(resource: str, name: str, why: str) -> ApiError:
    return ApiError(403, "Forbidden", f'{resource} "{name}" is forbidden: {why}', {"name": name, "kind": resource})


def invalid(kind: str, name: str, causes: Sequence[tuple[str, str]]) -> ApiError:
    """`causes` are (field, message)."""
    texts = [f"{field}: {message}" for field, message in causes]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {"name": name, "kind": kind, "causes": [{"field": f, "message": m} for f, m in causes]}
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', details)
