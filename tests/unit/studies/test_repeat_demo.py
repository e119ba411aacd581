"""How far the demo's nodes are apart: the deviations."""

from __future__ import annotations

import pytest

from repeat_demo import deviations_pct, figures
from tests.builders import make_cpu_result, make_failed


def test_a_node_deviates_from_the_median_of_the_others() -> None:
    """Of 100, 104 and 96 the median is 100: 25 is 75 % below. Of 25, 104 and 96 it is 96: 100 is 4.17 % above."""
    assert deviations_pct({"a": 100.0, "b": 104.0, "c": 96.0, "d": 25.0}) == {
        "a": 4.17,
        "b": 8.33,
        "c": -4.0,
        "d": -75.0,
    }
    assert deviations_pct({"a": 100.0}) == {}


def test_re_runs_and_failed_runs_are_no_figures() -> None:
    results = [
        make_cpu_result("node-1", 40.0, windows=(40.0,), step_cv_pct=0.0),
        make_cpu_result("node-2", 42.0, windows=(42.0,), step_cv_pct=0.0),
        make_cpu_result("node-1", 90.0, round=2),
        make_failed("node-3"),
    ]
    seen = figures(results)
    assert seen["samples_per_s"] == pytest.approx({"node-1": 40.0, "node-2": 42.0}, rel=0.001)
    assert seen["in_turns_pct"] == {}, "they took no turns"
