"""Judges the nodes of a campaign: the results and what is known from before -> one verdict for each node.

`judge` runs twice: after the planned rounds, to choose the nodes that run again, and after the re-runs, for the final
verdicts. It is a pure function of its arguments, so both give the same where nothing was added.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import NamedTuple

from bench_image.contract.result import RunResult
from trainbench.core.baselines import Baseline, in_force
from trainbench.core.formats import count, listing, noise_share, percent
from trainbench.core.grouping import grouped
from trainbench.core.natural_order import natural
from trainbench.core.states import TRAITS
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
from trainbench.judging import gpu_runs
from trainbench.judging.checks import same_work
from trainbench.judging.expectations import (
    Expected,
    Measured,
    by_peers,
    chance_of,
    compare_other,
    compare_rate,
    measured,
)
from trainbench.judging.gpu_runs import odd_gpu
from trainbench.judging.levels import KnownLevel, level_of
from trainbench.judging.node_runs import (
    Key,
    NodeRuns,
    by_group,
    choice_of,
    judged_rate,
    least_sd,
    rates_in_turns,
    scatter_of_run,
)
from trainbench.judging.noise import MIN_POOL, MIN_SD, Noise, Pool, Run, median_variance, pooled, to_pct
from trainbench.judging.past import NodeRecord, Past, night_noise, past_of, records_of, slowdown
from trainbench.judging.probe_bands import probe_shares
from trainbench.judging.rule import LOOK_SHARE, Decision, Facts, decide, is_suspect, phrase
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.plan import Plan
from trainbench.results import fault_isolation
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.shared_gpu import shared_by

WIDE_SDS = 3.0  # of a unit that scatters far more than the others: beyond the limit, it is unsteady
MAX_CONTROLS = 3  # one disturbed control must not decide over all suspects
OTHER_METRICS = (Metric.TEMPERATURE_C, Metric.MEMORY_GB)
FLEET_CHANGED = "fleet_changed"  # category


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known beside the results. `earlier`: earlier campaigns of all nodes at these works; `broken`: node -> a
    phrase on an error of its GPUs that means a broken one.
    """

    at: datetime
    earlier: Sequence[NodeRecord] = ()
    baselines: Sequence[Baseline] = ()
    levels: Sequence[KnownLevel] = ()
    broken: Mapping[str, str] = field(default_factory=dict)


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
    """Judge the results of `plan`. Runs over several nodes judge no node, nor does a plan that compares runs."""
    parts = FaultIsolation()
    # A run that computed other numbers than its peers counts as failed, so it comes before every comparison of speeds.
    results = _alike(plan, results, (), parts)
    reruns = _alike(plan, reruns, results, parts)
    if not plan.judges_nodes:
        return Judgement(groups=(), results=results, reruns=reruns, failures=tuple(parts.failures))
    runs = [run for run in (*results, *reruns) if run.spec.placement.nodes == 1]
    num_units = max(1, sum(_num_gpus(of) for of in grouped((_subject(run), run) for run in runs).values()))
    again_from = plan.params.rounds + 1 if plan.has_reruns else math.inf
    groups: list[GroupVerdict] = []
    findings: list[Finding] = []
    replaced: dict[int, RunResult] = {}
    suspects: dict[str, None] = {}
    steady: list[str] = []
    by_work = grouped((run.spec.identity.group_id, run) for run in runs)
    for group_id, members in sorted(by_work.items()) or [("", list[RunResult]())]:
        expected = plan.nodes_by_group.get(group_id, ()) if group_id else plan.nodes
        work = partial(_judge_work, plan=plan, expected=expected, known=known, units=num_units, again_from=again_from)
        judged, sound = fault_isolation.apart(members, work)
        replaced |= {id(was): run for was, run in zip(members, sound, strict=True) if run is not was}
        for group in judged:
            groups.append(group.verdict)
            findings += group.findings
            suspects |= dict.fromkeys(group.suspects)
            steady += group.steady
    return Judgement(
        groups=tuple(groups),
        results=tuple(replaced.get(id(run), run) for run in results),
        reruns=tuple(replaced.get(id(run), run) for run in reruns),
        suspects=tuple(suspects),
        controls=tuple([node for node in dict.fromkeys(steady) if suspects and node not in suspects][:MAX_CONTROLS]),
        findings=tuple(findings),
        failures=tuple(parts.failures),
    )


def _alike(
    plan: Plan, results: Sequence[RunResult], beside: Sequence[RunResult], parts: FaultIsolation
) -> tuple[RunResult, ...]:
    checked = parts.attempt(
        "comparing what was computed", plan.campaign_id, lambda: same_work.fail_unequal_work(results, beside)
    )
    return tuple(results) if checked is None else checked


def _subject(run: RunResult) -> tuple[str, str]:
    return run.spec.identity.group_id, run.spec.identity.node


def _num_gpus(runs: Sequence[RunResult]) -> int:
    return max(len(gpu_runs.by_gpu(run)) or 1 for run in runs)


def _judge_work(
    results: Sequence[RunResult],
    *,
    plan: Plan,
    expected: Sequence[str],
    known: Known,
    units: int,
    again_from: float,
) -> tuple[_Group, ...]:
    return tuple(
        _Group(plan, group_id, gpu_name, members, known, units, again_from)
        for (group_id, gpu_name), members in by_group(results, expected).items()
    )


def _runs(units: Sequence[NodeRuns]) -> dict[Key, tuple[Run, ...]]:
    """Unit -> its runs. Those of a round that measured in turn on one machine are compared turn by turn."""
    together = grouped((run.spec.identity.round, (unit.key, run)) for unit in units for run in unit.valid)
    in_turn: dict[tuple[Key, int], Run] = {}
    for round_, members in together.items():
        for (key, _), rates in zip(members, rates_in_turns([run for _, run in members]) or (), strict=False):
            in_turn[key, round_] = Run(round_, statistics.median(rates), scatter_of_run(rates))
    return {unit.key: tuple(in_turn.get((unit.key, run.round), run) for run in unit.rates) for unit in units}


class _AgainstPast(NamedTuple):
    """`changed`: the nodes that are slow against their own past, where they are at least half of those with a past."""

    of_nodes: Mapping[str, Comparison]
    changed: frozenset[str] = frozenset()


class _Group:
    """The nodes of one work and kind of GPU. Everything is computed on demand, from the results to the verdicts."""

    def __init__(
        self,
        plan: Plan,
        group_id: str,
        gpu_name: str | None,
        members: Sequence[NodeRuns],
        known: Known,
        num_units: int,
        again_from: float,
    ) -> None:
        self.plan, self.group_id, self.gpu_name, self.members, self.known = plan, group_id, gpu_name, members, known
        self.tolerances, self.num_units, self.again_from = plan.params.tolerances, num_units, again_from
        self.runs = _runs(gpu_runs.units(members))
        self.units = [unit for unit in gpu_runs.units(members) if self._logs(unit, planned=True)]
        self.verdict  # noqa: B018 - an error belongs to the results of this group

    # The figures of the units, as logarithms.

    def _logs(self, unit: NodeRuns, *, planned: bool) -> list[float]:
        rates = [run.rate for run in self.runs[unit.key] if (run.round < self.again_from) is planned]
        return [math.log(rate) for rate in rates]

    @cached_property
    def first(self) -> dict[Key, float]:
        """Unit -> its planned rounds' median."""
        return {unit.key: statistics.median(self._logs(unit, planned=True)) for unit in self.units}

    @cached_property
    def pool(self) -> Pool:
        least = max((least_sd(run) for unit in self.units for run in unit.valid), default=MIN_SD)
        planned = [[run for run in self.runs[unit.key] if run.round < self.again_from] for unit in self.units]
        return pooled(planned, least)

    @cached_property
    def own_noise(self) -> dict[Key, Noise]:
        """Units that scatter far more than the others, and by more than the limit allows -> their own noise."""
        limit = self.tolerances.samples_per_second_pct
        wide = {place: own for place, own in self.pool.own.items() if to_pct(WIDE_SDS * own.sd, slow=True) > limit}
        return {self.units[place].key: noise for place, noise in wide.items()}

    @cached_property
    def no_example(self) -> set[Key]:
        """Units that are no reference for others."""
        bad = {unit.key for unit in self.units if unit.is_drill or any(map(shared_by, unit.valid))}
        uuids: set[str] = set()
        for unit in self.units:  # one GPU never counts for several nodes
            own = {gpu.uuid for run in unit.valid if run.context for gpu in run.context.gpus if gpu.uuid}
            bad |= {unit.key} if own & uuids and unit.gpu is None else set()
            uuids |= own
        return bad | set(self.own_noise)

    @cached_property
    def num_rounds(self) -> int:
        return statistics.median_low([len(self._logs(unit, planned=True)) for unit in self.units]) if self.units else 1

    @cached_property
    def peers_of(self) -> Mapping[Key, Expected | None]:
        values = {key: math.exp(log) for key, log in self.first.items()}
        expected = by_peers(values, self.no_example, self.num_rounds)
        return {key: expected(key) for key in values}

    def _compare(self, key: Key, own: Measured) -> Comparison | None:
        peers = self.peers_of[key]
        if peers is None:
            return None
        noise = self.own_noise.get(key, self.pool.noise)
        chance = chance_of(own, peers, self.pool.noise, noise, self.num_units)
        return compare_rate(own, peers, Against.PEERS, self.tolerances.samples_per_second_pct, chance)

    @cached_property
    def by_planned_rounds(self) -> dict[Key, Comparison]:
        own = {unit.key: self._estimate(self._logs(unit, planned=True), (), unit.key) for unit in self.units}
        return {key: compared for key in own if (compared := self._compare(key, own[key]))}

    # The re-runs, corrected by what the control nodes changed meanwhile.

    @cached_property
    def control_change(self) -> tuple[dict[int, float], int]:
        """(round of re-runs -> median change of the controls' logarithms since the planned rounds, their number)."""
        changes: dict[int, list[float]] = {}
        controls: set[str] = set()
        for unit in self.units:
            if unit.node not in self.suspects and not unit.is_drill:
                for run in self.runs[unit.key]:
                    if run.round >= self.again_from:
                        changes.setdefault(run.round, []).append(math.log(run.rate) - self.first[unit.key])
                        controls.add(unit.node)
        return {round_: statistics.median(of) for round_, of in changes.items()}, len(controls)

    def _estimate(self, first: Sequence[float], again: Sequence[float], key: Key | None = None) -> Measured:
        noise = self.own_noise.get(key, self.pool.noise) if key else self.pool.noise
        return measured(first, again, self.control_change[1] if again else 0, noise, self.num_units)

    def _measured(self, unit: NodeRuns) -> Measured:
        change, _ = self.control_change
        reran = [run for run in self.runs[unit.key] if run.round >= self.again_from]
        again = [math.log(run.rate) - change.get(run.round, 0.0) for run in reran]
        return self._estimate(self._logs(unit, planned=True), again, unit.key)

    # Past and level: of a whole node, by its slowest GPU.

    @cached_property
    def tonight(self) -> dict[str, NodeRecord]:
        """Node -> its record of tonight."""
        runs = [run for member in self.members for run in member.valid]
        return {record.node: record for record in records_of(runs, self.known.at)}

    @cached_property
    def pasts(self) -> dict[str, Past]:
        if self.plan.campaign_kind is not CampaignKind.NODES or self.plan.params.noise_floor:
            return {}
        by_work = grouped(((r.fingerprint, r.gpu_name), r) for r in self.known.earlier)
        limit = self.tolerances.past_pct
        pasts = {
            node: past_of(record, by_work.get((record.fingerprint, record.gpu_name), ()), limit)
            for node, record in self.tonight.items()
        }
        return {node: past for node, past in pasts.items() if past}

    def _by_node(self, member: NodeRuns, *, planned_only: bool) -> Measured | None:
        """The node's samples/s by its slowest GPU."""
        rates = [(run.spec.identity.round, judged_rate(run)) for run in member.valid]
        known = [(round_, math.log(rate)) for round_, rate in rates if rate]
        first = [log for round_, log in known if round_ < self.again_from]
        if not first:
            return None
        if planned_only:
            return self._estimate(first, ())
        change, _ = self.control_change
        again = [log - change.get(round_, 0.0) for round_, log in known if round_ >= self.again_from]
        return self._estimate(first, again)

    @cached_property
    def past_by_planned_rounds(self) -> _AgainstPast:
        return self._against_past(planned_only=True)

    @cached_property
    def past(self) -> _AgainstPast:
        return self._against_past(planned_only=False)

    def _against_past(self, *, planned_only: bool) -> _AgainstPast:
        """Each node against its own past, without what its round did to all nodes: the median change of the others. A
        change of the fleet is no chance, and stays in: where half of it is slow, or where all would be asked to look.
        """
        own = {
            member.node: measured
            for member in self.members
            if member.node in self.pasts and (measured := self._by_node(member, planned_only=planned_only))
        }
        noise = night_noise(self.pasts.values(), self.pool.noise)
        alone = {node: self._compare_past(one, self.pasts[node].expected, noise) for node, one in own.items()}
        slow = frozenset(node for node, c in alone.items() if c.is_off)
        if len(slow) > 1 and 2 * len(slow) >= len(self.pasts):
            return _AgainstPast(alone, slow)
        bad = {key.node for key in self.no_example}
        usual = {node: c for node, c in alone.items() if node not in bad and not c.is_off and not c.is_over}
        common = by_peers({Key(node): c.value / c.expected for node, c in usual.items()}, (), 1)
        noise = night_noise(self.pasts.values(), self.pool.noise, without_common=True)
        found = {}
        for node, c in alone.items():
            others = common(Key(node)) if len(usual.keys() - {node}) >= MIN_POOL else None
            if others and abs(to_deviation := 100 * (others.value - 1)) <= max(LOOK_SHARE * c.limit, c.chance or 0.0):
                past = self.pasts[node].expected
                change = percent(to_deviation)
                found[node] = self._compare_past(
                    own[node],
                    Expected(
                        past.value * others.value,
                        past.source
                        if change == percent(0.0)
                        else f"{past.source} and the {change} of its peers tonight",
                        past.variance + others.variance * (own[node].variance + past.variance),
                    ),
                    noise,
                )
        return _AgainstPast(alone | found)

    def _compare_past(self, own: Measured, past: Expected, noise: Noise) -> Comparison:
        chance = noise.chance(own.variance + past.variance, len(self.members))
        return compare_rate(own, past, Against.PAST, self.tolerances.past_pct, chance)

    def _against_level(self, member: NodeRuns, own: Measured) -> Comparison | None:
        levels = ((run, level) for run in member.valid if (level := level_of(run, self.known.levels)))
        run, level = next(levels, (None, None))
        if run is None or level is None:
            return None
        expected = Expected(level.expected_of(run), level.source)
        chance = self.pool.noise.chance(own.variance, self.num_units) if self.pool.noise else None
        return compare_rate(own, expected, Against.LEVEL, level.band_low_pct, chance)

    def _of_node(self, member: NodeRuns, *, planned_only: bool) -> tuple[Comparison, ...]:
        own = self._by_node(member, planned_only=planned_only)
        if own is None:
            return ()
        past = self.past_by_planned_rounds if planned_only else self.past
        return tuple(filter(None, (past.of_nodes.get(member.node), self._against_level(member, own))))

    # Memory and temperature.

    @cached_property
    def other_values(self) -> dict[Metric, dict[Key, float]]:
        return {
            metric: {unit.key: value for unit in self.units if (value := unit.value(metric)) is not None}
            for metric in OTHER_METRICS
        }

    @cached_property
    def other_peers(self) -> dict[Metric, Mapping[Key, Expected | None]]:
        drilled = {unit.key for unit in self.units if unit.is_drill}
        made: dict[Metric, Mapping[Key, Expected | None]] = {}
        for metric, values in self.other_values.items():
            expected = by_peers(values, drilled, 1)
            made[metric] = {key: expected(key) for key in values}
        return made

    def _others(self, unit: NodeRuns) -> tuple[Comparison, ...]:
        found: list[Comparison] = []
        past = self.pasts.get(unit.node)
        for metric in OTHER_METRICS:
            limit = self.tolerances.temperature_c if metric is Metric.TEMPERATURE_C else self.tolerances.memory_pct
            value = self.other_values[metric].get(unit.key)
            if value is None:
                continue
            peers = self.other_peers[metric][unit.key]
            if peers and self.num_peers > 1:
                found.append(compare_other(metric, value, peers, Against.PEERS, limit))
            before = getattr(past, metric.value) if past else None
            if past and before is not None and unit.gpu is None:
                found.append(compare_other(metric, value, Expected(before, past.expected.source), Against.PAST, limit))
        return tuple(found)

    @cached_property
    def num_peers(self) -> int:
        """The most peers that a unit has."""
        nodes = {unit.node for unit in self.units}
        return max(len(nodes) - 1, len(self.units) - 1)

    # Verdicts.

    @cached_property
    def suspects(self) -> tuple[str, ...]:
        """The nodes that their planned rounds show slow. Where the fleet changed no node is at fault, and on a shared
        GPU nothing can be confirmed: none runs again for that.
        """
        changed = self.past_by_planned_rounds.changed
        shared = {member.node for member in self.members if any(map(shared_by, member.valid))}
        nodes = {unit.node for unit in self.units if is_suspect(filter_none(self.by_planned_rounds.get(unit.key)))}
        for member in self.members:
            if member.node not in changed and is_suspect(self._of_node(member, planned_only=True)):
                nodes.add(member.node)
        return tuple(sorted(nodes - shared, key=natural))

    @cached_property
    def steady(self) -> list[str]:
        """Nodes that may be controls: those nearest to their peers first."""
        free = {unit.node: unit for unit in self.units if unit.key not in self.no_example}
        apart = {
            node: abs(c.deviation) if (c := self.by_planned_rounds.get(u.key)) else 0.0 for node, u in free.items()
        }
        return sorted((node for node in free if node not in self.suspects), key=lambda node: apart[node])

    @cached_property
    def verdict(self) -> GroupVerdict:
        rates = [math.exp(log) for log in self.first.values()]
        noise = self.pool.noise
        typical = median_variance(self.num_rounds) * (1 + median_variance(max(len(self.members) - 1, 1)))
        return GroupVerdict(
            group_id=self.group_id,
            gpu_name=self.gpu_name,
            nodes=tuple(self._node(member) for member in self.members),
            spread_pct=100 * (max(rates) - min(rates)) / statistics.median(rates) if len(rates) > 1 else None,
            noise_pct=100 * noise.sd if noise else None,
            detectable_pct=to_pct(noise.chance(typical, self.num_units), slow=True) if noise else None,
            choice=self.members[0].choice if self.members else None,
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        together = [node for node in self.verdict.nodes if node.why is Why.CHANGED]
        return (self._fleet_changed(together),) if together else ()

    def _fleet_changed(self, nodes: Sequence[NodeVerdict]) -> Finding:
        past = [c for node in nodes if (c := node.comparison(Metric.SAMPLES_PER_SECOND, Against.PAST))]
        worst = min(past, key=lambda c: c.deviation)
        dates = {slowdown(self.pasts[node.node], self.tonight[node.node]).phrase for node in nodes}
        since = f" {next(iter(dates))}" if len(dates) == 1 else ""
        of_all = "all" if len(nodes) == len(self.members) else f"{len(nodes)} of {len(self.members)}"
        return Finding(
            level=Level.WARNING,
            category=FLEET_CHANGED,
            nodes=tuple(node.node for node in nodes),
            group_id=self.group_id,
            why=Why.CHANGED,
            measured=f"{percent(worst.deviation)} at the most",
            expected=f"their own past, within {worst.limit:g} %",
            evidence=tuple(past[:1]),
            summary=f"became slower together{since}: {percent(statistics.median(c.deviation for c in past))} in the "
            f"median against their own past, {of_all} nodes of this kind; no single node is at fault",
            resolution=TRAITS[Why.CHANGED].next_step,
        )

    def _node(self, member: NodeRuns) -> NodeVerdict:
        units = [unit for unit in self.units if unit.node == member.node]
        gpus = tuple(self._gpu(unit, member) for unit in gpu_runs.units([member]) if unit.gpu)
        if unjudged := self._unjudged(member, is_measured=bool(units)):
            failed = [f"{gpu.name}: {gpu.reason}" for gpu in gpus if gpu.why is unjudged.why]
            reason = "; ".join(failed) or unjudged.reason
            return NodeVerdict(
                node=member.node,
                gpu_name=member.gpu_name,
                gpus=gpus,
                **unjudged._asdict() | {"reason": reason},
                num_runs=len(member.valid),
                is_drill=member.is_drill,
            )
        by_rate = {unit.key: self._compare(unit.key, self._measured(unit)) for unit in units}
        worst = min(units, key=lambda unit: c.deviation if (c := by_rate[unit.key]) else 0.0)
        others = [c for unit in units for c in self._others(unit)]
        hottest = {(c.metric, c.against): c for c in sorted(others, key=lambda c: c.deviation)}
        peers = by_rate[worst.key]
        comparisons = (*filter_none(peers), *self._of_node(member, planned_only=False), *hottest.values())
        planned = (
            *(c for unit in units if (c := self.by_planned_rounds.get(unit.key))),
            *self._of_node(member, planned_only=True),
        )
        decision = decide(self._facts(member, units, worst, comparisons, planned))
        reason, named = decision.reason, [gpu for gpu in gpus if gpu.why is decision.why]
        odd = odd_gpu(member.valid, Metric.SAMPLES_PER_SECOND) if peers and peers.is_off and not gpus else None
        if odd:
            reason += f"; {odd.text}"
        if named and decision.why is not Why.WELL:
            of_gpus = f"all {count(len(gpus), 'GPU')}" if len(named) == len(gpus) else listing(g.name for g in named)
            reason = f"{of_gpus}: {reason}"
        return NodeVerdict(
            node=member.node,
            gpu_name=member.gpu_name,
            gpus=gpus,
            gpu=odd.gpu if odd else gpu_title(worst.gpu.index, worst.gpu.uuid) if worst.gpu else None,
            **self._common(member, worst, comparisons, decision._replace(reason=reason)),
        )

    def _gpu(self, unit: NodeRuns, member: NodeRuns) -> GpuVerdict:
        assert unit.gpu, "else it is a node"
        place = {"index": unit.gpu.index, "uuid": unit.gpu.uuid}
        if unjudged := self._unjudged(unit, is_measured=unit.key in self.first):
            return GpuVerdict(**place, **unjudged._asdict(), num_runs=len(unit.valid), is_drill=unit.is_drill)
        compared = self._compare(unit.key, self._measured(unit))
        comparisons = (*filter_none(compared), *self._others(unit))
        facts = self._facts(member, [unit], unit, comparisons, filter_none(self.by_planned_rounds.get(unit.key)))
        return GpuVerdict(**place, **self._common(unit, unit, comparisons, decide(facts)))

    def _facts(
        self,
        member: NodeRuns,
        units: Sequence[NodeRuns],
        worst: NodeRuns,
        comparisons: Sequence[Comparison],
        planned: Sequence[Comparison],
    ) -> Facts:
        node, past = member.node, self.pasts.get(member.node)
        record = self.tonight.get(node)
        slow = any(c.against is Against.PAST and c.is_off for c in comparisons)
        accepted = record and in_force(self.known.baselines, node, record.fingerprint, self.known.at)
        shared = next((shared.sentence for run in member.valid if (shared := shared_by(run))), "")
        reran = [run for run in member.runs if run.spec.identity.round >= self.again_from]
        failed = next((run.error for run in reran if run.error), None)
        return Facts(
            comparisons=tuple(comparisons),
            tolerances=self.tolerances,
            only_peer=self.num_peers == 1,
            is_drill=member.is_drill,
            fleet_changed=node in self.past.changed,
            has_accepted_level=accepted is not None and accepted.node is not None,
            since=slowdown(past, record).phrase if slow and past and record else "",
            unsteady=self._scatter(units),
            shared=shared,
            broken=self.known.broken.get(node, ""),
            probes="" if comparisons else "; ".join(s.sentence for run in member.valid[:1] for s in probe_shares(run)),
            planned=tuple(planned),
            num_again=len(self._measured(worst).rounds) - 1,
            no_rerun=(failed.message if failed else "it gave no result") if reran else None,
            is_planned=self.plan.has_reruns,
        )

    def _scatter(self, units: Sequence[NodeRuns]) -> str:
        own = [noise for unit in units if (noise := self.own_noise.get(unit.key))]
        if not own or not self.pool.noise:
            return ""
        widest = max(own, key=lambda noise: noise.sd)
        of_peers = noise_share(100 * self.pool.noise.sd)
        return f"its figures scatter by {noise_share(100 * widest.sd)}, those of its peers by {of_peers}"

    def _common(
        self, member: NodeRuns, worst: NodeRuns, comparisons: Sequence[Comparison], decision: Decision
    ) -> dict[str, object]:
        """Fields of the verdict on a node or GPU. `worst`: the unit whose figures are shown."""
        noise = self.own_noise.get(worst.key, self.pool.noise)
        return {
            "state": decision.state,
            "why": decision.why,
            "reason": decision.reason,
            "num_runs": len(member.valid),
            "comparisons": tuple(comparisons),
            "samples_per_second": self._measured(worst).value,
            "memory_gb": worst.value(Metric.MEMORY_GB),
            "temperature_c": worst.value(Metric.TEMPERATURE_C),
            "noise_pct": 100 * noise.sd if noise else None,
            "confirmation": decision.confirmation,
            "is_drill": member.is_drill,
            "remarks": tuple(self._remarks(member, comparisons, decision.why)),
        }

    def _remarks(self, member: NodeRuns, comparisons: Sequence[Comparison], why: Why) -> list[str]:
        """What is worth knowing beside the state: missing figures, better ones, other programs on the GPU."""
        remarks = [
            f"{phrase(c)}: better than expected, or the others are worse"
            for c in comparisons
            if c.is_over and why is not Why.PAIR
        ]
        if member.on_gpu:
            names = {Metric.MEMORY_GB: "memory", Metric.TEMPERATURE_C: "temperature"}
            missing = [names[metric] for metric in OTHER_METRICS if member.value(metric) is None]
            remarks += [f"no {listing(missing)} was measured"] if missing and member.valid else []
        remarks += [shared.sentence for run in member.valid[:1] if (shared := shared_by(run))]
        return remarks

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
            chosen = listing(dict.fromkeys(choice_of(run) for run in member.strays))
            why, reason = Why.OTHER_CHOICE, f"its program chose {chosen}, those of its peers {member.choice}"
        else:
            return None
        if broken := self.known.broken.get(member.node):
            return Decision(State.RED, Why.BROKEN_GPU, f"{broken}; {reason}")
        return Decision(TRAITS[why].state, why, reason)


def filter_none(compared: Comparison | None) -> tuple[Comparison, ...]:
    return () if compared is None else (compared,)
