"""The verdicts on independent single-node runs: each node against its peers.

A node is compared with the **median of the other nodes** unless the form says otherwise: a reference that contains the
node hides it (one of four at -6 % reads -4.6 % against their mean). The median of the others survives any minority of
bad nodes (see `references`). Where two of four are slow, each node's reference lies with the other kind: the good ones
read fast, the slow ones slow, and all four are in breach with their side, so that none is hidden.

A deviation counts when it exceeds the limit. Where chance alone could exceed the limit, it must exceed limit plus
noise, else the verdict is `insufficient`, with both figures (see `noise`). A node whose runs scatter far more than its
peers' is judged by its own scatter, and is unsteady where that exceeds the limit (see `scatter`). It belongs to the
reference only where too few others are left. A node slow by more
than half of the limit and by more than chance is `ok` but watched: a warning, never red. docs/detection.md
shows by simulation what this detects.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence

from bench_image.contract.result import RunResult
from trainbench.core.formats import listing
from trainbench.core.verdicts import (
    Confirmation,
    GroupVerdict,
    Metric,
    MetricVerdict,
    NodeVerdict,
    ReferenceMode,
    State,
    Tolerances,
)
from trainbench.judging import gpu_runs, noise
from trainbench.judging.deviations import UNITS, decide_state, deviation_of, figures_text, is_slow, limit_of, side_of
from trainbench.judging.node_runs import NodeRuns, by_group, choice_of
from trainbench.judging.noise import Noise
from trainbench.judging.peers import fleet_halves, gpu_verdicts, scatter, unsteady_nodes
from trainbench.judging.peers.odd_gpu import odd_gpu
from trainbench.judging.peers.references import MIN_NODES, OWN_REFERENCE, References, reference_variance
from trainbench.judging.peers.slow_node_warnings import is_watched

_WORST_FIRST = (State.BREACH, State.INSUFFICIENT, State.NO_BASELINE)


def judge_groups(
    results: Sequence[RunResult],
    expected_nodes: Sequence[str],
    tolerances: Tolerances,
    history: Mapping[str, float] | None = None,
    as_before: Collection[str] = (),
) -> tuple[GroupVerdict, ...]:
    """One verdict for each (group_id, GPU name), every expected node in it, nodes in natural order.

    `history`: node -> its own past samples/s, where there are enough, for the reference mode `history`. `as_before`:
    the only nodes of the reference, because the others became slow (see `fleet_halves`). Re-runs confirm breaches.
    Raises ValueError for runs over several nodes, and for the reference `fixed` without a figure.
    """
    if tolerances.reference is ReferenceMode.FIXED and not tolerances.fixed_samples_per_second:
        raise ValueError("reference 'fixed' needs fixed_samples_per_second > 0: give it, or choose another reference")
    groups = by_group(results, expected_nodes)
    return tuple(_Group(members, tolerances, history or {}, as_before).verdict(*key) for key, members in groups.items())


def nodes_to_confirm(groups: Sequence[GroupVerdict]) -> tuple[str, ...]:
    """Nodes whose breach waits for its re-run, each once, in the groups' order."""
    pending = (n.node for group in groups for n in group.nodes if n.confirmation is Confirmation.PENDING)
    return tuple(dict.fromkeys(pending))


def lone_groups(groups: Sequence[GroupVerdict]) -> tuple[GroupVerdict, ...]:
    """The groups that ran on one node only, where there are several: another strategy, size or GPU than the rest."""
    lone = tuple(g for g in groups if len(g.nodes) == 1 and g.nodes[0].state is State.INSUFFICIENT)
    return lone if len(groups) > 1 else ()


class _Group:
    """The nodes of one group with their noise and references; lives for one call of `judge_groups`."""

    def __init__(
        self,
        members: Sequence[NodeRuns],
        tolerances: Tolerances,
        history: Mapping[str, float],
        as_before: Collection[str],
    ) -> None:
        self.stayed = frozenset(as_before) & {member.node for member in members}
        self.members = members
        self.tolerances = tolerances
        self.history = history
        self.units = gpu_runs.units(members)
        self.units_of: dict[str, list[NodeRuns]] = {}
        for unit in self.units:
            self.units_of.setdefault(unit.node, []).append(unit)
        values = {
            metric: {unit.key: value for unit in self.units if (value := unit.value(metric)) is not None}
            for metric in Metric
        }
        self.rates = values[Metric.SAMPLES_PER_SECOND]
        self.values = values
        measured = [unit for unit in self.units if unit.rates]
        # One GPU counts for all GPUs of its node, because their runs are not independent.
        runs_of_nodes = {unit.node: len(unit.rates) for unit in measured}
        self.reference_variance = reference_variance(tolerances.reference, list(runs_of_nodes.values()))
        own = tolerances.reference in OWN_REFERENCE
        measured_scatter = scatter.measure([scatter.Unit(m.node, m.rates) for m in measured], rounds_are_shared=not own)
        self.noise = measured_scatter.pool
        if measured_scatter.pool and self._is_beyond_limit(self._typical_half_width(measured_scatter.pool)):
            self.noise = measured_scatter.full
        self.apart = {measured[i].key: own for i, own in measured_scatter.apart.items()}
        self.outlying = {measured[i].key: rounds for i, rounds in measured_scatter.outlying.items()}
        # An outlying scatter below the limit changes nothing.
        self.unsteady = {m.key for m in measured if m.key in self.apart and self._is_beyond_limit(self._half_width(m))}
        no_example = {unit.key for unit in self.units if unit.is_drill} | self.unsteady
        self.references = {
            metric: References(values[metric], no_example, tolerances.reference, self._stayed_for(metric))
            for metric in Metric
        }

    def _stayed_for(self, metric: Metric) -> frozenset[str]:
        return self.stayed if metric is Metric.SAMPLES_PER_SECOND else frozenset()

    def verdict(self, group_id: str, gpu_name: str | None) -> GroupVerdict:
        rates = self.rates.values()
        return GroupVerdict(
            group_id=group_id,
            gpu_name=gpu_name,
            reference=self.tolerances.reference,
            nodes=fleet_halves.with_remarks([self._node(member) for member in self.members], self.stayed),
            spread_pct=100 * (max(rates) - min(rates)) / statistics.median(rates) if len(rates) > 1 else None,
            noise_pct=100 * self.noise.sd if self.noise else None,
            detectable_pct=noise.to_pct(self._typical_half_width(self.noise), slow=True) if self.noise else None,
            choice=self.members[0].choice if self.members else None,
        )

    def _typical_half_width(self, run_noise: Noise) -> float:
        """The deviation of a typical node by chance, as a logarithm."""
        runs = statistics.median_low([len(unit.rates) for unit in self.units if unit.rates])
        return run_noise.half_width(noise.median_variance(runs) + self.reference_variance)

    def _half_width(self, member: NodeRuns) -> float | None:
        """Half-width of the node's deviation, as a logarithm: from its own runs and from the reference."""
        num_runs = len(member.rates) - len(self.outlying.get(member.key, ()))
        own = self.apart.get(member.key)
        if own and self.noise:  # see `scatter`: its own noise, and that of its peers
            of_own = own.noise.half_width(noise.median_variance(num_runs))
            return math.hypot(of_own, self.noise.half_width(self.reference_variance))
        if self.noise and num_runs:
            return self.noise.half_width(noise.median_variance(num_runs) + self.reference_variance)
        return None

    def _is_beyond_limit(self, half_width: float | None) -> bool:
        limit = limit_of(Metric.SAMPLES_PER_SECOND, self.tolerances)
        return half_width is not None and noise.to_pct(half_width, slow=True) > limit

    def _node(self, member: NodeRuns) -> NodeVerdict:
        """The node's verdict; with independent GPUs that of the worst GPU."""
        verdicts = [(unit.gpu, self._unit(unit)) for unit in self.units_of[member.node]]
        gpus = [gpu_verdicts.gpu_verdict(place, verdict) for place, verdict in verdicts if place]
        whole = next((verdict for place, verdict in verdicts if not place), None)
        # A node without a verdict of its own takes its GPUs'.
        of_node = whole or verdicts[0][1].model_copy(update={"gpus": tuple(gpus)})
        return gpu_verdicts.fold_gpus(of_node, gpus) if gpus else of_node

    def _unit(self, member: NodeRuns) -> NodeVerdict:
        metrics = tuple(self._metric(member, metric) for metric in Metric) if member.valid else ()
        state, reason = _overall(member, metrics)
        own = self.apart[member.key] if member.key in self.unsteady else None
        if own and not member.failed:
            reason = f"unsteady: {unsteady_nodes.scatter_phrase(member.rates, own)}; {reason}"
        watched = state is State.OK and is_watched(metrics[0])
        return NodeVerdict(
            node=member.node,
            gpu_name=member.gpu_name,
            state=state,
            metrics=metrics,
            num_runs=len(member.valid),
            confirmation=Confirmation.PENDING if state is State.BREACH else Confirmation.NOT_NEEDED,
            confirm_deviation_pct=None,
            is_drill=member.is_drill,
            reason=f"{reason}, but watched: {metrics[0].reason}" if watched else reason,
            is_watched=watched,
            is_unsteady=own is not None,
            unsteady_factor=own.factor if own else None,
            disturbed_rounds=tuple(sorted(self.outlying.get(member.key, ()))),
        )

    def _metric(self, member: NodeRuns, metric: Metric) -> MetricVerdict:
        value = self.values[metric].get(member.key)
        if value is None:
            return self._unmeasured(member, metric)
        own = metric is Metric.SAMPLES_PER_SECOND and self.tolerances.reference in OWN_REFERENCE
        reference = self._own_reference(member.node) if own else self.references[metric].of(member.key)
        if reference is None and own:
            reason = f"no baseline yet: {self.tolerances.history_min_points} past runs of this node are needed"
            return self._not_compared(metric, value, State.NO_BASELINE, reason)
        if reference is None:
            return self._not_compared(metric, value, State.INSUFFICIENT, self._too_few(metric))
        return self._compared(member, metric, value, reference)

    def _compared(self, member: NodeRuns, metric: Metric, value: float, reference: float) -> MetricVerdict:
        limit, deviation = limit_of(metric, self.tolerances), deviation_of(metric, value, reference)
        half_width = self._half_width(member) if metric is Metric.SAMPLES_PER_SECOND else None
        noise_pct = None if half_width is None else noise.to_pct(half_width, slow=deviation < 0)
        state = decide_state(deviation, limit, noise_pct)
        is_off = state is State.BREACH or (metric is Metric.SAMPLES_PER_SECOND and is_slow(deviation, limit))
        odd = odd_gpu(member.valid, metric, side_of(metric, deviation)) if is_off else None
        text = figures_text(metric, state, deviation, limit, noise_pct)
        return MetricVerdict(
            metric=metric,
            state=state,
            value=value,
            reference=reference,
            deviation=deviation,
            limit=limit,
            noise=noise_pct,
            side=side_of(metric, deviation) if state is State.BREACH else None,
            reason=f"{text}; {odd.text}" if odd else text,
            gpu=odd.gpu if odd else None,
        )

    def _own_reference(self, node: str) -> float | None:
        if self.tolerances.reference is ReferenceMode.FIXED:
            return self.tolerances.fixed_samples_per_second
        return self.history.get(node)

    def _too_few(self, metric: Metric) -> str:
        ordered = self.references[metric].ordered
        if len(ordered) < 2:  # of all nodes: with fewer than MIN_NODES the drilled ones are included
            return f"no peer has a value to compare with: at least {MIN_NODES} nodes are needed"
        apart = abs(deviation_of(metric, ordered[1], ordered[0]))
        return f"the pair differs by {apart:.1f}{UNITS[metric]}, but with two nodes it is unknown which one is off"

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


def other_work(member: NodeRuns) -> str:
    """A phrase on the other work that the node's program chose."""
    chosen = listing(dict.fromkeys(choice_of(run) for run in member.strays))
    return f"its program chose {chosen}, those of its peers {member.choice}: other work, not compared"


def _overall(member: NodeRuns, metrics: Sequence[MetricVerdict]) -> tuple[State, str]:
    if not member.runs:
        return State.MISSING, "expected, but gave no result"
    if member.failed:
        errors = [(run.spec.identity.round, run.status.value, run.error.message) for run in member.failed if run.error]
        return State.FAILED, "; ".join(f"round {round_} {status}: {message}" for round_, status, message in errors)
    if not member.valid and member.busy:
        return State.BUSY, next(run.error.message for run in member.busy if run.error)
    if not member.valid:
        return State.NOT_JUDGED, other_work(member)
    for state in _WORST_FIRST:
        reasons = list(dict.fromkeys(m.reason for m in metrics if m.state is state))
        if reasons:
            return state, "; ".join(reasons)
    return State.OK, "within all limits"
