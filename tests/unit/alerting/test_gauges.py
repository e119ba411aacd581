"""The fleet as gauges: which there are after one night, and what a metrics client can take of them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.builders.nights import ENDED_AT, night
from tests.builders.three_nights import three_nights
from tests.conftest import Golden
from trainbench.alerting.gauges import CODES, RED_FROM, Client, Gauge, Points, client_points, code, gauges
from trainbench.core.states import FRESH, TRAITS, NodeState
from trainbench.core.verdicts import State, Why
from trainbench.history.fleet_state import FleetState
from trainbench.history.history import History, open_history

NOW = ENDED_AT + timedelta(days=2, hours=1)
LABELS, PLAIN = Client(has_labels=True), Client(has_labels=False)
AT = 1_793_674_800  # 2026-11-03 03:00 UTC, when the third night ended


@pytest.fixture
def history(tmp_path: Path) -> History:
    return open_history(f"sqlite:///{tmp_path}/history.sqlite")


def of_fleet(history: History) -> tuple[Gauge, ...]:
    return gauges(history.fleet_state(NOW, FRESH), NOW)


def text(made: Points) -> str:
    lines = []
    for name, value, labels in made.points:
        within = ",".join(f'{key}="{value}"' for key, value in (labels or {}).items())
        lines.append(f"{name}{{{within}}} {value:.12g}" if within else f"{name} {value:.12g}")
    return "\n".join([*lines, *(f"# {each}" for each in made.left_out)]) + "\n"


def named(name: str, node: str) -> Gauge:
    return Gauge(f"trainbench.node.{name}", 1.0, {"node": node})


# ---------------------------------------------------------------- what there is


def test_all_gauges_of_a_night_with_labels(history: History, golden: Golden) -> None:
    golden("gauges-labels.txt", text(client_points(of_fleet(three_nights(history)), LABELS)))


def test_all_gauges_of_a_night_without_labels(history: History, golden: Golden) -> None:
    golden("gauges-names.txt", text(client_points(of_fleet(three_nights(history)), PLAIN)))


def test_times_are_unix_seconds(history: History) -> None:
    times = {gauge.name: gauge.value for gauge in of_fleet(three_nights(history)) if not gauge.labels}

    assert times == {
        "trainbench.refreshed_timestamp_seconds": AT + 3600,
        "trainbench.last_verdict_timestamp_seconds": AT,
    }


def test_what_is_not_known_is_no_gauge(history: History) -> None:
    """A missing node has no samples/s: 0 would be a figure."""
    history.record(night(3, {"node-1": 10.0}, {"node-2": Why.MISSING}))
    made = {gauge.name for gauge in of_fleet(history) if gauge.labels.get("node") == "node-2"}

    assert made == {
        f"trainbench.node.{name}"
        for name in (
            "condition", "open_notices", "marked", "last_verdict_timestamp_seconds",
            *(f"state_{state.value}" for state in State),
        )
    }  # fmt: skip


def of_node_2(history: History) -> dict[str, float]:
    return {g.name.rsplit(".", 1)[-1]: g.value for g in of_fleet(history) if g.labels.get("node") == "node-2"}


def test_a_node_that_was_not_checked_has_its_figures_beside_each_source(history: History) -> None:
    """9.0 beside peers of 10, a past of 9.6 and a level of 12."""
    expected = {"node-2": {"past": 9.6, "level": 12.0}}
    history.record(night(3, {"node-1": 10.0, "node-2": 9.0}, {"node-2": Why.NOISY}, expected=expected))
    of_node = of_node_2(history)

    assert (of_node["condition"], of_node["samples_per_second"]) == (CODES[Why.NOISY], 9.0)
    names = ("deviation_pct", "past_deviation_pct", "level_deviation_pct")
    assert [of_node[name] for name in names] == pytest.approx([-10.0, -6.25, -25.0])


def test_an_empty_history_says_that_it_was_read() -> None:
    (only,) = gauges(FleetState(None, (), ()), NOW)
    assert only.name == "trainbench.refreshed_timestamp_seconds"


def test_a_code_says_how_far_the_news_goes() -> None:
    assert CODES.keys() == set(Why)
    assert len(set(CODES.values())) == len(CODES)
    of = {state: {CODES[why] for why in Why if TRAITS[why].state is state} for state in State}
    assert min(of[State.RED]) == RED_FROM
    assert of[State.LOOK] <= set(range(10, RED_FROM))
    assert max(max(of[state]) for state in State if state not in (State.RED, State.LOOK)) < 10
    assert code(NodeState("node-1", State.RED, Why.HOT)) == 27  # where a setting makes heat red
    assert code(NodeState("node-1", State.DRILL, Why.SLOW)) == CODES[Why.DRILL]


def test_the_codes_are_those_of_the_page() -> None:
    """Alert rules and dashboards of other people compare with them."""
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    assert [each for each, code in CODES.items() if f"\n| {code} | {each.value} |" not in page] == []


# ---------------------------------------------------------------- what a client takes


def test_the_worst_nodes_come_first_so_that_a_full_client_lacks_good_ones(history: History) -> None:
    made = client_points(of_fleet(three_nights(history)), Client(has_labels=True, max_series=2))
    sent = [point.labels["node"] for point in made.points if point.labels and point.name.endswith("node.condition")]

    assert sent == ["node-2", "node-9"]
    (why,) = made.left_out
    assert why.endswith("the client takes at most 2 gauges of one name")
    assert why.startswith("60 gauges of ")


def test_ten_thousand_nodes_are_sent_or_counted() -> None:
    made = [named("condition", f"node-{number}") for number in range(10_000)]

    assert len(client_points(made, PLAIN).points) == 10_000
    sent, left_out = client_points(made, Client(has_labels=True, max_series=2000))
    assert len(sent) == 2000
    named_ones = "node-2000, node-2001, node-2002, node-2003, node-2004 and 7995 more"
    assert left_out == (f"8,000 gauges of {named_ones}: the client takes at most 2,000 gauges of one name",)


@pytest.mark.parametrize(
    ("node", "label", "part"),
    [
        ("gpu-3.rack2.example", "gpu-3.rack2.example", "gpu-3__rack2__example"),
        ("a|b:c@d#e,f=g h", "a_b_c_d_e_f_g_h", "a_b_c_d_e_f_g_h"),
        ("Knoten-ä\n1\x1b[31m", "Knoten-__1__31m", "Knoten-__1__31m"),
    ],
)
def test_a_strange_name_becomes_one_that_every_client_takes(node: str, label: str, part: str) -> None:
    (labelled,), (plain,) = (client_points([named("condition", node)], client).points for client in (LABELS, PLAIN))

    assert labelled.labels == {"node": label}
    assert plain.name == f"trainbench.node.condition.{part}"


def test_nodes_that_would_share_a_series_are_both_left_out() -> None:
    sent, left_out = client_points([named("condition", node) for node in ("a b", "a_b", "c")], LABELS)

    assert [point.labels for point in sent] == [{"node": "c"}]
    assert left_out == ("2 gauges of a b and a_b: another gauge has the same name and labels",)


def test_a_name_that_airflow_would_drop_is_counted() -> None:
    sent, left_out = client_points([named("condition", "n" * 253)], Client(has_labels=False, max_chars=250))

    assert sent == ()
    assert left_out[0].endswith("name and labels have more than 250 characters")
