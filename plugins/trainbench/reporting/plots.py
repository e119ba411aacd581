"""The plots as PNG files, those that the data can fill; `not_drawn` gives the reasons for the others."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from bench_image.contract.result import RunResult
from trainbench.comparison.scaling import efficiencies
from trainbench.core.formats import count, listing, percent, plural
from trainbench.core.grouping import grouped
from trainbench.core.states import word
from trainbench.core.verdicts import GroupVerdict, Metric, NodeVerdict, State
from trainbench.reporting.curve_plots import CURVES, INK, SOFT, add_legend, curves, plain, scaling_efficiency
from trainbench.reporting.verdict_text import badness, expected_rate, rates_by_node, shown_groups
from trainbench.reporting.work_names import group_name
from trainbench.results.campaign import Campaign
from trainbench.results.readings import is_measured, rank_noun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = ("node_variance", "tokens_per_sec_vs_gpu", "step_time_vs_gpu", "scaling_efficiency", "gbps_vs_gpu")
MAX_NODES = 40  # of one group
MAX_GROUPS = 6
MAX_ROWS = 100  # of all groups: a picture of 4,500 pixels
BAND, RED = "#dfe7dc", "#b3261e"
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#e4e7ea",
    "legend.frameon": False,
}
_LEGEND = ("run", "re-run", "median", "median, red node", "noise (chance alone)", "limits", "expected")


def draw(campaign: Campaign) -> dict[str, bytes]:
    """The plots: file name -> PNG."""
    from matplotlib import rc_context

    absent = not_drawn(campaign)
    with rc_context(_STYLE):
        return {f"{name}.png": _png(_figure(name, campaign)) for name in NAMES if name not in absent}


def not_drawn(campaign: Campaign) -> dict[str, str]:
    """Name of each plot that this data cannot fill -> the reason."""
    measured = _measured(campaign)
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


def _figure(name: str, campaign: Campaign) -> Figure:
    if name == "node_variance":
        return _node_variance(campaign)
    if name == "scaling_efficiency":
        return scaling_efficiency(_measured(campaign))
    return curves(_measured(campaign), CURVES[name])


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
        _label(axes, campaign, group, nodes)
    add_legend(figure, _LEGEND, ncols=4)
    return figure


def _compared(campaign: Campaign, measured: Collection[tuple[str, str]]) -> tuple[GroupVerdict, ...]:
    """The groups to draw: with measurements and, among several groups, with more than one node."""
    of_groups = {group_id for group_id, _ in measured}
    return tuple(group for group in shown_groups(campaign) if group.nodes and group.group_id in of_groups)


def _label(axes: Axes, campaign: Campaign, group: GroupVerdict, nodes: Sequence[NodeVerdict]) -> None:
    title = group_name(campaign, group.group_id)
    if len(nodes) < len(group.nodes):
        title += f"\nthe {len(nodes)} of {len(group.nodes)} nodes furthest from what was expected"
    axes.set_title(plain(title), loc="left", fontsize=10, fontweight="bold", color=INK)
    axes.set_yticks(range(len(nodes)), [plain(node.node) for node in nodes])
    axes.set_ylim(len(nodes) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.margins(x=0.12)
    axes.set_xlim(left=max(0.0, axes.get_xlim()[0]))
    axes.set_xlabel("samples/s (expected: by its peers, else by its past, else by the level)")


def _draw_nodes(axes: Axes, nodes: Sequence[NodeVerdict], runs: Sequence[Sequence[tuple[float, bool]]]) -> None:
    """Draw one row for each node. Equal marks of all rows are one artist, since each artist costs time."""
    known = [(row, c) for row, node in enumerate(nodes) if (c := expected_rate(node))]
    _limits(axes, [(row, c.expected, c.limit) for row, c in known])
    for is_again, marker, label, size in ((False, "o", "run", 6), (True, "^", "re-run", 7)):
        points = [(rate, row) for row, of in enumerate(runs) for rate, rerun in of if rerun is is_again]
        _points(axes, points, marker, label, color="none", markeredgecolor=INK, markersize=size)
    medians = [(node.samples_per_second, row) for row, node in enumerate(nodes) if node.samples_per_second is not None]
    noises = [(value, row, value * pct / 100) for value, row in medians if (pct := nodes[row].noise_pct) is not None]
    if noises:
        values, rows, halves = zip(*noises, strict=True)
        axes.errorbar(values, rows, xerr=halves, color=INK, ls="", capsize=3, lw=1, label="noise (chance alone)")
    red = [(value, row) for value, row in medians if _is_red(nodes[row])]
    well = [(value, row) for value, row in medians if not _is_red(nodes[row])]
    _points(axes, red, "X", "median, red node", color=RED, markersize=11)
    _points(axes, well, "|", "median", color=INK, markersize=15, markeredgewidth=2.5)
    for row, node in enumerate(nodes):
        _say(axes, row, node)


def _is_red(node: NodeVerdict) -> bool:
    return node.state in (State.RED, State.DRILL)


def _limits(axes: Axes, limits: Sequence[tuple[int, float, float]]) -> None:
    """(row, reference, limit in percent of it)"""
    if not limits:
        return
    rows = [row for row, _, _ in limits]
    axes.barh(
        rows,
        [2 * reference * limit / 100 for _, reference, limit in limits],
        left=[reference * (1 - limit / 100) for _, reference, limit in limits],
        height=0.62,
        color=BAND,
        edgecolor=SOFT,
        linewidth=0.6,
        label="limits",
    )
    references = [reference for _, reference, _ in limits]
    ends = [row - 0.31 for row in rows], [row + 0.31 for row in rows]
    axes.vlines(references, *ends, color=SOFT, linestyle=":", label="expected")


def _points(axes: Axes, points: Sequence[tuple[float, int]], marker: str, label: str, **look: Any) -> None:
    if points:
        axes.plot(*zip(*points, strict=True), marker, label=label, **look)


def _say(axes: Axes, row: int, node: NodeVerdict) -> None:
    """The text beside a node: a red node's deviation, or that it has no figure."""
    value, known = node.samples_per_second, expected_rate(node)
    if value is None:
        axes.text(0.5, row, f"{word(node)}: no figure", transform=axes.get_yaxis_transform(), va="center", color=RED)
    elif known and _is_red(node):
        axes.annotate(
            percent(known.deviation),
            (value, row),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=RED,
        )


def _furthest(group: GroupVerdict, most: int) -> Sequence[NodeVerdict]:
    """At most `most` nodes in the group's order; the worst and large deviations are kept first."""

    def unimportance(node: NodeVerdict) -> tuple[tuple[int, int], float]:
        return badness(node), -abs(node.deviation(Metric.SAMPLES_PER_SECOND) or 0.0)

    kept = {node.node for node in sorted(group.nodes, key=unimportance)[:most]}
    return [node for node in group.nodes if node.node in kept]


def _measured(campaign: Campaign) -> tuple[RunResult, ...]:
    """Measured runs without drills, which would distort the curves."""
    return tuple(filter(is_measured, campaign.results))


def _png(figure: Figure) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(110)
    image = io.BytesIO()
    # No version string, so that equal data gives equal bytes. `savefig` would draw everything twice.
    FigureCanvasAgg(figure).print_png(image, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return image.getvalue()
