"""The pages' queries, on three nights made by hand, on SQLite and where there is one on PostgreSQL.

node_consistency: four nodes, the reference is 10 samples/s.
    day 1: node-3 breaches with 9.0 (-10 %);  day 2: all well, node-10 at 9.8 (-2 %);  day 3: node-2 is missing.
somebody_elses, which the reader may not see: on day 3 node-9 breaches, with gpt2.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import event

from bench_image.contract.options import Strategy
from bench_image.contract.spec import Drill
from tests.builders import make_failed, make_result
from tests.builders.databases import DATABASES, empty_database
from tests.builders.nights import ENDED_AT, night
from tests.builders.verdicts import make_group, make_metric, make_node
from trainbench.core.verdicts import HistoryVerdict, Metric, State
from trainbench.history.database import HistoryError
from trainbench.history.history import History, open_history
from trainbench.judging.condition import Condition
from trainbench.pages.reads import queries
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.rows import EventKind, RunSort
from trainbench.params.campaign_kind import Question

SEEN, HIDDEN = "node_consistency", "somebody_elses"
DAY_3 = date(2026, 11, 3)
ALL = Filters()
HOSTILE = "=cmd|' /C calc'!A0\n<script>alert(1)</script>"


def nights(history: History) -> History:
    well = {"node-1": 10.1, "node-2": 10.0, "node-3": 10.0, "node-10": 10.0}
    history.record(night(1, well | {"node-3": 9.0}, {"node-3": State.BREACH}))
    history.record(night(2, well | {"node-10": 9.8}))
    history.record(night(3, {name: rate for name, rate in well.items() if name != "node-2"}, {"node-2": State.MISSING}))
    others = [make_result("node-9", 4.0, model="gpt2", gpu_name="NVIDIA A10")]
    history.record(
        night(3, others, {"node-9": State.BREACH}, suite=HIDDEN, campaign_id="hidden-3", gpu_name="NVIDIA A10")
    )
    return history


@pytest.fixture(scope="module", params=DATABASES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> History:
    """To be read only."""
    return nights(open_history(empty_database(request.param, tmp_path_factory.mktemp("pages"))))


@pytest.fixture
def pages(recorded: History) -> Pages:
    return Pages(recorded.engine, {SEEN, "a DAG that never ran"})


def everything(pages: Pages, filters: Filters) -> Iterator[Any]:
    yield pages.choices()
    yield pages.overview(filters, DAY_3)
    yield pages.heat_map(filters, DAY_3)
    yield pages.open_breaches(filters)
    yield pages.closed_breaches(filters)
    yield pages.strategies(filters)
    yield pages.costs(filters)
    yield from (pages.runs(filters, sort=sort) for sort in RunSort)
    yield from (pages.node(f"node-{i}", filters) for i in (1, 2, 3, 9, 10))
    yield "".join(pages.runs_csv(filters))


# --- who sees what ----------------------------------------------------------------------------------------------------


def test_a_dag_that_one_may_not_see_is_nowhere_not_even_in_a_number(recorded: History, pages: Pages) -> None:
    everything_read = "\n".join(map(str, everything(pages, ALL)))
    assert [word for word in ("hidden", HIDDEN, "node-9", "gpt2", "A10") if word in everything_read] == []
    overview = pages.overview(ALL, DAY_3)
    assert (overview.num_nodes, overview.num_red, overview.num_runs) == (4, 1, 11)
    theirs = Pages(recorded.engine, {HIDDEN}).overview(ALL, DAY_3)
    assert (theirs.num_nodes, theirs.num_red, theirs.num_runs) == (1, 1, 1)
    assert theirs.last_campaign
    assert theirs.last_campaign.campaign_id == "hidden-3"


def test_whoever_may_see_nothing_sees_an_empty_page(recorded: History) -> None:
    nobody = Pages(recorded.engine, set())
    assert nobody.overview(ALL, DAY_3).num_nodes == 0
    assert nobody.heat_map(ALL, DAY_3).rows == ()
    assert nobody.open_breaches(ALL).num_total == 0
    assert nobody.runs(ALL).num_total == 0
    assert asdict(nobody.choices()) == dict.fromkeys(("gpu_names", "models", "recipes", "strategies", "dag_ids"), ())


def test_a_run_or_a_breach_of_another_dag_looks_like_one_that_is_not_there(recorded: History, pages: Pages) -> None:
    (their_breach,) = Pages(recorded.engine, {HIDDEN}).open_breaches(ALL).rows
    (their_run,) = Pages(recorded.engine, {HIDDEN}).runs(ALL).rows
    assert pages.breach(their_breach.id) is None
    assert pages.run("hidden-3", their_run.run_id) is None
    assert Pages(recorded.engine, {HIDDEN}).run("hidden-3", their_run.run_id) is not None


@pytest.mark.parametrize("text", ["\x00", "\ud800", "a" * 10_000, "'; DROP TABLE runs; --", HOSTILE, "", "%"])
def test_a_name_from_outside_finds_nothing_and_breaks_nothing(pages: Pages, text: str) -> None:
    assert pages.node(text, ALL) is None
    assert pages.run(text, text) is None


@pytest.mark.parametrize("number", [-1, 0, 2**31, 10**30])
def test_a_breach_that_cannot_be_is_not_there(pages: Pages, number: int) -> None:
    assert pages.breach(number) is None


def test_an_empty_database_has_empty_pages(history: History) -> None:
    empty = Pages(history.engine, {SEEN})
    everything_read = list(everything(empty, ALL))
    assert everything_read[1].last_campaign is None
    assert (everything_read[1].spend_usd, everything_read[1].num_runs) == (None, 0)
    assert (everything_read[2].rows, everything_read[2].num_pages) == ((), 1)
    assert everything_read[6].total.usd is None
    assert everything_read[-1].splitlines() == [",".join(pages_columns())]


def pages_columns() -> tuple[str, ...]:
    from trainbench.pages.reads.export import COLUMNS

    return COLUMNS


def test_a_database_that_is_away_is_told_in_one_sentence(history: History, tmp_path: Any) -> None:
    away = history.engine.url.set(database=str(tmp_path / "no" / "such" / "folder" / "file.sqlite"))
    if history.engine.dialect.name != "sqlite":
        away = away.set(database="nosuch")
    from trainbench.history.database import connect

    with pytest.raises(HistoryError, match=r"^history "):
        Pages(connect(away.render_as_string(hide_password=False)), {SEEN}).choices()


def test_a_database_that_could_not_be_opened_is_left_alone_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads meanwhile are refused at once; later it is tried again."""
    now, asked = [100.0], []

    def away(url: str, store: Any) -> Any:
        asked.append(url)
        raise HistoryError("no answer")

    monkeypatch.setattr(queries, "open_history", away)
    monkeypatch.setattr(queries.time, "monotonic", lambda: now[0])
    for at in (100.0, 101.0, 100.0 + queries.KEEP_FAILURE_S):
        now[0] = at
        with pytest.raises(HistoryError, match="no answer"):
            queries.open_engine("postgresql://away", None)

    assert len(asked) == 2


# --- filters ----------------------------------------------------------------------------------------------------------


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
        ({"until": date(2026, 11, 2)}, 8),
        ({"since": date(2026, 11, 2), "until": date(2026, 11, 2)}, 4),
        ({"gpu_name": "NVIDIA A10"}, 0),
        ({"strategy": "zero3"}, 0),
        ({"model": "gpt2"}, 0),
        ({"since": date(2027, 1, 1)}, 0),
        ({"since": date(2000, 1, 1), "until": date(2999, 12, 31)}, 11),
        ({"until": date(2000, 1, 1)}, 0),
    ],
)
def test_every_list_has_the_same_filters(pages: Pages, chosen: dict[str, Any], num_runs: int) -> None:
    filters = Filters(**chosen)
    assert pages.runs(filters).num_total == len(pages.runs(filters).rows) == num_runs
    assert pages.costs(filters).total.num_runs == num_runs
    assert len("".join(pages.runs_csv(filters)).splitlines()) == num_runs + 1
    assert sum(row.num_runs for row in pages.strategies(filters).rows) == num_runs
    assert len(list(everything(pages, filters))) == 18


def test_what_a_form_sends_is_checked() -> None:
    assert Filters.model_validate({"gpu_name": "", "since": "", "until": "2026-11-02"}) == Filters(
        until=date(2026, 11, 2)
    )
    for bad in (
        {"since": "yesterday"},
        {"since": "0001-01-01"},
        {"until": "9999-12-31"},
        {"model": "\x00"},
        {"model": "x" * 301},
        {"colour": "red"},
    ):
        with pytest.raises(ValidationError):
            Filters.model_validate(bad)
    with pytest.raises(ValidationError, match="since 2026-11-02 is after until 2026-11-01"):
        Filters(since=date(2026, 11, 2), until=date(2026, 11, 1))


# --- overview and map -------------------------------------------------------------------------------------------------


def test_the_overview_counts_the_last_days(pages: Pages) -> None:
    """11 runs of 55 s on one GPU at $0.60: 11 x 55 / 3600 = 0.16806 GPU-hours, $0.10083."""
    overview = pages.overview(ALL, DAY_3)
    assert (overview.num_nodes, overview.num_measured, overview.num_red) == (4, 4, 1)
    assert (overview.num_acknowledged, overview.num_warned) == (0, 0)
    assert overview.gpu_hours == pytest.approx(0.168056, rel=1e-4)
    assert overview.spend_usd == pytest.approx(0.100833, rel=1e-4)
    assert (overview.measured_since, overview.spend_since) == (date(2026, 10, 28), date(2026, 10, 5))
    assert overview.last_campaign
    assert (overview.last_campaign.campaign_id, overview.last_campaign.dag_run_id) == ("night-3", "scheduled__3")
    assert (overview.last_campaign.num_runs, overview.last_campaign.num_nodes, overview.last_campaign.num_red) == (
        3, 4, 1,
    )  # fmt: skip


def test_a_node_that_was_only_missing_is_counted_but_not_measured(pages: Pages) -> None:
    overview = pages.overview(Filters(since=DAY_3), DAY_3)
    assert (overview.num_nodes, overview.num_measured) == (4, 3)


def test_a_fleet_that_nobody_measured_for_a_week_is_told_as_such(pages: Pages) -> None:
    later = pages.overview(ALL, DAY_3 + timedelta(days=7))
    assert (later.num_nodes, later.num_measured, later.num_red) == (0, 0, 1)


def test_the_map_puts_the_node_that_was_red_last_first_and_sorts_the_rest_by_number(pages: Pages) -> None:
    heat = pages.heat_map(ALL, DAY_3, days=3)
    assert heat.days == ("2026-11-01", "2026-11-02", "2026-11-03")
    assert [row.node for row in heat.rows] == ["node-2", "node-3", "node-1", "node-10"]
    assert [[cell.condition.value if cell else None for cell in row.cells] for row in heat.rows] == [
        ["well", "well", "missing"],
        ["breach", "well", "well"],
        ["well", "well", "well"],
        ["well", "well", "well"],
    ]
    assert (heat.num_nodes, heat.num_red_nodes, heat.page, heat.num_pages) == (4, 2, 1, 1)
    assert [row.num_red_days for row in heat.rows] == [1, 1, 0, 0]
    missing, slow = heat.rows[0].cells[2], heat.rows[1].cells[0]
    assert missing
    assert slow
    assert (missing.deviation_pct, missing.num_verdicts) == (None, 1)
    assert slow.deviation_pct == pytest.approx(-10.0)
    assert (slow.campaign_id, slow.dag_id, slow.dag_run_id) == ("night-1", SEEN, "scheduled__1")
    assert heat.rows[0].gpu_name == "NVIDIA H200"


def test_the_map_ends_with_the_filters_and_shows_days_without_a_verdict(pages: Pages) -> None:
    heat = pages.heat_map(Filters(until=date(2026, 11, 1)), DAY_3, days=2)
    assert heat.days == ("2026-10-31", "2026-11-01")
    assert [row.node for row in heat.rows] == ["node-3", "node-1", "node-2", "node-10"]
    assert all(row.cells[0] is None for row in heat.rows)


@pytest.mark.parametrize("days", [-5, 0, 1, 10**9])
def test_the_map_has_at_least_a_day_and_at_most_a_quarter(pages: Pages, days: int) -> None:
    assert len(pages.heat_map(ALL, DAY_3, days=days).days) == (92 if days > 1 else 1)


def test_pages_of_the_map(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainbench.pages.reads.fleet.NODES_ON_PAGE", 3)
    found = [pages.heat_map(ALL, DAY_3, page=page) for page in (-1, 1, 2, 99)]
    assert [(heat.page, [row.node for row in heat.rows]) for heat in found] == [
        (1, ["node-2", "node-3", "node-1"]),
        (1, ["node-2", "node-3", "node-1"]),
        (2, ["node-10"]),
        (2, ["node-10"]),
    ]


def test_a_day_of_several_campaigns_shows_the_worst_of_them(history: History) -> None:
    """node-1 is at -3 % in the morning and at +1 % in the evening, and busy at noon."""
    for hour, rate, state in ((1, 9.7, State.NOTICE), (2, 10.0, State.BUSY), (3, 10.1, State.OK)):
        campaign = night(1, {"node-1": rate}, {"node-1": state}, campaign_id=f"hour-{hour}", dag_run_id=f"run-{hour}")
        moved = campaign.finished_at + timedelta(hours=hour)
        history.record(campaign.model_copy(update={"finished_at": moved}))
    (row,) = Pages(history.engine, {SEEN}).heat_map(ALL, date(2026, 11, 1), days=1).rows
    (cell,) = row.cells
    assert cell
    assert (cell.condition, cell.campaign_id, cell.dag_run_id, cell.num_verdicts) == (
        Condition.WATCHED, "hour-1", "run-1", 3,
    )  # fmt: skip
    assert cell.deviation_pct == pytest.approx(-3.0)


# --- breaches ---------------------------------------------------------------------------------------------------------


def test_an_open_breach_tells_what_why_and_what_to_do(pages: Pages) -> None:
    found = pages.open_breaches(ALL)
    (breach,) = found.rows
    assert found.num_total == 1
    assert (breach.node, breach.state, breach.figure) == ("node-2", State.MISSING, None)
    assert (breach.finding.cause, breach.finding.resolution) == (
        "node-2 is hot: its fans stand still",
        "look at the fans of node-2",
    )
    assert (breach.dag_id, breach.dag_run_id, breach.campaign_id) == (SEEN, "scheduled__3", "night-3")
    assert (breach.gpu_name, breach.model, breach.recipe, breach.strategy) == (
        "NVIDIA H200", "mistral-7b", "qlora", "single",
    )  # fmt: skip
    assert breach.opened_at == ENDED_AT + timedelta(days=2)
    assert breach.acknowledgement is None
    assert pages.breach(breach.id) == breach


def test_a_closed_breach_tells_when_and_by_which_campaign(pages: Pages) -> None:
    (breach,) = pages.closed_breaches(ALL).rows
    assert breach.figure is not None
    assert (breach.node, breach.figure.metric) == ("node-3", Metric.SAMPLES_PER_SECOND)
    assert breach.figure.deviation == pytest.approx(-10.0)
    assert (breach.closed_at, breach.closed_by_campaign_id) == (ENDED_AT + timedelta(days=1), "night-2")
    assert pages.closed_breaches(Filters(since=DAY_3)).rows == ()


def test_the_time_does_not_hide_what_is_wrong_now_but_other_filters_narrow_it(pages: Pages) -> None:
    assert pages.open_breaches(Filters(until=date(2026, 11, 1))).num_total == 1
    assert pages.open_breaches(Filters(strategy="zero3")).num_total == 0


def test_a_long_list_of_breaches_is_cut_and_counted(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history.record(night(1, {"node-1": 10.0}, {f"node-{i}": State.MISSING for i in range(2, 8)}))
    monkeypatch.setattr("trainbench.pages.reads.breach_rows.MAX_BREACHES", 4)
    found = Pages(history.engine, {SEEN}).open_breaches(ALL)
    assert (len(found.rows), found.num_total) == (4, 6)


def test_a_short_list_of_closed_breaches_counts_all_of_them(history: History) -> None:
    rates = {f"node-{i}": 10.0 for i in range(3)}
    history.record(night(1, rates, dict.fromkeys(rates, State.BREACH)))
    history.record(night(2, rates))
    found = Pages(history.engine, {SEEN}).closed_breaches(ALL, 2)

    assert (len(found.rows), found.num_total) == (2, 3)


def test_all_reads_of_a_page_may_share_a_connection(recorded: History, pages: Pages) -> None:
    opened: list[Any] = []

    def count(connection: Any, _record: Any) -> None:
        opened.append(connection)

    event.listen(recorded.engine, "connect", count)
    try:
        with pages.at_once() as seen:
            together = [str(part) for part in everything(seen, ALL)]
        assert len(opened) == 1
    finally:
        event.remove(recorded.engine, "connect", count)
    assert together == [str(part) for part in everything(pages, ALL)]


def test_a_drill_asks_nobody_for_attention_once_its_run_is_over(history: History) -> None:
    drilled = make_result("node-1", 5.0, drill=Drill(slowdown_pct=50))
    history.record(night(1, [drilled, make_result("node-2", 10.0)], {"node-1": State.BREACH}, drilled=["node-1"]))
    pages = Pages(history.engine, {SEEN})
    before = pages.overview(ALL, date(2026, 11, 1))
    assert before.summary.headline == "1 of 2 nodes was slowed on purpose: node-1; 1 is well."
    assert before.num_red == 0
    history.record(night(2, {"node-2": 9.0}, {"node-2": State.BREACH}))
    overview = pages.overview(ALL, date(2026, 11, 2), ENDED_AT + timedelta(days=1))
    assert overview.summary.headline == "1 of 2 nodes is in breach: node-2; 1 was slowed on purpose: node-1."
    assert [row.node for row in pages.open_breaches(ALL).rows] == ["node-2"]
    assert [(row.node, row.ended) for row in pages.closed_breaches(ALL).rows] == [("node-1", "over with its run")]


# --- one node ---------------------------------------------------------------------------------------------------------


def test_a_node_has_a_series_for_each_work_oldest_first(pages: Pages) -> None:
    """9.0, 10.0, 10.0 samples/s against 10: -10, 0 and 0 %."""
    found = pages.node("node-3", ALL)
    assert found
    (series,) = found.series
    assert (series.model, series.recipe, series.strategy, series.gpu_name) == (
        "mistral-7b", "qlora", "single", "NVIDIA H200",
    )  # fmt: skip
    assert [point.samples_per_second for point in series.points] == [9.0, 10.0, 10.0]
    assert [point.deviation_pct for point in series.points] == pytest.approx([-10.0, 0.0, 0.0])
    assert [point.peers_samples_per_second for point in series.points] == pytest.approx([10.0, 10.0, 10.0])
    assert [point.state for point in series.points] == [State.BREACH, State.OK, State.OK]
    assert [point.campaign_id for point in series.points] == ["night-1", "night-2", "night-3"]
    assert [point.at for point in series.points] == [ENDED_AT + timedelta(days=i) for i in range(3)]
    run = series.points[0].run_id
    assert run
    assert pages.run("night-1", run)
    assert not found.is_cut


def test_each_point_has_the_limits_of_its_campaign(history: History) -> None:
    """What was never judged has no limit; neither has what a version without this column recorded."""
    tight = make_metric(10.0, 10.0, limit=3.0), make_metric(7.0, 7.0, metric=Metric.MEMORY_GB, limit=1.0)
    nights(history).record(
        night(
            4, {"node-1": 10.0}, groups=[make_group([make_node("node-1", tight)], make_result().spec.identity.group_id)]
        )
    )
    found = Pages(history.engine, {SEEN}).node("node-1", ALL)
    assert found is not None
    (series,) = found.series

    limits = [(p.samples_per_second_limit_pct, p.memory_limit_pct, p.temperature_limit_c) for p in series.points]
    assert limits == [*[(5.0, None, None)] * 3, (3.0, 1.0, None)]


def test_a_missing_node_is_a_point_without_a_figure(pages: Pages) -> None:
    found = pages.node("node-2", ALL)
    assert found
    last = found.series[0].points[-1]
    assert (last.state, last.samples_per_second, last.peers_samples_per_second, last.run_id) == (
        State.MISSING, None, None, None,
    )  # fmt: skip
    assert [breach.node for breach in found.open_breaches] == ["node-2"]


def test_the_past_that_a_node_was_compared_with_is_a_line_of_its_own(history: History) -> None:
    result = make_result("node-1", 9.7)
    past = HistoryVerdict(
        node="node-1",
        group_id=result.spec.identity.group_id,
        state=State.BREACH,
        samples_per_second=9.7,
        baseline_median=10.0,
        deviation_pct=-3.0,
        limit_pct=1.5,
        num_points=9,
        reason="slower than last week",
    )
    history.record(night(1, [result], history=(past,)))
    pages = Pages(history.engine, {SEEN})
    found = pages.node("node-1", ALL)
    assert found
    (point,) = found.series[0].points
    assert (point.own_median_samples_per_second, point.history_deviation_pct, point.history_state) == (
        10.0, -3.0, State.BREACH,
    )  # fmt: skip
    (cell,) = pages.heat_map(ALL, date(2026, 11, 1), days=1).rows[0].cells
    assert cell
    assert cell.condition is Condition.BEHIND


def test_what_happened_to_a_node_is_told_newest_first(history: History) -> None:
    history.record(night(1, [make_result("node-1", driver="580.1")]))
    history.record(night(2, [make_result("node-1", driver="580.2", libraries={"torch": "2.14.0"})]))
    history.record(night(3, [make_result("node-1", driver="580.2", libraries={"torch": "2.14.0"})]))
    other = [make_result("node-1", driver="590.0")]
    history.record(night(3, other, suite=HIDDEN, campaign_id="hidden-3"))
    found = Pages(history.engine, {SEEN}).node("node-1", ALL)
    assert found
    assert sorted((event.what, event.was, event.now, event.campaign_id) for event in found.events) == [
        ("driver", "580.1", "580.2", "night-2"),
        ("torch", "2.13.0", "2.14.0", "night-2"),
    ]
    assert {event.kind for event in found.events} == {EventKind.SETUP}
    assert found.events[0].text == "driver went from 580.1 to 580.2"


def test_another_gpu_is_an_event_only_if_it_was_never_seen_there(history: History) -> None:
    for day, gpu_name in enumerate(("NVIDIA H200", "NVIDIA H100", "NVIDIA H100"), start=1):
        history.record(night(day, [make_result("node-1", gpu_name=gpu_name)]))
    swapped = make_result("node-1", gpu_name="NVIDIA H100")
    assert swapped.context
    gpu = swapped.context.gpus[0].model_copy(update={"uuid": "GPU-new"})
    context = swapped.context.model_copy(update={"gpus": (gpu,)})
    for day in (4, 5):
        history.record(night(day, [swapped.model_copy(update={"context": context})]))
    history.record(night(6, [make_result("node-1", gpu_name="NVIDIA H100")]))
    found = Pages(history.engine, {SEEN}).node("node-1", ALL)
    assert found
    assert [(event.what, event.was, event.now, event.campaign_id) for event in found.events] == [
        ("GPUs", None, "GPU-new", "night-4"),
        ("GPU", "NVIDIA H200", "NVIDIA H100", "night-2"),
    ]


def test_a_breach_is_an_event_when_it_opens_and_when_it_closes(pages: Pages) -> None:
    found = pages.node("node-3", ALL)
    assert found
    assert [(event.kind, event.campaign_id, event.text) for event in found.events] == [
        (EventKind.BREACH_CLOSED, "night-2", "well again"),
        (EventKind.BREACH_OPENED, "night-1", "breach, node-3 is breach"),
    ]


def test_a_long_series_is_cut_at_its_old_end_and_says_so(recorded: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainbench.pages.reads.node_trends.MAX_POINTS", 2)
    found = Pages(recorded.engine, {SEEN}).node("node-3", ALL)
    assert found
    assert [point.campaign_id for point in found.series[0].points] == ["night-2", "night-3"]
    assert found.is_cut


# --- strategies and costs ---------------------------------------------------------------------------------------------


def study(history: History) -> Pages:
    """Two weeks of ddp on 1, 2 and 4 GPUs; the second week's run on 4 GPUs fails."""

    def ran(strategy: Strategy, gpus: int, rate: float) -> Any:
        return make_result("node-1", rate, strategy=strategy, gpus_per_node=gpus)

    week_1 = [ran(Strategy.SINGLE, 1, 10.0), ran(Strategy.DDP, 2, 18.0), ran(Strategy.FSDP, 2, 19.0)]
    week_2 = [ran(Strategy.SINGLE, 1, 12.0), ran(Strategy.DDP, 2, 20.0)]
    broken = make_failed("node-1", strategy=Strategy.DDP, gpus_per_node=4)
    fields: dict[str, Any] = {"question": Question.STRATEGIES, "groups": (), "suite": "strategy_scaling"}
    history.record(night(1, week_1, **fields))
    history.record(night(8, [*week_2, broken], **fields))
    return Pages(history.engine, {"strategy_scaling"})


def test_strategies_are_medians_over_the_campaigns_and_placed_within_equal_work(history: History) -> None:
    """single: (10 + 12) / 2 = 11. ddp on 2: (18 + 20) / 2 = 19, its efficiencies 90 and 83.33 %, median 86.67 %.
    fsdp on 2 ran once, at 19: both have 19 x 512 tokens/s, and the name decides.
    """
    rows = study(history).strategies(ALL).rows
    assert [(row.strategy, row.world_size, row.samples_per_second, row.place) for row in rows] == [
        ("single", 1, 11.0, 1),
        ("ddp", 2, 19.0, 1),
        ("fsdp", 2, 19.0, 2),
        ("ddp", 4, None, None),
    ]
    ddp = rows[1]
    assert ddp.efficiency_pct == pytest.approx((90 + 100 * (20 / 2) / 12) / 2)
    assert ddp.tokens_per_second == 19.0 * 512
    assert (ddp.memory_gb, ddp.num_campaigns, ddp.num_runs, ddp.num_failed) == (7.1, 2, 2, 0)
    assert (rows[3].num_runs, rows[3].num_failed, rows[3].gpu_name) == (1, 1, "NVIDIA H200")
    assert len({row.work_key for row in rows}) == 1


def test_drills_are_paid_for_but_do_not_enter_a_median(history: History) -> None:
    drilled = make_result("node-1", 1.0, drill=Drill(slowdown_pct=90))
    history.record(night(1, [drilled, make_result("node-2", 10.0)]))
    pages = Pages(history.engine, {SEEN})
    (row,) = pages.strategies(ALL).rows
    assert (row.samples_per_second, row.num_runs) == (10.0, 2)
    assert pages.costs(ALL).total.num_runs == 2


def test_costs_by_month_by_dag_and_by_work(history: History) -> None:
    """Each run takes 55 s per GPU at $0.60: on one GPU $0.0091667. November has 3, December 1 of two GPUs."""
    history.record(night(1, {"node-1": 10.0, "node-2": 10.0}))
    history.record(night(2, {"node-1": 10.0}))
    two = make_result("node-1", 18.0, strategy=Strategy.DDP, gpus_per_node=2)
    history.record(night(31, [two], suite="strategy_scaling", groups=()))
    costs = Pages(history.engine, {SEEN, "strategy_scaling"}).costs(ALL)
    one = 55 / 3600 * 0.6
    assert [(row.name, row.usd, row.num_runs) for row in costs.months] == [
        ("2026-12", pytest.approx(2 * one), 1),
        ("2026-11", pytest.approx(3 * one), 3),
    ]
    assert [(row.name, row.usd) for row in costs.dags] == [
        (SEEN, pytest.approx(3 * one)),
        ("strategy_scaling", pytest.approx(2 * one)),
    ]
    assert [row.name for row in costs.works] == [
        "mistral-7b qlora single NVIDIA H200",
        "mistral-7b qlora ddp NVIDIA H200",
    ]
    assert costs.total.usd == pytest.approx(5 * one)
    assert costs.total.gpu_hours == pytest.approx(5 * 55 / 3600)


def test_an_unknown_price_is_counted_and_never_0(history: History) -> None:
    history.record(night(1, {"node-1": 10.0}, usd_per_gpu_hour=None))
    pages = Pages(history.engine, {SEEN})
    assert (pages.costs(ALL).total.usd, pages.costs(ALL).total.num_unpriced) == (None, 1)
    assert pages.overview(ALL, DAY_3).spend_usd is None
    history.record(night(2, {"node-1": 10.0}))
    total = pages.costs(ALL).total
    assert (total.usd, total.num_runs, total.num_unpriced) == (pytest.approx(55 / 3600 * 0.6), 2, 1)


# --- runs -------------------------------------------------------------------------------------------------------------


def test_the_run_list_is_newest_campaign_first_and_can_be_turned_round(pages: Pages) -> None:
    newest, oldest = pages.runs(ALL), pages.runs(ALL, sort=RunSort.OLDEST)
    assert [row.campaign_id for row in newest.rows] == ["night-3"] * 3 + ["night-2"] * 4 + ["night-1"] * 4
    assert [row.run_id for row in oldest.rows] == [row.run_id for row in reversed(newest.rows)]
    assert (newest.num_total, newest.num_ranked, newest.page, newest.num_pages) == (11, 11, 1, 1)
    first = newest.rows[0]
    assert (first.dag_id, first.dag_run_id, first.status, first.state) == (SEEN, "scheduled__3", "ok", State.OK)


@pytest.mark.parametrize("sort", list(RunSort))
def test_pages_of_the_run_list_hold_each_run_once(pages: Pages, monkeypatch: pytest.MonkeyPatch, sort: RunSort) -> None:
    whole = [(row.campaign_id, row.run_id) for row in pages.runs(ALL, sort=sort).rows]
    monkeypatch.setattr("trainbench.pages.reads.run_list.RUNS_ON_PAGE", 3)
    found = [pages.runs(ALL, page, sort) for page in (1, 2, 3, 4)]
    assert [(row.campaign_id, row.run_id) for page in found for row in page.rows] == whole
    assert [page.num_pages for page in found] == [4, 4, 4, 4]
    assert pages.runs(ALL, 1000, sort) == found[-1]
    assert pages.runs(ALL, -3, sort) == found[0]


def test_runs_ranked_by_speed_and_price(history: History) -> None:
    broken = make_failed("node-4")
    runs = [make_result("node-1", 9.0, total_s=60.0), make_result("node-2", 11.0), make_result("node-3", 10.0), broken]
    history.record(night(1, runs))
    pages = Pages(history.engine, {SEEN})
    order = {sort: [row.node for row in pages.runs(ALL, sort=sort).rows] for sort in RunSort}
    assert order[RunSort.SLOWEST] == ["node-1", "node-3", "node-2", "node-4"]
    assert order[RunSort.FASTEST] == ["node-2", "node-3", "node-1", "node-4"]
    assert order[RunSort.DEAREST][0] == "node-1"
    assert order[RunSort.DEAREST][-1] == "node-4"


def test_only_the_newest_runs_are_ranked_and_the_page_says_how_many(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Night 3 has 3 runs and night 2 has 4: together 7, and night 1's 9.0 samples/s are not looked at."""
    monkeypatch.setattr("trainbench.pages.reads.run_list.RANKED_RUNS", 8)
    found = pages.runs(ALL, sort=RunSort.SLOWEST)
    assert (found.num_total, found.num_ranked, len(found.rows)) == (11, 7, 7)
    assert found.rows[0].samples_per_second == 9.8


def test_one_run_with_its_campaign_verdict_and_repeats(history: History) -> None:
    runs = [make_result("node-1", 9.0), make_result("node-1", 9.2, round=2), make_result("node-2", 10.0)]
    history.record(night(1, runs, {"node-1": State.BREACH}))
    first, second = runs[0].spec.identity.run_id, runs[1].spec.identity.run_id
    found = Pages(history.engine, {SEEN}).run("night-1", first)
    assert found
    assert (found.run.run_id, found.others, found.campaign.dag_run_id) == (first, (second,), "scheduled__1")
    assert found.verdict
    assert (found.verdict.state, found.verdict.num_runs, found.verdict.run_id) == (State.BREACH, 2, first)


def test_a_failed_run_is_in_the_lists_of_its_group_s_gpu(history: History) -> None:
    history.record(night(1, [make_result("node-1", 10.0), make_failed("node-2")], {"node-2": State.FAILED}))
    pages = Pages(history.engine, {SEEN})
    filters = Filters(gpu_name="NVIDIA H200")
    assert sorted((row.node, row.status) for row in pages.runs(filters).rows) == [("node-1", "ok"), ("node-2", "oom")]
    assert [breach.node for breach in pages.open_breaches(filters).rows] == ["node-2"]
    (row,) = pages.strategies(filters).rows
    assert (row.num_runs, row.num_failed) == (2, 1)


def test_a_campaign_recorded_again_is_counted_once(history: History) -> None:
    history.record(night(1, {"node-1": 10.0, "node-2": 10.0}, {"node-3": State.MISSING}))
    history.record(night(1, {"node-1": 9.0}))
    pages = Pages(history.engine, {SEEN})
    assert pages.runs(ALL).num_total == 1
    assert [row.node for row in pages.heat_map(ALL, DAY_3).rows] == ["node-1"]


# --- export -----------------------------------------------------------------------------------------------------------


def test_the_csv_holds_every_run_in_pieces(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainbench.pages.reads.export.ROWS_AT_ONCE", 2)
    pieces = list(pages.runs_csv(ALL))
    assert [len(piece.splitlines()) for piece in pieces] == [1, 2, 1, 2, 2, 2, 2]
    rows = list(csv.DictReader(io.StringIO("".join(pieces))))
    assert [(row["campaign_id"], row["run_id"]) for row in rows] == [
        (row.campaign_id, row.run_id) for row in pages.runs(ALL).rows
    ]
    assert rows[0]["samples_per_second"] == "10.0"
    assert rows[0]["history_state"] == ""
    assert rows[0]["is_drill"] == "false"
    assert datetime.fromisoformat(rows[0]["started_at"]).tzinfo == UTC


def test_a_spreadsheet_finds_no_formula_in_the_csv(history: History) -> None:
    history.record(night(1, [make_result("node-1", 10.0)], dag_run_id=HOSTILE))
    text = "".join(Pages(history.engine, {SEEN}).runs_csv(ALL))
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["dag_run_id"] == "'=cmd|' /C calc'!A0 <script>alert(1)</script>"


def test_hostile_text_comes_back_as_it_was(history: History) -> None:
    """The page escapes; the reads neither cut nor run anything."""
    campaign = night(1, {"node-1": 9.0}, {"node-1": State.BREACH}, dag_run_id=HOSTILE, title=HOSTILE)
    finding = campaign.findings[0].model_copy(update={"cause": HOSTILE, "resolution": HOSTILE})
    history.record(campaign.model_copy(update={"findings": (finding,)}))
    pages = Pages(history.engine, {SEEN})
    (breach,) = pages.open_breaches(ALL).rows
    assert (breach.finding.cause, breach.finding.resolution, breach.dag_run_id) == (HOSTILE, HOSTILE, HOSTILE)
    last = pages.overview(ALL, DAY_3).last_campaign
    assert last
    assert last.title == HOSTILE
