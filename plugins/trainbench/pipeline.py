"""One night as named steps: collect, judge, confirm, explain, validate, price, keep away, report, alert.

Each step takes the one before it and adds to it; the modules that it calls own the rules. DAG tasks and command line
call the same steps, so this module does not import Airflow. `judge` chooses the re-runs, `confirm` gives the verdicts,
and later steps only read them. A defect in one part becomes an error finding, and the other parts go on
(`results.fault_isolation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from trainbench.alerting.run_summary import alerts as alert
from trainbench.comparison.doubts import doubts_between_runs, doubts_of_run
from trainbench.core.baselines import of_nodes
from trainbench.core.verdicts import Finding, by_level
from trainbench.history.history import History
from trainbench.judging import diagnose, machines
from trainbench.judging.checks import (
    clock_findings,
    impossible_work_findings,
    missing_node_findings,
    no_figure_findings,
    undetected_drill_findings,
)
from trainbench.judging.gangs import gang_node_findings, link_findings, slow_rank_findings
from trainbench.judging.gpu_checks import gpu_event_findings, odd_probe_findings
from trainbench.judging.judge import Judgement, Known
from trainbench.judging.judge import judge as judge_nodes
from trainbench.judging.levels import NO_LEVELS, Levels, unread_levels
from trainbench.judging.machines import identity_findings
from trainbench.judging.past import NO_HISTORY, NoHistory, records_of
from trainbench.judging.same_work import unequal_work_findings
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.plan import Plan, confirm_specs
from trainbench.prices import price_tables
from trainbench.reporting.summary_files import write_summary as report
from trainbench.results.campaign import Campaign
from trainbench.results.collect import collect
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.priced_runs import price_runs

__all__ = [
    "alert", "assess", "collect", "confirm", "explain", "judge", "keep_away", "price", "report", "validate",
]  # fmt: skip

MISSED_FOR = timedelta(days=60)  # a node that was last measured longer ago is not reported as missing


@dataclass(frozen=True, kw_only=True)
class Measured:
    """After `collect`: one result for each run of the plan, and the history that judges them. `is_on_cluster`: the plan
    chose its nodes from the cluster's list, so a node that is gone from that list is missed.
    """

    plan: Plan
    results: tuple[RunResult, ...]
    suite: str
    started_at: datetime
    finished_at: datetime
    history: NoHistory | History = NO_HISTORY
    levels: Levels = NO_LEVELS
    is_on_cluster: bool = False
    dag_run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Judged:
    """After `judge`: the runs to repeat, and their results as soon as they are measured."""

    measured: Measured
    rerun_specs: tuple[RunSpec, ...] = ()
    reruns: tuple[RunResult, ...] = ()

    def with_reruns(self, reruns: Sequence[RunResult], finished_at: datetime) -> Judged:
        return replace(self, measured=replace(self.measured, finished_at=finished_at), reruns=tuple(reruns))


@dataclass(frozen=True, kw_only=True)
class Night:
    """After `confirm`: the verdicts. `explain` and `validate` add findings, and a failure for each part that raised."""

    judged: Judged
    judgement: Judgement
    findings: tuple[Finding, ...]
    failures: tuple[Finding, ...]

    @property
    def runs(self) -> tuple[RunResult, ...]:
        """As judged: a result that cannot count is a failed run."""
        return (*self.judgement.results, *self.judgement.reruns)


Source = tuple[str, Callable[[], Iterable[Finding]]]  # name of a part, for the finding on its failure, and the part


def judge(measured: Measured) -> Judged:
    """Choose the nodes that run again, from the planned rounds: the suspects, and well nodes as controls."""
    first = _judgement(measured, ())
    return Judged(measured=measured, rerun_specs=confirm_specs(measured.plan, first.suspects, first.controls))


def confirm(judged: Judged) -> Night:
    """The verdicts, by the planned rounds and the re-runs together."""
    settled = _judgement(judged.measured, judged.reruns)
    return Night(judged=judged, judgement=settled, findings=settled.findings, failures=settled.failures)


def _judgement(measured: Measured, reruns: Sequence[RunResult]) -> Judgement:
    """With all reads of the history for the verdicts. Their errors are not isolated: without it no node is judged."""
    fingerprints = {run.effective_spec.fingerprint for run in measured.results}
    plan, history, at = measured.plan, measured.history, measured.started_at
    known = Known(
        at=at,
        earlier=history.node_records(fingerprints, plan.campaign_id, at) if plan.judges_nodes else (),
        baselines=history.baselines(),
        levels=measured.levels.known,
    )
    return judge_nodes(plan, measured.results, reruns, known)


def explain(night: Night) -> Night:
    """Add findings on the nodes: missing ones, changes, causes of slowness, doubtful comparisons."""
    groups, runs, parts = night.judgement.groups, night.runs, FaultIsolation()
    measured, plan = night.judged.measured, night.judged.measured.plan
    began, at, known = measured.started_at, measured.finished_at, plan.known
    now = parts.attempt("dating", plan.campaign_id, partial(records_of, runs, began)) or ()
    earlier = measured.history.node_records({record.fingerprint for record in now}, plan.campaign_id, began)
    renamed = parts.attempt("recognising renamed nodes", plan.campaign_id, lambda: machines.find(now, earlier)) or ()
    last_measured = measured.history.last_measured(at - MISSED_FOR) if measured.is_on_cluster else {}
    old_names, new_names = [rename.was for rename in renamed], {rename.node for rename in renamed}
    same_names = [record for record in now if record.node not in new_names]
    links, limit_pct = plan.campaign_kind is CampaignKind.INTERCONNECT, plan.params.tolerances.samples_per_second_pct
    sources: Sequence[Source] = (
        # No figures at all, and missing nodes, come first: they qualify everything after them.
        ("counting figures", lambda: no_figure_findings(plan.campaign_id, runs)),
        ("looking for impossible work", lambda: impossible_work_findings(plan, runs)),
        ("looking for nodes that ended gangs", lambda: gang_node_findings(runs)),
        ("searching for bad links", lambda: link_findings(plan, measured.results)),
        ("looking for slow ranks", lambda: () if links else slow_rank_findings(runs, limit_pct)),
        ("listing missing nodes", lambda: missing_node_findings(plan, groups, old_names, last_measured, at)),
        ("reading levels", lambda: unread_levels(measured.levels, plan.campaign_id)),
        ("recognising renamed nodes", lambda: machines.rename_findings(renamed, began)),
        ("comparing clocks", lambda: clock_findings(runs, began, at)),
        ("diagnosis", lambda: diagnose.diagnose(groups, runs, known)),
        ("reading what the GPUs said", lambda: gpu_event_findings(runs)),
        ("comparing probes with data sheets", lambda: odd_probe_findings(runs)),
        ("looking for drills", lambda: undetected_drill_findings(groups, runs) if plan.judges_nodes else ()),
        # Doubtful comparisons: other work, other machines, other choices of the program.
        ("comparing what was computed", lambda: unequal_work_findings(runs)),
        ("comparing GPUs and names", lambda: identity_findings(runs, known)),
        ("comparing GPUs with the past", lambda: machines.replaced_gpu_findings(same_names, earlier, began, known)),
        ("comparing executions and versions", lambda: diagnose.difference_findings(runs)),
    )
    return _with_findings(night, sources, parts)


def validate(night: Night) -> Night:
    """Add findings on impossible figures and on runs that must not be compared."""
    parts, runs, params = FaultIsolation(), night.runs, night.judged.measured.plan.params
    doubts = lambda run: doubts_of_run(run, params.min_gpu_use_pct)  # noqa: E731
    sources: Sequence[Source] = (
        ("checking figures", lambda: parts.each("checking figures", runs, doubts)),
        ("comparing runs", lambda: doubts_between_runs(runs)),
    )
    return _with_findings(night, sources, parts)


def price(night: Night) -> Campaign:
    """Make the campaign: each run with its cost, and the findings, errors first."""
    measured, parts = night.judged.measured, FaultIsolation()
    plan = measured.plan
    priced = price_runs(night.runs, plan.params.usd_per_gpu_hour, parts)
    stale = lambda: (*priced.problems, *price_tables.stale_price_findings(priced.used, measured.finished_at.date()))  # noqa: E731
    night = _with_findings(night, [("reading prices", stale)], parts)
    return Campaign(
        campaign_id=plan.campaign_id,
        suite=measured.suite,
        title=plan.title,
        started_at=measured.started_at,
        finished_at=measured.finished_at,
        params=plan.params.model_dump(mode="json"),
        skipped=plan.skipped,
        results=priced.results,
        groups=night.judgement.groups,
        findings=by_level((*night.findings, *dict.fromkeys(night.failures))),
        campaign_kind=plan.campaign_kind,
        labels=plan.labels,
        dag_run_id=measured.dag_run_id,
        known=plan.known,
        baselines=of_nodes(measured.history.baselines(), plan.nodes, measured.finished_at),
    )


def assess(judged: Judged) -> Campaign:
    """Run the steps between the last run and the report."""
    return price(validate(explain(confirm(judged))))


def keep_away(campaign: Campaign, act: Callable[[Campaign], Campaign]) -> Campaign:
    """Add findings on the marks that keep other work away from nodes in breach. `act`: see `cluster.mark_nodes`."""
    parts = FaultIsolation()
    acted = parts.attempt("keeping work away from nodes in breach", campaign.campaign_id, lambda: act(campaign))
    return acted or campaign.model_copy(update={"findings": by_level((*campaign.findings, *parts.failures))})


def _with_findings(night: Night, sources: Sequence[Source], parts: FaultIsolation) -> Night:
    """Add the sources' findings; a source that raises loses only its own."""
    name = night.judged.measured.plan.campaign_id
    made = (parts.attempt(part, name, lambda source=source: tuple(source())) for part, source in sources)  # type: ignore[misc]
    findings = [finding for of_source in made for finding in of_source or ()]
    failures = (*night.failures, *parts.failures)
    return replace(night, findings=(*night.findings, *findings), failures=failures)
