"""Judges the nodes of a campaign: the results and what is known from before -> one verdict for each node.

`judge` runs twice: after the planned rounds, to choose the nodes that run again, and after the re-runs, for the final
verdicts. It is a pure function of its arguments, so both give the same where nothing was added.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any

from bench_image.contract.result import RunResult
from trainbench.core.baselines import Baseline, in_force
from trainbench.core.formats import count, listing, noise_share, percent
from trainbench.core.grouping import grouped
from trainbench.core.known_values import known_median
from trainbench.core.natural_order import natural
from trainbench.core.states import METRIC_NAMES, TRAITS
from trainbench.core.verdicts import (
    OTHER_WORK,
    Against,
    Comparison,
    Finding,
    GpuVerdict,
    GroupVerdict,
    Level,
    Metric,
    NodeVerdict,
    State,
    Why,
    gpu_title,
)
from trainbench.judging import same_work
from trainbench.judging.expectations import (
    Expected,
    Measured,
    by_peers,
    chance_of,
    compare_other,
    compare_rate,
    measured,
)
from trainbench.judging.gpu_checks import broken_gpu_findings, probe_shares
from trainbench.judging.levels import KnownLevel, level_of
from trainbench.judging.node_runs import (
    Key,
    NodeRuns,
    by_gpu,
    by_group,
    choice_of,
    judged_rate,
    judged_units,
    least_sd,
    rates_in_turns,
    scatter_of_run,
)
from trainbench.judging.noise import MIN_POOL, MIN_SD, Noise, Pool, Run, pooled, to_pct
from trainbench.judging.past import NodeRecord, Past, night_noise, past_of, records_of, slowdown
from trainbench.judging.rule import LOOK_SHARE, Decision, Facts, decide, is_suspect, phrase
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.plan import Plan
from trainbench.results import fault_isolation
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.readings import impossible_works, shared_by

WIDE_SDS = 3.0  # of a unit that scatters far more than the others: beyond the limit, it is unsteady
# Of tonight's figure, in units of one night's: what a night does to a node is in all its rounds and re-runs, and does
# not average out.
NIGHT_VARIANCE = 1.0
MOST_MFU_PCT = 100.0  # of the data sheet's peak
MAX_CONTROLS = 3  # of a group: one disturbed control must not decide over all suspects
FLEET_CHANGED = "fleet_changed"  # category


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known beside the results. `earlier`: earlier campaigns of all nodes at these works."""

    at: datetime
    earlier: Sequence[NodeRecord] = ()
    baselines: Sequence[Baseline] = ()
    levels: Sequence[KnownLevel] = ()


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`results` and `reruns`: as judged; what cannot count is a failed run. `suspects`: nodes that run again, with the
    well nodes `controls` beside them. `failures`: parts of the judgement that raised.
    """

    groups: tuple[GroupVerdict, ...]
    results: tuple[RunResult, ...]
    reruns: tuple[RunResult, ...] = ()
    suspects: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    failures: tuple[Finding, ...] = ()


def judge(plan: Plan, results: Sequence[RunResult], reruns: Sequence[RunResult], known: Known) -> Judgement:
    """Judge the results of `plan`. Runs over several nodes judge no node, nor do those of an impossible work, nor does
    a plan that compares runs.
    """
    parts = FaultIsolation()

    def alike(runs: Sequence[RunResult], beside: Sequence[RunResult]) -> tuple[RunResult, ...]:
        """A run that computed other numbers than its peers counts as failed, before any comparison of speeds."""
        unequal = partial(same_work.fail_unequal_work, runs, beside)
        checked = parts.attempt("comparing what was computed", plan.campaign_id, unequal)
        return tuple(runs) if checked is None else checked

    results = alike(results, ())
    reruns = alike(reruns, results)
    if not plan.judges_nodes:
        return Judgement(groups=(), results=results, reruns=reruns, failures=tuple(parts.failures))
    runs = [run for run in (*results, *reruns) if run.spec.placement.nodes == 1]
    num_gpus: dict[tuple[str, str], int] = {}
    for run in runs:
        subject = run.spec.identity.group_id, run.spec.identity.node
        num_gpus[subject] = max(num_gpus.get(subject, 1), len(by_gpu(run)))
    again_from = plan.params.rounds + 1 if plan.has_reruns else math.inf
    groups: list[_Group] = []
    replaced: dict[int, RunResult] = {}
    impossible = impossible_works(runs)
    by_work = grouped((id_, run) for run in runs if (id_ := run.spec.identity.group_id) not in impossible)
    for group_id, of_work in sorted(by_work.items()) or ([] if impossible else [("", list[RunResult]())]):
        expected = plan.nodes_by_group.get(group_id, ()) if group_id else plan.nodes

        def judge_work(of_work: Sequence[RunResult], expected: Sequence[str] = expected) -> list[_Group]:
            looks = len(num_gpus), sum(num_gpus.values())
            made = [
                _Group(plan, *key, members, known, looks, again_from)
                for key, members in by_group(of_work, expected).items()
            ]
            for group in made:
                group.verdict  # noqa: B018 - an error belongs to the results of this work
            return made

        judged, sound = fault_isolation.apart(of_work, judge_work)
        replaced |= {id(was): run for was, run in zip(of_work, sound, strict=True) if run is not was}
        groups += judged
    suspects = dict.fromkeys(node for group in groups for node in group.suspects)
    controls: dict[str, None] = {}
    for group in groups:
        if group.suspects:  # what happens to other work, or to other GPUs, says nothing of them
            steady = (node for node in group.steady if node not in suspects)
            controls |= dict.fromkeys(sorted(steady, key=lambda node: node not in controls)[:MAX_CONTROLS])
    return Judgement(
        groups=tuple(group.verdict for group in groups),
        results=tuple(replaced.get(id(run), run) for run in results),
        reruns=tuple(replaced.get(id(run), run) for run in reruns),
        suspects=tuple(suspects),
        controls=tuple(controls),
        findings=tuple(finding for group in groups for finding in group.findings),
        failures=tuple(parts.failures),
    )


def _runs(units: Sequence[NodeRuns]) -> dict[Key, tuple[Run, ...]]:
    """Unit -> its runs. Those of a round that measured in turn on one machine are compared turn by turn."""
    together = grouped((run.spec.identity.round, (unit.key, run)) for unit in units for run in unit.valid)
    in_turn: dict[tuple[Key, int], Run] = {}
    for round_, members in together.items():
        for (key, _), rates in zip(members, rates_in_turns([run for _, run in members]) or (), strict=False):
            in_turn[key, round_] = Run(round_, statistics.median(rates), scatter_of_run(rates))
    return {unit.key: tuple(in_turn.get((unit.key, run.round), run) for run in unit.rates) for unit in units}


def _named(some: Sequence[GpuVerdict], gpus: Sequence[GpuVerdict]) -> str:
    """ "GPU 3 (GPU-5f3c)"; of more than half of a node's GPUs "7 of 8 GPUs, all but GPU 0 (GPU-77ab)"."""
    others = [gpu.name for gpu in gpus if gpu not in some]
    if len(some) <= len(others):
        return listing(gpu.name for gpu in some)
    of = count(len(gpus), "GPU")
    return f"{len(some)} of {of}, all but {listing(others)}" if others else f"all {of}"


class _Group:
    """The nodes of one work and kind of GPU. Everything is computed on demand, from the results to the verdicts.

    `planned`: the same by the planned rounds alone, which say what is noise, what peers make, and who runs again.
    `looks`: numbers of nodes and of units that are looked at tonight, at all works.
    """

    def __init__(
        self,
        plan: Plan,
        group_id: str,
        gpu_name: str | None,
        members: Sequence[NodeRuns],
        known: Known,
        looks: tuple[int, int],
        again_from: float,
    ) -> None:
        self.plan, self.group_id, self.gpu_name, self.members, self.known = plan, group_id, gpu_name, members, known
        self.tolerances, self.again_from = plan.params.tolerances, again_from
        self.num_nodes, self.num_units = looks
        planned = [member.of_rounds(lambda round_: round_ < again_from) for member in members]
        is_planned = all(len(of.runs) == len(member.runs) for of, member in zip(planned, members, strict=True))
        self.planned = self if is_planned else _Group(plan, group_id, gpu_name, planned, known, looks, again_from)
        all_units = judged_units(members)
        self.runs = _runs(all_units)
        self.units = [unit for unit in all_units if any(run.round < again_from for run in self.runs[unit.key])]

    # What the planned rounds say.

    @cached_property
    def pool(self) -> Pool:
        least = max((least_sd(run) for unit in self.units for run in unit.valid), default=MIN_SD)
        return pooled([self.runs[unit.key] for unit in self.units], least)

    @cached_property
    def own_noise(self) -> dict[Key, Noise]:
        """Units that scatter far more than the others, and by more than the limit allows -> their own noise."""
        limit = self.tolerances.samples_per_second_pct
        wide = {place: own for place, own in self.pool.own.items() if to_pct(WIDE_SDS * own.sd) > limit}
        return {self.units[place].key: noise for place, noise in wide.items()}

    @cached_property
    def unfit(self) -> set[Key]:
        """Units whose runs say nothing of a healthy one: drilled, shared and unsteady, and a GPU's second name."""
        bad = {unit.key for unit in self.units if unit.is_drill or any(map(shared_by, unit.valid))}
        uuids: set[str] = set()
        for unit in self.units:  # one GPU never counts for several nodes
            own = {gpu.uuid for run in unit.valid if run.context for gpu in run.context.gpus if gpu.uuid}
            bad |= {unit.key} if own & uuids else set()
            uuids |= own
        return bad | set(self.own_noise)

    @cached_property
    def no_example(self) -> set[Key]:
        """Units that are no reference for others: unfit ones, and those of nodes that are faster than their own past,
        their level or the data sheet of their GPU allow; but where half of the fleet is, it became faster.
        """
        fast = {
            member.node
            for member in self.members
            if any(c and c.is_over for c in (self.past.get(member.node), self._against_level(member)))
            or any((run.performance.mfu_pct or 0.0) > MOST_MFU_PCT for run in member.valid)
        }
        is_few = 2 * len(fast) < len(self.of_nodes)
        return self.unfit | {unit.key for unit in self.units if is_few and unit.node in fast}

    @cached_property
    def shared(self) -> frozenset[str]:
        """Nodes that were not alone on their GPUs in the planned rounds."""
        return frozenset(m.node for m in self.planned.members if any(map(shared_by, m.valid)))

    @cached_property
    def num_rounds(self) -> int:
        return statistics.median_low([len(self.runs[unit.key]) for unit in self.units]) if self.units else 1

    @cached_property
    def peers_of(self) -> Mapping[Key, Expected | None]:
        values = {key: math.exp(own.mean) for key, own in self.measured.items()}
        expected = by_peers(values, self.no_example, self.num_rounds)
        return {key: expected(key) for key in values}

    @cached_property
    def suspects(self) -> tuple[str, ...]:
        """The nodes that their planned rounds show slow. On a shared GPU nothing can be confirmed, and where the fleet
        changed no node is at fault: none runs again for that, unless the others' re-runs could show that less than half
        of it changed. Then all that changed run again, so that none is blamed by its planned rounds alone.
        """
        if self.planned is not self:
            return self.planned.suspects
        nodes = {unit.node for unit in self.units if (c := self.against_peers[unit.key]) and is_suspect([c])}
        changed = self.changed if self._is_half(self.changed - nodes) else frozenset()
        nodes |= {
            member.node for member in self.members if member.node not in changed and is_suspect(self._of_node(member))
        }
        return tuple(sorted(nodes - self.shared, key=natural))

    @cached_property
    def steady(self) -> list[str]:
        """Nodes that may be controls: those that did not change first, of them those nearest to their peers."""
        planned = self.planned
        apart = {
            unit.node: abs(c.deviation) if (c := planned.against_peers[unit.key]) else 0.0
            for unit in planned.units
            if unit.key not in planned.no_example and unit.node not in self.suspects
        }
        return sorted(apart, key=lambda node: (node in planned.changed, apart[node]))

    # What each unit made: the re-runs corrected by what the control nodes changed meanwhile.

    @cached_property
    def control_change(self) -> tuple[dict[int, float], int]:
        """(round of re-runs -> median change of the controls' logarithms since the planned rounds, their number)."""
        controls = [unit for unit in self.units if unit.node not in self.suspects]
        changes = [
            (unit.node, run.round, math.log(run.rate) - self.planned.measured[unit.key].mean)
            for unit in controls
            for run in self.runs[unit.key]
            if run.round >= self.again_from
        ]
        of_rounds = grouped((round_, change) for _, round_, change in changes)
        medians = {round_: statistics.median(of_round) for round_, of_round in of_rounds.items()}
        return medians, len({node for node, _, _ in changes})

    def _measured(self, node: str, rates: Iterable[tuple[int, float]], noise: Noise | None) -> Measured | None:
        """From the samples/s of each round; None: no planned round has any. Re-runs of a control say what the cluster
        changed, and nothing of the control.
        """
        logs = [(round_, math.log(rate)) for round_, rate in rates]
        first = [log for round_, log in logs if round_ < self.again_from]
        if not first or self.planned is self or node not in self.suspects:
            return measured(first, (), 0, noise, self.num_units) if first else None
        change, num_controls = self.control_change
        again = [log - change.get(round_, 0.0) for round_, log in logs if round_ >= self.again_from]
        return measured(first, again, num_controls, noise, self.num_units)

    @cached_property
    def measured(self) -> dict[Key, Measured]:
        noise = self.planned.pool.noise
        found = {
            unit.key: self._measured(
                unit.node,
                [(run.round, run.rate) for run in self.runs[unit.key]],
                self.planned.own_noise.get(unit.key, noise),
            )
            for unit in self.units
        }
        return {key: own for key, own in found.items() if own}

    @cached_property
    def against_peers(self) -> dict[Key, Comparison | None]:
        pool, limit = self.planned.pool.noise, self.tolerances.samples_per_second_pct
        found: dict[Key, Comparison | None] = {}
        for key, own in self.measured.items():
            peers = self.planned.peers_of[key]
            noise = self.planned.own_noise.get(key, pool)
            found[key] = peers and compare_rate(
                own, peers, Against.PEERS, limit, chance_of(own, peers, pool, noise, self.num_units)
            )
        return found

    # Past and level: of a whole node, by its slowest GPU.

    @cached_property
    def of_nodes(self) -> dict[str, Measured]:
        rates = {
            member.node: [(run.spec.identity.round, rate) for run in member.valid if (rate := judged_rate(run))]
            for member in self.members
        }
        found = {node: self._measured(node, of_node, self.planned.pool.noise) for node, of_node in rates.items()}
        return {node: own for node, own in found.items() if own}

    @cached_property
    def tonight(self) -> dict[str, NodeRecord]:
        """Node -> its record of tonight."""
        runs = [run for member in self.members for run in member.valid]
        return {record.node: record for record in records_of(runs, self.known.at)}

    @cached_property
    def pasts(self) -> dict[str, Past]:
        if self.plan.campaign_kind is not CampaignKind.NODES or self.plan.params.noise_floor:
            return {}
        of_units = grouped((record.unit, record) for record in self.known.earlier)
        pasts = {
            node: past_of(record, of_units.get(record.unit, ()), self.tolerances.past_pct)
            for node, record in self.tonight.items()
        }
        return {node: past for node, past in pasts.items() if past}

    @cached_property
    def past(self) -> Mapping[str, Comparison]:
        """Each node against its own past, without what its round did to all nodes: the median change of the others. A
        change of the fleet is no chance, and stays in: where half of it is slow, or where all would be asked to look.
        """
        run_noise = self.planned.pool.noise
        noise = night_noise(self.pasts.values(), run_noise)
        own = {node: self.of_nodes[node] for node in self.pasts if node in self.of_nodes}
        alone = {node: self._against_past(one, self.pasts[node].expected, noise) for node, one in own.items()}
        if self._changed(alone):
            return alone
        bad = {key.node for key in self.planned.unfit}
        usual = {node: c for node, c in alone.items() if node not in bad and not c.is_off and not c.is_over}
        common = by_peers({Key(node): c.value / c.expected for node, c in usual.items()}, (), 1)
        noise = night_noise(self.pasts.values(), run_noise, without_common=True)
        found = {}
        for node, c in alone.items():
            others = common(Key(node)) if len(usual.keys() - {node}) >= MIN_POOL else None
            if others and abs(change_pct := 100 * (others.value - 1)) <= max(LOOK_SHARE * c.limit, c.chance or 0.0):
                past, change = self.pasts[node].expected, percent(change_pct)
                source = f"{past.source} (its peers changed by {change} tonight)"
                expected = Expected(
                    past.value * others.value,
                    past.source if change == percent(0.0) else source,
                    past.variance + others.variance * (NIGHT_VARIANCE + past.variance),
                )
                found[node] = self._against_past(own[node], expected, noise)
        return alone | found

    @cached_property
    def changed(self) -> frozenset[str]:
        """The nodes that are slow against their own past, where they are at least half of those with a past. Without
        what nights did to all, chance reaches less far, so more of them may be slow than alone.
        """
        return self._changed(self.past)

    def _changed(self, of_nodes: Mapping[str, Comparison]) -> frozenset[str]:
        slow = frozenset(node for node, c in of_nodes.items() if c.is_off) - self.shared
        return slow if self._is_half(slow) else frozenset()

    def _is_half(self, slow: Collection[str]) -> bool:
        return len(slow) > 1 and 2 * len(slow) >= len(self.pasts.keys() - self.shared)

    def _against_past(self, own: Measured, past: Expected, noise: Noise) -> Comparison:
        chance = noise.chance(NIGHT_VARIANCE + past.variance, self.num_nodes)
        return compare_rate(own, past, Against.PAST, self.tolerances.past_pct, chance)

    def _against_level(self, member: NodeRuns) -> Comparison | None:
        own, noise = self.of_nodes.get(member.node), self.planned.pool.noise
        known = ((run, level) for run in member.valid if (level := level_of(run, self.known.levels)))
        run, level = next(known, (None, None))
        if own is None or run is None or level is None:
            return None
        expected = Expected(level.expected_of(run), level.source)
        chance = noise.chance(own.variance, self.num_units) if noise else None
        return compare_rate(own, expected, Against.LEVEL, level.band_pct, chance)

    def _of_node(self, member: NodeRuns) -> tuple[Comparison, ...]:
        """A whole node beside its past and its level."""
        compared = [self.past.get(member.node), self._against_level(member)]
        if past := self.pasts.get(member.node):
            for metric, limit in self.limits.items():
                own, before = member.value(metric), getattr(past, metric.value)
                if own is not None and before is not None:
                    earlier = Expected(before, past.expected.source)
                    compared.append(compare_other(metric, own, earlier, Against.PAST, limit))
        return tuple(filter(None, compared))

    # Memory and temperature.

    @cached_property
    def limits(self) -> Mapping[Metric, float]:
        return {Metric.TEMPERATURE_C: self.tolerances.temperature_c, Metric.MEMORY_GB: self.tolerances.memory_pct}

    @cached_property
    def others(self) -> Mapping[Key, Sequence[Comparison]]:
        """Of each unit, beside those of several peers."""
        found: dict[Key, list[Comparison]] = {unit.key: [] for unit in self.units}
        for metric, limit in self.limits.items():
            values = {unit.key: value for unit in self.units if (value := unit.value(metric)) is not None}
            expected = by_peers(values, self.unfit, 1)
            for key, value in values.items():
                if (peers := expected(key)) and not peers.is_of_one:
                    found[key].append(compare_other(metric, value, peers, Against.PEERS, limit))
        return found

    # Verdicts.

    @cached_property
    def units_of(self) -> Mapping[str, Sequence[NodeRuns]]:
        """Node -> its units with a figure."""
        return grouped((unit.node, unit) for unit in self.units)

    @cached_property
    def verdict(self) -> GroupVerdict:
        rates = [math.exp(own.mean) for own in self.planned.measured.values()]
        noise = self.planned.pool.noise
        return GroupVerdict(
            group_id=self.group_id,
            gpu_name=self.gpu_name,
            nodes=tuple(self._node(member) for member in self.members),
            spread_pct=100 * (max(rates) - min(rates)) / statistics.median(rates) if len(rates) > 1 else None,
            noise_pct=100 * noise.sd if noise else None,
            detectable_pct=known_median(c.chance for c in self.planned.against_peers.values() if c),
            choice=self.members[0].choice if self.members else None,
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """One on the nodes that have become slower with half of the fleet."""
        nodes = [node for node in self.verdict.nodes if node.why is Why.CHANGED]
        past = [c for node in nodes if (c := node.comparison(Metric.SAMPLES_PER_SECOND, Against.PAST))]
        if not past:
            return ()
        worst = min(past, key=lambda c: c.deviation)
        dates = {slowdown(self.pasts[node.node], self.tonight[node.node]) for node in nodes}
        since = f" {next(iter(dates))}" if len(dates) == 1 else ""
        changed, members = len(self.changed), len(self.members)
        finding = Finding(
            level=Level.WARNING,
            category=FLEET_CHANGED,
            nodes=tuple(node.node for node in nodes),
            group_id=self.group_id,
            why=Why.CHANGED,
            measured=f"{percent(worst.deviation)} at the most",
            expected=f"their own past, within {worst.limit:g} %",
            evidence=tuple(past[:1]),
            summary=f"have become slower{since}: {percent(statistics.median(c.deviation for c in past))} in the median "
            f"against their own past; {'all' if changed == members else f'{changed} of {members}'} nodes of this kind "
            "did, so no single node is at fault",
            resolution=TRAITS[Why.CHANGED].next_step,
        )
        return (finding,)

    def _node(self, member: NodeRuns) -> NodeVerdict:
        gpus = tuple(
            GpuVerdict(index=unit.gpu.index, uuid=unit.gpu.uuid, **self._judged(member, unit))
            for unit in judged_units([member])
            if unit.gpu
        )
        return NodeVerdict(node=member.node, gpu_name=member.gpu_name, gpus=gpus, **self._judged(member, member, gpus))

    def _judged(self, member: NodeRuns, of: NodeRuns, gpus: Sequence[GpuVerdict] = ()) -> dict[str, Any]:
        """The fields of a verdict: `of` is the node, or one GPU of it."""
        units = [unit for unit in self.units_of.get(of.node, ()) if of is member or unit.key == of.key]
        fields: dict[str, Any] = {"num_runs": len(of.valid), "is_drill": of.is_drill}
        broken = "; ".join(dict.fromkeys(finding.summary for finding in broken_gpu_findings(of.runs)))
        if unjudged := self._unjudged(of, is_measured=bool(units)):
            reason = "; ".join(f"{gpu.name}: {gpu.reason}" for gpu in gpus if gpu.why is unjudged.why)
            decision = unjudged._replace(reason=reason or unjudged.reason)
        else:
            ordered = sorted(units, key=lambda unit: c.deviation if (c := self.against_peers[unit.key]) else 0.0)
            worst, fastest = ordered[0], ordered[-1]
            facts = self._facts(member, of, units, worst)
            decision = decide(facts)
            named = [gpu for gpu in gpus if gpu.why is decision.why]
            if named and decision.why is not Why.WELL:
                decision = decision._replace(reason=f"{_named(named, gpus)}: {decision.reason}")
            noise = self.planned.own_noise.get(worst.key, self.planned.pool.noise)
            fields |= {
                "comparisons": facts.comparisons,
                "samples_per_second": self.measured[worst.key].value,
                "memory_gb": of.value(Metric.MEMORY_GB),
                "temperature_c": of.value(Metric.TEMPERATURE_C),
                "noise_pct": 100 * noise.sd if noise else None,
                "remarks": tuple(self._remarks(of, facts.comparisons, fastest, decision.why)),
            }
        if broken:  # whatever the figures say
            decision = Decision(State.RED, Why.BROKEN_GPU, f"{broken}; {decision.reason}" if unjudged else broken)
        return fields | decision._asdict()

    def _facts(self, member: NodeRuns, of: NodeRuns, units: Sequence[NodeRuns], worst: NodeRuns) -> Facts:
        node, planned = member.node, self.planned
        past, record, past_rate = self.pasts.get(node), self.tonight.get(node), None if of.gpu else self.past.get(node)
        others = grouped((c.metric, c) for unit in units for c in self.others[unit.key]).values()
        comparisons = (
            self.against_peers[worst.key],
            *(() if of.gpu else self._of_node(member)),
            *(max(of_units, key=lambda c: c.deviation) for of_units in others),
        )
        asking = [planned.against_peers[unit.key] for unit in units]
        asking += [] if of.gpu else planned._of_node(member)
        asked = dict.fromkeys(c.against for c in asking if c and node in self.suspects and is_suspect([c]))
        accepted = record and in_force(self.known.baselines, node, record.fingerprint, self.known.at)
        no_rerun = ""
        if asked and len(self.measured[worst.key].rounds) == 1:
            reran = (run.error for run in member.runs if run.spec.identity.round >= self.again_from)
            no_result = next((error.message for error in reran if error), "none gave a result")
            no_rerun = f"no re-run decided: {no_result}" if self.plan.has_reruns else "no re-run was planned"
        shares = (share for run in member.valid[:1] for share in probe_shares(run))
        pool, peers = planned.pool.noise, planned.peers_of[worst.key]
        only_peer = peers is not None and peers.is_of_one
        own = [noise.sd for unit in units if (noise := planned.own_noise.get(unit.key))]
        unsteady = ""
        if own and pool:
            of_peers = noise_share(100 * pool.sd)
            unsteady = f"its figures scatter by {noise_share(100 * max(own))}, those of its peers by {of_peers}"
        return Facts(
            comparisons=tuple(filter(None, comparisons)),
            tolerances=self.tolerances,
            only_peer=only_peer,
            pair_cleared=only_peer
            and any(
                not c.is_off and len(c.rounds) > 1
                for unit in self.units
                if unit.node in self.suspects and (c := self.against_peers.get(unit.key))
            ),
            is_drill=member.is_drill,
            fleet_changed=node in self.changed,
            has_accepted_level=accepted is not None and accepted.node is not None,
            since=slowdown(past, record) if past and record and past_rate and past_rate.is_off else "",
            unsteady=unsteady,
            shared=next((shared.sentence for run in member.valid if (shared := shared_by(run))), ""),
            probes="" if any(comparisons) else "; ".join(share.sentence for share in shares),
            asked=tuple(asked),
            no_rerun=no_rerun,
        )

    def _remarks(self, member: NodeRuns, comparisons: Sequence[Comparison], fastest: NodeRuns, why: Why) -> list[str]:
        """What is worth knowing beside the state: missing figures and better ones. `fastest`:
        of the GPUs, which shows that most of the others are slow where nothing else does.
        """
        over = [phrase(c) for c in comparisons if c.is_over]
        of_gpu = self.against_peers[fastest.key]
        if fastest.gpu and member.gpu is None and of_gpu and of_gpu.is_over and of_gpu not in comparisons:
            over.append(f"{gpu_title(fastest.gpu.index, fastest.gpu.uuid)}: {phrase(of_gpu)}")
        remarks = [f"{better}: better than expected, or the others are worse" for better in over if why is not Why.PAIR]
        if member.on_gpu and member.valid:
            missing = [METRIC_NAMES[metric] for metric in self.limits if member.value(metric) is None]
            remarks += [f"no {listing(missing)} was measured"] if missing else []
        if member.valid and member.strays:
            remarks.append(f"{count(len(member.strays), 'run')} not compared: {self._chosen(member)}")
        return remarks

    def _chosen(self, member: NodeRuns) -> str:
        chosen = listing(dict.fromkeys(choice_of(run) for run in member.strays))
        return f"its program chose {chosen}, those of its peers {member.choice}"

    def _unjudged(self, member: NodeRuns, *, is_measured: bool) -> Decision | None:
        """The verdict on a node or GPU with a failed run or without figures of this work; None: it is judged."""
        planned = [run for run in member.runs if run.spec.identity.round < self.again_from]
        failed = [run for run in planned if run in member.failed]
        if not member.runs:
            why, reason = Why.MISSING, "expected, but gave no result"
        elif failed:
            other = all(run.error and run.error.kind == OTHER_WORK for run in failed)
            why = Why.OTHER_NUMBERS if other else Why.FAILED
            errors = [(run.spec.identity.round, run.status.value, run.error.message) for run in failed if run.error]
            reason = "; ".join(f"round {round_} {status}: {message}" for round_, status, message in errors)
        elif not member.valid and member.busy:
            why, reason = Why.BUSY, next(run.error.message for run in member.busy if run.error)
        elif not is_measured:
            why, reason = Why.OTHER_CHOICE, self._chosen(member)
        else:
            return None
        return Decision(TRAITS[why].state, why, reason)
