"""Verdicts as sentences and tables: the one source of the sentences in every report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench_image.contract.result import RunResult, Status
from bench_image.contract.work import Device
from trainbench.comparison import noise_advice
from trainbench.core.formats import (
    NA,
    count,
    degrees,
    listing,
    noise_share,
    one_line,
    percent,
    sentence,
    share,
)
from trainbench.core.grouping import grouped
from trainbench.core.tables import Column, Table, Tone, make_table, median_run, text
from trainbench.core.verdicts import (
    RED,
    Confirmation,
    Finding,
    GroupVerdict,
    Level,
    Metric,
    MetricVerdict,
    NodeVerdict,
    ReferenceMode,
    State,
    Verdict,
)
from trainbench.figure_catalogue.run_figures import PEAK_MEMORY_GB, SAMPLES_PER_SECOND, TEMPERATURE_MEAN_C
from trainbench.figure_catalogue.table_figures import DEVIATION
from trainbench.judging.checks import drills, no_figures
from trainbench.judging.conditions_of_campaign import conditions, reason_of
from trainbench.judging.node_condition import Condition, NodeCondition, fleet_summary
from trainbench.judging.node_runs import judged_rate
from trainbench.judging.over_time.level_changes import SLOWER
from trainbench.judging.peers.node_verdicts import lone_groups
from trainbench.params.campaign_kind import CampaignKind
from trainbench.reporting import configuration_tables, recommendations, survey_tables
from trainbench.reporting.work_names import group_name
from trainbench.results.campaign import Campaign

NO_GPU = f"{NA}: no GPU"
REFERENCES = {
    ReferenceMode.LEAVE_ONE_OUT_MEDIAN: "median of the other nodes",
    ReferenceMode.MEDIAN: "median of all nodes",
    ReferenceMode.MEAN: "mean of all nodes",
    ReferenceMode.HISTORY: "own history",
    ReferenceMode.FIXED: "fixed value",
}
COMPARED_WITH = {
    ReferenceMode.LEAVE_ONE_OUT_MEDIAN: "against its peers",
    ReferenceMode.MEDIAN: "against all nodes",
    ReferenceMode.MEAN: "against the mean",
    ReferenceMode.HISTORY: "against its history",
    ReferenceMode.FIXED: "against the fixed value",
}
METRICS = {Metric.SAMPLES_PER_SECOND: "samples/s", Metric.MEMORY_GB: "memory", Metric.TEMPERATURE_C: "temperature"}
MAX_DATED = 10
_CONFIRMATIONS = {
    Confirmation.PENDING: "re-run pending",
    Confirmation.CONFIRMED: "confirmed",
    Confirmation.NOT_CONFIRMED: "not confirmed",
    Confirmation.INCONCLUSIVE: "re-run inconclusive",
    Confirmation.NOT_PLANNED: "no re-run was planned",
}
STATE_TONES = {State.OK: Tone.GOOD} | dict.fromkeys(RED, Tone.BAD)
_LEVEL_TONES = {Level.INFO: Tone.PLAIN, Level.WARNING: Tone.WARN, Level.ERROR: Tone.BAD}


def tone(campaign: Campaign) -> Tone:
    """The tone of a campaign: bad if a node is red, drilled ones included, or a drill was not detected; warn if a node
    is not well for another reason.
    """
    if campaign.red_nodes or campaign.unjudged_failures or campaign.alarms:
        return Tone.BAD
    if not campaign.judges_nodes and all(result.status is Status.OK for result in campaign.results):
        return Tone.GOOD
    return Tone.GOOD if fleet_summary(conditions(campaign)).is_well else Tone.WARN


def verdict(campaign: Campaign) -> str:
    """The verdict in short sentences: no figures at all, each drill's outcome, then the other nodes or the comparison.
    `slowdown_sentences` continues it.
    """
    parts = [*drill_outcomes(campaign)]
    if campaign.judges_nodes and no_figures.is_among(campaign.findings):
        parts.insert(0, no_figures.HEADLINE)
    judged, number = _judged(campaign), len(_dated(campaign))
    if number:
        has = "has" if number == 1 else "have"
        judged = f"{judged.removesuffix('.')}; {count(number, 'slowdown')} {has} a date."
    return " ".join((*parts, judged))


def drill_outcomes(campaign: Campaign) -> tuple[str, ...]:
    """A sentence for each drilled node: "Drill detected: node-3 (samples/s -76.1 %, limit ±25 %)."; empty without a
    drill.
    """
    if not campaign.judges_nodes or _is_lone(campaign):
        return tuple(f"Drill: {node} was slowed on purpose." for node in _drilled(campaign))
    missed = {finding.nodes[0]: finding.measured for finding in drills.undetected_drills(campaign.findings)}
    detected = {node.node: reason_of(node) for node in campaign.nodes if node.is_drill and drills.is_detected(node)}
    return (
        *(f"Drill not detected: {node} ({measured})." for node, measured in missed.items()),
        *(f"Drill detected: {node} ({measured})." for node, measured in detected.items()),
    )


def is_drill_alone(campaign: Campaign) -> bool:
    """Whether only drilled nodes are red."""
    failures = (*campaign.alarms, *campaign.unjudged_failures)
    return campaign.is_drill and not failures and all(node.is_drill for node in campaign.red_nodes)


def are_others_well(campaign: Campaign) -> bool:
    """Whether each node without a drill is well."""
    return fleet_summary(_others(campaign)).is_well


def _drilled(campaign: Campaign) -> tuple[str, ...]:
    return tuple(dict.fromkeys(result.spec.identity.node for result in campaign.results if result.spec.drill))


def _others(campaign: Campaign) -> list[NodeCondition]:
    drilled = _drilled(campaign)
    return [node for node in conditions(campaign) if node.node not in drilled]


def slowdown_sentences(campaign: Campaign) -> tuple[str, ...]:
    """A sentence for each dated slowdown; of many, for the first."""
    findings = _dated(campaign)
    more = (f"And {len(findings) - MAX_DATED} more: see the findings.",) if len(findings) > MAX_DATED else ()
    return (*(sentence(f.headline) for f in findings[:MAX_DATED]), *more)


def in_full(campaign: Campaign) -> str:
    """The verdict and the dated slowdowns as one text, for places without lists."""
    return " ".join((verdict(campaign), *slowdown_sentences(campaign)))


def _dated(campaign: Campaign) -> Sequence[Finding]:
    return [finding for finding in campaign.findings if finding.category in SLOWER]


def _judged(campaign: Campaign) -> str:
    if not campaign.judges_nodes:
        return " ".join((*_answered(campaign), _measured(campaign), *_failed(campaign)))
    if _is_lone(campaign):
        answer = recommendations.headline(campaign) or "Nodes were not compared: each work ran on one node only."
        return " ".join((answer, _measured(campaign)))
    headline = fleet_summary(_others(campaign)).headline
    return f"Apart from the drill, {headline[0].lower()}{headline[1:]}" if campaign.is_drill else headline


def _is_lone(campaign: Campaign) -> bool:
    """Whether each work ran on one node only, so that no node was compared."""
    return bool(campaign.groups) and len(lone_groups(campaign.groups)) == len(campaign.groups)


def recommended(campaign: Campaign) -> tuple[str, ...]:
    """A line for each work of a strategy study, stored or of loose files; empty where nodes are judged."""
    if campaign.judges_nodes and not _is_lone(campaign):
        return ()
    return recommendations.lines(campaign)


def _answered(campaign: Campaign) -> list[str]:
    """The verdict of a campaign that compares runs, not nodes."""
    noise = noise_advice.headline(campaign) if campaign.campaign_kind is CampaignKind.NOISE else None
    choice = recommendations.headline(campaign)
    return [
        *([choice] if choice else []),
        *configuration_tables.headline(campaign),
        *survey_tables.headline(campaign),
        *([noise] if noise else []),
    ]


def shown_groups(campaign: Campaign) -> tuple[GroupVerdict, ...]:
    """The groups in which nodes were compared; one line names the groups that ran on one node only."""
    lone = lone_groups(campaign.groups)
    return tuple(group for group in campaign.groups if group not in lone)


def lone_line(campaign: Campaign) -> str | None:
    """A sentence on groups without a peer, or None where each had one."""
    lone = lone_groups(campaign.groups)
    if not lone:
        return None
    nodes = listing(dict.fromkeys(group.nodes[0].node for group in lone))
    return f"{count(len(lone), 'group')} of equal runs had one node only ({nodes}): no peer to compare it with."


def _measured(campaign: Campaign) -> str:
    good = sum(result.error is None for result in campaign.results)
    return f"{good} of {count(len(campaign.results), 'run')} gave a figure."


def _failed(campaign: Campaign) -> list[str]:
    bad = dict.fromkeys(
        f"{campaign.labels.get(run.group_id, placement.strategy)} on "
        f"{run.node if campaign.labels else count(placement.world_size, 'GPU')} ({error.kind})"
        for result in campaign.results
        for run, placement, error in [(result.spec.identity, result.spec.placement, result.error)]
        if error
    )
    return [f"No figure from {listing(bad)}."] if bad else []


def drill_sentence(campaign: Campaign) -> str | None:
    """A sentence on the nodes that a drill slowed, or None without a drill."""
    drills = {r.spec.identity.node: r.spec.drill.slowdown_pct for r in campaign.results if r.spec.drill}
    if not drills:
        return None
    slowed = listing(f"{node} by {share(pct, 0)}" for node, pct in drills.items())
    return f"Drill: trainbench slowed {slowed} on purpose, to see whether the checks detect it."


def verdict_table(campaign: Campaign, group: GroupVerdict) -> Table:
    """One row for each node, red ones first; it links to the run with the node's median samples/s."""
    runs = [result for result in campaign.results if result.spec.identity.group_id == group.group_id]
    shown_runs = _median_runs(runs)
    on_cpu = {run.spec.work.device for run in runs} == {Device.CPU}
    behind = {node.node for node in conditions(campaign) if node.condition is Condition.BEHIND}
    return make_table(
        sorted(group.nodes, key=lambda node: node.state not in RED),
        (
            text("node", lambda node: node.node),
            *judged_columns(lambda node: node, COMPARED_WITH[group.reference]),
            TEMPERATURE_MEAN_C.column(lambda node: _temperature(node, on_cpu), "temperature", is_number=False),
            text("state", lambda node: state_text(node, is_behind=node.node in behind)),
        ),
        tone=lambda node: tone_of(node, is_behind=node.node in behind),
        run_id=lambda node: shown_runs.get(node.node),
        title=group_name(campaign, group.group_id),
    )


def judged_columns(of: Callable[[Any], Verdict], against: str) -> tuple[Column[Any], ...]:
    """Columns of rows that hold a verdict. `against`: the reference of its samples/s."""
    return (
        SAMPLES_PER_SECOND.column(lambda row: of(row).value(Metric.SAMPLES_PER_SECOND)),
        DEVIATION.column(lambda row: of(row).deviation(Metric.SAMPLES_PER_SECOND), against),
        PEAK_MEMORY_GB.column(lambda row: of(row).value(Metric.MEMORY_GB)),
    )


def _median_runs(runs: Sequence[RunResult]) -> Mapping[str, str | None]:
    """Node -> id of the run to show."""
    by_node = grouped((run.spec.identity.node, run) for run in runs)
    return {node: median_run(of) for node, of in by_node.items()}


def state_text(node: Verdict, *, is_behind: bool = False) -> str:
    """ "breach: slow, confirmed (-9.0 %), drill": the figure is the re-run's samples/s; "ok, watched"."""
    sides = [_side(metric) for metric in node.metrics if metric.state is State.BREACH and metric.side]
    parts = [plain_state(node.state) + (f": {' and '.join(sides)}" if sides else "")]
    if again := _CONFIRMATIONS.get(node.confirmation):
        off = node.confirm_deviation_pct
        parts.append(again + (f" ({percent(off)})" if off is not None else ""))
    more = {
        "watched": node.is_watched or node.state is State.NOTICE,
        "unsteady": node.is_unsteady,
        "behind its own past": is_behind,
        "drill": node.is_drill,
    }
    return ", ".join([*parts, *(word for word, holds in more.items() if holds)])


def tone_of(node: Verdict, *, is_behind: bool = False) -> Tone:
    is_doubtful = node.state is not State.OK or node.is_watched or node.is_unsteady or is_behind
    return Tone.BAD if node.state in RED else Tone.WARN if is_doubtful else Tone.GOOD


def fleet_lines(group: GroupVerdict) -> tuple[str, ...]:
    """Sentences on a group's spread, noise and smallest deviation beyond chance."""
    is_per_gpu = any(node.gpus for node in group.nodes)
    unit = "GPU" if is_per_gpu else "node"
    return (
        *(("A node's figures are those of its worst GPU, not of all together.",) if is_per_gpu else ()),
        f"Spread: {share(group.spread_pct)} between the fastest and the slowest {unit}, of their median."
        if group.spread_pct is not None
        else f"Spread: {NA}, fewer than two {unit}s have a figure.",
        f"Noise: {noise_share(group.noise_pct, 2)} standard deviation of one run's samples/s, the larger of two: "
        "between runs, and between the windows of a run."
        if group.noise_pct is not None
        else f"Noise: {NA}, no node ran twice.",
        f"Smallest deviation that differs from chance here: {noise_share(group.detectable_pct, 2)}."
        if group.detectable_pct is not None
        else f"Smallest deviation that differs from chance here: {NA}, the noise is not known.",
    )


def reason_sentences(group: GroupVerdict) -> tuple[str, ...]:
    """Why nodes are not ok, each reason once: "node-1 and node-2 (insufficient): too few nodes."."""
    nodes_by_reason: dict[tuple[State, str], list[str]] = {}
    for node in group.nodes:
        if node.state is not State.OK or node.is_watched or node.is_unsteady:
            nodes_by_reason.setdefault((node.state, node.reason), []).append(node.node)
    return tuple(
        sentence(f"{listing(nodes)} ({plain_state(state)}): {one_line(why)}")
        for (state, why), nodes in nodes_by_reason.items()
    )


def limit_texts(group: GroupVerdict) -> tuple[str, ...]:
    """The limits that were applied: "samples/s ±5.0 %"."""
    used = {m.metric: m.limit for node in group.nodes for m in node.metrics}
    return tuple(
        f"{METRICS[metric]} ±{degrees(limit) if metric is Metric.TEMPERATURE_C else share(limit)}"
        for metric, limit in used.items()
    )


def findings_by_node(campaign: Campaign) -> Mapping[str, Sequence[Finding]]:
    """Node -> findings on this node alone or on one of its runs; nodes without findings are left out."""
    return grouped((finding.nodes[0], finding) for finding in campaign.findings if len(finding.nodes) == 1)


def findings_table(findings: Sequence[Finding]) -> Table:
    return make_table(
        findings,
        (
            text("level", lambda f: f"{f.level} ({f.category})"),
            text("subject", lambda f: f.subject),
            text("what", lambda f: f.explanation),
            text("measured", lambda f: f.measured),
            text("expected", lambda f: f.expected),
            text("next step", lambda f: f.resolution),
        ),
        tone=lambda f: _LEVEL_TONES[f.level],
    )


def runs_of_groups(campaign: Campaign) -> Mapping[str, Mapping[str, str | None]]:
    """Group id -> node -> id of the run to show."""
    by_group = grouped((run.spec.identity.group_id, run) for run in campaign.results)
    return {group_id: _median_runs(of) for group_id, of in by_group.items()}


def is_rerun(campaign: Campaign, result: RunResult) -> bool:
    """Whether the run is the re-run of a breach: its round comes after the planned ones."""
    rounds = campaign.params.get("rounds")
    return isinstance(rounds, int) and result.spec.identity.round > rounds


def rates_by_node(campaign: Campaign) -> Mapping[tuple[str, str], Sequence[tuple[float, bool]]]:
    """(group id, node) -> (samples/s, is re-run) of each run."""
    by_node: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    for result in campaign.results:
        if (rate := judged_rate(result)) is not None:
            key = (result.spec.identity.group_id, result.spec.identity.node)
            by_node.setdefault(key, []).append((rate, is_rerun(campaign, result)))
    return by_node


def plain_state(state: State) -> str:
    return state.value.replace("_", " ")


def _side(metric: MetricVerdict) -> str:
    name = "" if metric.metric is Metric.SAMPLES_PER_SECOND else f"{METRICS[metric.metric]} "
    return f"{name}{metric.side}"


def _temperature(node: NodeVerdict, on_cpu: bool) -> str:
    verdict_of_metric = node.metric(Metric.TEMPERATURE_C)
    if verdict_of_metric and verdict_of_metric.value is not None:
        return degrees(verdict_of_metric.value)
    if on_cpu:
        return NO_GPU
    return f"{NA}: {one_line(verdict_of_metric.reason, 60)}" if verdict_of_metric and verdict_of_metric.reason else NA
