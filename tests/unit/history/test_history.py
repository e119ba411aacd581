"""The past of a node: which earlier runs it is compared with."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from bench_image.contract.result import RunResult
from bench_image.contract.spec import Drill
from tests.builders import make_failed, make_result
from tests.builders.recorded_nights import DAY_1, make_night, past, records, stored, tonight
from trainbench.core.verdicts import Why
from trainbench.exchange.reindex import reindex
from trainbench.history.database import HistoryError
from trainbench.history.history import History
from trainbench.history.node_histories import MAX_CAMPAIGNS
from trainbench.history.tables import runs
from trainbench.params.campaign_kind import CampaignKind
from trainbench.results.artefacts import open_store

pytestmark = pytest.mark.both_databases


def test_the_past_is_one_median_per_campaign_oldest_first(history: History) -> None:
    """Night 1 has rounds of 9.0, 9.6, 9.2: median 9.2. Night 2 has 9.4 and 9.6: (9.4 + 9.6) / 2 = 9.5."""
    history.record(make_night(2, make_result(samples_per_s=9.4), make_result(samples_per_s=9.6, round=2)))
    history.record(make_night(1, *(make_result(samples_per_s=s, round=i) for i, s in ((1, 9.0), (2, 9.6), (3, 9.2)))))
    assert past(history, tonight()) == pytest.approx([9.2, 9.5])


def test_the_past_ends_before_the_run_and_holds_the_last_campaigns(history: History) -> None:
    for day in (1, 2, 3, 20, 21):
        history.record(make_night(day, make_result(samples_per_s=float(day))))
    assert past(history, tonight()) == [1.0, 2.0, 3.0]


def test_a_campaign_is_never_its_own_past(history: History) -> None:
    history.record(make_night(20, make_result(), make_result(round=2)))
    assert past(history, make_night(20, make_result(round=3)).results[0]) == []


@pytest.mark.parametrize("why", [Why.FAILED, Why.OTHER_NUMBERS, Why.BUSY])
def test_a_node_without_right_numbers_never_enters_its_past(history: History, why: Why) -> None:
    history.record(make_night(1, make_result(), whys={"node-1": why}))
    assert past(history, tonight()) == []


@pytest.mark.parametrize("why", [Why.WELL, Why.ONCE, Why.NOISY, Why.PAIR, Why.SLOW])
def test_a_valid_run_counts_also_of_a_node_that_was_always_slower_than_its_peers(history: History, why: Why) -> None:
    history.record(make_night(1, make_result(), whys={"node-1": why}))
    assert past(history, tonight()) == [9.5]


def test_a_node_below_its_own_past_does_not_pull_it_down_and_one_above_raises_it(history: History) -> None:
    """9.5 beside 10.0 is -5 %, beside 9.0 it is +5.6 %."""
    history.record(make_night(1, make_result(), expected={"node-1": {"past": 10.0}}))
    assert (past(history, tonight()), len(records(history, tonight()))) == ([], 1)
    history.record(make_night(1, make_result(), expected={"node-1": {"past": 9.0}}))
    assert past(history, tonight()) == [9.5]


def test_a_run_on_a_shared_gpu_counts_in_no_past(history: History) -> None:
    result = make_result()
    (gpu,) = result.telemetry.gpus
    shared = result.telemetry.model_copy(update={"gpus": (gpu.model_copy(update={"num_other_processes": 1}),)})
    history.record(make_night(1, result.model_copy(update={"telemetry": shared})))
    assert past(history, tonight()) == []


def test_a_drill_never_enters_a_past_and_its_healthy_neighbours_do(history: History) -> None:
    history.record(make_night(1, make_result("node-1", drill=Drill(slowdown_pct=50)), make_result("node-2")))
    assert [past(history, tonight(make_result(node))) for node in ("node-1", "node-2")] == [[], [9.5]]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (make_result("node-2"), []),
        (make_result(seq_length=1024), []),
        (make_result(driver="590.1"), [9.5]),
        (make_result(libraries={"torch": "2.14.0"}), [9.5]),
        (make_result(pod_template="3f2a91c04b7d"), [9.5]),
    ],
    ids=["node", "work", "driver", "torch", "pod template"],
)
def test_the_same_work_of_the_same_node_is_its_past_under_any_version(
    history: History, other: RunResult, expected: list[float]
) -> None:
    history.record(make_night(1, make_result()))
    assert past(history, tonight(other)) == expected


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
    assert records(history, other) == []
    later = timedelta(seconds=1)
    assert past(history, other.model_copy(update={"started_at": other.started_at + later})) == [9.0]


def test_the_newest_campaigns_are_the_past(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of four counts no more."""
    assert MAX_CAMPAIGNS == 90
    monkeypatch.setattr("trainbench.history.node_histories.MAX_CAMPAIGNS", 3)
    for day in range(1, 5):
        history.record(make_night(day, make_result(samples_per_s=float(day))))
    assert past(history, tonight()) == [2.0, 3.0, 4.0]


def test_reindex_rebuilds_the_history_from_the_store(history: History, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    nights = [
        make_night(1, make_result(samples_per_s=9.0), whys={"node-1": Why.SLOW}),
        make_night(2, make_result(samples_per_s=10.0)),
        make_night(3, make_result(samples_per_s=10.0)),
        make_night(10, make_result("node-2"), whys={"node-2": Why.SLOW}),
    ]
    for campaign in nights:
        store.write_campaign(campaign)
    broken = Path(store.write_campaign(make_night(4, make_result())))
    broken.write_text("{")
    done = reindex(store, history)
    assert len(done.recorded) == 4
    assert [str(broken) in file.reason for file in done.broken] == [True]
    assert len(stored(history, runs)) == 4
    assert [notice.node for notice in history.open_notices()] == ["node-2"]


def test_a_campaign_that_cannot_be_recorded_leaves_the_old_one(history: History) -> None:
    history.record(make_night(1, make_result(samples_per_s=9.5)))
    with history.engine.begin() as connection:
        connection.execute(text("DROP TABLE notices"))
    with pytest.raises(HistoryError):
        history.record(make_night(1, make_result(samples_per_s=1.0)))
    assert [row["samples_per_second"] for row in stored(history, runs)] == [9.5]


def test_when_each_node_was_last_measured(history: History) -> None:
    """Failed runs and drills are no measurement."""
    history.record(make_night(1, make_result("node-1"), make_result("node-2")))
    history.record(
        make_night(2, make_result("node-1"), make_failed("node-2"), make_result("node-3", drill=Drill(slowdown_pct=50)))
    )

    began = DAY_1 + timedelta(minutes=31)
    assert history.last_measured(began) == {"node-1": began + timedelta(days=1), "node-2": began}
    assert set(history.last_measured(began + timedelta(minutes=1))) == {"node-1"}
