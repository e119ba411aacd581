"""Ctrl-C and SIGTERM during a campaign of the command line: what is kept, what ended and how to go on.

It imports nothing large, because `trainbench run` has it before its first line.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trainbench.core.formats import count


class Stopped(BaseException):
    """The campaign was stopped by a signal. The message says what is kept, what ended and how to go on."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass
class Kept:
    """The runs whose results are stored so far, and those that are under way."""

    campaign_id: str
    num_planned: int
    num_kept: int = 0
    running: str | None = None

    @property
    def sentence(self) -> str:
        ended = f" {self.running} ended without a result." if self.running else ""
        again = "The same command starts again from the first run."
        if not self.num_kept:
            return f"stopped before a run had a result: no result is kept.{ended} {again}"
        return (
            f"stopped after {self.num_kept} of {count(self.num_planned, 'run')}: their results are kept, no report is "
            f"written.{ended} `trainbench check {self.campaign_id}` judges what is kept, `trainbench report "
            f"{self.campaign_id}` writes its report. {again}"
        )


@contextmanager
def truthful_interrupts(kept: Kept) -> Iterator[Kept]:
    """Turn Ctrl-C and SIGTERM into Stopped."""
    try:
        yield kept
    except (KeyboardInterrupt, SystemExit) as stop:
        code = 128 + (signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM)
        raise Stopped(kept.sentence, code) from None
