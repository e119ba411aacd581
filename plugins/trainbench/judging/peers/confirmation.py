"""A breach is re-run once before anybody is told: first verdicts and the re-runs -> settled verdicts."""

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
    beyond_metrics,
)
from trainbench.judging import gpu_runs, noise
from trainbench.judging.limits import UNITS, decide, deviation_of, is_slow, side_of, too_noisy
from trainbench.judging.node_runs import GpuPlace, choice_of, latest, measured
from trainbench.judging.peers import gpu_verdicts, peer_reruns
from trainbench.judging.peers.references import reference_variance
from trainbench.judging.peers.slow_node_warnings import is_watched

_Judged = TypeVar("_Judged", NodeVerdict, GpuVerdict)
_WORST_FIRST = (State.BREACH, State.INSUFFICIENT, State.NO_BASELINE, State.NOTICE)


def confirm(
    groups: Sequence[GroupVerdict], results: Sequence[RunResult], tolerances: Tolerances, *, has_reruns: bool = True
) -> tuple[GroupVerdict, ...]:
    """Settles every pending breach by its one re-run in `results`, compared with the first verdict's reference. A node
    that measured its GPUs by themselves is re-run as a whole, and each of its pending GPUs settled by its own part.

    Beyond limit and noise on the same side again: confirmed. Within the limit, or beyond it on the other side: not
    confirmed, a notice; watched, if both were slow by more than half of the limit. Beyond the limit, but within the
    noise of one run: inconclusive and `insufficient`. A re-run that failed, never came back or chose other work:
    inconclusive, and the breach stands. So it does where no re-run was planned (`has_reruns`). A breach that only the
    first run of a disturbed peer made is not confirmed (see `peer_reruns`).
    """
    reruns = {(result.spec.group_id, result.spec.node): result for result in latest(results)}
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
    return tuple(peer_reruns.settled(group, tolerances) for group in settled)


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
    return gpu_verdicts.folded(node, gpus)


def _unplanned(node: NodeVerdict) -> NodeVerdict:
    def of(one: _Judged) -> _Judged:
        is_pending = one.confirmation is Confirmation.PENDING
        return one.model_copy(update={"confirmation": Confirmation.NOT_PLANNED}) if is_pending else one

    return of(node).model_copy(update={"gpus": tuple(map(of, node.gpus))})


def _settled(node: _Judged, rerun: RunResult | None, group: GroupVerdict) -> _Judged:
    if rerun is None or rerun.status is not Status.OK:
        what = "did not come back" if rerun is None or rerun.error is None else f"failed: {rerun.error.message}"
        return node.model_copy(
            update={"confirmation": Confirmation.INCONCLUSIVE, "reason": f"{node.reason}; the re-run {what}"}
        )
    if group.choice and choice_of(rerun) != group.choice:
        told = f"{node.reason}; the re-run chose other work ({choice_of(rerun)}) and tells nothing"
        return node.model_copy(update={"confirmation": Confirmation.INCONCLUSIVE, "reason": told})
    widening = _single_run_widening(node, group)
    metrics = tuple(
        _retold(metric, measured(rerun, metric.metric), widening) if metric.state is State.BREACH else metric
        for metric in node.metrics
    )
    throughput = node.metric(Metric.SAMPLES_PER_SECOND)
    again = None
    if throughput and throughput.reference and rerun.performance.samples_per_second:
        again = noise.deviation_pct(rerun.performance.samples_per_second, throughput.reference)
    settled = {metric.state for old, metric in zip(node.metrics, metrics, strict=True) if old.state is State.BREACH}
    answer = next(s for s in _WORST_FIRST if s in settled)
    # A metric that could not be judged at first is not well because the breach of another one was none.
    state = next(s for s in _WORST_FIRST if s in {metric.state for metric in metrics})
    return node.model_copy(
        update={
            "state": state,
            "metrics": metrics,
            "confirmation": {
                State.BREACH: Confirmation.CONFIRMED,
                State.INSUFFICIENT: Confirmation.INCONCLUSIVE,
                State.NOTICE: Confirmation.NOT_CONFIRMED,
            }[answer],
            "confirm_deviation_pct": again,
            "reason": "; ".join(dict.fromkeys(m.reason for m in metrics if m.state is state))
            + (beyond_metrics(node) if state is State.BREACH else ""),
            "is_watched": state is State.NOTICE
            and throughput is not None
            and again is not None
            and is_watched(throughput)
            and is_slow(again, throughput.limit),
        }
    )


def _retold(first: MetricVerdict, value: float | None, widening: float) -> MetricVerdict:
    """The breach of one metric in the light of its re-run."""
    if value is None:
        return first.model_copy(update={"reason": f"{first.reason}; nor by the re-run"})
    if first.reference is None:  # it was missing and is there now
        return first.model_copy(update={"state": State.NOTICE, "reason": f"{first.reason}; the re-run measured it"})
    deviation = deviation_of(first.metric, value, first.reference)
    noise_pct = None
    if first.noise is not None and first.deviation is not None:
        slow = first.deviation < 0
        noise_pct = noise.to_pct(noise.from_pct(first.noise, slow=slow) * widening, slow=slow)
    state = State.NOTICE
    if side_of(first.metric, deviation) is first.side and abs(deviation) > first.limit:
        state = decide(deviation, first.limit, noise_pct)
    told = {State.BREACH: "", State.NOTICE: ", not confirmed", State.INSUFFICIENT: too_noisy(noise_pct)}[state]
    reason = f"{first.reason}; re-run {signed(deviation, UNITS[first.metric])}{told}"
    return first.model_copy(update={"state": state, "reason": reason})


def _single_run_widening(node: NodeVerdict | GpuVerdict, group: GroupVerdict) -> float:
    """Half-width of one run's deviation / half-width of the deviation of the median of the node's runs."""
    runs = [n.num_runs for n in group.nodes if n.num_runs]
    of_reference = reference_variance(group.reference, runs)
    return math.sqrt((1 + of_reference) / (noise.median_variance(max(node.num_runs, 1)) + of_reference))
