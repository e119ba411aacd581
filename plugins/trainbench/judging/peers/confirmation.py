"""Settles first verdicts by the re-runs of their breaches, so that no single measurement alerts anybody."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from bench_image.contract.result import RunResult, Status
from trainbench.core.formats import signed
from trainbench.core.verdicts import (
    Confirmation,
    GpuVerdict,
    GroupVerdict,
    Metric,
    MetricVerdict,
    NodeVerdict,
    State,
    Tolerances,
    with_remark,
)
from trainbench.judging import gpu_runs, noise
from trainbench.judging.deviations import UNITS, decide_state, deviation_of, is_slow, side_of, too_noisy
from trainbench.judging.node_runs import GpuPlace, choice_of, latest_results, run_figure
from trainbench.judging.peers import gpu_verdicts, peer_reruns
from trainbench.judging.peers.references import reference_variance
from trainbench.judging.peers.slow_node_warnings import is_watched

_Judged = TypeVar("_Judged", NodeVerdict, GpuVerdict)
_WORST_FIRST = (State.BREACH, State.INSUFFICIENT, State.NO_BASELINE, State.NOTICE)
_CONFIRMATION = {
    State.BREACH: Confirmation.CONFIRMED,
    State.INSUFFICIENT: Confirmation.INCONCLUSIVE,
    State.NOTICE: Confirmation.NOT_CONFIRMED,
}


def confirm(
    groups: Sequence[GroupVerdict], results: Sequence[RunResult], tolerances: Tolerances, *, has_reruns: bool = True
) -> tuple[GroupVerdict, ...]:
    """Settle every pending breach by its re-run in `results`, compared with the first verdict's reference. A node with
    independent GPUs is re-run as a whole, and its part of the re-run settles each pending GPU.

    Beyond limit and noise on the same side again: confirmed. Within the limit, or beyond it on the other side: not
    confirmed, a notice; watched, if both were slow by more than half of the limit. Beyond the limit, but within the
    noise of one run: inconclusive and `insufficient`. A re-run that failed, gave no result or chose other work:
    inconclusive, and the breach stands; likewise where no re-run was planned (`has_reruns`). A breach that only a
    disturbed first run of a peer caused is not confirmed (see `peer_reruns`).
    """
    reruns = {(result.spec.identity.group_id, result.spec.identity.node): result for result in latest_results(results)}
    settled = (
        group.model_copy(
            update={
                "nodes": tuple(
                    _of_node(node, reruns.get((group.group_id, node.node)), group) if has_reruns else _unplanned(node)
                    for node in group.nodes
                )
            }
        )
        for group in groups
    )
    return tuple(peer_reruns.settle_peers(group, tolerances) for group in settled)


def _of_node(node: NodeVerdict, rerun: RunResult | None, group: GroupVerdict) -> NodeVerdict:
    if node.confirmation is not Confirmation.PENDING:
        return node
    if not node.gpus:
        return _settled(node, rerun, group)
    parts = gpu_runs.by_gpu(rerun) if rerun else {}
    gpus = [
        gpu
        if gpu.confirmation is not Confirmation.PENDING
        else _settled(gpu, parts.get(GpuPlace(gpu.index, gpu.uuid)) if parts else rerun, group)
        for gpu in node.gpus
    ]
    return gpu_verdicts.fold_gpus(node, gpus)


def _unplanned(node: NodeVerdict) -> NodeVerdict:
    def of(one: _Judged) -> _Judged:
        is_pending = one.confirmation is Confirmation.PENDING
        return one.model_copy(update={"confirmation": Confirmation.NOT_PLANNED}) if is_pending else one

    return of(node).model_copy(update={"gpus": tuple(map(of, node.gpus))})


def _settled(judged: _Judged, rerun: RunResult | None, group: GroupVerdict) -> _Judged:
    """The verdict on a pending breach after its re-run."""
    if unusable := _unusable(rerun, group):
        remarked = with_remark(judged, f"the re-run {unusable}")
        return remarked.model_copy(update={"confirmation": Confirmation.INCONCLUSIVE})
    assert rerun is not None, "else it is unusable"
    # One run is noisier than the median of several, so the noise of the deviation is widened.
    widening = _single_run_widening(judged, group)
    metrics = tuple(
        _with_rerun(metric, run_figure(rerun, metric.metric), widening) if metric.state is State.BREACH else metric
        for metric in judged.metrics
    )
    # The re-run decides only on the metrics in breach; the worst of them decides the verdict.
    in_breach = {metric.state for old, metric in zip(judged.metrics, metrics, strict=True) if old.state is State.BREACH}
    answer = next(s for s in _WORST_FIRST if s in in_breach)
    # A metric that could not be judged at first stays so, even where another metric's breach is cleared.
    state = next(s for s in _WORST_FIRST if s in {metric.state for metric in metrics})
    rate = judged.metric(Metric.SAMPLES_PER_SECOND)
    rerun_deviation_pct = _deviation_pct(rate, rerun)
    # Remarks on the first verdict hold while it stands.
    remarks: tuple[str, ...] = judged.remarks if state is State.BREACH else ()
    reasons: tuple[str, ...] = tuple(dict.fromkeys(metric.reason for metric in metrics if metric.state is state))
    return judged.model_copy(
        update={
            "state": state,
            "metrics": metrics,
            "confirmation": _CONFIRMATION[answer],
            "confirm_deviation_pct": rerun_deviation_pct,
            "reason": "; ".join(reasons + remarks),
            "remarks": remarks,
            "is_watched": state is State.NOTICE and _is_slow_twice(rate, rerun_deviation_pct),
        }
    )


def _unusable(rerun: RunResult | None, group: GroupVerdict) -> str | None:
    """Why the re-run cannot decide; None: it can."""
    if rerun is None or rerun.status is not Status.OK:
        return "gave no result" if rerun is None or rerun.error is None else f"failed: {rerun.error.message}"
    if group.choice and choice_of(rerun) != group.choice:
        return f"chose other work ({choice_of(rerun)}) and cannot decide"
    return None


def _deviation_pct(rate: MetricVerdict | None, rerun: RunResult) -> float | None:
    """Samples/s of the re-run against the reference of the first runs."""
    again = rerun.performance.samples_per_second
    return noise.deviation_pct(again, rate.reference) if rate and rate.reference and again else None


def _is_slow_twice(rate: MetricVerdict | None, rerun_deviation_pct: float | None) -> bool:
    """Whether the node was slow enough to be watched in the first runs and in the re-run."""
    if rate is None or rerun_deviation_pct is None:
        return False
    return is_watched(rate) and is_slow(rerun_deviation_pct, rate.limit)


def _with_rerun(first: MetricVerdict, value: float | None, widening: float) -> MetricVerdict:
    """The verdict on one metric in breach once its re-run is known: still a breach, a notice, or insufficient."""
    if value is None:
        return first.model_copy(update={"reason": f"{first.reason}; nor by the re-run"})
    if first.reference is None:  # missing at first, present now
        return first.model_copy(update={"state": State.NOTICE, "reason": f"{first.reason}; the re-run measured it"})
    deviation = deviation_of(first.metric, value, first.reference)
    noise_pct = None
    if first.noise is not None and first.deviation is not None:
        slow = first.deviation < 0
        noise_pct = noise.to_pct(noise.from_pct(first.noise, slow=slow) * widening, slow=slow)
    state = State.NOTICE
    if side_of(first.metric, deviation) is first.side and abs(deviation) > first.limit:
        state = decide_state(deviation, first.limit, noise_pct)
    outcome = {State.BREACH: "", State.NOTICE: ", not confirmed", State.INSUFFICIENT: too_noisy(noise_pct)}[state]
    reason = f"{first.reason}; re-run {signed(deviation, UNITS[first.metric])}{outcome}"
    return first.model_copy(update={"state": state, "reason": reason})


def _single_run_widening(node: NodeVerdict | GpuVerdict, group: GroupVerdict) -> float:
    """Half-width of one run's deviation / half-width of the deviation of the median of the node's runs."""
    runs = [n.num_runs for n in group.nodes if n.num_runs]
    of_reference = reference_variance(group.reference, runs)
    return math.sqrt((1 + of_reference) / (noise.median_variance(max(node.num_runs, 1)) + of_reference))
