"""The verdict on a campaign's first runs: each node against its peers and against its own past, before any re-run."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import RunResult
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Finding, GroupVerdict, HistoryVerdict, ReferenceMode, Tolerances
from trainbench.judging.checks import same_work, wall_clocks
from trainbench.judging.history_reads import HistoryReads
from trainbench.judging.node_runs import by_group, typical_runs
from trainbench.judging.over_time import renames
from trainbench.judging.over_time.baseline_deviation import judge_history
from trainbench.judging.over_time.node_history import records_of
from trainbench.judging.over_time.renames import Rename
from trainbench.judging.peers import fleet_halves, node_verdicts
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.plan import Plan
from trainbench.results import fault_isolation
from trainbench.results.fault_isolation import FaultIsolation


class FirstVerdict(Frozen):
    """`groups`: verdicts against peers; `history`: against each node's own past. `replaced`: index in the results ->
    the failed run in place of a result that cannot count. `failures`: parts of the judgement that raised.
    """

    results_digest: str
    groups: tuple[GroupVerdict, ...]
    history: tuple[HistoryVerdict, ...]
    renamed: tuple[Rename, ...]
    replaced: Mapping[int, RunResult]
    failures: tuple[Finding, ...]

    def is_of(self, results: Sequence[RunResult]) -> bool:
        return self.results_digest == _digest(results)

    def counted(self, results: Sequence[RunResult]) -> tuple[RunResult, ...]:
        """The results as they were judged."""
        return tuple(self.replaced.get(place, result) for place, result in enumerate(results))


def judge_campaign(
    plan: Plan, results: Sequence[RunResult], history: HistoryReads, started_at: datetime, finished_at: datetime
) -> FirstVerdict:
    """Judge the results of `plan`; start and end of the campaign are by the control plane's clock."""
    name, parts = plan.campaign_id, FaultIsolation()
    # A run that computed other work than its peers counts as failed, so it comes before every comparison of speeds.
    checked = computed_alike(plan, results, (), parts)
    # A renamed node is judged by the past under its old name, so names come before the past is read.
    now = parts.attempt("dating", name, partial(records_of, checked, started_at)) or ()
    earlier = history.node_records({record.fingerprint for record in now}, name, started_at)
    renamed = parts.attempt("recognising renamed nodes", name, lambda: renames.find(now, earlier)) or ()
    baseline_rates = _BaselineRates(history, {rename.node: rename.was for rename in renamed}, started_at, finished_at)
    # A result that breaks the comparison with peers becomes a failed run, so it is not compared with its past.
    groups, counted = _against_peers(plan, checked, baseline_rates)
    return FirstVerdict(
        results_digest=_digest(results),
        groups=groups,
        history=_against_own_past(plan, counted, baseline_rates, parts),
        renamed=renamed,
        replaced={place: run for place, (was, run) in enumerate(zip(results, counted, strict=True)) if run is not was},
        failures=tuple(parts.failures),
    )


def computed_alike(
    plan: Plan, results: Sequence[RunResult], beside: Sequence[RunResult], parts: FaultIsolation
) -> tuple[RunResult, ...]:
    """The results, in which each run that computed other work than its peers is a failed run. `beside`: more peers."""
    checked = parts.attempt(
        "comparing what was computed", plan.campaign_id, lambda: same_work.fail_unequal_work(results, beside)
    )
    return tuple(results) if checked is None else checked


class _BaselineRates(NamedTuple):
    """Reads earlier rates of each run's node, by the campaign's clock where the node's is wrong. Of a renamed node they
    include those under the old name (`old_names`: name of today -> old name).
    """

    history: HistoryReads
    old_names: Mapping[str, str]
    started_at: datetime
    finished_at: datetime

    def of(self, results: Sequence[RunResult]) -> Sequence[Sequence[float]]:
        """Earlier samples/s for each result, oldest first."""
        dated = [self._dated(result) for result in results]
        rates = list(self.history.baseline_rates(dated))
        renamed = [place for place, result in enumerate(dated) if result.spec.identity.node in self.old_names]
        before = self.history.baseline_rates([self._under_old_name(dated[place]) for place in renamed])
        for place, past in zip(renamed, before, strict=True):
            rates[place] = [*past, *rates[place]]
        return rates

    def _dated(self, result: RunResult) -> RunResult:
        at = wall_clocks.on_our_clock(result.started_at, self.started_at, self.finished_at)
        return result if at == result.started_at else result.model_copy(update={"started_at": at})

    def _under_old_name(self, result: RunResult) -> RunResult:
        spec = result.spec.changed(identity={"node": self.old_names[result.spec.identity.node]})
        return result.model_copy(update={"spec": spec})


def _against_peers(
    plan: Plan, results: Sequence[RunResult], baseline_rates: _BaselineRates
) -> tuple[tuple[GroupVerdict, ...], tuple[RunResult, ...]]:
    """The verdicts, and the results as judged: a result that cannot be judged is a failed run.

    A node can be missing only in groups that were planned for it. Runs over several nodes judge no node, nor does a
    plan that compares strategies.
    """
    if not plan.judges_nodes:
        return (), tuple(results)
    if not results:
        return node_verdicts.judge_groups((), plan.nodes, plan.params.tolerances), ()
    groups = grouped((result.spec.identity.group_id, result) for result in results if result.spec.placement.nodes == 1)
    verdicts: list[GroupVerdict] = []
    replaced: dict[int, RunResult] = {}
    for group_id, members in sorted(groups.items()):
        expected = plan.nodes_by_group.get(group_id, ())
        own = _own_references(members, baseline_rates, plan.params.tolerances)
        judge = partial(
            _judge_group, expected=expected, tolerances=plan.params.tolerances, own=own, baselines=baseline_rates
        )
        of_group, sound = fault_isolation.apart(members, judge)
        verdicts += of_group
        replaced |= {id(was): run for was, run in zip(members, sound, strict=True)}
    return tuple(verdicts), tuple(replaced.get(id(result), result) for result in results)


def _judge_group(
    results: Sequence[RunResult],
    *,
    expected: Sequence[str],
    tolerances: Tolerances,
    own: Mapping[str, float],
    baselines: _BaselineRates,
) -> tuple[GroupVerdict, ...]:
    """Verdicts against peers; where the fleet is split, against the nodes that are as fast as in their own past."""
    groups = node_verdicts.judge_groups(results, expected, tolerances, own)
    if tolerances.reference is not ReferenceMode.LEAVE_ONE_OUT_MEDIAN or not any(map(fleet_halves.is_split, groups)):
        return groups
    # Some nodes read fast: they are fast, or the majority became slow. The nodes' own past decides which.
    typical = typical_runs(results)
    history = [judge_history(run, past, tolerances) for run, past in zip(typical, baselines.of(typical), strict=True)]
    as_before = frozenset[str]().union(*(fleet_halves.unchanged_nodes(group, history) for group in groups))
    return node_verdicts.judge_groups(results, expected, tolerances, own, as_before) if as_before else groups


def _own_references(
    members: Sequence[RunResult], baselines: _BaselineRates, tolerances: Tolerances
) -> dict[str, float]:
    """Node -> median of its past samples/s at this work; empty unless the reference is the nodes' own past."""
    if tolerances.reference is not ReferenceMode.HISTORY:
        return {}
    typical = typical_runs([run for nodes in by_group(members, ()).values() for node in nodes for run in node.valid])
    return {
        run.spec.identity.node: statistics.median(past)
        for run, past in zip(typical, baselines.of(typical), strict=True)
        if len(past) >= tolerances.history_min_points
    }


def _against_own_past(
    plan: Plan, results: Sequence[RunResult], baselines: _BaselineRates, parts: FaultIsolation
) -> tuple[HistoryVerdict, ...]:
    """One verdict for each node, group and choice; none in a campaign that measures the noise floor."""
    if plan.campaign_kind is CampaignKind.NOISE:
        return ()
    typical = typical_runs(results)
    past_of = {id(run): past for run, past in zip(typical, baselines.of(typical), strict=True)}
    judge = lambda run: (judge_history(run, past_of[id(run)], plan.params.tolerances),)  # noqa: E731
    return tuple(parts.each("comparing with the past", typical, judge))


def _digest(results: Sequence[RunResult]) -> str:
    """A hash that changes when another result arrives for a run. A result without context was made by the collector at
    an arbitrary time, so its error stands in for the time.
    """
    parts = [
        (
            run.spec.identity.run_id,
            run.status,
            run.performance.samples_per_second,
            run.finished_at if run.context else run.error,
        )
        for run in results
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()
