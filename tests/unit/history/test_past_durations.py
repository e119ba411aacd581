"""How long runs of a work took here."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bench_image.contract.spec import Drill
from tests.builders import make_failed, make_result
from tests.builders.recorded_nights import make_night
from trainbench.history.history import History, PastRun
from trainbench.results.campaign import Campaign

pytestmark = pytest.mark.both_databases


def test_valid_runs_of_a_work_with_their_seconds(history: History) -> None:
    """Two nights of 50 s and 55 s. A drill, a failed run and an imported one took no time that counts."""
    first, second = make_result("node-1"), make_result("node-1", gpu_name="NVIDIA A10")
    group_id = first.spec.identity.group_id
    dated = [_took(make_night(1, first), 50), _took(make_night(2, second), 55)]
    drill, failed = make_result("node-2", drill=Drill(slowdown_pct=50)), make_failed("node-3")
    imported = make_night(4, first).model_copy(update={"campaign_id": "imported-x-12345678"})
    for campaign in (*dated, make_night(3, drill, failed), imported):
        history.record(campaign)

    past = history.past_runs([group_id, "never-ran"])

    assert past == {group_id: (PastRun("NVIDIA A10", 55.0), PastRun("NVIDIA H200", 50.0)), "never-ran": ()}


def test_a_run_by_a_wrong_clock_has_no_duration_that_counts(history: History) -> None:
    """Its times, a day ahead, are both moved to the campaign's end: 0 s."""
    right, wrong = _took(make_night(1, make_result("node-1")), 50), make_night(2, make_result("node-1"))
    ahead = wrong.finished_at + timedelta(days=1)
    dated = {"started_at": ahead, "finished_at": ahead + timedelta(seconds=50)}
    result = wrong.results[0].model_copy(update=dated)
    for campaign in (right, wrong.model_copy(update={"results": (result,)})):
        history.record(campaign)

    group_id = result.spec.identity.group_id
    assert history.past_runs([group_id]) == {group_id: (PastRun("NVIDIA H200", 50.0),)}


def _took(campaign: Campaign, seconds: float) -> Campaign:
    (result,) = campaign.results
    ended = {"finished_at": result.started_at + timedelta(seconds=seconds)}
    return campaign.model_copy(update={"results": (result.model_copy(update=ended),)})
