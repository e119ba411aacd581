"""What each reason for a node's state does on each surface, and the table of docs/states.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trainbench.core.markdown import escape
from trainbench.core.states import TRAITS, NodeState, word
from trainbench.core.tables import Tone
from trainbench.core.verdicts import Level, State, Why


class Effects(NamedTuple):
    """Where one node of four is in this state and the others are well."""

    in_run: bool  # a run can say so; else only the Fleet page does
    exit_code: int  # of `trainbench run` and `check`; 1: the DAG run is red
    alert: Level | None  # in the asset event, and as a next step in the note on the run
    nights: int | None  # in a row until notice, message and banner; None: never
    fleet: Tone  # of the Fleet page's headline


OF_STATES: Mapping[State, Effects] = {
    State.RED: Effects(True, 1, Level.ERROR, 1, Tone.BAD),
    State.ACKNOWLEDGED: Effects(False, 1, Level.ERROR, None, Tone.WARN),
    State.DRILL: Effects(True, 1, Level.ERROR, 1, Tone.WARN),
    State.LOOK: Effects(True, 0, Level.WARNING, 2, Tone.WARN),
    State.NOT_CHECKED: Effects(True, 0, None, 3, Tone.WARN),
    State.WELL: Effects(True, 0, None, None, Tone.GOOD),
}
OTHER = {Why.STALE: Effects(False, 0, None, None, Tone.WARN)}
EFFECTS: Mapping[Why, Effects] = {why: OTHER.get(why) or OF_STATES[trait.state] for why, trait in TRAITS.items()}


def with_table(page: str) -> str:
    """docs/states.md with the table of today's words."""
    lines = page.splitlines(keepends=True)
    rows = [place for place, line in enumerate(lines) if line.startswith("| ")]
    head, rest = lines[: rows[0] + 2], lines[rows[-1] + 1 :]  # with the table's own two lines
    return "".join([*head, *(_row(why, effects) for why, effects in EFFECTS.items()), *rest])


def _row(why: Why, effects: Effects) -> str:
    trait = TRAITS[why]
    cells = (
        f"**{word(NodeState('', trait.state, why))}**",
        escape(trait.meaning),
        trait.next_step,
    )
    return f"| {' | '.join(cells)} |\n"
