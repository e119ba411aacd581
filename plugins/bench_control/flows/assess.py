"""Results -> campaign: judges, diagnoses and prices what was measured, and publishes it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import cache

from bench_control.asking.question import Question
from bench_control.collecting.artefacts import Store
from bench_control.collecting.campaign import Campaign
from bench_control.comparing import validity
from bench_control.diagnosing import diagnosis
from bench_control.judging import (
    attendance,
    clocks,
    confirmation,
    drills,
    identity,
    renames,
    step_changes,
    trend,
    unsteady,
    variance,
    watch,
)
from bench_control.judging.node_runs import by_group, choice_of
from bench_control.judging.noise import deviation_pct
from bench_control.judging.trails import Trails, no_trails, points_of
from bench_control.planning.plan import Plan
from bench_control.pricing import cost, prices
from bench_control.reporting import answers, cost_report, html, metrics, plots, report, report_json
from bench_control.words.formats import count, listing
from bench_control.words.verdicts import Finding, GroupVerdict, HistoryVerdict, ReferenceMode, State, Tolerances
from bench_image.contract import RunResult, Status, Strategy, fingerprint

# For each result the past samples/s of the same node doing the same work with the same hardware and software, oldest
# first. All are asked for at once: a database answers thousands of questions on one connection in a second.
Pasts = Callable[[Sequence[RunResult]], Sequence[Sequence[float]]]


def no_pasts(results: Sequence[RunResult]) -> Sequence[Sequence[float]]:
    return [()] * len(results)


def judge(plan: Plan, results: Sequence[RunResult], pasts: Pasts) -> tuple[GroupVerdict, ...]:
    """The first verdict, before any re-run; `pasts` is asked only when nodes are compared with their own history.

    A node is missed in the groups that were planned for it, and in no other. Runs over several nodes cannot judge a
    node, and a plan that compares strategies judges none.
    """
    tolerances = plan.params.tolerances
    planned = plan.nodes_by_group
    groups: dict[str, list[RunResult]] = {}
    for result in results:
        if result.spec.nodes == 1:
            groups.setdefault(result.spec.group_id, []).append(result)
    verdicts: list[GroupVerdict] = []
    if not plan.judges_nodes:
        return ()
    for group_id, members in sorted(groups.items()):
        expected = planned.get(group_id, ())
        own: dict[str, float] = {}
        if tolerances.reference is ReferenceMode.HISTORY:
            own = _own_reference(members, pasts, tolerances.history_min_points)
        verdicts += variance.judge(members, expected, tolerances, own)
    if not results:
        verdicts += variance.judge((), plan.nodes, tolerances)
    return tuple(verdicts)


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
) -> Campaign:
    """Everything there is to say about one campaign. Pure but for `pasts`, which may ask a database. `last_measured`:
    node -> its last valid run before this campaign, as far as the history goes. `trails`: see there.
    """
    tolerances = plan.params.tolerances
    now = points_of((*results, *confirm_results), started_at)
    earlier = trails({point.fingerprint for point in now}, plan.campaign_id, started_at)
    renamed = renames.find(now, earlier)
    pasts = _own_pasts(pasts, renamed, started_at, finished_at)
    groups = confirmation.confirm(judge(plan, results, pasts), confirm_results, tolerances, has_reruns=plan.has_reruns)
    measured = (*results, *confirm_results)
    table, unread = prices.usable_prices()
    given = plan.params.usd_per_gpu_hour
    price_of = cache(lambda gpu: prices.price_for(gpu, table, given))
    spread_of = cache(lambda gpu: prices.spread(gpu, table) if given is None else None)
    costs, priced, used = [], [], set()
    for result in measured:
        gpu = _gpu_name(result)
        price = price_of(gpu)
        run_cost = cost.price_run(result, price, spread_of(gpu))
        costs.append(run_cost)
        priced.append(cost.with_cost(result, run_cost))
        used |= {price} if price else set()
    history = _history(plan, results, pasts)
    changed = step_changes.series_of((*earlier, *now), renames.names(renamed))
    since = step_changes.find({key: changed[key] for key in dict.fromkeys(point.trail for point in now)}, tolerances)
    dated = _dated(since, results)
    findings = (
        *attendance.absentees(plan.absent, plan.known),
        *_unmeasured(plan, groups, last_measured or {}, finished_at, {rename.was for rename in renamed}),
        *renames.findings(renamed, started_at),
        *clocks.findings(measured, started_at, finished_at),
        *step_changes.findings(since, changed),
        *diagnosis.diagnose(groups, measured, plan.known),
        *watch.findings(groups),
        *(drills.findings(groups, measured) if plan.judges_nodes else ()),
        *unsteady.findings(groups),
        *identity.findings(measured),
        *diagnosis.strays([result for result in measured if result.spec.nodes == 1]),
        *(
            finding
            for verdict in history
            if not _is_told(verdict, dated, tolerances)
            for finding in trend.findings(verdict)
        ),
        *(finding for result in measured for finding in validity.validate(result)),
        *validity.compare(measured),
        *unread,
        *prices.stale(used, finished_at.date()),
    )
    return Campaign(
        campaign_id=plan.campaign_id,
        suite=suite,
        title=_title(plan),
        started_at=started_at,
        finished_at=finished_at,
        params=plan.params.model_dump(mode="json"),
        skipped=plan.skipped,
        results=tuple(priced),
        groups=groups,
        history=history,
        findings=_by_level(findings),
        costs=tuple(costs),
        question=plan.question,
        labels=plan.labels,
        known=plan.known,
    )


def publish(campaign: Campaign, store: Store) -> Mapping[str, str]:
    """Writes every file of the campaign's summary; returns relative path -> address. A rewrite replaces."""
    images, answered, rows = plots.draw(campaign), answers.answers(campaign), metrics.metric_rows(campaign)
    files: dict[str, str | bytes] = {
        "metrics.csv": metrics.metrics_csv(campaign, rows),
        "COST_REPORT.md": cost_report.cost_report(campaign),
        "report.html": html.report_html(campaign, images, answered),
        "report.json": report_json.report_json(campaign, rows, answered),
        **{f"plots/{name}": png for name, png in images.items()},
    }
    store.write_results(campaign.results)
    raw = [f"../runs/{result.spec.run_id}/result.json" for result in campaign.results]
    files["BENCHMARK_REPORT.md"] = report.benchmark_report(campaign, [*sorted(files), *raw], answered)
    store.write_campaign(campaign)
    return store.write_summary(campaign.campaign_id, files)


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


def _history(plan: Plan, results: Sequence[RunResult], pasts: Pasts) -> tuple[HistoryVerdict, ...]:
    """Where the noise is measured, nobody is judged."""
    if plan.question is Question.NOISE:
        return ()
    tolerances = plan.params.tolerances
    typical = _typical(results)
    known = zip(typical, pasts(typical), strict=True)
    return tuple(trend.judge_history(result, points, tolerances) for result, points in known)


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


def _unmeasured(
    plan: Plan,
    groups: Sequence[GroupVerdict],
    last_measured: Mapping[str, datetime],
    at: datetime,
    old_names: Collection[str],
) -> tuple[Finding, ...]:
    verdicts = [node for group in groups for node in group.nodes]
    missed = attendance.unmeasured(verdicts, last_measured, at)
    if plan.params.nodes or not plan.judges_nodes:
        return missed
    listed = [*plan.nodes, *(node.name for node in plan.absent), *old_names]
    return missed + attendance.gone(listed, last_measured, at)


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


def _gpu_name(result: RunResult) -> str | None:
    return result.context.gpus[0].name if result.context and result.context.gpus else None


def _typical(results: Sequence[RunResult]) -> list[RunResult]:
    """For each node, group and choice the valid run on it alone with the median throughput: a point of its history."""
    by_node: dict[tuple[str, str, str], list[RunResult]] = {}
    for result in results:
        if result.status is Status.OK and result.spec.nodes == 1:
            by_node.setdefault((result.spec.node, result.spec.group_id, choice_of(result)), []).append(result)
    typical = []
    for runs in by_node.values():
        rates = {run.spec.run_id: run.performance.samples_per_second or 0.0 for run in runs}
        middle = statistics.median_low(rates.values())
        typical.append(next(run for run in runs if rates[run.spec.run_id] == middle))
    return typical


def _by_level(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(findings, key=lambda finding: order[finding.level]))
