"""The glossary of the reports, and what each reason for a node's state does on each surface, as a test checks.

docs/states.md is made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trainbench.core.markdown import escape
from trainbench.core.states import STATE_WORDS, TRAITS, NodeState, word
from trainbench.core.tables import Tone
from trainbench.core.verdicts import Level, State, Why
from trainbench.figure_catalogue.catalogue import FIGURES as CATALOGUE

FIGURES = tuple((each.label, f"{each.read} Field: {each.field}.") for each in CATALOGUE if each.read)
MORE = (
    "The first cell of a row links to a result.json; in a row for several runs, to that of the run with the median "
    "samples/s. docs/figures.md of trainbench gives the formula of every figure."
)


def _reasons(state: State) -> str:
    """ "pair: two nodes differ, and ...; once: ..."."""
    of_state = {why: trait for why, trait in TRAITS.items() if trait.state is state}
    named = (word(NodeState("", state, why)).removeprefix(f"{STATE_WORDS[state]}: ") for why in of_state)
    told = (f"{name}: {trait.meaning}" for name, trait in zip(named, of_state.values(), strict=True))
    return f"{'; '.join(told)}." if len(of_state) > 1 else f"{next(iter(of_state.values())).meaning}."


STATES = tuple((name, _reasons(state)) for state, name in STATE_WORDS.items())


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

_HEAD = """# The states of a node
Every node has one of six states, and a reason for it. Headlines and tables of the reports, exit codes, notes on DAG
runs, asset events, notices, banners, gauges and pages show the same. Where several reasons hold, the first of this
table counts. It is made from the words in `core/states.py` and the data in `reporting/glossary.py`, which a test
compares with every surface.

| state: reason | meaning | report says | exit code | in the event | notice in night | next step |
|---|---|---|--:|---|--:|---|
"""
_NOTES = """
- **Red** is the only state that fails a DAG run. It opens a notice, with one message and a banner, at once.
- **Hot** and **heavy** are red where the parameter `also_red` names temperature or memory.
- **Look** asks for a person. The column *notice in night* says after how many nights in a row a notice opens;
  [alerts.md](alerts.md) says when it closes and what is sent.
- **Red stays red** on the Fleet page until its notice closes: no later look, noise or age hides it. Once somebody
  **acknowledged** it with a reason, banner and headline are calm; a run that finds it red again is red.
- **Drill**: a run that detects a drill is red, with one notice marked DRILL, which tests the whole chain and ends with
  the run. The headline says first whether the drill was detected, then how the other nodes are. A drill that is not
  detected is an alarm.
- **Alarms** turn a run red although no node is: no run gave a figure, runs computed other work than planned, a part of
  the judgement failed, a drill was not detected.
- **Changed** is one message for all nodes, and the DAG run stays green.
- **Exit codes**: 0 fine; 1 red, a detected drill, an alarm, or a failed run that judges no node; 3 no node could be
  checked; 4 at least half of the fleet changed, and none is red.
- **Well** is fresh: after `TRAINBENCH_FRESH_H` (36 hours, a nightly check left out once) the Fleet page says *stale*.
  With a weekly schedule set it to 180.
"""


def document() -> str:
    """docs/states.md."""
    return _HEAD + "".join(_row(why, effects) for why, effects in EFFECTS.items()) + _NOTES


def _row(why: Why, effects: Effects) -> str:
    trait = TRAITS[why]
    says = f"2 of 4 nodes {trait.several}" if why is Why.CHANGED else f"1 of 4 nodes {trait.one}"
    exit_code = "-" if not effects.in_run else "4" if why is Why.CHANGED else str(effects.exit_code)
    cells = (
        f"**{word(NodeState('', trait.state, why))}**",
        escape(trait.meaning),
        f'"{says}"' if effects.in_run else "-",
        exit_code,
        effects.alert.value if effects.alert and effects.in_run else "-",
        str(effects.nights or "-"),
        trait.next_step,
    )
    return f"| {' | '.join(cells)} |\n"
