"""Configurations against their baseline: what helped, what did not, what failed, in figures and in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.contract.result import RunResult
from tests.builders import campaigns, make_failed, make_result
from trainbench.comparison.configurations import SpeedUp, Standing, Verdict, _change_pct, _Comparer, compare_by_gpu_kind
from trainbench.figure_catalogue.run_figures import SAMPLES_PER_SECOND
from trainbench.planning.plan import Skipped
from trainbench.reporting.configuration_tables import configurations, headline

GUIDE = campaigns.configurations()


def standing(name: str, campaign: Any = GUIDE) -> Standing:
    (kind,) = compare_by_gpu_kind(campaign)
    return next(one for one in kind.standings if one.name == name)


def test_the_guides_speed_ups_and_savings() -> None:
    """1.46 / 0.69 = 2.116 samples/s and half of it, 1.058, in tokens/s: a sample has half the length. The guide says
    2.11 and 53 % saved: 1 - 0.1142 / 0.2415.
    """
    best = standing("seq 512 + batch 8")

    assert best.per_sample is not None
    assert best.per_token is not None
    assert best.per_sample.ratio == pytest.approx(2.116, rel=5e-3)
    assert best.per_token.ratio == pytest.approx(best.per_sample.ratio / 2)
    assert best.saving_pct == pytest.approx(52.7, abs=0.3)
    assert best.changes == ("micro_batch_size 8, was 4", "seq_length 512, was 1024")


def test_the_noise_is_the_wobble_of_the_runs_and_not_the_drift_of_the_rounds() -> None:
    """Runs wobble by 0.2 %, and t(2) x 0.2 % x sqrt(2 / 3) is 1.6 %; round 2 is 1 % slower for all, which is no noise
    between configurations.
    """
    (kind,) = compare_by_gpu_kind(GUIDE)
    widths = [one.per_sample.log_half_width or 0.0 for one in kind.standings if one.per_sample]

    assert 0.0 < max(widths) < 0.03
    (step,) = kind.steps  # 1.46 / 1.30 = 1.123: the guide's additional 1.12
    assert (step.name, step.against) == ("seq 512 + batch 8", "seq 512")
    assert step.speed_up.ratio == pytest.approx(1.123, rel=5e-3)


@pytest.mark.parametrize(("before", "after"), [(None, 5.0), (10.0, None), (0.0, 5.0)])
def test_a_change_from_or_to_nothing_known_is_unknown(before: float | None, after: float | None) -> None:
    assert _change_pct(before, after) is None
    assert _change_pct(10.0, 0.0) == -100.0


@pytest.mark.parametrize(("windows", "verdict"), [((0.7, 0.7, 0.7), "helped"), ((0.4, 0.7, 1.2), "too noisy to tell")])
def test_noise_that_would_hide_a_difference_is_not_called_none(windows: tuple[float, ...], verdict: str) -> None:
    """0.75 over 0.69 is 9 %: clear at no noise, and nothing at half the rate."""
    work: dict[str, Any] = {**campaigns.BASE_WORK, "windows": windows}
    runs = [campaigns.a10("gpu-1", 0.69, **work), campaigns.a10("gpu-1", 0.75, precision="fp16", **work)]
    labels = {runs[0].spec.identity.group_id: "baseline", runs[1].spec.identity.group_id: "fp16"}

    assert (
        standing("fp16", campaigns.make_campaign(runs, campaign_kind=GUIDE.campaign_kind, labels=labels)).verdict
        == verdict
    )


def test_a_cost_within_the_noise_is_not_told() -> None:
    """Twice the samples/s of half the length, and so the tokens/s of the baseline: the price of a token did not change
    by more than the noise, that of a sample did.
    """
    work: dict[str, Any] = {**campaigns.BASE_WORK}
    half = work | {"seq_length": work["seq_length"] // 2}
    runs = [
        campaigns.a10("gpu-1", 0.70, windows=(0.69, 0.70, 0.71), **work),
        campaigns.a10("gpu-1", 1.41, windows=(1.40, 1.41, 1.42), **half),
    ]
    labels = {runs[0].spec.identity.group_id: "baseline", runs[1].spec.identity.group_id: "seq 512"}
    verdicts, *_ = configurations(
        campaigns.make_campaign(runs, campaign_kind=GUIDE.campaign_kind, labels=labels, usd_per_gpu_hour=0.6)
    )

    (summary,) = [row.texts[2] for row in verdicts.rows if row.texts[1] == "seq 512"]
    assert "a sample costs 50.4 % less" in summary
    assert "a token costs" not in summary


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        (1, "One round: the noise is that between the windows"),
        (2, "The noise is that of the two configurations compared. Few rounds"),
    ],
)
def test_one_round_says_what_it_cannot_know_and_several_what_they_assume(rounds: int, said: str) -> None:
    (line,) = headline(campaigns.configurations(rounds=rounds))
    assert line.endswith("(by one round: without what pods differ by).") is (rounds == 1)
    verdicts, *_ = configurations(campaigns.configurations(rounds=rounds))
    assert any(note.startswith(said) for note in verdicts.notes)


def test_without_the_baseline_nothing_is_compared_and_everything_is_shown() -> None:
    results = [r for r in GUIDE.results if GUIDE.labels[r.spec.identity.group_id] != "baseline"]
    spec = GUIDE.results[0].spec
    work = spec.work.model_dump(include={"micro_batch_size", "seq_length"})
    work["campaign_id"] = spec.identity.campaign_id
    lost = make_failed("gpu-1", **work)
    labels = {**GUIDE.labels, lost.spec.identity.group_id: "baseline"}
    campaign = campaigns.make_campaign([lost, *results], campaign_kind=GUIDE.campaign_kind, labels=labels)

    assert standing("baseline", campaign).verdict is Verdict.FAILED
    assert standing("fp16", campaign).verdict is Verdict.NOT_COMPARED
    assert standing("fp16", campaign).figure(SAMPLES_PER_SECOND) is not None
    assert headline(campaign) == ()
    assert configurations(campaign)


def test_nothing_measured_is_still_a_table() -> None:
    failed = make_failed("gpu-1")
    campaign = campaigns.make_campaign(
        [failed], campaign_kind=GUIDE.campaign_kind, labels={failed.spec.identity.group_id: "baseline"}
    )
    verdicts, figures = configurations(campaign)

    assert [row.texts[:2] for row in verdicts.rows] == [("failed", "baseline")]
    assert len(figures.rows) == 1


def test_savings_compare_the_same_nodes_as_the_speed_up() -> None:
    """gpu-2 is half as fast, and fp16 ran there only: its speed-up is over gpu-2's baseline, and so is its saving."""
    both = campaigns.configurations(("gpu-1", "gpu-2"))
    names = {result.spec.identity.run_id: both.labels[result.spec.identity.group_id] for result in both.results}
    results = [
        at_half_speed(result) if result.spec.identity.node == "gpu-2" else result
        for result in both.results
        if (names[result.spec.identity.run_id], result.spec.identity.node) != ("fp16", "gpu-1")
    ]
    fp16 = standing("fp16", campaigns.make_campaign(
        results, campaign_kind=both.campaign_kind, labels=both.labels, skipped=both.skipped, params=both.params,
    ))  # fmt: skip

    assert fp16.per_sample is not None
    assert fp16.saving_pct == pytest.approx(100 * (1 - 1 / fp16.per_sample.ratio), abs=0.5)


def at_half_speed(result: RunResult) -> RunResult:
    rates = result.performance
    if result.error is not None or rates.samples_per_second is None or rates.tokens_per_second is None:
        return result
    half = {"samples_per_second": rates.samples_per_second / 2, "tokens_per_second": rates.tokens_per_second / 2}
    return result.model_copy(update={"performance": rates.model_copy(update=half)})


def test_a_skip_without_a_name_is_no_configuration() -> None:
    """A skip for another reason, such as a cordoned node, has no row."""
    unnamed = Skipped(what="node-9", reason="it is cordoned")
    campaign = GUIDE.model_copy(update={"skipped": (*GUIDE.skipped, unnamed)})
    assert [one.name for one in compare_by_gpu_kind(campaign)[0].standings] == [
        one.name for one in compare_by_gpu_kind(GUIDE)[0].standings
    ]


def test_a_configuration_without_run_or_reason_has_no_row_and_the_baseline_has_one() -> None:
    failed = make_failed("node-1")
    labels = {failed.spec.identity.group_id: "fp16", "gone": "torch-compile"}
    campaign = campaigns.make_campaign([failed], campaign_kind=GUIDE.campaign_kind, labels=labels)
    assert [one.name for one in compare_by_gpu_kind(campaign)[0].standings] == ["baseline", "fp16"]


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0099, "no difference"), (1.0101, "helped"), (0.9899, "slower")])
def test_a_sure_difference_counts_from_one_percent_on(ratio: float, verdict: str) -> None:
    sure = SpeedUp(ratio, 0.001)
    results = (make_result("gpu-1"),)
    comparer = SimpleNamespace(_twins={}, _skips={}, _base=results)
    actual, _ = _Comparer._verdict(comparer, "another", results, (), sure)  # type: ignore[arg-type]
    assert actual.value == verdict
