"""The past of a node: which earlier runs it is compared with."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from bench_image.contract.result import RunResult
from bench_image.contract.spec import Drill
from tests.builders import make_failed, make_result
from tests.builders.recorded_nights import DAY_1, make_night, past, stored, tonight
from trainbench.core.verdicts import (
    State,
)
from trainbench.exchange.reindex import reindex
from trainbench.history.database import HistoryError
from trainbench.history.history import History, history_key
from trainbench.history.run_tables import runs
from trainbench.params.campaign_kind import CampaignKind
from trainbench.results.artefacts import open_store


def test_the_past_is_one_median_per_campaign_oldest_first(history: History) -> None:
    """Night 1 has rounds of 9.0, 9.6, 9.2: median 9.2. Night 2 has 9.4 and 9.6: (9.4 + 9.6) / 2 = 9.5."""
    history.record(make_night(2, make_result(samples_per_s=9.4), make_result(samples_per_s=9.6, round=2)))
    history.record(make_night(1, *(make_result(samples_per_s=s, round=i) for i, s in ((1, 9.0), (2, 9.6), (3, 9.2)))))
    assert past(history, tonight()) == pytest.approx([9.2, 9.5])


def test_the_past_ends_before_the_run_and_holds_the_last_campaigns(history: History) -> None:
    for day in (1, 2, 3, 20, 21):
        history.record(make_night(day, make_result(samples_per_s=float(day))))
    assert past(history, tonight()) == [1.0, 2.0, 3.0]
    assert past(history, tonight(), limit=2) == [2.0, 3.0]


def test_a_campaign_is_never_its_own_past(history: History) -> None:
    history.record(make_night(20, make_result(), make_result(round=2)))
    assert past(history, make_night(20, make_result(round=3)).results[0]) == []


@pytest.mark.parametrize("state", [State.BREACH, State.FAILED, State.MISSING, State.BUSY])
def test_a_node_that_was_not_well_never_enters_its_baseline(history: History, state: State) -> None:
    history.record(make_night(1, make_result(), states={"node-1": state}))
    assert past(history, tonight()) == []


@pytest.mark.parametrize("state", [State.OK, State.NOTICE, State.INSUFFICIENT])
def test_a_valid_run_that_was_not_found_bad_is_a_baseline(history: History, state: State) -> None:
    history.record(make_night(1, make_result(), states={"node-1": state}))
    assert past(history, tonight()) == [9.5]


def test_a_node_slower_than_its_own_past_does_not_pull_its_baseline_down(history: History) -> None:
    history.record(make_night(1, make_result(), slower_than_past=["node-1"]))
    assert past(history, tonight()) == []


def test_a_drill_never_enters_a_baseline_and_its_healthy_neighbours_do(history: History) -> None:
    history.record(make_night(1, make_result("node-1", drill=Drill(slowdown_pct=50)), make_result("node-2")))
    assert history.baseline_rates([tonight(make_result("node-1")), tonight(make_result("node-2"))]) == [[], [9.5]]


@pytest.mark.parametrize(
    "other",
    [
        make_result("node-2"),
        make_result(seq_length=1024),
        make_result(driver="590.1"),
        make_result(gpu_name="NVIDIA A100"),
        make_result(libraries={"torch": "2.14.0"}),
        make_result(libraries={"transformers": "6.0.0"}),
        make_result(libraries={"peft": "1.0.0"}),
        make_result(libraries={"bitsandbytes": "0.51.0"}),
        make_result(pod_template="3f2a91c04b7d"),
    ],
    ids=["node", "work", "driver", "GPU", "torch", "transformers", "peft", "bitsandbytes", "pod template"],
)
def test_only_like_runs_of_the_same_node_are_its_past(history: History, other: RunResult) -> None:
    history.record(make_night(1, make_result()))
    assert past(history, tonight(other)) == []


def test_a_run_that_measured_nothing_has_no_past(history: History) -> None:
    history.record(make_night(1, make_result()))
    assert history_key(make_failed()) is None
    assert past(history, tonight(make_failed())) == []


@pytest.mark.parametrize("years", [-50, 50])
def test_a_node_whose_clock_is_wrong_keeps_its_place_in_the_order(history: History, years: int) -> None:
    campaign = make_night(1, make_result())
    wrong = campaign.results[0].started_at + timedelta(days=365 * years)
    skewed = campaign.results[0].model_copy(update={"started_at": wrong, "finished_at": wrong})
    history.record(campaign.model_copy(update={"results": (skewed,)}))
    (row,) = stored(history, runs)
    assert DAY_1 <= row["started_at"] <= DAY_1 + timedelta(hours=1)
    assert past(history, tonight()) == [9.5]


def test_runs_that_measured_the_noise_were_judged_by_nobody_and_are_no_baseline(history: History) -> None:
    history.record(make_night(1, make_result()).model_copy(update={"campaign_kind": CampaignKind.NOISE, "groups": ()}))
    assert past(history, tonight()) == []


def test_what_began_in_the_same_moment_is_no_past(history: History) -> None:
    """[J13] Two campaigns of one node that start together do not know each other."""
    history.record(make_night(19, make_result(samples_per_s=9.0)))
    other = make_night(19, make_result()).results[0]
    other = other.model_copy(update={"spec": other.spec.changed(identity={"campaign_id": "beside-it"})})
    assert past(history, other) == []
    assert history.node_records([other.effective_spec.fingerprint], "beside-it", other.started_at) == ()
    later = timedelta(seconds=1)
    assert past(history, other.model_copy(update={"started_at": other.started_at + later})) == [9.0]
    assert len(history.node_records([other.effective_spec.fingerprint], "beside-it", other.started_at + later)) == 1


def test_the_last_thirty_campaigns_are_the_past_and_the_trail(history: History) -> None:
    """[J13] The 31st, which is the oldest, counts no more."""
    for day in range(1, 32):
        history.record(make_night(day, make_result(samples_per_s=9.0 + day / 100)))
    of_day_40 = make_night(40, make_result()).results[0]
    expected = [pytest.approx(9.0 + day / 100) for day in range(2, 32)]
    assert past(history, of_day_40) == expected
    trail = history.node_records([of_day_40.effective_spec.fingerprint], "night-40", of_day_40.started_at)
    assert [point.samples_per_second for point in trail] == expected


def test_reindex_rebuilds_the_history_from_the_store(history: History, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    nights = [
        make_night(1, make_result(), states={"node-1": State.BREACH}),
        make_night(2, make_result()),
        make_night(10, make_result("node-2"), states={"node-2": State.BREACH}),
    ]
    for campaign in nights:
        store.write_campaign(campaign)
    broken = Path(store.write_campaign(make_night(3, make_result())))
    broken.write_text("{")
    done = reindex(store, history)
    assert len(done.recorded) == 3
    assert [str(broken) in file.reason for file in done.broken] == [True]
    assert len(stored(history, runs)) == 3
    assert [breach.node for breach in history.open_breaches()] == ["node-2"]


def test_a_campaign_that_cannot_be_recorded_leaves_the_old_one(history: History) -> None:
    history.record(make_night(1, make_result(samples_per_s=9.5)))
    with history.engine.begin() as connection:
        connection.execute(text("DROP TABLE breaches"))
    with pytest.raises(HistoryError):
        history.record(make_night(1, make_result(samples_per_s=1.0)))
    assert [row["samples_per_second"] for row in stored(history, runs)] == [9.5]


def test_when_each_node_was_last_measured(history: History) -> None:
    """Failed runs and drills are no measurement."""
    history.record(make_night(1, make_result("node-1"), make_result("node-2")))
    history.record(
        make_night(2, make_result("node-1"), make_failed("node-2"), make_result("node-3", drill=Drill(slowdown_pct=50)))
    )

    assert {node: at.date() for node, at in history.last_measured(DAY_1 - timedelta(days=1)).items()} == {
        "node-1": (DAY_1 + timedelta(days=1)).date(),
        "node-2": DAY_1.date(),
    }
    assert set(history.last_measured(DAY_1 + timedelta(hours=12))) == {"node-1"}
