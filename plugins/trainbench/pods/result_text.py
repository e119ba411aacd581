"""The text that a pod hands over as its result -> JSON for Airflow's XCom; what is too large or no JSON is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from bench_image.contract.parse import strict_json
from bench_image.contract.pod_io import MAX_RESULT_BYTES

Number = TypeVar("Number", int, float)
MAX_NUMBER = 2.0**63  # beyond it Airflow cannot hand an integer to a task, and PostgreSQL writes 1e300 as an integer


class ResultTextError(ValueError):
    """The text is not passed on. The message says why, and holds nothing of the text."""


def decode_result(text: str) -> Any:
    """Raises ResultTextError. Airflow stores what this returns in its database, before anything checks its fields."""
    if len(text) > MAX_RESULT_BYTES or len(text.encode(errors="replace")) > MAX_RESULT_BYTES:
        raise ResultTextError(
            f"the pod's result is larger than the {MAX_RESULT_BYTES:,} bytes allowed, so it was not stored: "
            "does the image fit this version?"
        )
    try:
        return strict_json(text, parse_float=_bounded(float), parse_int=_bounded(int))
    except ResultTextError:
        raise
    except RecursionError:
        raise ResultTextError("the pod's result is nested too deeply to be read") from None
    except ValueError as error:
        raise ResultTextError(f"the pod's result is not JSON ({error}): was its volume full?") from None


def _bounded(kind: Callable[[str], Number]) -> Callable[[str], Number]:
    def number(text: str) -> Number:
        value = kind(text)
        if abs(value) >= MAX_NUMBER:
            raise ResultTextError(
                f"the pod's result holds the number {text[:30]}, larger than any figure of a run, so it was not stored"
            )
        return value

    return number
