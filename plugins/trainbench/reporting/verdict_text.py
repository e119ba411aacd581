"""Verdicts as sentences and tables: the one source of the sentences in every report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench_image.contract.frozen import Frozen
from bench_image.contract.result import RunResult, Status
from trainbench.comparison import noise_floor
from trainbench.core.formats import (
    capitalised,
    count,
    degrees,
    listing,
    noise_share,
    one_line,
    sentence,
    share,
    share_range,
)
from trainbench.core.grouping import grouped
from trainbench.core.states import AGAINST, MAX_NAMED, METRIC_NAMES, NodeState, fleet_summary, word
from trainbench.core.tables import Column, Table, Tone, make_table, median_run, text
from trainbench.core.verdicts import (
    BAD_LINK,
    DRILL_UNDETECTED,
    IMPOSSIBLE_WORK,
    NO_FIGURE,
    Comparison,
    Finding,
    GroupVerdict,
    Level,
    Metric,
    State,
    Verdict,
    Why,
)
from trainbench.figure_catalogue.run_figures import PEAK_MEMORY_GB, SAMPLES_PER_SECOND, TEMPERATURE_MEAN_C
from trainbench.figure_catalogue.table_figures import DEVIATION
from trainbench.judging.node_runs import judged_rate
from trainbench.params.campaign_kind import CampaignKind
from trainbench.reporting import configuration_tables, recommendations, survey_tables
from trainbench.reporting.work_names import group_name
from trainbench.results.campaign import Campaign

TONES = {State.RED: Tone.BAD, State.DRILL: Tone.BAD, State.WELL: Tone.GOOD}
_LEVEL_TONES = {Level.INFO: Tone.PLAIN, Level.WARNING: Tone.WARN, Level.ERROR: Tone.BAD}


def tone(campaign: Campaign) -> Tone:
    """Bad where the run is red; warn where a node is not well for another reason."""
    if is_red(campaign):
        return Tone.BAD
    if not campaign.judges_nodes and all(result.status is Status.OK for result in campaign.results):
        return Tone.GOOD
    return Tone.GOOD if fleet_summary(campaign.node_states).is_well else Tone.WARN


def is_red(campaign: Campaign) -> bool:
    """Whether a node is red, a drill was detected, a run failed that judges no node, or an alarm was raised."""
    failures = (*campaign.red_nodes, *campaign.unjudged_failures, *campaign.alarms)
    return bool(failures or _detected_drills(campaign))


def verdict(campaign: Campaign, *, is_brief: bool = False) -> str:
    """The verdict in short sentences: no figures at all, each drill's outcome, then the other nodes, or the answer of a
    campaign that compares runs. `is_brief`: of several nodes without the reasons, which follow it.
    """
    alarms = [finding for finding in campaign.findings if finding.category in (NO_FIGURE, IMPOSSIBLE_WORK)]
    parts = [sentence(capitalised(alarm.summary)) for alarm in alarms] if campaign.judges_nodes else []
    drilled, others = _drilled(campaign), _others(campaign)
    is_lone = _is_lone(campaign)
    if not campaign.judges_nodes or is_lone:
        parts += [f"Drill: {node} was slowed on purpose." for node in drilled]
    else:
        missed = (finding for finding in campaign.findings if finding.category == DRILL_UNDETECTED)
        parts += [f"Drill not detected: {listing(finding.nodes)} ({finding.measured})." for finding in missed]
        parts += [f"Drill detected: {node.node} ({node.reason})." for node in _detected_drills(campaign)]
    if not campaign.judges_nodes:
        bad = dict.fromkeys(
            f"{campaign.labels.get(run.group_id, placement.strategy)} on "
            f"{run.node if campaign.labels else count(placement.world_size, 'GPU')} ({error.kind})"
            for result in campaign.results
            for run, placement, error in [(result.spec.identity, result.spec.placement, result.error)]
            if error
        )
        noise = noise_floor.headline(campaign) if campaign.campaign_kind is CampaignKind.NOISE else None
        of_runs = (*configuration_tables.headline(campaign), *survey_tables.headline(campaign))
        answers = filter(None, (recommendations.headline(campaign), *_links(campaign), *of_runs, noise))
        parts += [*answers, _measured(campaign), *([f"No figure from {listing(bad)}."] if bad else [])]
    elif is_lone:
        alone = "Nodes were not compared: each work ran on one node only."
        parts += [recommendations.headline(campaign) or alone, _measured(campaign)]
    else:
        headline = fleet_summary(node._replace(reason="") if is_brief else node for node in others).headline
        if len(others) == 1 and not drilled:  # its reason says by what it was judged, also where it is well
            headline = sentence(one_line(others[0].phrase))
        if drilled and len(others) != 1:  # a name stays as it is
            headline = headline[0].lower() + headline[1:]
        parts.append(f"Apart from the drill, {headline}" if drilled else headline)
    return " ".join(parts)


def drill_badge(campaign: Campaign) -> str | None:
    """The badge of a run that is red only because a drill was detected, which needs no action; else None."""
    if campaign.alarms or campaign.unjudged_failures or campaign.red_nodes or not _detected_drills(campaign):
        return None
    return "Drill detected" if fleet_summary(_others(campaign)).is_well else "Drill detected, other nodes need a look"


def drill_sentence(campaign: Campaign) -> str | None:
    """A sentence on the nodes that a drill slowed, or None without a drill."""
    if not (drills := _drilled(campaign)):
        return None
    slowed = listing(f"{node} by {share(pct, 0)}" for node, pct in drills.items())
    return f"Drill: trainbench slowed {slowed} on purpose, to see whether the checks detect it."


def _drilled(campaign: Campaign) -> Mapping[str, float]:
    return {r.spec.identity.node: r.spec.drill.slowdown_pct for r in campaign.results if r.spec.drill}


def _others(campaign: Campaign) -> list[NodeState]:
    drilled = _drilled(campaign)
    return [s for s in campaign.node_states if s.node not in drilled and s.state is not State.DRILL]


def _detected_drills(campaign: Campaign) -> list[NodeState]:
    return [node for node in campaign.node_states if node.state is State.DRILL and node.why is Why.SLOW]


def _is_lone(campaign: Campaign) -> bool:
    """Whether each of several works ran on one node only, so that no node was compared."""
    return bool(campaign.groups) and not shown_groups(campaign)


def next_lines(campaign: Campaign) -> tuple[str, ...]:
    """The first step that nodes need which were not drilled."""
    return next_steps(campaign, of_drills=False)[:1]


def _links(campaign: Campaign) -> Sequence[str]:
    """Whom a search for bad links blames."""
    blamed = [sentence(finding.headline) for finding in campaign.findings if finding.category == BAD_LINK]
    return blamed or (["No bad node and no bad link was found."] if campaign.is_link_search else [])


def _measured(campaign: Campaign) -> str:
    good = sum(result.error is None for result in campaign.results)
    return f"{good} of {count(len(campaign.results), 'run')} gave a figure."


def shown_groups(campaign: Campaign) -> tuple[GroupVerdict, ...]:
    """The groups with a table; one line names those that ran on one node only."""
    lone = {id(group) for group in campaign.lone_groups}
    return tuple(group for group in campaign.groups if id(group) not in lone)


def lone_line(campaign: Campaign) -> str | None:
    """A sentence on groups without a peer, or None where each had one."""
    if not (lone := campaign.lone_groups):
        return None
    nodes = listing(dict.fromkeys(group.nodes[0].node for group in lone))
    return f"{count(len(lone), 'group')} of equal runs had one node only ({nodes}): no peer to compare it with."


def verdict_table(campaign: Campaign, group: GroupVerdict) -> Table:
    """One row for each node, the worst first; it links to the run with the node's median samples/s."""
    shown = runs_of_groups(campaign).get(group.group_id, {})
    return make_table(
        sorted(group.nodes, key=Verdict.urgency),
        (text("node", lambda node: node.node), *judged_columns(group.nodes, lambda node: node)),
        tone=lambda node: TONES.get(node.state, Tone.WARN),
        run_id=lambda node: shown.get(node.node),
        title=group_name(campaign, group.group_id),
    )


def gpu_tables(campaign: Campaign) -> tuple[Table, ...]:
    """A table for each work whose GPUs were measured independently, the worst GPU first."""
    tables = []
    for group in campaign.groups:
        gpus = [(node.node, gpu) for node in group.nodes for gpu in node.gpus]
        columns = (
            text("node", lambda pair: pair[0]),
            text("GPU", lambda pair: str(pair[1].index)),
            text("UUID", lambda pair: pair[1].uuid or "n/a"),
            *judged_columns([gpu for _, gpu in gpus], lambda pair: pair[1]),
        )
        if gpus:
            rows = sorted(gpus, key=lambda pair: pair[1].urgency())
            name = group_name(campaign, group.group_id)
            tables.append(make_table(rows, columns, tone=lambda pair: TONES.get(pair[1].state, Tone.WARN), title=name))
    return tuple(tables)


def judged_columns(verdicts: Sequence[Verdict], of: Callable[[Any], Verdict]) -> tuple[Column[Any], ...]:
    """The columns of rows that hold a verdict, without figures that none of them has."""
    rate = Metric.SAMPLES_PER_SECOND
    columns: list[Column[Any]] = [SAMPLES_PER_SECOND.column(lambda row: of(row).samples_per_second)]
    for against, name in AGAINST.items():
        if any(v.comparison(rate, against) for v in verdicts):
            deviation = lambda row, against=against: of(row).deviation(rate, against)  # noqa: E731
            columns.append(DEVIATION.column(deviation, f"against {name}"))
    if any(v.memory_gb is not None for v in verdicts):
        columns.append(PEAK_MEMORY_GB.column(lambda row: of(row).memory_gb))
    if any(v.temperature_c is not None for v in verdicts):
        heat: Callable[[Any], str] = lambda row: degrees(of(row).temperature_c)  # noqa: E731
        columns.append(TEMPERATURE_MEAN_C.column(heat, "temperature", is_number=False))
    return (*columns, text("state", lambda row: word(of(row))))


def reason_sentences(campaign: Campaign, group: GroupVerdict) -> tuple[str, ...]:
    """Why nodes are not well, each reason once: "node-1 and node-2 (look: pair): they differ by 11.6 %."; a single
    node's reason always, unless the verdict on the campaign is that sentence; and each remark.
    """
    states = campaign.node_states
    said = states[0].reason if len(states) == 1 and not _drilled(campaign) else None
    told = [node for node in group.nodes if node.state is not State.WELL or len(group.nodes) == 1]
    told = [node for node in told if node.reason != said]
    reasons = grouped(((word(node), node.reason), node.node) for node in sorted(told, key=Verdict.urgency))
    remarks = grouped((remark, node.node) for node in group.nodes for remark in node.remarks)
    return (
        *(sentence(f"{listing(nodes)} ({state}): {one_line(why)}") for (state, why), nodes in reasons.items()),
        *(sentence(f"{listing(nodes)}: {one_line(remark)}") for remark, nodes in remarks.items()),
    )


def fleet_lines(group: GroupVerdict) -> tuple[str, ...]:
    """Sentences on a group's spread, noise and smallest deviation beyond chance, where they are known."""
    is_per_gpu = any(node.gpus for node in group.nodes)
    of = f"between the fastest and the slowest {'GPU' if is_per_gpu else 'node'}, of their median"
    noise, least = noise_share(group.noise_pct, 2), noise_share(group.detectable_pct, 2)
    lines = (
        ("A node's figures are those of its worst GPU, not of all together.", is_per_gpu or None),
        (f"Spread: {share(group.spread_pct)} {of}.", group.spread_pct),
        (f"Noise: {noise} standard deviation of one run's samples/s.", group.noise_pct),
        (f"Smallest deviation that differs from chance here: {least}.", group.detectable_pct),
    )
    return tuple(line for line, known in lines if known is not None)


def limits_line(group: GroupVerdict) -> str:
    """ "Limits: samples/s 5.0 % against its peers; memory 2.0 % against its peers."."""
    used = grouped(((c.metric, c.against), c.limit) for node in group.nodes for c in node.comparisons)
    parts = (
        f"{METRIC_NAMES[metric]} {degrees(max(limits)) if metric is Metric.TEMPERATURE_C else share_range(limits)} "
        f"against {AGAINST[against]}"
        for (metric, against), limits in used.items()
    )
    return f"Limits: {'; '.join(parts) or 'none applied'}."


def accepted_baselines(campaign: Campaign) -> tuple[str, ...]:
    """A sentence for each accepted baseline: measurements before it do not count."""
    return tuple(sentence(one_line(baseline.description)) for baseline in campaign.baselines)


class NodeRow(Frozen):
    """The state of a node for programs. `comparisons`: those of the verdict that decides the state."""

    node: str
    state: State
    why: Why
    reason: str
    next_step: str
    comparisons: tuple[Comparison, ...] = ()


def node_rows(campaign: Campaign) -> tuple[NodeRow, ...]:
    """The state of each node, the worst first."""
    verdicts = {(node.node, node.why): node.comparisons for node in reversed(campaign.nodes)}
    return tuple(
        NodeRow(
            node=node.node,
            state=node.state,
            why=node.why,
            reason=node.reason,
            next_step=campaign.finding_of(node).resolution,
            comparisons=verdicts.get((node.node, node.why), ()),
        )
        for node in sorted(campaign.node_states, key=NodeState.urgency)
    )


def next_steps(campaign: Campaign, *, of_drills: bool = True) -> tuple[str, ...]:
    """A sentence for each step that nodes which are not well need: "Next for node-3: ..."; impossible work is first."""
    if not campaign.judges_nodes or _is_lone(campaign):
        links = (finding for finding in campaign.findings if finding.category == BAD_LINK)
        return tuple(f"Next for {each.subject}: {sentence(one_line(each.resolution))}" for each in links)
    without = {State.WELL} if of_drills else {State.WELL, State.DRILL}
    steps = grouped((row.next_step, row.node) for row in node_rows(campaign) if row.state not in without)
    of_work = dict.fromkeys(each.resolution for each in campaign.findings if each.category == IMPOSSIBLE_WORK)
    return (
        *(f"Next: {sentence(step)}" for step in of_work),
        *(f"Next for {listing(nodes, MAX_NAMED)}: {sentence(one_line(step))}" for step, nodes in steps.items()),
    )


def findings_by_node(campaign: Campaign) -> Mapping[str, Sequence[Finding]]:
    """Node -> findings on this node alone or on one of its runs; nodes without findings are left out."""
    return grouped((finding.nodes[0], finding) for finding in campaign.findings if len(finding.nodes) == 1)


def findings_table(findings: Iterable[Finding]) -> Table:
    columns: tuple[Column[Finding], ...] = (
        text("level", lambda f: f"{f.level} ({f.category})"),
        text("subject", lambda f: f.subject),
        text("what", lambda f: f.explanation),
        text("measured", lambda f: f.measured),
        text("expected", lambda f: f.expected),
        text("next step", lambda f: f.resolution),
    )
    return make_table(findings, columns, tone=lambda f: _LEVEL_TONES[f.level])


def runs_of_groups(campaign: Campaign) -> Mapping[str, Mapping[str, str | None]]:
    """Group id -> node -> id of the run to show."""
    runs = grouped(((r.spec.identity.group_id, r.spec.identity.node), r) for r in campaign.results)
    by_group = grouped((group_id, (node, median_run(of))) for (group_id, node), of in runs.items())
    return {group_id: dict(of) for group_id, of in by_group.items()}


def is_rerun(campaign: Campaign, result: RunResult) -> bool:
    """Whether the run came after the planned rounds, to look again at suspects."""
    rounds = campaign.params.get("rounds")
    return isinstance(rounds, int) and result.spec.identity.round > rounds


def rates_by_node(campaign: Campaign) -> Mapping[tuple[str, str], Sequence[tuple[float, bool]]]:
    """(group id, node) -> (samples/s, is re-run) of each run."""
    return grouped(
        ((result.spec.identity.group_id, result.spec.identity.node), (rate, is_rerun(campaign, result)))
        for result in campaign.results
        if (rate := judged_rate(result)) is not None
    )


def expected_rate(node: Verdict) -> Comparison | None:
    """The comparison of samples/s that charts draw: the one that decided, else with peers, past or level."""
    shown = (node.decides, *node.comparisons)
    return next((c for c in shown if c and c.metric is Metric.SAMPLES_PER_SECOND), None)
