"""Results -> campaign: judges, diagnoses and prices what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult, Status
from trainbench.comparison import validity
from trainbench.core.formats import count, listing
from trainbench.core.verdicts import (
    Finding,
    GroupVerdict,
    HistoryVerdict,
    ReferenceMode,
    State,
    Tolerances,
    by_level,
)
from trainbench.judging.checks import clocks, drills, identity, missing_nodes, no_figures, same_work
from trainbench.judging.diagnosis import diagnose as diagnosis
from trainbench.judging.node_runs import by_group, choice_of, judged_rate
from trainbench.judging.noise import deviation_pct
from trainbench.judging.over_time import renames, replaced_machines, step_changes, still_slower, trend, undecided
from trainbench.judging.over_time.node_history import Point, Trails, no_trails, points_of
from trainbench.judging.peers import confirmation, fleet_halves, node_verdicts, slow_node_warnings, unsteady
from trainbench.orchestration.bill import Bill, bill
from trainbench.params.campaign_kind import Question
from trainbench.planning.plan import Plan
from trainbench.prices import price_tables
from trainbench.results import isolation
from trainbench.results.campaign import Campaign
from trainbench.results.isolation import Isolation

# For each result the past samples/s of the same node doing the same work with the same hardware and software, oldest
# first. All are asked for at once: a database answers thousands of questions on one connection in a second.
Pasts = Callable[[Sequence[RunResult]], Sequence[Sequence[float]]]


def no_pasts(results: Sequence[RunResult]) -> Sequence[Sequence[float]]:
    return [()] * len(results)


def judge(plan: Plan, results: Sequence[RunResult], pasts: Pasts) -> tuple[GroupVerdict, ...]:
    """The first verdict, before any re-run; `pasts` is asked when nodes are compared with their own history, or some
    read faster than their peers.

    A node is missed in the groups that were planned for it, and in no other. Runs over several nodes cannot judge a
    node, and a plan that compares strategies judges none.
    """
    return _judged(plan, _checked(plan, results, (), Isolation()), pasts)[0]


def _checked(
    plan: Plan, results: Sequence[RunResult], beside: Sequence[RunResult], parts: Isolation
) -> tuple[RunResult, ...]:
    """Those that computed something else than their peers as failed runs."""
    checked = parts.attempt("comparing what was computed", plan.campaign_id, lambda: same_work.checked(results, beside))
    return tuple(results) if checked is None else checked


def _judged(
    plan: Plan, results: Sequence[RunResult], pasts: Pasts
) -> tuple[tuple[GroupVerdict, ...], tuple[RunResult, ...]]:
    """The verdicts, and the results as they were judged: one that cannot be is a failed run."""
    tolerances = plan.params.tolerances
    planned = plan.nodes_by_group
    groups: dict[str, list[RunResult]] = {}
    for result in results:
        if result.spec.nodes == 1:
            groups.setdefault(result.spec.group_id, []).append(result)
    if not plan.judges_nodes:
        return (), tuple(results)
    verdicts: list[GroupVerdict] = []
    replaced: dict[int, RunResult] = {}
    for group_id, members in sorted(groups.items()):
        expected = planned.get(group_id, ())
        own: dict[str, float] = {}
        if tolerances.reference is ReferenceMode.HISTORY:
            own = _own_reference(members, pasts, tolerances.history_min_points)
        judge_group = partial(_judge_group, pasts=pasts, expected=expected, tolerances=tolerances, own=own)
        of_group, sound = isolation.apart(members, judge_group)
        verdicts += of_group
        replaced |= {id(was): run for was, run in zip(members, sound, strict=True)}
    if not results:
        verdicts += node_verdicts.judge_groups((), plan.nodes, tolerances)
    return tuple(verdicts), tuple(replaced.get(id(result), result) for result in results)


def _judge_group(
    results: Sequence[RunResult],
    *,
    pasts: Pasts,
    expected: Sequence[str],
    tolerances: Tolerances,
    own: Mapping[str, float],
) -> tuple[GroupVerdict, ...]:
    """Against peers; where some read fast, against those that their own past says are as before, if the others fell."""
    groups = node_verdicts.judge_groups(results, expected, tolerances, own)
    if tolerances.reference is not ReferenceMode.LEAVE_ONE_OUT_MEDIAN or not any(map(fleet_halves.is_split, groups)):
        return groups
    typical = _typical(results)
    history = [
        trend.judge_history(result, points, tolerances) for result, points in zip(typical, pasts(typical), strict=True)
    ]
    as_before = frozenset[str]().union(*(fleet_halves.as_before(group, history) for group in groups))
    return node_verdicts.judge_groups(results, expected, tolerances, own, as_before) if as_before else groups


def assess(
    plan: Plan,
    results: Sequence[RunResult],
    confirm_results: Sequence[RunResult],
    *,
    suite: str,
    started_at: datetime,
    finished_at: datetime,
    pasts: Pasts,
    last_measured: Mapping[str, datetime] | None = None,
    trails: Trails = no_trails,
    undecided_before: Mapping[str, undecided.Streak] | None = None,
    slower_before: Sequence[still_slower.Slowdown] = (),
) -> Campaign:
    """Everything there is to say about one campaign. Pure but for `pasts`, which may ask a database. `last_measured`:
    node -> its last valid run before this campaign, as far as the history goes. `trails`: see there.
    `undecided_before`: node -> since when it could not be judged, up to the campaign before. `slower_before`: what was
    warned of until then and is not over.
    """
    tolerances, name, parts = plan.params.tolerances, plan.campaign_id, Isolation()
    results, confirm_results = _checked(plan, results, (), parts), _checked(plan, confirm_results, results, parts)
    now = parts.attempt("dating", name, partial(points_of, (*results, *confirm_results), started_at)) or ()
    earlier = trails({point.fingerprint for point in now}, name, started_at)
    renamed = parts.attempt("recognising renamed nodes", name, lambda: renames.find(now, earlier)) or ()
    pasts = _own_pasts(pasts, renamed, started_at, finished_at)
    first, results = _judged(plan, results, pasts)
    groups, confirm_results = isolation.apart(
        confirm_results, lambda runs: confirmation.confirm(first, runs, tolerances, has_reruns=plan.has_reruns)
    )
    measured = (*results, *confirm_results)
    night = _Night(
        plan=plan,
        results=results,
        measured=measured,
        groups=groups,
        history=_history(plan, results, pasts, parts),
        now=now,
        earlier=earlier,
        renamed=renamed,
        started_at=started_at,
        finished_at=finished_at,
        last_measured=last_measured or {},
        undecided=undecided_before or {},
        slower=slower_before,
        bill=bill(measured, plan.params.usd_per_gpu_hour, parts),
    )
    findings = _findings(night, parts)
    return Campaign(
        campaign_id=plan.campaign_id,
        suite=suite,
        title=_title(plan),
        started_at=started_at,
        finished_at=finished_at,
        params=plan.params.model_dump(mode="json"),
        skipped=plan.skipped,
        results=night.bill.results,
        groups=groups,
        history=night.history,
        findings=by_level((*findings, *parts.failures)),
        costs=night.bill.costs,
        question=plan.question,
        labels=plan.labels,
        known=plan.known,
    )


@dataclass(frozen=True, kw_only=True)
class _Night:
    """What the findings are made from. `results`: without the re-runs, which `measured` has too."""

    plan: Plan
    results: Sequence[RunResult]
    measured: Sequence[RunResult]
    groups: Sequence[GroupVerdict]
    history: tuple[HistoryVerdict, ...]
    now: Sequence[Point]
    earlier: Sequence[Point]
    renamed: Sequence[renames.Rename]
    started_at: datetime
    finished_at: datetime
    last_measured: Mapping[str, datetime]
    undecided: Mapping[str, undecided.Streak]
    slower: Sequence[still_slower.Slowdown]
    bill: Bill


def _findings(night: _Night, parts: Isolation) -> list[Finding]:
    """Of all sources, in this order. One that fails costs nothing but its own findings."""
    plan, groups, measured, renamed = night.plan, night.groups, night.measured, night.renamed
    on_one_node = [result for result in measured if result.spec.nodes == 1]
    sources: Sequence[tuple[str, Callable[[], Sequence[Finding]]]] = (
        ("counting figures", lambda: no_figures.findings(plan.campaign_id, measured)),
        ("attendance", lambda: missing_nodes.absentees(plan.absent, plan.known)),
        ("attendance", lambda: _unmeasured(night)),
        ("recognising renamed nodes", lambda: renames.findings(renamed, night.started_at)),
        ("comparing clocks", lambda: clocks.findings(measured, night.started_at, night.finished_at)),
        ("comparing with the past", lambda: _over_time(night)),
        ("diagnosis", lambda: diagnosis.diagnose(groups, measured, plan.known)),
        ("watching slow nodes", lambda: slow_node_warnings.findings(groups)),
        ("counting nights without a verdict", lambda: undecided.findings(groups, night.undecided, night.finished_at)),
        ("looking for drills", lambda: drills.findings(groups, measured) if plan.judges_nodes else ()),
        ("looking for unsteady nodes", lambda: unsteady.findings(groups)),
        ("comparing what was computed", lambda: same_work.findings(measured)),
        ("comparing GPUs and names", lambda: identity.findings(measured, plan.known)),
        ("comparing GPUs with the past", lambda: _other_machines(night)),
        ("comparing choices", lambda: diagnosis.strays(on_one_node)),
        ("checking figures", lambda: parts.each("checking figures", measured, validity.validate)),
        ("comparing runs", lambda: validity.compare(measured)),
        (
            "reading prices",
            lambda: (*night.bill.unread, *price_tables.stale(night.bill.used, night.finished_at.date())),
        ),
    )
    name = plan.campaign_id
    return [finding for part, source in sources for finding in parts.attempt(part, name, source) or ()]


def _other_machines(night: _Night) -> tuple[Finding, ...]:
    """A node that was renamed has its own past."""
    renamed = {rename.node for rename in night.renamed}
    now = [point for point in night.now if point.node not in renamed]
    return replaced_machines.findings(now, night.earlier, night.started_at, night.plan.known)


def _over_time(night: _Night) -> tuple[Finding, ...]:
    """Changes that have a date, what is slower than its own past without one, and what still is since a warning."""
    tolerances = night.plan.params.tolerances
    changed = step_changes.series_of((*night.earlier, *night.now), renames.names(night.renamed))
    of_now = {key: changed[key] for key in dict.fromkeys(point.trail for point in night.now)}
    since = step_changes.find(of_now, tolerances)
    dated = _dated(since, night.results)
    undated = [verdict for verdict in night.history if not _is_told(verdict, dated, tolerances)]
    of_past = [finding for verdict in undated for finding in trend.findings(verdict)]
    slower = {(c.node, c.fingerprint) for c in since if c.category in step_changes.SLOWER}
    slower |= {(c.node, c.fingerprint) for f in of_past if f.category == trend.HISTORY_SLOWER for c in f.changes}
    before = night.slower if night.plan.judges_nodes else ()
    still = still_slower.lasting(before, night.now, slower, renames.names(night.renamed))
    # What is still slower was not spared by the change that slowed the others.
    named = {slowdown.change.node for slowdown in still}
    others = {key: trail for key, trail in of_now.items() if key[0] not in named}
    return (*step_changes.findings(since, others), *of_past, *still_slower.findings(still))


def _own_reference(members: Sequence[RunResult], pasts: Pasts, min_points: int) -> dict[str, float]:
    """Node -> the median of its past, of the work that is compared; not of another that its program chose once."""
    compared = [run for nodes in by_group(members, ()).values() for node in nodes for run in node.valid]
    typical = _typical(compared)
    known = zip(typical, pasts(typical), strict=True)
    return {run.spec.node: statistics.median(points) for run, points in known if len(points) >= max(min_points, 1)}


def _own_pasts(pasts: Pasts, renamed: Sequence[renames.Rename], started_at: datetime, finished_at: datetime) -> Pasts:
    """`pasts` by the campaign's clock, where a node's own is wrong, and with that under an old name of the node."""
    was = {rename.node: rename.was for rename in renamed}

    def dated(result: RunResult) -> RunResult:
        at = clocks.on_our_clock(result.started_at, started_at, finished_at)
        return result if at == result.started_at else result.model_copy(update={"started_at": at})

    def under_old_name(result: RunResult) -> RunResult:
        return result.model_copy(update={"spec": result.spec.model_copy(update={"node": was[result.spec.node]})})

    def asked(results: Sequence[RunResult]) -> Sequence[Sequence[float]]:
        now = [dated(result) for result in results]
        found = list(pasts(now))
        moved = [place for place, result in enumerate(now) if result.spec.node in was]
        for place, before in zip(moved, pasts([under_old_name(now[place]) for place in moved]), strict=True):
            found[place] = [*before, *found[place]]
        return found

    return asked


def _history(plan: Plan, results: Sequence[RunResult], pasts: Pasts, parts: Isolation) -> tuple[HistoryVerdict, ...]:
    """Where the noise is measured, nobody is judged."""
    if plan.question is Question.NOISE:
        return ()
    typical = _typical(results)
    of = {id(run): points for run, points in zip(typical, pasts(typical), strict=True)}
    tolerances = plan.params.tolerances
    return tuple(
        parts.each("comparing with the past", typical, lambda run: (trend.judge_history(run, of[id(run)], tolerances),))
    )


def _dated(since: Sequence[step_changes.Change], results: Sequence[RunResult]) -> dict[tuple[str, str], float]:
    """(node, group) -> samples/s after a slowdown whose date is known; of several works of a group the slowest."""
    after = {(c.node, c.fingerprint): c.after for c in since if c.category in step_changes.SLOWER}
    slowed = {node for node, _ in after}
    dated: dict[tuple[str, str], float] = {}
    for result in results:
        node, group = result.spec.node, result.spec.group_id
        if node in slowed and (rate := after.get((node, fingerprint(result.work)))) is not None:
            dated[node, group] = min(rate, dated.get((node, group), rate))
    return dated


def _is_told(verdict: HistoryVerdict, dated: Mapping[tuple[str, str], float], tolerances: Tolerances) -> bool:
    """A slowdown whose date is known is told with it, once; not what was lost since, nor by other work of the node."""
    after, rate = dated.get((verdict.node, verdict.group_id)), verdict.samples_per_second
    if verdict.state is not State.BREACH or after is None or rate is None:
        return False
    return deviation_pct(rate, after) >= -(verdict.limit_pct or tolerances.history_pct)


def _unmeasured(night: _Night) -> tuple[Finding, ...]:
    plan, at = night.plan, night.finished_at
    verdicts = [node for group in night.groups for node in group.nodes]
    missed = missing_nodes.unmeasured(verdicts, night.last_measured, at)
    if plan.params.nodes or not plan.judges_nodes:
        return missed
    old_names = {rename.was for rename in night.renamed}
    listed = [*plan.nodes, *(node.name for node in plan.absent), *old_names]
    return missed + missing_nodes.gone(listed, night.last_measured, at)


def _title(plan: Plan) -> str:
    """What all runs share of the work; where they differ, the values."""
    specs = plan.specs
    models, recipes, shapes, strategies = (
        list(dict.fromkeys(values))
        for values in (
            (spec.model for spec in specs),
            (spec.recipe.value for spec in specs),
            (f"batch {spec.micro_batch_size} x {spec.seq_length} tokens" for spec in specs),
            (spec.strategy.value for spec in specs),
        )
    )
    work = f"{listing(models)} {listing(recipes)}"
    if len(shapes) == 1:
        work += f", {shapes[0]}"
    if strategies != [Strategy.SINGLE]:
        work += f", {listing(strategies)}"
    noise = "noise floor: " if plan.question is Question.NOISE else ""
    gpus = plan.gpus_per_node
    of_each = f", {listing(map(str, gpus))} {'GPU' if gpus == (1,) else 'GPUs'} of each" if gpus else ""
    return f"{noise}{work}, on {count(len(plan.nodes), 'node')}{of_each}"


def _typical(results: Sequence[RunResult]) -> list[RunResult]:
    """For each node, group and choice the valid run on it alone with the median throughput: a point of its history."""
    by_node: dict[tuple[str, str, str], list[RunResult]] = {}
    for result in results:
        if result.status is Status.OK and result.spec.nodes == 1:
            by_node.setdefault((result.spec.node, result.spec.group_id, choice_of(result)), []).append(result)
    typical = []
    for runs in by_node.values():
        rates = {run.spec.run_id: judged_rate(run) or 0.0 for run in runs}
        middle = statistics.median_low(rates.values())
        typical.append(next(run for run in runs if rates[run.spec.run_id] == middle))
    return typical
