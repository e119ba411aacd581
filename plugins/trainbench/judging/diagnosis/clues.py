"""Ranks clues by the share of a node's deviation that each can explain, and words the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench_image.contract.result import RunResult
from trainbench.core.verdicts import Clue

# Shares of the deviation: a clue explains it from the first on, and explains nothing below the second.
MOST_OF_IT = 0.5
A_PART_OF_IT = 0.1


class Case(NamedTuple):
    """The evidence on a node. `own`: its valid runs; `peers`: those of its group's healthy nodes. `off_pct`: absolute
    deviation of samples/s, 0 where another metric is in breach. `troubles`: conditions that the cluster reports.
    """

    own: Sequence[RunResult]
    peers: Sequence[RunResult]
    off_pct: float
    troubles: Sequence[str] = ()


def ranked_clues(clues: Sequence[Clue], off_pct: float) -> tuple[Clue, ...]:
    """The clues in this order: those that explain most of the deviation, those without a figure (in the order given),
    those that explain a part, those that explain nothing. A drill decides alone.
    """

    def place(clue: Clue) -> tuple[int, float]:
        if clue.category == "drill":
            return 0, 0.0
        if clue.explains_pct is None:
            return 2, 0.0
        if clue.explains_pct >= MOST_OF_IT * off_pct:
            return 1, -clue.explains_pct
        return (3 if not explains_nothing(clue, off_pct) else 4), -clue.explains_pct

    return tuple(sorted(clues, key=place))


def explains_nothing(clue: Clue, off_pct: float) -> bool:
    return clue.explains_pct is not None and clue.explains_pct < A_PART_OF_IT * off_pct


def cause_with_share(clue: Clue, off_pct: float) -> str:
    """The cause, with the part of the deviation that it explains where that is known."""
    if clue.explains_pct is None or off_pct == 0:
        return clue.cause
    part = min(clue.explains_pct, off_pct)
    rest = "" if part >= MOST_OF_IT * off_pct else "; the rest is not explained"
    return f"{clue.cause}, which explains up to {part:.1f} of the {off_pct:.1f} %{rest}"
