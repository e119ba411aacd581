"""The verdict on a result against its node's baseline at the same work, and the finding on it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

from bench_image.contract.result import RunResult, Status
from trainbench.core.formats import percent
from trainbench.core.verdicts import Finding, HistoryVerdict, Level, RateChange, State, Tolerances
from trainbench.judging.node_runs import judged_rate
from trainbench.judging.noise import deviation_pct

# A normal distribution's standard deviation / its median absolute deviation: 1 / the 75 % quantile.
MAD_TO_SD = 1.4826
HISTORY = HISTORY_SLOWER, HISTORY_FASTER = "history_slower", "history_faster"


def judge_history(
    result: RunResult, past_samples_per_second: Sequence[float], tolerances: Tolerances
) -> HistoryVerdict:
    """The verdict: a breach when slower than the past's median by more than `history_pct` AND more than `history_mads`
    MADs.

    MAD is the median absolute deviation, scaled to a standard deviation (x 1.4826); one limit in percent, the larger of
    the two. `past_samples_per_second` holds no breached runs. Faster by as much is a notice; fewer points than
    `history_min_points` give `no_baseline`; a failed run and a drill are not judged.
    """
    # 1. What cannot be judged, and why.
    rate, num_points = judged_rate(result), len(past_samples_per_second)
    verdict = partial(
        HistoryVerdict,
        node=result.spec.identity.node,
        group_id=result.spec.identity.group_id,
        fingerprint=result.effective_spec.fingerprint,
        samples_per_second=rate,
        num_points=num_points,
    )
    if result.status is not Status.OK or rate is None:
        return verdict(state=State.NOT_JUDGED, reason=f"the run ended as {result.status.value}")
    if result.spec.drill:
        return verdict(state=State.NOT_JUDGED, reason="a drill is not compared with real runs")
    if num_points < tolerances.history_min_points:
        reason = f"no baseline yet: {num_points} past runs, {tolerances.history_min_points} are needed"
        return verdict(state=State.NO_BASELINE, reason=reason)
    # 2. The baseline, its noise, and the wider of both limits.
    median = statistics.median(past_samples_per_second)
    mad = MAD_TO_SD * statistics.median(abs(past - median) for past in past_samples_per_second)
    limit = max(tolerances.history_pct, 100 * tolerances.history_mads * mad / median)
    deviation = deviation_pct(rate, median)
    state = State.OK if abs(deviation) <= limit else State.BREACH if deviation < 0 else State.NOTICE
    reason = f"{percent(deviation)} against the median of its {num_points} past runs, limit ±{limit:.1f} %"
    return verdict(state=state, baseline_median=median, deviation_pct=deviation, limit_pct=limit, reason=reason)


def trend_findings(verdict: HistoryVerdict) -> tuple[Finding, ...]:
    """A finding on a breach or an improvement; empty otherwise."""
    if verdict.state not in (State.BREACH, State.NOTICE):
        return ()
    slower = verdict.state is State.BREACH
    resolution = (
        "compare driver, image, clocks and temperature with the last good run, then repeat the check"
        if slower
        else "if it lasts it becomes the baseline by itself; find out what changed"
    )
    return (
        Finding(
            level=Level.WARNING if slower else Level.INFO,
            category=HISTORY_SLOWER if slower else HISTORY_FASTER,
            nodes=(verdict.node,),
            measured=f"{verdict.samples_per_second:.4g} samples/s",
            expected=f"{verdict.baseline_median:.4g} samples/s ± {verdict.limit_pct:.1f} %",
            summary=f"is {'slower' if slower else 'faster'} than it was: {verdict.reason}",
            resolution=resolution,
            changes=_changes(verdict),
        ),
    )


def _changes(verdict: HistoryVerdict) -> tuple[RateChange, ...]:
    before, after, limit_pct = verdict.baseline_median, verdict.samples_per_second, verdict.limit_pct
    if verdict.fingerprint is None or before is None or after is None or limit_pct is None:
        return ()
    work = verdict.fingerprint
    return (RateChange(node=verdict.node, fingerprint=work, before=before, after=after, limit_pct=limit_pct),)
