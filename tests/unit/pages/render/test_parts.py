"""Parts of the pages: addresses behind any prefix, charts, cells of the map, tables as CSV."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tests.builders.notices import make_notice
from trainbench.core.states import NodeState
from trainbench.core.verdicts import Against, Metric, State, Why
from trainbench.pages.reads.rows import EventKind, HeatCell, HeatMap, HeatRow, NodeEvent, NodePoint
from trainbench.pages.render import charts, heat_cells, listings
from trainbench.pages.render.links import Links, links
from trainbench.pages.render.page import advice, ago

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
HOSTILE = "<a href='javascript:alert(1)'>&"


def scope(path: str, root_path: str = "/trainbench") -> dict[str, Any]:
    return {"raw_path": path.encode(), "path": path, "root_path": root_path}


def test_a_next_step_shows_its_command_as_code_and_nothing_of_it_as_html() -> None:
    shown = "accept it: <code>trainbench baseline accept</code>, &lt;b&gt;or not&lt;/b&gt;."
    assert advice("accept it: `trainbench baseline accept`, <b>or not</b>") == shown


@pytest.mark.parametrize(
    ("path", "root_path", "up"),
    [
        ("/trainbench/", "/trainbench", "./"),
        ("/trainbench/runs", "/trainbench", "./"),
        ("/trainbench/nodes/gpu-1", "/trainbench", "../"),
        ("/trainbench/nodes/a%2Fb", "/trainbench", "../"),  # the browser takes %2F for a part of the name
        ("/trainbench/dags/d/runs/r/tasks/t", "/trainbench", "../../../../../"),
        ("/air/trainbench/nodes/gpu-1", "/air/trainbench", "../"),  # the proxy left the prefix on
        ("/trainbench/nodes/gpu-1", "/air/trainbench", "../"),  # ... or took it off
        ("/trainbench/trainbench/runs", "/trainbench/trainbench", "./"),  # a prefix of our own name
    ],
)
def test_links_lead_up_to_our_first_page_wherever_it_is_mounted(path: str, root_path: str, up: str) -> None:
    assert links(scope(path, root_path)).up == up


def test_the_login_leads_back_to_the_answered_page() -> None:
    params = scope("/air/trainbench/notices/3", "/air/trainbench") | {"query_string": b"days=7&gpu=a+b"}

    assert links(params).login() == (
        "../../api/v2/auth/login?next=%2Fair%2Ftrainbench%2Fnotices%2F3%3Fdays%3D7%26gpu%3Da%2Bb"
    )
    stripped = scope("/trainbench/notices/3", "/air/trainbench")
    assert links(stripped).login().endswith("?next=%2Fair%2Ftrainbench%2Fnotices%2F3")


def test_names_from_outside_become_one_part_of_a_path() -> None:
    to = Links(up="../")

    assert to.node("a/../b?c#d") == "../nodes/a%2F..%2Fb%3Fc%23d"
    assert to.airflow_run("..", "scheduled__2026-11-21T02:00:00+00:00") == (
        "../../dags/-/runs/scheduled__2026-11-21T02%3A00%3A00%2B00%3A00"
    )
    assert to.node('"><script>') == "../nodes/%22%3E%3Cscript%3E"


def test_filters_go_along_with_links() -> None:
    to = Links(query={"gpu": "NVIDIA H200", "days": "7"})

    assert to.page("runs", page=2) == "./runs?gpu=NVIDIA+H200&days=7&page=2"
    assert to.page(gpu=None) == "./?days=7"
    assert to.notice(3) == "./notices/3"


def point(day: int, rate: float | None, **fields: Any) -> NodePoint:
    peers = fields.pop("peers", 10.0)
    defaults = {
        "at": NOW + timedelta(days=day),
        "samples_per_second": rate,
        "peers_expected": peers,
        "past_expected": 10.0,
        "level_expected": None,
        "deviation_pct": 100 * (rate / peers - 1) if rate else None,
        "past_deviation_pct": None,
        "level_deviation_pct": None,
        "memory_deviation_pct": None,
        "temperature_deviation_c": None,
        "samples_per_second_limit_pct": 5.0,
        "memory_limit_pct": 2.0,
        "temperature_limit_c": 10.0,
        "state": State.WELL,
        "why": Why.WELL,
        "is_drill": False,
        "reason": None,
        "num_runs": 2,
        "campaign_id": "c",
        "run_id": "r",
        "dag_id": "d",
        "dag_run_id": None,
    }
    return NodePoint(**defaults | fields)


def event(day: int, text: str) -> NodeEvent:
    return NodeEvent(at=NOW + timedelta(days=day), kind=EventKind.SETUP, what="driver", text=text, campaign_id=None)


def parts(figure: Any) -> list[dict[str, Any]]:
    """Of each panel: its lines and marks by label."""
    return [{line.get_label(): line for line in axes.lines} for axes in figure.axes]


def test_a_chart_has_the_band_of_the_limit_past_and_level_and_marks_red_points() -> None:
    """Peers at 10 samples/s and a limit of 5 %: the band reaches from 9.5 to 10.5."""
    slow = point(1, 9.0, state=State.RED, why=Why.SLOW, past_deviation_pct=-10.0, level_deviation_pct=-25.0)
    levels = [NodePoint(**{**vars(each), "level_expected": 12.0}) for each in (point(0, 10.1), slow)]
    figure = charts.node_figure(tuple(levels), ())
    (lines,) = parts(figure)
    (band,) = figure.axes[0].collections

    assert {round(float(y), 6) for y in band.get_paths()[0].vertices[:, 1]} == {9.5, 10.5}
    assert [list(lines[name].get_ydata()) for name in ("past_expected", "level_expected")] == [[10.0] * 2, [12.0] * 2]
    assert (list(lines["node"].get_ydata()), list(lines["red"].get_ydata())) == ([10.1], [9.0])
    assert lines["red"].get_marker() != lines["node"].get_marker()
    assert (
        "2026-11-22 08:00 UTC\n9.000 samples/s, −10.0 % against its peers (limit 5 %), "
        "−10.0 % against its own past, −25.0 % against its level\nred: slow"
    ) in charts.node_chart(tuple(levels), ())  # type: ignore[operator]


def test_a_band_is_as_wide_as_the_limit_of_each_night_s_campaign() -> None:
    """At 10 samples/s 3 % is 9.7 to 10.3, and 5 % is 9.5 to 10.5; the memory's limit was 1 % up to day 2."""
    changed = (
        point(0, 10.0, samples_per_second_limit_pct=None, memory_limit_pct=None, memory_deviation_pct=0.1),
        point(1, 10.0, samples_per_second_limit_pct=3.0, memory_limit_pct=1.0),
        point(2, 10.0, memory_deviation_pct=0.2),
    )
    rates, memory = charts.node_figure(changed, ()).axes
    (of_rates,), (of_memory,) = rates.collections, memory.collections

    assert {round(float(y), 6) for y in of_rates.get_paths()[0].vertices[:, 1]} == {9.7, 10.3, 9.5, 10.5}  # type: ignore[index, union-attr]
    assert {abs(round(float(y), 6)) for y in of_memory.get_paths()[0].vertices[:, 1]} == {1.0, 2.0}  # type: ignore[index, union-attr]
    assert memory.get_ylim() == (-3.0, 3.0)  # half a limit beyond the wider band


def test_the_legend_names_the_limits_of_the_newest_campaign() -> None:
    older = (point(0, 10.0, samples_per_second_limit_pct=3.0),)
    newest = (point(1, 10.0, samples_per_second_limit_pct=2.5, temperature_limit_c=None),)
    unknown = dict.fromkeys(("samples_per_second_limit_pct", "memory_limit_pct", "temperature_limit_c"))

    assert charts.limits_of_last([newest, older]) == "±2.5 %, memory ±2 %"
    assert charts.limits_of_last([(point(0, 10.0, **unknown),)]) == ""
    assert charts.limits_of_last([]) == ""


def test_a_single_night_stands_in_the_middle_of_a_day() -> None:
    from matplotlib.dates import num2date

    for points, last in (((point(0, 10.1),), "2026-11-21"), ((point(0, 10.1), point(1, 10.0)), "2026-11-22")):
        figure = charts.node_figure(points, ())
        begin, end = (num2date(x).isoformat() for x in figure.axes[0].get_xlim())
        assert (begin, end) == ("2026-11-20T20:00:00+00:00", f"{last}T20:00:00+00:00")


def test_memory_and_temperature_have_panels_where_they_are_known() -> None:
    known = (point(0, 10.0, memory_deviation_pct=3.0), point(1, 10.0, temperature_deviation_c=-20.0))
    _, memory, temperature = charts.node_figure(known, ()).axes

    assert (memory.get_title(loc="left"), temperature.get_title(loc="left")) == (
        "memory against its peers, %", "temperature against its peers, °C"
    )  # fmt: skip
    assert memory.get_ylim() == pytest.approx((-3.9, 3.9))  # room for the mark beyond the 3 %
    assert temperature.get_ylim() == pytest.approx((-26.0, 26.0))
    assert charts.node_chart((point(0, None),), ()) is None


def test_events_outside_the_points_are_left_to_the_table_and_their_text_stays_text() -> None:
    events = (event(1, f"driver went from 1 to {HOSTILE}"), event(9, "later"))
    chart = charts.node_chart((point(0, 10.0), point(2, 10.0)), events)
    assert chart is not None

    assert "<a" not in chart
    assert "&lt;a href=&#x27;javascript:alert(1)&#x27;&gt;&amp;" in chart
    assert "later" not in chart


@pytest.mark.parametrize(
    ("state", "why", "deviation", "mark"),
    [
        (State.WELL, Why.WELL, -4.9, ""),
        (State.RED, Why.SLOW, -7.3, "−7"),
        (State.RED, Why.SLOW, None, "!"),
        (State.RED, Why.FAILED, None, "✕"),
        (State.RED, Why.MISSING, None, "?"),
        (State.RED, Why.OTHER_NUMBERS, 1.0, "≠"),
        (State.RED, Why.BROKEN_GPU, -30.0, "!"),
        (State.LOOK, Why.BEHIND, -3.0, "~"),
        (State.DRILL, Why.SLOW, -75.0, "−75"),
        (State.DRILL, Why.DRILL, -1.0, "D"),
        (State.NOT_CHECKED, Why.NOISY, -30.0, "·"),
    ],
)
def test_a_cell_shows_its_state_by_a_mark_and_not_by_colour_alone(
    state: State, why: Why, deviation: float | None, mark: str
) -> None:
    assert heat_cells.mark(heat_cell(state, why, deviation)) == mark


def test_a_cell_has_the_colour_of_its_state_however_far_it_deviates() -> None:
    """A node at -30 % that is well, as the limit allows on a CPU, has the colour of the others that are."""
    cells = [heat_cell(state, Why.WELL, deviation) for state in State for deviation in (-30.0, 0.0)]
    shown = HeatRow(node="node-1", gpu_name=None, cells=tuple(cells))
    heat = HeatMap(days=("2026-11-21",) * len(cells), rows=(shown,), num_nodes=1, num_red_nodes=0, page=1, num_pages=1)
    ((_, html),) = heat_cells.rows_of(heat, Links())

    assert re.findall(r'class="c (\w+)"', html) == [state.value for state in State for _ in range(2)]


def test_a_narrow_cell_has_room_for_the_side_of_a_slow_node_only() -> None:
    marks = [heat_cells.mark(heat_cell(State.RED, Why.SLOW, -12.0), narrow=is_narrow) for is_narrow in (True, False)]

    assert marks == ["−", "−12"]
    assert heat_cells.mark(heat_cell(State.RED, Why.FAILED, None), narrow=True) == "✕"


def test_days_above_the_map_name_their_month_where_it_begins() -> None:
    """The 23rd of November 2026 is a Monday."""

    def labels(**how: bool) -> list[str]:
        return [heat_cells.day_label(f"2026-{day}", **how) for day in ("11-22", "11-23", "12-01", "11-02")]

    assert labels(is_first=False, narrow=False) == ["22", "23", "1 Dec", "2"]
    assert labels(is_first=False, narrow=True) == ["", "23", "1 Dec", ""]  # the 2nd is a Monday
    assert labels(is_first=True, narrow=True)[0] == "22 Nov"


def test_a_cell_s_title_says_all_of_it() -> None:
    cell = heat_cell(State.RED, Why.SLOW, -7.3, num_verdicts=3)

    assert heat_cells.title("node-3", cell) == (
        "node-3, 2026-11-21: red: slow, samples/s −7.3 % against its peers, the worst of 3 verdicts"
    )
    hot = heat_cell(State.LOOK, Why.HOT, 12.0, metric=Metric.TEMPERATURE_C, against=Against.PAST)
    assert heat_cells.title("node-3", hot).endswith("look: hot, temperature +12.0 °C against its own past")


def test_a_card_has_the_likely_cause_of_its_own_night_only() -> None:
    notice = make_notice("node-3", Why.SLOW, reason="samples/s −6.5 %", cause="explains up to 6.5 of the 6.5 %")
    same, later = (NodeState("node-3", State.RED, Why.SLOW, f"samples/s −{pct} %") for pct in (6.5, 7.1))

    assert listings.likely_cause(same, notice) == "explains up to 6.5 of the 6.5 %"
    assert listings.likely_cause(later, notice) is None
    assert listings.likely_cause(same, None) is None


def heat_cell(state: State, why: Why, deviation: float | None, **fields: Any) -> HeatCell:
    defaults: dict[str, Any] = {"num_verdicts": 1, "campaign_id": "c", "dag_id": "d", "dag_run_id": None}
    day = date(2026, 11, 21).isoformat()
    of = (None, None) if deviation is None else (Metric.SAMPLES_PER_SECOND, Against.PEERS)
    decided = {"metric": of[0], "against": of[1], "deviation": deviation}
    return HeatCell(day=day, state=state, why=why, **defaults | decided | fields)


@pytest.mark.parametrize(
    ("minutes", "text"),
    [(-5, "just now"), (0, "just now"), (59, "59 min ago"), (60, "1 h ago"), (2879, "47 h ago"), (2880, "2 d ago")],
)
def test_an_age_has_its_usual_unit(minutes: int, text: str) -> None:
    assert ago(NOW - timedelta(minutes=minutes), NOW) == text
