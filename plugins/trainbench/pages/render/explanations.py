"""Tables that explain the terms of reports and pages: states with their reasons, figures."""

from __future__ import annotations

from trainbench.core.formats import sentence
from trainbench.core.states import STATE_WORDS, TRAITS
from trainbench.core.tables import Table, make_table, text, text_columns
from trainbench.reporting.glossary import FIGURES


def glossary_tables() -> tuple[Table, ...]:
    return (
        make_table(
            TRAITS.items(),
            (
                text("state", lambda row: STATE_WORDS[row[1].state]),
                text("reason", lambda row: row[0].replace("_", " ")),
                text("meaning", lambda row: _said(row[1].meaning), is_long=True),
                text("next step", lambda row: _said(row[1].next_step), is_long=True),
            ),
            name="states",
            title="States of a node and their reasons, the worst first",
        ),
        make_table(FIGURES, text_columns("name", "meaning", long="meaning"), name="figures", title="Figures"),
    )


def _said(phrase: str) -> str:
    return sentence(phrase[:1].upper() + phrase[1:])
