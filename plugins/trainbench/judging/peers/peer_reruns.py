"""Clears breaches that a disturbed run of a peer caused: the peer's re-run corrects the reference.

Of four nodes one is slow, and another one's only run is disturbed: half of the values are low, so the two good nodes
read fast against the median of their others, and again in their re-runs. The disturbed peer's own re-run shows that it
is well. So where a peer's breach was not confirmed, its re-run stands for its first run, and a breach on the fast side
that is within the limit of the reference made anew is not confirmed. A disturbance only slows a run,
so no other node reads slow because of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from trainbench.core.formats import percent
from trainbench.core.verdicts import (
    Confirmation,
    GpuVerdict,
    GroupVerdict,
    Metric,
    NodeVerdict,
    ReferenceMode,
    Side,
    State,
    Tolerances,
)
from trainbench.judging.deviations import deviation_of
from trainbench.judging.node_runs import GpuPlace, Key
from trainbench.judging.peers import gpu_verdicts
from trainbench.judging.peers.references import References

RATE = Metric.SAMPLES_PER_SECOND
Judged = NodeVerdict | GpuVerdict
_Judged = TypeVar("_Judged", NodeVerdict, GpuVerdict)


def settle_peers(group: GroupVerdict, tolerances: Tolerances) -> GroupVerdict:
    """The group after its re-runs, without breaches of samples/s that a peer's unconfirmed breach caused."""
    judged = {key: one for node in group.nodes for key, one in _judged(node)}
    if tolerances.reference is not ReferenceMode.LEAVE_ONE_OUT_MEDIAN or not any(map(_is_cleared, judged.values())):
        return group
    values = {key: value for key, one in judged.items() if (value := _value_now(one)) is not None}
    no_example = [key for key, one in judged.items() if one.is_unsteady] + [
        key for node in group.nodes if node.is_drill for key, _ in _judged(node)
    ]
    references = References(values, no_example, tolerances.reference)
    return group.model_copy(update={"nodes": tuple(_node(node, references) for node in group.nodes)})


def _judged(node: NodeVerdict) -> Iterator[tuple[Key, Judged]]:
    if not node.gpus:
        yield Key(node.node), node
    for gpu in node.gpus:
        yield Key(node.node, GpuPlace(gpu.index, gpu.uuid)), gpu


def _is_cleared(one: Judged) -> bool:
    return one.confirmation is Confirmation.NOT_CONFIRMED and one.confirm_deviation_pct is not None


def _value_now(one: Judged) -> float | None:
    """Samples/s of the re-run where it cleared the first run, else of the first runs."""
    rate = one.metric(RATE)
    if rate is None:
        return None
    if _is_cleared(one) and rate.reference is not None and one.confirm_deviation_pct is not None:
        return rate.reference * (1 + one.confirm_deviation_pct / 100)
    return rate.value


def _node(node: NodeVerdict, references: References) -> NodeVerdict:
    if not node.gpus:
        return _anew(node, Key(node.node), references)
    gpus = [_anew(gpu, Key(node.node, GpuPlace(gpu.index, gpu.uuid)), references) for gpu in node.gpus]
    return node if gpus == list(node.gpus) else gpu_verdicts.fold_gpus(node, gpus)


def _anew(one: _Judged, key: Key, references: References) -> _Judged:
    """`one`, or a notice where its confirmed breach of samples/s is within the limit of the corrected reference."""
    # Only a confirmed breach of samples/s alone, on the fast side, can come from a disturbed peer.
    breaching = [metric for metric in one.metrics if metric.state is State.BREACH]
    rate = one.metric(RATE)
    if one.confirmation is not Confirmation.CONFIRMED or rate is None or breaching != [rate] or rate.value is None:
        return one
    if rate.side is not Side.FAST:
        return one
    reference = references.of(key)
    if reference is None or abs(deviation := deviation_of(RATE, rate.value, reference)) > rate.limit:
        return one
    # Within the limit of the corrected reference: the breach becomes a notice.
    reason = f"{rate.reason}; but {percent(deviation)} against its peers once their own re-runs count, not confirmed"
    notice = rate.model_copy(update={"state": State.NOTICE, "reason": reason})
    metrics = tuple(notice if metric is rate else metric for metric in one.metrics)
    doubtful = [metric for metric in metrics if metric.state is State.INSUFFICIENT]
    return one.model_copy(
        update={
            "state": State.INSUFFICIENT if doubtful else State.NOTICE,
            "metrics": metrics,
            "confirmation": Confirmation.NOT_CONFIRMED,
            "reason": "; ".join(dict.fromkeys(metric.reason for metric in doubtful or [notice])),
        }
    )
