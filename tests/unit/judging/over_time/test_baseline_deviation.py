from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.contract.result import RunResult
from bench_image.contract.spec import Drill
from tests.builders import make_failed, make_result, spoilt
from trainbench.core.verdicts import Level, RateChange, State, Tolerances
from trainbench.judging.over_time import baseline_deviation
from trainbench.judging.over_time.baseline_deviation import judge_history, trend_findings

LIMITS = Tolerances()
STEADY = [10.0, 10.0, 10.0, 10.0, 10.0]
NOISY = [9.0, 9.5, 10.0, 10.5, 11.0]


@pytest.mark.parametrize(
    ("rate", "state"),
    [(9.85, State.OK), (9.8, State.BREACH), (10.15, State.OK), (10.2, State.NOTICE)],
)
def test_a_steady_past_leaves_the_percent_limit(rate: float, state: State) -> None:
    """MAD 0, so the limit is 1.5 %: 9.85 is exactly on it; 9.8 is the 2 % drop that must be found."""
    verdict = judge_history(make_result(samples_per_s=rate), STEADY, LIMITS)
    assert (verdict.state, verdict.limit_pct) == (state, 1.5)


def test_a_noisy_past_widens_the_limit() -> None:
    """Distances from 10: 1, 0.5, 0, 0.5, 1: MAD 0.5 * 1.4826 = 0.7413; 4 of them are 29.65 % of 10."""
    verdict = judge_history(make_result(samples_per_s=8.0), NOISY, LIMITS)
    assert verdict.limit_pct == pytest.approx(29.652)
    assert (verdict.state, verdict.deviation_pct, verdict.baseline_median) == (State.OK, -20.0, 10.0)
    assert judge_history(make_result(samples_per_s=7.0), NOISY, LIMITS).state is State.BREACH


def test_too_few_points_are_no_baseline_not_green() -> None:
    verdict = judge_history(make_result(samples_per_s=5.0), STEADY[:4], LIMITS)
    assert (verdict.state, verdict.num_points, verdict.baseline_median) == (State.NO_BASELINE, 4, None)
    assert verdict.reason == "no baseline yet: 4 past runs, 5 are needed"


@pytest.mark.parametrize("result", [make_failed(), make_result(samples_per_s=2.0, drill=Drill(slowdown_pct=75))])
def test_failed_runs_and_drills_are_not_judged(result: RunResult) -> None:
    assert judge_history(result, STEADY, LIMITS).state is State.NOT_JUDGED


def test_findings_say_what_to_do() -> None:
    (slower,) = trend_findings(judge_history(make_result("node-7", 9.5), STEADY, LIMITS))
    assert (slower.category, slower.level, slower.subject) == ("history_slower", Level.WARNING, "node-7")
    assert "−5.0 % against the median of its 5 past runs, limit ±1.5 %" in slower.summary
    (faster,) = trend_findings(judge_history(make_result(samples_per_s=10.5), STEADY, LIMITS))
    assert (faster.category, faster.level) == ("history_faster", Level.INFO)
    assert trend_findings(judge_history(make_result(samples_per_s=10.0), STEADY, LIMITS)) == ()


def test_one_bad_night_moves_no_baseline() -> None:
    """[J13] The median of 10, 10, 10, 10 and 5 is 10; their mean is 9."""
    verdict = judge_history(make_result(samples_per_s=9.9), [10.0, 10.0, 10.0, 10.0, 5.0], LIMITS)
    assert (verdict.state, verdict.baseline_median) == (State.OK, 10.0)


@pytest.mark.parametrize("gap", [None, "fingerprint", "baseline_median", "samples_per_second", "limit_pct"])
def test_a_change_is_handed_on_only_with_all_of_its_figures(gap: str | None) -> None:
    known: dict[str, Any] = {
        "node": "node-1", "fingerprint": "f", "baseline_median": 10.0, "samples_per_second": 9.0, "limit_pct": 1.5
    }  # fmt: skip
    verdict: Any = SimpleNamespace(**known | ({gap: None} if gap else {}))
    made = RateChange(node="node-1", fingerprint="f", before=10.0, after=9.0, limit_pct=1.5)
    assert baseline_deviation._changes(verdict) == (() if gap else (made,))


def test_a_rise_within_one_percent_is_no_breach_where_the_limit_is_narrow() -> None:
    """10.08 of 10 is 0.8 % more, beyond a limit of 0.5 %: better than its past, and no fault."""
    verdict = judge_history(make_result(samples_per_s=10.08), [10.0] * 10, Tolerances(history_pct=0.5))
    assert (verdict.state, verdict.deviation_pct) == (State.NOTICE, pytest.approx(0.8))


def test_a_failed_run_with_a_rate_has_no_verdict_against_its_past() -> None:
    verdict = judge_history(spoilt(make_result(samples_per_s=5.0)), [10.0] * 10, Tolerances())
    assert (verdict.state, verdict.reason) == (State.NOT_JUDGED, "the run ended as invalid_loss")
