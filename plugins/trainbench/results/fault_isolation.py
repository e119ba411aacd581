"""Isolates unexpected errors: each becomes an error finding or a failed run, and the other runs go on.

The contract rejects impossible figures, so no error is expected here. If one occurs, the log has the traceback and the
finding is red: the defect is visible and costs no other node its verdict.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from bench_image.contract.result import Phase, RunResult, Status, failed_result
from trainbench.core.formats import one_line
from trainbench.core.verdicts import PART_FAILED, Finding, Level

BROKEN_RESULT = "broken_result"  # error kind of a run
MAX_ERROR = 300
_LOG = logging.getLogger(__name__)
Made = TypeVar("Made")


class FaultIsolation:
    """Runs parts of the work, and collects a finding for each that failed."""

    def __init__(self) -> None:
        self.failures: list[Finding] = []

    def attempt(self, part: str, subject: str, work: Callable[[], Made]) -> Made | None:
        """The result of `work`; None where it raises. `part`: its name, such as "pricing"; `subject`: its run or
        campaign.
        """
        try:
            return work()
        except Exception as error:
            _LOG.exception("%s of %s failed", part, subject)
            self.failures.append(
                Finding(
                    level=Level.ERROR,
                    category=PART_FAILED,
                    item=subject,
                    measured="an error",
                    expected="none",
                    summary=f"{part} failed, which is a defect of trainbench; all other parts went on",
                    cause=_error_text(error),
                    resolution="report it with the result.json of the run and the traceback in the log of the task",
                )
            )
            return None

    def each(self, part: str, results: Iterable[RunResult], work: Callable[[RunResult], Sequence[Made]]) -> list[Made]:
        """The value of `work` for all results together, without those for which it raises."""
        of_each = (self.attempt(part, result.spec.identity.run_id, partial(work, result)) for result in results)
        return [made for all_made in of_each for made in all_made or ()]


def apart(
    results: Sequence[RunResult], work: Callable[[Sequence[RunResult]], Made]
) -> tuple[Made, tuple[RunResult, ...]]:
    """The value of `work` for the results, and the results. Where it raises, each result for which it raises alone
    becomes a failed run. Raises the error of `work` where no single result is at fault.
    """
    try:
        return work(results), tuple(results)
    except Exception:
        _LOG.exception("judging %d results together failed", len(results))
    examined = list(results)
    for place, result in enumerate(results):
        try:
            work((result,))
        except Exception as error:
            _LOG.exception("judging run %s failed", result.spec.identity.run_id)
            examined[place] = _failed(result, error)
    return work(examined), tuple(examined)


def _failed(result: RunResult, error: Exception) -> RunResult:
    return failed_result(
        result.spec,
        status=Status.ERROR,
        kind=BROKEN_RESULT,
        message=f"its result could not be judged: {_error_text(error)}",
        phase=Phase.REPORT,
        at=result.started_at,
    )


def _error_text(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}", MAX_ERROR)
