"""The study of the pages' reads fills the tables of today and reads them all."""

from __future__ import annotations

import pytest

from studies import measure_pages
from trainbench.history.history import History


def test_a_filled_history_answers_every_read(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_pages, "RED_SHARE", 0.5)
    night = measure_pages.one_night(8)
    measure_pages.fill(history, night, 3)

    assert measure_pages.count_rows(history)["notices"] > 0
    unknown = {name for name, read in measure_pages.reads(history, night) if read() is None}
    assert unknown == {
        f"{page}, {asked}"
        for page in ("node", "a node with its first chart")
        for asked in ("a model that was never run", "30 days, one GPU")
    }  # gpu-7 is no A100
