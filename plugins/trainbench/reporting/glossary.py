"""The glossary of the reports and of the pages: states and figures."""

from __future__ import annotations

from trainbench.core.formats import capitalised, sentence
from trainbench.core.states import STATE_WORDS, TRAITS, NodeState, word
from trainbench.core.tables import Table, make_table, text, text_columns
from trainbench.figure_catalogue.catalogue import FIGURES

MORE = (
    "The first cell of a row links to a result.json; in a row for several runs, to that of the run with the median "
    "samples/s. docs/figures.md of trainbench gives the formula of every figure."
)


def tables() -> tuple[Table, Table]:
    """The states of a node with their reasons, and the figures that need an explanation."""
    states = make_table(
        TRAITS.items(),
        (
            text("state", lambda row: STATE_WORDS[row[1].state]),
            text("reason", lambda row: word(NodeState("", row[1].state, row[0])).partition(": ")[2]),
            text("meaning", lambda row: _said(row[1].meaning), is_long=True),
            text("next step", lambda row: _said(row[1].next_step), is_long=True),
        ),
        name="states",
        title="States of a node and their reasons, the worst first",
    )
    explained = [(each.label, each.read, each.field) for each in FIGURES if each.read]
    columns = text_columns("figure", "meaning", "field", long="meaning")
    return states, make_table(explained, columns, name="figures", title="Figures")


def _said(phrase: str) -> str:
    return sentence(capitalised(phrase)).replace("`", "")
