"""Is every node as fast as its peers? Results of independent single-node runs -> verdicts, and the confirm step.

A node is compared with the **median of the other nodes** unless told otherwise: a reference that contains the node
hides it (one of four at -6 % reads -4.6 % against their mean). The median of the others survives one bad node; where
two of four are slow it falls on the other kind, so the good ones read fast and the slow ones slow: all four breach,
each with its side named, and none is hidden.

A deviation counts when it is beyond the limit; if chance alone could explain more than the limit, it has to be beyond
both together, else the verdict is `insufficient`, with both figures (see `noise`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from bench_control import noise
from bench_control.formats import listing
from bench_control.limits import UNITS, decide, deviation_of, figures, limit_of, side_of, too_noisy
from bench_control.node_runs import NodeRuns, by_group, choice_of, measured
from bench_control.noise import Noise
from bench_control.verdicts import (
    Confirmation,
    GroupVerdict,
    Metric,
    MetricVerdict,
    NodeVerdict,
    ReferenceMode,
    State,
    Tolerances,
)
from bench_image.contract import RunResult, Status

MIN_NODES = 3  # with two, either may be the odd one
OWN_REFERENCE = (ReferenceMode.HISTORY, ReferenceMode.FIXED)  # throughput only; they need no peers
_WORST_FIRST = (State.BREACH, State.INSUFFICIENT, State.NO_BASELINE)


def judge(
    results: Sequence[RunResult],
    expected_nodes: Sequence[str],
    tolerances: Tolerances,
    history: Mapping[str, float] | None = None,
) -> tuple[GroupVerdict, ...]:
    """One verdict for each (group_id, GPU name), every expected node in it, nodes in natural order.

    `history` (node -> its own past samples/s) serves the reference `history`. Breaches are to be confirmed by a re-run.
    Raises ValueError for runs over several nodes, and for the reference `fixed` without a figure.
    """
    if tolerances.reference is ReferenceMode.FIXED and not tolerances.fixed_samples_per_second:
        raise ValueError("reference 'fixed' needs fixed_samples_per_second > 0: give it, or choose another reference")
    groups = by_group(results, expected_nodes)
    return tuple(_Group(members, tolerances, history or {}).verdict(*key) for key, members in groups.items())


def nodes_to_confirm(groups: Sequence[GroupVerdict]) -> tuple[str, ...]:
    """Nodes whose breach waits for its re-run, each once, in the groups' order."""
    pending = (n.node for group in groups for n in group.nodes if n.confirmation is Confirmation.PENDING)
    return tuple(dict.fromkeys(pending))


def lone_groups(groups: Sequence[GroupVerdict]) -> tuple[GroupVerdict, ...]:
    """The groups that ran on one node only, where there are several: strategies or sizes side by side, not nodes."""
    lone = tuple(g for g in groups if len(g.nodes) == 1 and g.nodes[0].state is State.INSUFFICIENT)
    return lone if len(lone) > 1 else ()


class _Group:
    """What the nodes of one group are compared with; lives for one call of `judge`."""

    def __init__(self, members: Sequence[NodeRuns], tolerances: Tolerances, history: Mapping[str, float]) -> None:
        self.members = members
        self.tolerances = tolerances
        self.history = history
        self.values = {
            metric: {m.node: value for m in members if (value := m.value(metric)) is not None} for metric in Metric
        }
        self.ordered = {metric: sorted(values.values()) for metric, values in self.values.items()}
        own = tolerances.reference in OWN_REFERENCE
        self.noise = noise.estimate([m.rates for m in members if m.rates], rounds_are_shared=not own)
        self.reference_variance = _reference_variance(tolerances.reference, [len(m.rates) for m in members if m.rates])

    def verdict(self, group_id: str, gpu_name: str | None) -> GroupVerdict:
        rates = self.ordered[Metric.SAMPLES_PER_SECOND]
        return GroupVerdict(
            group_id=group_id,
            gpu_name=gpu_name,
            reference=self.tolerances.reference,
            nodes=tuple(self._node(member) for member in self.members),
            spread_pct=100 * (rates[-1] - rates[0]) / statistics.median(rates) if len(rates) > 1 else None,
            noise_pct=100 * self.noise.sd if self.noise else None,
            detectable_pct=self._detectable_pct(self.noise) if self.noise else None,
            choice=self.members[0].choice if self.members else None,
        )

    def _detectable_pct(self, run_noise: Noise) -> float:
        """How far below the reference a typical node must be to tell it from chance."""
        runs = statistics.median_low([len(m.rates) for m in self.members if m.rates])
        variance = noise.median_variance(runs) + self.reference_variance
        return noise.to_pct(run_noise.half_width(variance), slow=True)

    def _node(self, member: NodeRuns) -> NodeVerdict:
        metrics = tuple(self._metric(member, metric) for metric in Metric) if member.valid else ()
        state, reason = _overall(member, metrics)
        return NodeVerdict(
            node=member.node,
            gpu_name=member.gpu_name,
            state=state,
            metrics=metrics,
            num_runs=len(member.valid),
            confirmation=Confirmation.PENDING if state is State.BREACH else Confirmation.NOT_NEEDED,
            confirm_deviation_pct=None,
            is_drill=member.is_drill,
            reason=reason,
        )

    def _metric(self, member: NodeRuns, metric: Metric) -> MetricVerdict:
        value = self.values[metric].get(member.node)
        if value is None:
            return self._unmeasured(member, metric)
        own = metric is Metric.SAMPLES_PER_SECOND and self.tolerances.reference in OWN_REFERENCE
        reference = self._own_reference(member.node) if own else self._peers_reference(metric, value)
        if reference is None and own:
            return self._not_compared(metric, value, State.NO_BASELINE, "no past figure of this node to compare with")
        if reference is None:
            return self._not_compared(metric, value, State.INSUFFICIENT, self._too_few(metric))
        return self._compared(member, metric, value, reference)

    def _compared(self, member: NodeRuns, metric: Metric, value: float, reference: float) -> MetricVerdict:
        limit, deviation = limit_of(metric, self.tolerances), deviation_of(metric, value, reference)
        noise_pct = None
        if metric is Metric.SAMPLES_PER_SECOND and self.noise:
            variance = noise.median_variance(len(member.rates)) + self.reference_variance
            noise_pct = noise.to_pct(self.noise.half_width(variance), slow=deviation < 0)
        state = decide(deviation, limit, noise_pct)
        return MetricVerdict(
            metric=metric,
            state=state,
            value=value,
            reference=reference,
            deviation=deviation,
            limit=limit,
            noise=noise_pct,
            side=side_of(metric, deviation) if state is State.BREACH else None,
            reason=figures(metric, state, deviation, limit, noise_pct),
        )

    def _own_reference(self, node: str) -> float | None:
        if self.tolerances.reference is ReferenceMode.FIXED:
            return self.tolerances.fixed_samples_per_second
        return self.history.get(node)

    def _peers_reference(self, metric: Metric, value: float) -> float | None:
        ordered = self.ordered[metric]
        if len(ordered) < MIN_NODES:
            return None
        if self.tolerances.reference is ReferenceMode.MEAN:
            return statistics.fmean(ordered)
        if self.tolerances.reference is ReferenceMode.MEDIAN:
            return statistics.median(ordered)
        i = ordered.index(value)
        return statistics.median(ordered[:i] + ordered[i + 1 :])

    def _too_few(self, metric: Metric) -> str:
        ordered = self.ordered[metric]
        if len(ordered) < 2:
            return f"no peer has a value to compare with: at least {MIN_NODES} nodes are needed"
        apart = abs(deviation_of(metric, ordered[1], ordered[0]))
        return f"the pair differs by {apart:.1f}{UNITS[metric]}, but two nodes cannot tell which one is off"

    def _unmeasured(self, member: NodeRuns, metric: Metric) -> MetricVerdict:
        if member.on_gpu:
            return self._not_compared(metric, None, State.BREACH, f"{metric.value} was not measured on a GPU run")
        if metric is Metric.TEMPERATURE_C:
            return self._not_compared(metric, None, State.NOT_JUDGED, "no GPU")
        resident = [gb for run in member.valid if (gb := run.memory.peak_during_training) is not None]
        shown = statistics.median(resident) if resident else None
        reason = "no GPU; the resident memory of a process is not deterministic"
        return self._not_compared(metric, shown, State.NOT_JUDGED, reason)

    def _not_compared(self, metric: Metric, value: float | None, state: State, reason: str) -> MetricVerdict:
        return MetricVerdict(
            metric=metric,
            state=state,
            value=value,
            reference=None,
            deviation=None,
            limit=limit_of(metric, self.tolerances),
            noise=None,
            side=None,
            reason=reason,
        )


def confirm(
    groups: Sequence[GroupVerdict], results: Sequence[RunResult], tolerances: Tolerances
) -> tuple[GroupVerdict, ...]:
    """Settles every pending breach by its one re-run in `results`, compared with the first verdict's reference.

    Beyond limit and noise on the same side again: confirmed. Within the limit, or beyond it on the other side: not
    confirmed, a notice. Beyond the limit, but within the noise of one run: inconclusive and `insufficient`. A re-run
    that failed, never came back or chose other work: inconclusive, and the breach stands.
    """
    reruns = {(result.spec.group_id, result.spec.node): result for result in results}
    return tuple(
        group.model_copy(
            update={
                "nodes": tuple(
                    _settled(node, reruns.get((group.group_id, node.node)), group, tolerances)
                    if node.confirmation is Confirmation.PENDING
                    else node
                    for node in group.nodes
                )
            }
        )
        for group in groups
    )


def _settled(node: NodeVerdict, rerun: RunResult | None, group: GroupVerdict, tolerances: Tolerances) -> NodeVerdict:
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
    states = {metric.state for old, metric in zip(node.metrics, metrics, strict=True) if old.state is State.BREACH}
    state = next(s for s in (State.BREACH, State.INSUFFICIENT, State.NOTICE) if s in states)
    return node.model_copy(
        update={
            "state": state,
            "metrics": metrics,
            "confirmation": {
                State.BREACH: Confirmation.CONFIRMED,
                State.INSUFFICIENT: Confirmation.INCONCLUSIVE,
                State.NOTICE: Confirmation.NOT_CONFIRMED,
            }[state],
            "confirm_deviation_pct": again,
            "reason": "; ".join(dict.fromkeys(m.reason for m in metrics if m.state is state)),
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
    unit = UNITS[first.metric]
    reason = f"{first.reason}; re-run {deviation:+.1f}{unit}{told}"
    return first.model_copy(update={"state": state, "reason": reason})


def _single_run_widening(node: NodeVerdict, group: GroupVerdict) -> float:
    """Half-width of one run's deviation / half-width of the deviation of the median of the node's runs."""
    runs = [n.num_runs for n in group.nodes if n.num_runs]
    reference_variance = _reference_variance(group.reference, runs)
    return math.sqrt((1 + reference_variance) / (noise.median_variance(max(node.num_runs, 1)) + reference_variance))


def _reference_variance(mode: ReferenceMode, runs_of_nodes: Sequence[int]) -> float:
    """Upper bound of the reference's variance in units of one run's: the node with the fewest runs stands for all."""
    if mode in OWN_REFERENCE or not runs_of_nodes:
        return 0.0
    of_node = noise.median_variance(min(runs_of_nodes))
    if mode is ReferenceMode.LEAVE_ONE_OUT_MEDIAN:
        return noise.median_variance(max(len(runs_of_nodes) - 1, 1)) * of_node
    return noise.median_variance(len(runs_of_nodes)) * of_node


def other_work(member: NodeRuns) -> str:
    """What the node's program chose in place of what its peers' did."""
    chosen = listing(dict.fromkeys(choice_of(run) for run in member.strays))
    return f"its program chose {chosen}, those of its peers {member.choice}: other work, not compared"


def _overall(member: NodeRuns, metrics: Sequence[MetricVerdict]) -> tuple[State, str]:
    if not member.runs:
        return State.MISSING, "expected, but no result came back"
    if member.failed:
        told = (f"round {r.spec.round} {r.status.value}: {r.error.message}" for r in member.failed if r.error)
        return State.FAILED, "; ".join(told)
    if not member.valid and member.busy:
        return State.BUSY, next(run.error.message for run in member.busy if run.error)
    if not member.valid:
        return State.NOT_JUDGED, other_work(member)
    for state in _WORST_FIRST:
        reasons = list(dict.fromkeys(m.reason for m in metrics if m.state is state))
        if reasons:
            return state, "; ".join(reasons)
    return State.OK, "within all limits"
