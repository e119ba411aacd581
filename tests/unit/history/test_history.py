"""The history, on SQLite and, where TRAINBENCH_TEST_POSTGRES_URL names a server, on PostgreSQL as well."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, select, text, update

from bench_image.contract.result import RunResult, Status
from bench_image.contract.spec import Drill
from tests.builders import make_cpu_result, make_failed, make_independent, make_result
from trainbench.core.verdicts import (
    Confirmation,
    Finding,
    GroupVerdict,
    HistoryVerdict,
    Level,
    Metric,
    MetricVerdict,
    NodeVerdict,
    ReferenceMode,
    Side,
    State,
)
from trainbench.exchange.reindex import reindex
from trainbench.history.database import HistoryError
from trainbench.history.history import History, history_key, open_history
from trainbench.history.run_tables import breaches, metadata, runs
from trainbench.history.summary_tables import works
from trainbench.judging.checks.missing_nodes import ABSENT
from trainbench.judging.over_time.undecided import Streak
from trainbench.params.campaign_kind import Question
from trainbench.prices.run_cost import RunCost
from trainbench.results.artefacts import open_store
from trainbench.results.campaign import Campaign
from trainbench.results.setups import setup_of

DAY_1 = datetime(2026, 11, 1, 2, 0, tzinfo=UTC)


def night(
    day: int, *results: RunResult, states: dict[str, State] | None = None, slower_than_past: Sequence[str] = ()
) -> Campaign:
    """The campaign of one night; every node is ok unless `states`, which may name others too, says otherwise."""
    at = DAY_1 + timedelta(days=day - 1)
    campaign_id = f"night-{day}"
    dated = [_dated(result, campaign_id, at) for result in results]
    nodes = {result.spec.identity.node: State.OK for result in dated} | (states or {})
    group_id = dated[0].spec.identity.group_id if dated else "group-1"
    drilled = {result.spec.identity.node for result in dated if result.spec.drill}
    return Campaign(
        campaign_id=campaign_id,
        suite="node_consistency",
        title="a night",
        started_at=at,
        finished_at=at + timedelta(hours=1),
        params={},
        skipped=(),
        results=tuple(dated),
        groups=(
            GroupVerdict(
                group_id=group_id,
                gpu_name="NVIDIA H200",
                reference=ReferenceMode.LEAVE_ONE_OUT_MEDIAN,
                nodes=tuple(_verdict(node, state, node in drilled) for node, state in nodes.items()),
                spread_pct=None,
                noise_pct=None,
                detectable_pct=None,
            ),
        ),
        history=tuple(_slower(node, group_id) for node in slower_than_past),
        findings=(),
        costs=tuple(_cost(result) for result in dated),
    )


def past(history: History, result: RunResult, **how: Any) -> list[float]:
    (found,) = history.baseline_rates([result], **how)
    return found


def _dated(result: RunResult, campaign_id: str, at: datetime) -> RunResult:
    moved = at + timedelta(minutes=result.spec.identity.round)
    spec = result.spec.changed(identity={"campaign_id": campaign_id})
    return result.model_copy(update={"spec": spec, "started_at": moved, "finished_at": moved})


def _verdict(node: str, state: State, is_drill: bool) -> NodeVerdict:
    throughput = MetricVerdict(
        metric=Metric.SAMPLES_PER_SECOND,
        state=state,
        value=9.0,
        reference=10.0,
        deviation=-10.0,
        limit=5.0,
        noise=0.2,
        side=Side.SLOW,
        reason="10 % below its peers",
    )
    return NodeVerdict(
        node=node,
        gpu_name="NVIDIA H200",
        state=state,
        metrics=(throughput,) if state is State.BREACH else (),
        num_runs=1,
        confirmation=Confirmation.NOT_NEEDED,
        confirm_deviation_pct=None,
        is_drill=is_drill,
        reason=f"it is {state.value}",
    )


def _slower(node: str, group_id: str) -> HistoryVerdict:
    return HistoryVerdict(
        node=node,
        group_id=group_id,
        state=State.BREACH,
        samples_per_second=9.0,
        baseline_median=9.5,
        deviation_pct=-5.3,
        limit_pct=1.5,
        num_points=9,
        reason="slower than last week",
    )


def _cost(result: RunResult) -> RunCost:
    return RunCost(
        run_id=result.spec.identity.run_id,
        usd_per_gpu_hour=3.0,
        price_source="test",
        price_as_of="2026-11-01",
        gpu_hours=0.1,
        run_usd=0.3,
        usd_per_1000_samples=0.09,
        usd_per_1m_tokens=None,
        reason=None,
    )


def tonight(result: RunResult | None = None) -> RunResult:
    """A run of day 20 whose past is asked for."""
    return night(20, result or make_result()).results[0]


def rows(history: History, table: Any) -> list[dict[str, Any]]:
    with history.engine.connect() as connection:
        return [dict(row._mapping) for row in connection.execute(select(table))]


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_run_is_recorded_with_what_the_dashboard_shows(history: History) -> None:
    history.record(night(1, make_result("node-1", 9.5, memory_gb=7.1, temperature_c=60.0)))
    (row,) = rows(history, runs)
    expected = {
        "campaign_id": "night-1", "suite": "node_consistency", "node": "node-1", "gpu_name": "NVIDIA H200",
        "driver": "580.65.06", "torch": "2.13.0", "status": "ok", "state": "ok", "samples_per_second": 9.5,
        "peak_memory_gb": 7.1, "temperature_mean_c": 60.0, "run_usd": 0.3, "is_drill": False, "is_baseline": True,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert row["started_at"] == DAY_1 + timedelta(minutes=1)


def test_a_failed_run_and_a_run_on_cpu_leave_unknown_numbers_null(history: History) -> None:
    history.record(night(1, make_failed("node-1"), make_cpu_result("node-2")))
    failed, on_cpu = rows(history, runs)
    assert (failed["status"], failed["samples_per_second"], failed["history_key"]) == ("oom", None, None)
    assert (on_cpu["gpu_name"], on_cpu["temperature_mean_c"], on_cpu["is_baseline"]) == (None, None, True)


def test_recording_a_campaign_again_replaces_it(history: History) -> None:
    history.record(night(1, make_result("node-1", 9.5), make_result("node-2", 9.4)))
    history.record(night(1, make_result("node-1", 8.0)))
    assert [(row["node"], row["samples_per_second"]) for row in rows(history, runs)] == [("node-1", 8.0)]


# --- baseline ---------------------------------------------------------------------------------------------------------


def test_the_past_is_one_median_per_campaign_oldest_first(history: History) -> None:
    """Night 1 has rounds of 9.0, 9.6, 9.2: median 9.2. Night 2 has 9.4 and 9.6: (9.4 + 9.6) / 2 = 9.5."""
    history.record(night(2, make_result(samples_per_s=9.4), make_result(samples_per_s=9.6, round=2)))
    history.record(night(1, *(make_result(samples_per_s=s, round=i) for i, s in ((1, 9.0), (2, 9.6), (3, 9.2)))))
    assert past(history, tonight()) == pytest.approx([9.2, 9.5])


def test_the_past_ends_before_the_run_and_holds_the_last_campaigns(history: History) -> None:
    for day in (1, 2, 3, 20, 21):
        history.record(night(day, make_result(samples_per_s=float(day))))
    assert past(history, tonight()) == [1.0, 2.0, 3.0]
    assert past(history, tonight(), limit=2) == [2.0, 3.0]


def test_a_campaign_is_never_its_own_past(history: History) -> None:
    history.record(night(20, make_result(), make_result(round=2)))
    assert past(history, night(20, make_result(round=3)).results[0]) == []


@pytest.mark.parametrize("state", [State.BREACH, State.FAILED, State.MISSING, State.BUSY])
def test_a_node_that_was_not_well_never_enters_its_baseline(history: History, state: State) -> None:
    history.record(night(1, make_result(), states={"node-1": state}))
    assert past(history, tonight()) == []


@pytest.mark.parametrize("state", [State.OK, State.NOTICE, State.INSUFFICIENT])
def test_a_valid_run_that_was_not_found_bad_is_a_baseline(history: History, state: State) -> None:
    history.record(night(1, make_result(), states={"node-1": state}))
    assert past(history, tonight()) == [9.5]


def test_a_node_slower_than_its_own_past_does_not_pull_its_baseline_down(history: History) -> None:
    history.record(night(1, make_result(), slower_than_past=["node-1"]))
    assert past(history, tonight()) == []


def test_a_drill_never_enters_a_baseline_and_its_healthy_neighbours_do(history: History) -> None:
    history.record(night(1, make_result("node-1", drill=Drill(slowdown_pct=50)), make_result("node-2")))
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
    ],
    ids=["node", "work", "driver", "GPU", "torch", "transformers", "peft", "bitsandbytes"],
)
def test_only_like_runs_of_the_same_node_are_its_past(history: History, other: RunResult) -> None:
    history.record(night(1, make_result()))
    assert past(history, tonight(other)) == []


def test_a_run_that_measured_nothing_has_no_past(history: History) -> None:
    history.record(night(1, make_result()))
    assert history_key(make_failed()) is None
    assert past(history, tonight(make_failed())) == []


# --- trails -----------------------------------------------------------------------------------------------------------


def test_a_trail_goes_on_over_new_drivers_and_bad_nights(history: History) -> None:
    """Three nights: the second was a breach, the third came with another driver. A drill and another work are none."""
    history.record(night(2, make_result(samples_per_s=8.0), states={"node-1": State.BREACH}))
    history.record(night(1, make_result(samples_per_s=9.4), make_result(samples_per_s=9.6, round=2)))
    history.record(night(3, make_result(samples_per_s=9.0, driver="590.1")))
    history.record(night(4, make_result(drill=Drill(slowdown_pct=50)), make_result("node-2", seq_length=1024)))
    points = history.node_records([make_result().effective_spec.fingerprint], "night-20", DAY_1 + timedelta(days=19))
    assert [(p.campaign_id, p.node, p.samples_per_second) for p in points] == [
        ("night-1", "node-1", 9.5), ("night-2", "node-1", 8.0), ("night-3", "node-1", 9.0),
    ]  # fmt: skip
    assert [p.setup.driver for p in points] == ["580.65.06", "580.65.06", "590.1"]
    assert points[0].setup == setup_of(make_result().context)
    assert points[0].temperature_c == 60.0


def test_a_trail_ends_before_the_campaign_that_asks(history: History) -> None:
    for day in (1, 20, 21):
        history.record(night(day, make_result()))
    points = history.node_records([make_result().effective_spec.fingerprint], "night-20", DAY_1 + timedelta(days=19))
    assert [point.campaign_id for point in points] == ["night-1"]


def test_rows_of_before_the_setup_was_kept_are_points_without_one(history: History) -> None:
    history.record(night(1, make_result()))
    with history.engine.begin() as connection:
        connection.execute(update(runs).values(kernel=None, vbios=None, libraries=None, gpu_uuids=None))
    (point,) = history.node_records([make_result().effective_spec.fingerprint], "night-20", DAY_1 + timedelta(days=19))
    assert (point.setup.kernel, point.setup.gpu_uuids) == (None, frozenset())
    assert point.setup.libraries == {"torch": "2.13.0"}


@pytest.mark.parametrize("years", [-50, 50])
def test_a_node_whose_clock_is_wrong_keeps_its_place_in_the_order(history: History, years: int) -> None:
    campaign = night(1, make_result())
    wrong = campaign.results[0].started_at + timedelta(days=365 * years)
    skewed = campaign.results[0].model_copy(update={"started_at": wrong, "finished_at": wrong})
    history.record(campaign.model_copy(update={"results": (skewed,)}))
    (row,) = rows(history, runs)
    assert DAY_1 <= row["started_at"] <= DAY_1 + timedelta(hours=1)
    assert past(history, tonight()) == [9.5]


def test_runs_that_measured_the_noise_were_judged_by_nobody_and_are_no_baseline(history: History) -> None:
    history.record(night(1, make_result()).model_copy(update={"question": Question.NOISE, "groups": ()}))
    assert past(history, tonight()) == []


def test_of_a_campaign_the_median_of_its_rounds_is_its_point(history: History) -> None:
    """[J13] The median of 9, 9 and 12 is 9; their mean is 10."""
    history.record(night(1, *(make_result(samples_per_s=rate, round=i) for i, rate in enumerate((9.0, 9.0, 12.0), 1))))
    assert past(history, tonight()) == [9.0]


def test_what_began_in_the_same_moment_is_no_past(history: History) -> None:
    """[J13] Two campaigns of one node that start together do not know each other."""
    history.record(night(19, make_result(samples_per_s=9.0)))
    other = night(19, make_result()).results[0]
    other = other.model_copy(update={"spec": other.spec.changed(identity={"campaign_id": "beside-it"})})
    assert past(history, other) == []
    assert history.node_records([other.effective_spec.fingerprint], "beside-it", other.started_at) == ()
    later = timedelta(seconds=1)
    assert past(history, other.model_copy(update={"started_at": other.started_at + later})) == [9.0]
    assert len(history.node_records([other.effective_spec.fingerprint], "beside-it", other.started_at + later)) == 1


def test_the_last_thirty_campaigns_are_the_past_and_the_trail(history: History) -> None:
    """[J13] The 31st, which is the oldest, counts no more."""
    for day in range(1, 32):
        history.record(night(day, make_result(samples_per_s=9.0 + day / 100)))
    of_day_40 = night(40, make_result()).results[0]
    expected = [pytest.approx(9.0 + day / 100) for day in range(2, 32)]
    assert past(history, of_day_40) == expected
    trail = history.node_records([of_day_40.effective_spec.fingerprint], "night-40", of_day_40.started_at)
    assert [point.samples_per_second for point in trail] == expected


# --- breaches ---------------------------------------------------------------------------------------------------------


def test_a_red_node_opens_a_breach_once_and_being_well_again_closes_it(history: History) -> None:
    for day in (1, 2):
        history.record(night(day, make_result(), states={"node-1": State.BREACH}))
    (breach,) = history.open_breaches()
    assert (breach.node, breach.campaign_id, breach.state) == ("node-1", "night-1", State.BREACH)
    assert breach.figure is not None
    assert (breach.figure.metric, breach.figure.deviation) == (Metric.SAMPLES_PER_SECOND, pytest.approx(-10.0))
    assert breach.opened_at == DAY_1 + timedelta(hours=1)
    history.record(night(3, make_result()))
    assert history.open_breaches() == ()
    (row,) = rows(history, breaches)
    assert (row["closed_at"], row["closed_by_campaign_id"]) == (DAY_1 + timedelta(days=2, hours=1), "night-3")


@pytest.mark.parametrize("state", [State.INSUFFICIENT, State.BUSY, State.NOT_JUDGED])
def test_a_node_that_was_not_judged_stays_as_it_was(history: History, state: State) -> None:
    history.record(night(1, make_result("node-1"), make_result("node-2"), states={"node-1": State.BREACH}))
    history.record(night(2, make_result("node-1"), make_result("node-2"), states={"node-1": state, "node-2": state}))
    assert [breach.node for breach in history.open_breaches()] == ["node-1"]


def test_a_node_that_is_still_slow_within_its_limit_closes_no_breach(history: History) -> None:
    history.record(night(1, make_result(), states={"node-1": State.BREACH}))
    within = night(2, make_result())
    (group,) = within.groups
    slow = group.nodes[0].model_copy(update={"is_watched": True})
    history.record(within.model_copy(update={"groups": (group.model_copy(update={"nodes": (slow,)}),)}))
    assert [breach.node for breach in history.open_breaches()] == ["node-1"]


def test_a_missing_node_is_a_breach_without_a_figure(history: History) -> None:
    history.record(night(1, make_result("node-1"), states={"node-9": State.MISSING}))
    (breach,) = history.open_breaches()
    assert (breach.node, breach.state, breach.figure) == ("node-9", State.MISSING, None)


def test_a_drill_is_over_with_its_campaign_and_says_nothing_of_the_node(history: History) -> None:
    """Its breach is never left open, it does not hide a real one, and one that is not found closes none."""
    drill = make_result(drill=Drill(slowdown_pct=50))
    for _ in range(2):  # recorded again it is the same
        history.record(night(1, drill, states={"node-1": State.BREACH}))
    (row,) = rows(history, breaches)
    assert (row["is_drill"], row["closed_by_campaign_id"]) == (True, "night-1")
    assert history.open_breaches() == ()

    history.record(night(2, make_result(), states={"node-1": State.BREACH}))
    history.record(night(3, drill))
    assert [breach.is_drill for breach in history.open_breaches()] == [False]
    history.record(night(4, make_result()))
    assert history.open_breaches() == ()


def test_a_breach_of_one_work_is_not_closed_by_being_well_at_another(history: History) -> None:
    """[J13] The node is slow at 512 tokens; somebody checks it at 2,048."""
    history.record(night(1, make_result(), states={"node-1": State.BREACH}))
    history.record(night(2, make_result(seq_length=2048)))
    assert [breach.campaign_id for breach in history.open_breaches()] == ["night-1"]


def test_an_old_campaign_recorded_late_opens_no_breach_that_is_over(history: History) -> None:
    history.record(night(2, make_result(), states={"node-1": State.BREACH}))
    history.record(night(3, make_result()))
    history.record(night(1, make_result(), states={"node-1": State.BREACH}))
    assert history.open_breaches() == ()


def test_recording_an_old_campaign_again_changes_no_breach(history: History) -> None:
    nights = [
        night(1, make_result(), states={"node-1": State.BREACH}),
        night(2, make_result(), states={"node-1": State.BREACH}),
        night(3, make_result()),
        night(4, make_result(), states={"node-1": State.FAILED}),
    ]
    for campaign in nights:
        history.record(campaign)
    before = rows(history, breaches)
    for campaign in nights:
        history.record(campaign)
    assert rows(history, breaches) == before
    assert [breach.campaign_id for breach in history.open_breaches()] == ["night-4"]


def test_a_campaign_that_is_recorded_again_later_moves_no_breach(history: History) -> None:
    """Its DAG run was cleared and published once more: the node has been red since the first time."""
    first = night(1, make_result(), states={"node-1": State.BREACH})
    history.record(first)
    history.record(first.model_copy(update={"finished_at": first.finished_at + timedelta(hours=5)}))
    (breach,) = history.open_breaches()
    assert breach.opened_at == first.finished_at


def test_two_campaigns_that_are_recorded_at_once_open_one_breach(history: History) -> None:
    """A DAG run, and one by hand that ends in the same minute."""
    history.record(night(1, make_result()))
    red = [night(day, make_result(), states={"node-1": State.BREACH}) for day in range(2, 6)]
    with ThreadPoolExecutor(len(red)) as recorders:
        list(recorders.map(history.record, red))
    (breach,) = history.open_breaches()
    assert breach.opened_at == red[0].finished_at


def test_a_breach_ends_a_week_after_its_node_was_taken_out_of_the_cluster(history: History) -> None:
    """Nobody can find it well again, and its banner would stay for ever. By hand, or in quarantine, it is not gone."""
    history.record(night(1, make_result("node-1"), make_result("node-2"), states={"node-1": State.BREACH}))
    quiet = Finding(
        level=Level.INFO, category=ABSENT, nodes=("node-1",), measured="", expected="", summary="in quarantine",
        resolution="nothing to do",
    )  # fmt: skip
    history.record(night(8, make_result("node-2")))
    history.record(night(9, make_result("node-2")).model_copy(update={"findings": (quiet,)}))
    history.record(night(10, make_result("node-2")).model_copy(update={"params": {"nodes": ["node-2"]}}))
    assert [breach.node for breach in history.open_breaches()] == ["node-1"]

    history.record(night(11, make_result("node-2")))
    (row,) = rows(history, breaches)
    assert (row["closed_by_campaign_id"], row["ended"]) == ("night-11", "no longer in the cluster")


def test_a_breach_recorded_late_moves_the_start_of_the_open_one_back(history: History) -> None:
    history.record(night(5, make_result(), states={"node-1": State.BREACH}))
    history.record(night(4, make_result(), states={"node-1": State.BREACH}))
    assert [breach.campaign_id for breach in history.open_breaches()] == ["night-4"]


# --- the database -----------------------------------------------------------------------------------------------------


def test_reindex_rebuilds_the_history_from_the_store(history: History, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    nights = [
        night(1, make_result(), states={"node-1": State.BREACH}),
        night(2, make_result()),
        night(10, make_result("node-2"), states={"node-2": State.BREACH}),
    ]
    for campaign in nights:
        store.write_campaign(campaign)
    broken = Path(store.write_campaign(night(3, make_result())))
    broken.write_text("{")
    done = reindex(store, history)
    assert len(done.recorded) == 3
    assert [str(broken) in file.reason for file in done.broken] == [True]
    assert len(rows(history, runs)) == 3
    assert [breach.node for breach in history.open_breaches()] == ["node-2"]


def test_the_migration_builds_exactly_the_tables(history: History) -> None:
    with history.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_opening_again_changes_nothing(history: History, url: str) -> None:
    history.record(night(1, make_result()))
    assert len(rows(open_history(url), runs)) == 1


OPEN_AND_RECORD = """
import sys
from tests.unit.history.test_history import night, make_result, open_history
open_history(sys.argv[1]).record(night(int(sys.argv[2]), make_result()))
"""


def test_processes_that_open_a_fresh_database_at_once_do_not_disturb_each_other(url: str) -> None:
    """They start together, all find no schema, and each records a campaign of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_AND_RECORD, url, str(day)], env=environment, stderr=subprocess.PIPE, text=True
        )
        for day in (1, 2, 3)
    ]
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    assert sorted(row["campaign_id"] for row in rows(open_history(url), runs)) == ["night-1", "night-2", "night-3"]


def test_a_campaign_that_cannot_be_recorded_leaves_the_old_one(history: History) -> None:
    history.record(night(1, make_result(samples_per_s=9.5)))
    with history.engine.begin() as connection:
        connection.execute(text("DROP TABLE breaches"))
    with pytest.raises(HistoryError):
        history.record(night(1, make_result(samples_per_s=1.0)))
    assert [row["samples_per_second"] for row in rows(history, runs)] == [9.5]


def test_of_a_run_that_came_back_twice_the_later_one_is_recorded(history: History) -> None:
    campaign = night(1, make_result(samples_per_s=2.0), make_result(samples_per_s=1.0))
    late = campaign.results[0].finished_at + timedelta(minutes=5)
    twice = (campaign.results[0].model_copy(update={"finished_at": late}), campaign.results[1])
    history.record(campaign.model_copy(update={"results": twice}))
    assert [row["samples_per_second"] for row in rows(history, runs)] == [2.0]


def test_queries_of_the_dashboard_have_an_index(history: History) -> None:
    names = {index["name"] for index in inspect(history.engine).get_indexes("runs")}
    assert names == {"runs_by_node", "runs_by_group", "runs_by_time", "runs_by_work", "runs_by_work_id"}


def test_the_database_lies_beside_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINBENCH_HISTORY_URL", raising=False)
    monkeypatch.setenv("TRAINBENCH_STORE", str(tmp_path / "data" / "store"))
    open_history()
    assert (tmp_path / "data" / "history.sqlite").is_file()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("nonsense", "allowed are sqlite:///FILE and postgresql"),
        ("mysql://user:secret@host/db", "'mysql': allowed are"),
        ("sqlite://", "keeps nothing"),
        ("sqlite:////proc/no/history.sqlite", "/proc/no"),
        ("postgresql+psycopg://user:secret@127.0.0.1:1/db", "TRAINBENCH_HISTORY_URL|psycopg"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_sentence_without_the_password(bad: str, said: str) -> None:
    with pytest.raises(HistoryError, match=said) as caught:
        open_history(bad)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_remote_store_needs_a_database_by_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINBENCH_HISTORY_URL", raising=False)
    with pytest.raises(HistoryError, match="set TRAINBENCH_HISTORY_URL"):
        open_history(store=open_store("memory://bucket/store"))


@pytest.mark.parametrize("revision", ["0011", "9999"])
def test_a_history_of_another_version_is_refused_with_the_way_out(history: History, url: str, revision: str) -> None:
    with history.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})
    with pytest.raises(HistoryError, match="was written by another version of trainbench") as refused:
        open_history(url)
    assert "an empty database, and `trainbench reindex` fills it" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_text("this is not a database, it is a text of some length")
    with pytest.raises(HistoryError, match="not a database"):
        open_history(f"sqlite:///{tmp_path}/history.sqlite")


def test_status_words_are_the_contracts(history: History) -> None:
    history.record(night(1, *(make_failed(f"node-{s}", status=s) for s in (Status.OOM, Status.TIMEOUT))))
    assert [row["status"] for row in rows(history, runs)] == ["oom", "timeout"]


def test_when_each_node_was_last_measured(history: History) -> None:
    """Failed runs and drills are no measurement."""
    history.record(night(1, make_result("node-1"), make_result("node-2")))
    history.record(
        night(2, make_result("node-1"), make_failed("node-2"), make_result("node-3", drill=Drill(slowdown_pct=50)))
    )

    assert {node: at.date() for node, at in history.last_measured(DAY_1 - timedelta(days=1)).items()} == {
        "node-1": (DAY_1 + timedelta(days=1)).date(),
        "node-2": DAY_1.date(),
    }
    assert set(history.last_measured(DAY_1 + timedelta(hours=12))) == {"node-1"}


def test_since_when_each_node_could_not_be_judged(history: History) -> None:
    both = (make_result("node-1"), make_result("node-2"))
    noisy = {"node-1": State.INSUFFICIENT}
    for day, states in enumerate([{}, noisy, {"node-1": State.BUSY}, noisy, {"node-2": State.INSUFFICIENT}], start=1):
        history.record(night(day, *both, states=states))
    ended = DAY_1 + timedelta(hours=1)

    assert history.undecided_before("node_consistency", "", ended + timedelta(days=4)) == {
        "node-1": Streak(ended + timedelta(days=1), 2)
    }
    assert set(history.undecided_before("node_consistency", "night-5", ended + timedelta(days=9))) == {"node-1"}
    assert set(history.undecided_before("node_consistency", "", ended + timedelta(days=9))) == {"node-2"}
    assert history.undecided_before("another_dag", "", ended + timedelta(days=9)) == {}


def test_work_that_ran_on_one_node_only_makes_nobody_undecided_who_was_judged_beside_it(history: History) -> None:
    both = night(1, make_result("node-1"), make_result("node-2"))
    alone = night(1, make_result("node-1", seq_length=1024), states={"node-1": State.INSUFFICIENT})
    costs = (*both.costs, *alone.costs)
    history.record(both.model_copy(update={
        "results": (*both.results, *alone.results), "groups": (*both.groups, *alone.groups), "costs": costs,
    }))  # fmt: skip
    assert history.undecided_before("node_consistency", "", DAY_1 + timedelta(days=9)) == {}


def test_a_run_keeps_what_it_was_paid_for(history: History) -> None:
    """A gang of two nodes with one GPU each, $0.60 per GPU-hour; each GPU took 27,000 J."""
    gang = make_result("node-1", strategy="ddp", nodes=2, gpus_per_node=1, peers=("node-2",))
    history.record(night(1, gang))
    names = ("peers", "world_size", "micro_batch_size", "seq_length", "usd_per_gpu_hour", "energy_per_sample_j")
    with history.engine.begin() as connection:
        (row,) = connection.execute(select(*(runs.c[name] for name in names))).all()

    assert tuple(row)[:4] == ("node-2", 2, 8, 512)
    assert row.usd_per_gpu_hour == _cost(gang).usd_per_gpu_hour
    assert row.energy_per_sample_j == 67.0


def test_the_sum_of_a_node_s_gpus_is_what_was_paid_for_and_its_slowest_gpu_is_its_past(history: History) -> None:
    """GPUs at 10 and 9: 19 samples/s were paid for; the node is compared with 9."""
    history.record(night(1, make_independent("node-1", (10.0, 9.0))))
    with history.engine.begin() as connection:
        (row,) = connection.execute(select(runs.c.samples_per_second, runs.c.judged_samples_per_second)).all()
        (work,) = connection.execute(select(works.c.samples_per_second)).scalars().all()

    assert tuple(row) == (19.0, 9.0)
    assert work == 19.0
    later = make_independent("node-1", (10.0, 9.5)).model_copy(update={"started_at": DAY_1 + timedelta(days=3)})
    assert history.baseline_rates([later]) == [[9.0]]
    (point,) = history.node_records([later.effective_spec.fingerprint], "other", DAY_1 + timedelta(days=3))
    assert point.samples_per_second == 9.0
