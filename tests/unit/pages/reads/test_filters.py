"""The filters of all lists, and what a form may send."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from tests.builders.three_nights import SEEN, every_read
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.queries import Pages


def test_the_choices_are_what_was_ever_benchmarked(pages: Pages) -> None:
    assert asdict(pages.choices()) == {
        "gpu_names": ("NVIDIA H200",), "models": ("mistral-7b",), "recipes": ("qlora",), "strategies": ("single",),
        "dag_ids": (SEEN,),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("chosen", "num_runs"),
    [
        ({}, 11),
        ({"gpu_name": "NVIDIA H200", "model": "mistral-7b", "recipe": "qlora", "strategy": "single"}, 11),
        ({"since": date(2026, 11, 2)}, 7),
        ({"gpu_name": "NVIDIA A10"}, 0),
        ({"strategy": "zero3"}, 0),
        ({"model": "gpt2"}, 0),
        ({"since": date(2027, 1, 1)}, 0),
    ],
)
def test_every_list_has_the_same_filters(pages: Pages, chosen: dict[str, Any], num_runs: int) -> None:
    filters = Filters(**chosen)
    assert pages.runs(filters).num_total == len(pages.runs(filters).rows) == num_runs
    assert pages.costs(filters).total.num_runs == num_runs
    assert len("".join(pages.runs_csv(filters)).splitlines()) == num_runs + 1
    assert sum(row.num_runs for row in pages.strategies(filters).rows) == num_runs
    assert len(list(every_read(pages, filters))) == 18


def test_what_a_form_sends_is_checked() -> None:
    assert Filters.model_validate({"gpu_name": "", "model": "gpt2"}) == Filters(model="gpt2")
    for bad in ({"since": "yesterday"}, {"model": "\x00"}, {"model": "x" * 301}, {"colour": "red"}):
        with pytest.raises(ValidationError):
            Filters.model_validate(bad)
