"""One night as named steps: collect, judge, confirm, explain, validate, price, keep away, report, record, alert.

Each step takes the one before it and adds to it; the modules that it calls own the rules. DAG tasks and command line
call the same steps, so this module does not import Airflow. `judge` gives the verdict once: the re-runs follow from it,
`confirm` settles it, and later steps only read it. A defect in one part becomes an error finding, and the other parts
go on (`results.fault_isolation`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from pydantic import ValidationError

from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from trainbench.alerting.alerts import alerts as alert
from trainbench.comparison.doubts import doubts_between_runs, doubts_of_run
from trainbench.core.baselines import of_nodes
from trainbench.core.verdicts import Finding, GroupVerdict, by_level
from trainbench.history.history import History
from trainbench.judging.checks.drills import undetected_drill_findings
from trainbench.judging.checks.identity import identity_findings
from trainbench.judging.checks.missing_nodes import missing_node_findings
from trainbench.judging.checks.no_figures import no_figure_findings
from trainbench.judging.checks.same_work import unequal_work_findings
from trainbench.judging.checks.wall_clocks import clock_findings
from trainbench.judging.diagnosis import diagnose
from trainbench.judging.first_verdict import FirstVerdict, computed_alike, judge_campaign
from trainbench.judging.gpu_events import gpu_event_findings
from trainbench.judging.history_reads import NO_HISTORY, HistoryReads
from trainbench.judging.over_time import own_past
from trainbench.judging.over_time.node_history import records_of
from trainbench.judging.over_time.own_past import own_past_findings
from trainbench.judging.over_time.renames import rename_findings
from trainbench.judging.over_time.replaced_machines import replaced_gpu_findings
from trainbench.judging.over_time.undecided_streaks import undecided_findings
from trainbench.judging.peers import confirmation
from trainbench.judging.peers.node_verdicts import nodes_to_confirm
from trainbench.judging.peers.slow_node_warnings import slow_node_findings
from trainbench.judging.peers.unsteady_nodes import disturbed_node_findings
from trainbench.judging.probe_bands import odd_probe_findings
from trainbench.planning.plan import Plan, confirm_specs
from trainbench.prices import price_tables
from trainbench.reporting.summary_files import write_summary as report
from trainbench.results import fault_isolation
from trainbench.results.campaign import Campaign
from trainbench.results.collect import collect
from trainbench.results.fault_isolation import FaultIsolation
from trainbench.results.priced_runs import price_runs

__all__ = [
    "alert", "assess", "collect", "confirm", "explain", "judge", "keep_away", "price", "record", "report", "validate",
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
    history: HistoryReads = NO_HISTORY
    is_on_cluster: bool = False
    dag_run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Judged:
    """After `judge`: the verdict on the first runs, and the re-runs as soon as they are measured."""

    measured: Measured
    verdict: FirstVerdict
    reruns: tuple[RunResult, ...] = ()

    @property
    def suspects(self) -> tuple[str, ...]:
        """The nodes in breach: each of them runs once more."""
        return nodes_to_confirm(self.verdict.groups)

    @property
    def rerun_specs(self) -> tuple[RunSpec, ...]:
        return confirm_specs(self.measured.plan, self.suspects)

    def with_reruns(self, reruns: Sequence[RunResult], finished_at: datetime) -> Judged:
        return replace(self, measured=replace(self.measured, finished_at=finished_at), reruns=tuple(reruns))


@dataclass(frozen=True, kw_only=True)
class Night:
    """After `confirm`: settled verdicts. `explain` and `validate` add findings. `results` and `reruns`: as judged, a
    result that cannot count being a failed run. `failures`: one finding for each part that raised.
    """

    judged: Judged
    results: tuple[RunResult, ...]
    reruns: tuple[RunResult, ...]
    groups: tuple[GroupVerdict, ...]
    failures: tuple[Finding, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def measured(self) -> Measured:
        return self.judged.measured

    @property
    def runs(self) -> tuple[RunResult, ...]:
        return (*self.results, *self.reruns)


Source = tuple[str, Callable[[], Sequence[Finding]]]  # name of a part, for the finding on its failure, and the part


def judge(measured: Measured) -> Judged:
    """Judge each node against its peers and its own past, once, on the first runs."""
    plan, results, history = measured.plan, measured.results, measured.history
    verdict = judge_campaign(plan, results, history, measured.started_at, measured.finished_at)
    return Judged(measured=measured, verdict=verdict)


def judged_before(measured: Measured, stored: str | None) -> Judged:
    """The verdict that an earlier task gave on these results, as JSON; judges where there is none, or where another
    result has come in since.
    """
    try:
        verdict = FirstVerdict.model_validate_json(stored) if stored else None
    except ValidationError:
        verdict = None
    if verdict is None or not verdict.is_of(measured.results):
        return judge(measured)
    return Judged(measured=measured, verdict=verdict)


def confirm(judged: Judged) -> Night:
    """Settle each breach by its re-run."""
    plan, first, parts = judged.measured.plan, judged.verdict, FaultIsolation()
    results = first.counted(judged.measured.results)
    reruns = computed_alike(plan, judged.reruns, results, parts)
    settle = partial(confirmation.confirm, first.groups, has_reruns=plan.has_reruns, tolerances=plan.params.tolerances)
    groups, reruns = fault_isolation.apart(reruns, settle)
    failures = (*first.failures, *parts.failures)
    return Night(judged=judged, results=results, reruns=reruns, groups=groups, failures=failures)


def explain(night: Night) -> Night:
    """Add findings on the nodes: missing ones, changes, causes of slowness, doubtful comparisons."""
    groups, runs, parts = night.groups, night.runs, FaultIsolation()
    plan, began, at = night.measured.plan, night.measured.started_at, night.measured.finished_at
    past = _own_past(night, parts)
    same_names, known = past.under_same_name, plan.known
    sources: Sequence[Source] = (
        # No figures at all, and missing nodes, come first: they qualify everything after them.
        ("counting figures", lambda: no_figure_findings(plan.campaign_id, runs)),
        ("listing missing nodes", lambda: missing_node_findings(plan, groups, past.old_names, past.last_measured, at)),
        # Renames and clocks come before the comparison over time, which depends on both.
        ("recognising renamed nodes", lambda: rename_findings(past.renamed, began)),
        ("comparing clocks", lambda: clock_findings(runs, began, at)),
        ("comparing with the past", lambda: own_past_findings(past, night.results, plan.params.tolerances)),
        # Causes of red nodes; then nodes that are neither red nor well.
        ("diagnosis", lambda: diagnose.diagnose(groups, runs, known)),
        ("reading what the GPUs said", lambda: gpu_event_findings(runs)),
        ("comparing probes with data sheets", lambda: odd_probe_findings(runs)),
        ("watching slow nodes", lambda: slow_node_findings(groups)),
        ("counting nights without a verdict", lambda: undecided_findings(groups, past.undecided, at)),
        ("looking for drills", lambda: undetected_drill_findings(groups, runs) if plan.judges_nodes else ()),
        ("looking for unsteady nodes", lambda: disturbed_node_findings(groups)),
        # Doubtful comparisons: other work, other machines, other choices of the program.
        ("comparing what was computed", lambda: unequal_work_findings(runs)),
        ("comparing GPUs and names", lambda: identity_findings(runs, known)),
        ("comparing GPUs with the past", lambda: replaced_gpu_findings(same_names, past.earlier, began, known)),
        ("comparing choices", lambda: diagnose.other_execution_findings(runs)),
    )
    return _with_findings(night, sources, parts)


def validate(night: Night) -> Night:
    """Add findings on impossible figures and on runs that must not be compared."""
    parts, runs, params = FaultIsolation(), night.runs, night.measured.plan.params
    doubts = lambda run: doubts_of_run(run, params.min_gpu_use_pct)  # noqa: E731
    sources: Sequence[Source] = (
        ("checking figures", lambda: parts.each("checking figures", runs, doubts)),
        ("comparing runs", lambda: doubts_between_runs(runs)),
    )
    return _with_findings(night, sources, parts)


def price(night: Night) -> Campaign:
    """Make the campaign: each run with its cost, and the findings, errors first."""
    measured, plan, parts = night.measured, night.measured.plan, FaultIsolation()
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
        groups=night.groups,
        history=night.judged.verdict.history,
        findings=by_level((*night.findings, *dict.fromkeys(night.failures))),
        costs=priced.costs,
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


def record(campaign: Campaign, history: History) -> None:
    """Record the campaign in the history, replacing an earlier record of it."""
    history.record(campaign)


def _own_past(night: Night, parts: FaultIsolation) -> own_past.OwnPast:
    """All reads of the history for `explain`. Their errors are not isolated: without history no node can be judged."""
    measured, verdict, history = night.measured, night.judged.verdict, night.measured.history
    name, at = measured.plan.campaign_id, measured.finished_at
    now = parts.attempt("dating", name, partial(records_of, night.runs, measured.started_at)) or ()
    return own_past.OwnPast(
        now=now,
        earlier=history.node_records({record.fingerprint for record in now}, name, measured.started_at),
        verdicts=verdict.history,
        renamed=verdict.renamed,
        last_measured=history.last_measured(at - MISSED_FOR) if measured.is_on_cluster else {},
        undecided=history.undecided_before(measured.suite, name, at),
        slowdowns=history.slower_before(measured.suite, name, at) if measured.plan.judges_nodes else (),
    )


def _with_findings(night: Night, sources: Sequence[Source], parts: FaultIsolation) -> Night:
    """Add the sources' findings; a source that raises loses only its own."""
    name = night.measured.plan.campaign_id
    findings = [finding for part, source in sources for finding in parts.attempt(part, name, source) or ()]
    failures = (*night.failures, *parts.failures)
    return replace(night, findings=(*night.findings, *findings), failures=failures)
