"""The pictures of a campaign: each node's runs, the curves over the number of GPUs, and where the seconds go."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainbench.comparison.scaling import efficiencies
from trainbench.core.formats import count, duration, listing, percent, plural
from trainbench.core.grouping import grouped
from trainbench.core.states import word
from trainbench.core.tables import short_names
from trainbench.core.verdicts import GroupVerdict, Metric, NodeVerdict, State
from trainbench.figure_catalogue.run_figures import STARTUP_FIGURES
from trainbench.reporting.curve_plots import CURVES, curves, scaling_efficiency
from trainbench.reporting.pictures import BAD, BAND, CARD, INK, PALETTE, SOFT, add_legend, drawing
from trainbench.reporting.run_tables import OTHER, ended_well, phase_seconds
from trainbench.reporting.verdict_text import badness, expected_rate, rates_by_node, shown_groups
from trainbench.reporting.work_names import group_name
from trainbench.results.campaign import Campaign
from trainbench.results.readings import is_measured, rank_noun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = ("node_variance", "tokens_per_sec_vs_gpu", "step_time_vs_gpu", "scaling_efficiency", "gbps_vs_gpu")
SECONDS = "seconds"  # in the HTML report only
MAX_NODES = 40  # of one group
MAX_GROUPS = 6
MAX_ROWS = 100  # of all groups: a picture of 4,500 pixels
_LEGEND = ("run", "re-run", "median", "median, red node", "noise (chance alone)", "limits", "expected")
# Phase -> colour and hatch: each alone tells neighbours apart.
PHASES = {
    "launch": ("p1", ""), "import": ("p2", "//"), "build": ("p3", ""), "probe": ("p4", ""),
    "warm-up": ("p5", "xx"), "measure": ("p6", ""), "autotune": ("p8", "--"), "profile": ("p9", "||"),
    OTHER: ("p7", ""),
}  # fmt: skip


def draw(campaign: Campaign) -> dict[str, Figure]:
    """Name -> picture, those that the data can fill; `not_drawn` gives the reasons for the others."""
    absent, measured = not_drawn(campaign), tuple(filter(is_measured, campaign.results))
    made: dict[str, Figure] = {}
    with drawing():
        if "node_variance" not in absent:
            made["node_variance"] = _node_variance(campaign)
        for name in NAMES[1:]:
            if name == "scaling_efficiency" and name not in absent:
                made[name] = scaling_efficiency(measured)
            elif name not in absent:
                made[name] = curves(measured, CURVES[name])
        if seconds := startup_chart(campaign):
            made[SECONDS] = seconds
    return made


def not_drawn(campaign: Campaign) -> dict[str, str]:
    """Name of each plot that this data cannot fill -> the reason."""
    # Drills would distort the curves.
    measured = tuple(filter(is_measured, campaign.results))
    sizes = sorted({result.spec.placement.world_size for result in measured})
    noun = rank_noun(measured)
    each = count(sizes[0], noun) if sizes else ""
    one_size = f"only {each} per run was measured, a curve needs two sizes" if sizes else "no run was measured"
    absent = {}
    with_rates = rates_by_node(campaign)
    if not with_rates or not campaign.nodes:
        absent["node_variance"] = "no node has a measured throughput"
    elif not _compared(campaign, with_rates):
        absent["node_variance"] = "each work ran on one node only"
    if len(sizes) < 2:
        absent |= dict.fromkeys(NAMES[1:], one_size)
    elif not any(efficiencies(measured)):
        absent["scaling_efficiency"] = f"no smaller number of {plural(noun)} was measured for the same work"
    if not any(result.probes.h2d_gb_per_s for result in measured):
        absent["gbps_vs_gpu"] = "no host-to-device copy was measured"
    return absent


def reasons_not_drawn(campaign: Campaign, among: Sequence[str] = NAMES) -> tuple[str, ...]:
    """Sentences on the reasons why plots of `among` are absent, each reason once."""
    reasons = grouped((why, name) for name, why in not_drawn(campaign).items() if name in among)
    return tuple(f"Not drawn: {listing(names)}; {why}." for why, names in reasons.items())


def startup_chart(campaign: Campaign) -> Figure | None:
    """Each run's seconds by phase; None when no run has phases."""
    from matplotlib.figure import Figure

    results = [result for result in ended_well(campaign) if phase_seconds(result)]
    if not results:
        return None
    shown, names = results[:MAX_NODES], short_names(campaign.results, campaign.labels)
    figure = Figure(figsize=(9, 0.9 + 0.26 * len(shown)), layout="constrained")
    axes = figure.subplots()
    begin = [0.0] * len(shown)
    of_run = [dict(phase_seconds(result)) for result in shown]
    for phase in (*(each.label for each in STARTUP_FIGURES), OTHER):
        seconds = [phases.get(phase, 0.0) for phases in of_run]
        if any(seconds):
            colour, hatch = PHASES[phase]
            look: dict[str, Any] = {"color": PALETTE[colour], "hatch": hatch, "edgecolor": CARD, "linewidth": 0.5}
            axes.barh(range(len(shown)), seconds, left=begin, height=0.7, label=phase, **look)
            begin = [start + more for start, more in zip(begin, seconds, strict=True)]
    for row, total in enumerate(begin):
        axes.text(total, row, f" {duration(total)}", va="center", fontsize=9)
    axes.set_yticks(range(len(shown)), [names[result.spec.identity.run_id] for result in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.12)
    more = f", the first {len(shown)} of {len(results)} runs" if len(results) > len(shown) else ""
    axes.set_xlabel(f"seconds{more}")
    add_legend(figure, PHASES, ncols=5)
    return figure


def _node_variance(campaign: Campaign) -> Figure:
    from matplotlib.figure import Figure

    measured = rates_by_node(campaign)
    groups = _compared(campaign, measured)[:MAX_GROUPS]
    shown = [(group, _furthest(group, min(MAX_NODES, MAX_ROWS // len(groups)))) for group in groups]
    heights = [1.0 + 0.34 * len(nodes) for _, nodes in shown]
    figure = Figure(figsize=(9, sum(heights) + 1.1), layout="constrained")
    all_axes = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (group, nodes) in zip(all_axes, shown, strict=True):
        _draw_nodes(axes, nodes, [measured.get((group.group_id, node.node), ()) for node in nodes])
        title = group_name(campaign, group.group_id)
        if len(nodes) < len(group.nodes):
            title += f"\nthe {len(nodes)} of {len(group.nodes)} nodes furthest from what was expected"
        axes.set_title(title, fontsize=10, fontweight="bold")
        axes.set_yticks(range(len(nodes)), [node.node for node in nodes])
        axes.set_ylim(len(nodes) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.margins(x=0.12)
        axes.set_xlim(left=max(0.0, axes.get_xlim()[0]))
        axes.set_xlabel("samples/s (expected: by its peers, else by its past, else by the level)")
    add_legend(figure, _LEGEND, ncols=4)
    return figure


def _compared(
    campaign: Campaign, measured: Mapping[tuple[str, str], object] | Collection[tuple[str, str]]
) -> tuple[GroupVerdict, ...]:
    """The groups to draw: with measurements and, among several groups, with more than one node."""
    of_groups = {group_id for group_id, _ in measured}
    return tuple(group for group in shown_groups(campaign) if group.nodes and group.group_id in of_groups)


def _draw_nodes(axes: Axes, nodes: Sequence[NodeVerdict], runs: Sequence[Sequence[tuple[float, bool]]]) -> None:
    """Draw one row for each node. Equal marks of all rows are one artist, since each artist costs time."""

    def points(values: Sequence[tuple[float, int]], marker: str, label: str, **look: Any) -> None:
        if values:
            axes.plot(*zip(*values, strict=True), marker, label=label, **look)

    if known := [(row, c) for row, node in enumerate(nodes) if (c := expected_rate(node))]:
        rows = [row for row, _ in known]
        axes.barh(
            rows,
            [2 * c.expected * c.limit / 100 for _, c in known],
            left=[c.expected * (1 - c.limit / 100) for _, c in known],
            height=0.62,
            color=BAND,
            edgecolor=SOFT,
            linewidth=0.6,
            label="limits",
        )
        ends = [row - 0.31 for row in rows], [row + 0.31 for row in rows]
        axes.vlines([c.expected for _, c in known], *ends, color=SOFT, linestyle=":", label="expected")
    for is_again, marker, label, size in ((False, "o", "run", 6), (True, "^", "re-run", 7)):
        rates = [(rate, row) for row, of in enumerate(runs) for rate, rerun in of if rerun is is_again]
        points(rates, marker, label, color="none", markeredgecolor=INK, markersize=size)
    medians = [(node.samples_per_second, row) for row, node in enumerate(nodes) if node.samples_per_second is not None]
    if noises := [(value, row, value * pct / 100) for value, row in medians if (pct := nodes[row].noise_pct)]:
        values, rows, halves = zip(*noises, strict=True)  # type: ignore[assignment]
        axes.errorbar(values, rows, xerr=halves, color=INK, ls="", capsize=3, lw=1, label="noise (chance alone)")
    red = {row for row, node in enumerate(nodes) if node.state in (State.RED, State.DRILL)}
    points([pair for pair in medians if pair[1] in red], "X", "median, red node", color=BAD, markersize=11)
    well = [pair for pair in medians if pair[1] not in red]
    points(well, "|", "median", color=INK, markersize=15, markeredgewidth=2.5)
    place = axes.get_yaxis_transform()
    for row, node in enumerate(nodes):
        value, expected = node.samples_per_second, expected_rate(node)
        if value is None:
            axes.text(0.5, row, f"{word(node)}: no figure", transform=place, va="center", color=BAD)
        elif expected and row in red:
            above: dict[str, Any] = {"xytext": (0, 9), "textcoords": "offset points", "ha": "center"}
            axes.annotate(percent(expected.deviation), (value, row), fontsize=9, color=BAD, **above)


def _furthest(group: GroupVerdict, most: int) -> Sequence[NodeVerdict]:
    """At most `most` nodes in the group's order; the worst and large deviations are kept first."""

    def unimportance(node: NodeVerdict) -> tuple[tuple[int, int], float]:
        return badness(node), -abs(node.deviation(Metric.SAMPLES_PER_SECOND) or 0.0)

    kept = {node.node for node in sorted(group.nodes, key=unimportance)[:most]}
    return [node for node in group.nodes if node.node in kept]
