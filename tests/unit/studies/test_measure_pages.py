"""The study of the pages' reads fills the tables of today and reads them all."""

from __future__ import annotations

import pytest

from studies import measure_pages
from trainbench.history.history import History


def test_a_filled_history_answers_every_read(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_pages, "RED_SHARE", 0.5)
    measure_pages.fill(history, 8, 3)

    assert measure_pages.count_rows(history)["notices"] > 0
    unknown = {name for name, read in measure_pages.reads(history, 2) if read() is None}
    assert unknown == {f"{page}, a model that was never run" for page in ("node", "a node with its first chart")}
