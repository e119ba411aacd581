"""The order of clues by how much of a node's deviation each can explain, and the sentence on the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench_image.contract.result import RunResult
from trainbench.core.verdicts import Clue

# Of the deviation: from here on a clue is an explanation; below the second figure it is none at all.
MOST_OF_IT = 0.5
A_PART_OF_IT = 0.1


class Case(NamedTuple):
    """`own`: the node's valid runs, `peers`: those of the healthy nodes of its group. `off_pct`: by how much samples/s
    are apart, without sign; 0 where that is not what is in breach. `troubles`: what the cluster says of the node.
    """

    own: Sequence[RunResult]
    peers: Sequence[RunResult]
    off_pct: float
    troubles: Sequence[str] = ()


def ranked(clues: Sequence[Clue], off_pct: float) -> tuple[Clue, ...]:
    """By what they explain: first what can explain most of the deviation, then what cannot be computed (in the order
    given), then what explains a part, then what explains nothing. A drill is no clue but the answer.
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


def explained(clue: Clue, off_pct: float) -> str:
    """The cause, with what it explains of the deviation where that is known."""
    if clue.explains_pct is None or off_pct == 0:
        return clue.cause
    part = min(clue.explains_pct, off_pct)
    rest = "" if part >= MOST_OF_IT * off_pct else "; the rest is not explained"
    return f"{clue.cause}, which explains up to {part:.1f} of the {off_pct:.1f} %{rest}"
