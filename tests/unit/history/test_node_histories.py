"""The records of all nodes at a work, across drivers and bad nights."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bench_image.contract.spec import Drill
from tests.builders import make_cpu_result, make_independent, make_result
from tests.builders.recorded_nights import DAY_1, make_night, records, tonight
from trainbench.core.verdicts import Why
from trainbench.history.history import History
from trainbench.judging.past import records_of
from trainbench.results.setups import setup_of

pytestmark = pytest.mark.both_databases


def test_a_trail_goes_on_over_new_drivers_and_bad_nights(history: History) -> None:
    """Three nights: the second was slow, the third came with another driver. A drill and another work are none."""
    history.record(
        make_night(2, make_result(samples_per_s=8.0), whys={"node-1": Why.SLOW}, expected={"node-1": {"past": 9.5}})
    )
    history.record(make_night(1, make_result(samples_per_s=9.4), make_result(samples_per_s=9.6, round=2)))
    history.record(make_night(3, make_result(samples_per_s=9.0, driver="590.1", pod_template="3f2a91c04b7d")))
    history.record(make_night(4, make_result(drill=Drill(slowdown_pct=50)), make_result("node-2", seq_length=1024)))
    points = history.node_records([make_result().effective_spec.fingerprint], "night-20", DAY_1 + timedelta(days=19))
    assert [(p.campaign_id, p.node, p.samples_per_second) for p in points] == [
        ("night-1", "node-1", 9.5), ("night-2", "node-1", 8.0), ("night-3", "node-1", 9.0),
    ]  # fmt: skip
    assert [p.setup.driver for p in points] == ["580.65.06", "580.65.06", "590.1"]
    assert [p.setup.pod_template for p in points] == ["none", "none", "3f2a91c04b7d"]
    assert points[0].setup == setup_of(make_result().context)
    assert (points[0].temperature_c, points[0].memory_gb) == (60.0, 7.1)
    assert [p.counts for p in points] == [True, False, True]


def test_the_memory_of_a_process_on_a_cpu_is_not_comparable(history: History) -> None:
    history.record(make_night(1, make_cpu_result("node-1")))
    (point,) = records(history, tonight(make_cpu_result("node-1")))
    assert point.memory_gb is None


def test_a_figure_of_0_says_nothing_of_heat_and_memory_before(history: History) -> None:
    """Else the node would be 60 degrees hotter than its past in the first night in which it reads again, and nobody can
    say by what share 7.1 GB are more than 0.
    """
    history.record(make_night(1, make_result(temperature_c=0.0, memory_gb=0.0)))
    history.record(make_night(2, make_result(temperature_c=60.0)))
    points = history.node_records([make_result().effective_spec.fingerprint], "night-20", DAY_1 + timedelta(days=19))
    assert [(point.temperature_c, point.memory_gb) for point in points] == [(None, None), (60.0, 7.1)]


def test_of_campaigns_that_overlap_the_one_that_began_first_is_the_older(history: History) -> None:
    """Its runs began 29 and 10 minutes before the end of the night, the other's 20."""
    runs = {"a": [make_result(round=1), make_result(round=20)], "b": [make_result(round=10)]}
    for campaign_id, results in runs.items():
        history.record(make_night(1, *results, campaign_id=campaign_id))
    assert [record.campaign_id for record in records(history, tonight())] == ["a", "b"]


def test_a_node_with_two_kinds_of_gpu_has_a_past(history: History) -> None:
    """Its kind is both names, tonight as in the history."""
    result = make_independent("node-1", (9.5, 9.5))
    assert result.context
    first, second = result.context.gpus
    gpus = (first, second.model_copy(update={"name": "NVIDIA A10"}))
    mixed = result.model_copy(update={"context": result.context.model_copy(update={"gpus": gpus})})
    history.record(make_night(1, mixed))
    (before,), (now,) = records(history, tonight(mixed)), records_of([tonight(mixed)], DAY_1)
    assert before.gpu_name == "NVIDIA A10 + NVIDIA H200"
    assert before.unit == now.unit
