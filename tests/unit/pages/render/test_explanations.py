from __future__ import annotations

from trainbench.core.states import TRAITS
from trainbench.core.verdicts import Why
from trainbench.pages.render.listings import glossary_tables


def test_the_glossary_explains_each_reason_of_each_state_and_what_to_do() -> None:
    states, figures = glossary_tables()
    rows = [row.texts for row in states.rows]

    without = {Why.ACKNOWLEDGED, Why.DRILL, Why.WELL}  # their state says it
    names = ["" if why in without else why.replace("_", " ").replace("gpu", "GPU") for why in TRAITS]
    assert [name for _, name, _, _ in rows] == names
    assert rows[list(TRAITS).index(Why.STALE)] == (
        "not checked", "stale", "Its latest verdict is older than TRAINBENCH_FRESH_H.", "Run the check.",
    )  # fmt: skip
    assert [table.name for table in (states, figures)] == ["states", "figures"]
    assert figures.rows
