from __future__ import annotations

from trainbench.judging.node_condition import Condition
from trainbench.pages.render.explanations import glossary_tables
from trainbench.reporting.glossary import STATES


def test_the_glossary_explains_each_condition_and_each_state_in_a_sentence() -> None:
    conditions, states, figures = glossary_tables()

    assert [row.texts[0] for row in conditions.rows] == list(Condition)
    assert [row.texts for row in states.rows] == list(STATES)
    assert all(text.endswith(".") and text[0].isupper() for row in conditions.rows for text in row.texts[1:])
    assert [table.name for table in (conditions, states, figures)] == ["conditions", "states", "figures"]
    assert "Its latest verdict is older than TRAINBENCH_FRESH_H." in {row.texts[1] for row in conditions.rows}
    assert figures.rows
