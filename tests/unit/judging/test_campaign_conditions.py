"""Why a node is not ok, in few words."""

from __future__ import annotations

from bench_control.judging.campaign_conditions import _unsteady, _watched, why
from bench_control.words.verdicts import Confirmation, Metric, State
from tests.campaigns import make_metric, make_node


def test_a_breach_is_told_by_its_figures_and_anything_else_by_its_reason() -> None:
    slow = make_metric(9.0, 10.0, state=State.BREACH)
    breach = make_node("node-1", [slow], state=State.BREACH, reason="long words", confirm_deviation_pct=-9.0,
                       confirmation=Confirmation.CONFIRMED)  # fmt: skip
    assert why(breach) == "samples/s \u221210.0 %, limit \u00b15 %, confirmed by a re-run with \u22129.0 %"
    assert why(breach.model_copy(update={"state": State.FAILED})) == "long words"
    unmeasured = make_metric(None, 10.0, state=State.BREACH)
    assert why(breach.model_copy(update={"metrics": (slow, unmeasured)})) == "long words"
    assert why(breach.model_copy(update={"metrics": ()})) == "long words"


def test_a_watched_node_is_told_by_its_rate_and_one_that_is_not_by_its_reason() -> None:
    slow = make_metric(9.7, 10.0)
    watched = make_node("node-1", [slow], is_watched=True, reason="long words")
    assert _watched(watched) == "samples/s \u22123.0 %, limit \u00b15 %"
    assert _watched(watched.model_copy(update={"is_watched": False})) == "long words"
    assert _watched(watched.model_copy(update={"metrics": ()})) == "long words"


def test_an_unsteady_node_is_told_by_how_much_it_scatters() -> None:
    node = make_node("node-1", reason="long words", is_unsteady=True, unsteady_factor=12.4)
    assert _unsteady(node) == "it scatters 12 times as much as its peers"
    assert _unsteady(node.model_copy(update={"unsteady_factor": None})) == "long words"


def test_only_what_is_in_breach_is_told_of_a_breach() -> None:
    figures = [make_metric(9.0, 10.0, state=State.BREACH), make_metric(10.3, 10.0, metric=Metric.TEMPERATURE_C)]
    breach = make_node("node-1", figures, state=State.BREACH)
    assert why(breach) == "samples/s \u221210.0 %, limit \u00b15 %"
