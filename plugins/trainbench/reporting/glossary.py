"""The glossary of the reports: figures and states."""

from __future__ import annotations

from trainbench.core.states import STATE_WORDS, TRAITS, NodeState, word
from trainbench.core.verdicts import State
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
