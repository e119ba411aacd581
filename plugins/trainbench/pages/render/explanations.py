"""Tables that explain the terms of reports and pages: conditions, states of a verdict, figures."""

from __future__ import annotations

from collections.abc import Iterable

from trainbench.core.formats import sentence
from trainbench.core.tables import Table, make_table, text_columns
from trainbench.judging.node_condition import TRAITS
from trainbench.reporting.glossary import FIGURES, STATES


def glossary_tables() -> tuple[Table, ...]:
    conditions = (
        (str(condition), sentence(trait.meaning[:1].upper() + trait.meaning[1:])) for condition, trait in TRAITS.items()
    )
    return (
        _table("conditions", "Conditions of a node", conditions),
        _table("states", "States of a verdict", STATES),
        _table("figures", "Figures", FIGURES),
    )


def _table(name: str, title: str, entries: Iterable[tuple[str, str]]) -> Table:
    return make_table(entries, text_columns("name", "meaning", long="meaning"), name=name, title=title)
