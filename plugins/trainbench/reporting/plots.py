"""The pictures of a campaign: each node, and the curves over the number of GPUs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult
from trainbench.comparison.entries import all_entries, named_work_groups, work_groups
from trainbench.comparison.scaling import efficiencies, entry_scaling
from trainbench.core.formats import listing, percent, plural
from trainbench.core.states import word
from trainbench.core.verdicts import GroupVerdict, Metric, NodeVerdict, State
from trainbench.figure_catalogue.run_figures import H2D_GB_PER_S, MEDIAN_STEP_TIME_S, TOKENS_PER_SECOND
from trainbench.reporting.pictures import BAD, BAND, CARD, GOOD, INK, PALETTE, SOFT, WARN, add_legend, drawing
from trainbench.reporting.verdict_text import expected_rate, rates_by_node, shown_groups
from trainbench.reporting.work_names import group_name
from trainbench.results.campaign import Campaign
from trainbench.results.readings import is_measured, rank_noun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MAX_FACETS = 12
MAX_COLUMNS = 2  # more make the figure too wide to read on a phone
APART = 0.02  # share of the axis between the points of two strategies, so that none hides another
IDEAL = "linear scaling"
# Strategy -> marker, line, shade, filled marker or not: each alone identifies it, in black and white too.
STYLES: dict[str, tuple[str, str, str, bool]] = {
    Strategy.SINGLE: ("*", "", INK, True),
    Strategy.INDEPENDENT: ("P", "-", SOFT, True),
    Strategy.DDP: ("o", "-", INK, True),
    Strategy.FSDP: ("s", "--", PALETTE["p2"], False),
    Strategy.ZERO2: ("^", "-.", WARN, True),
    Strategy.ZERO3: ("D", ":", GOOD, False),
    Strategy.OWN: ("X", "-", INK, True),
}
# Strategy -> number of GPUs -> median of the runs, and half the width of its bar: the noise.
Points = dict[str, dict[int, tuple[float, float]]]


class Facet(NamedTuple):
    """The curves of one work. `ideal`: number of GPUs -> value of linear scaling."""

    title: str
    points: Points
    units: str = "GPUs"  # "processes" on a CPU
    ideal: Mapping[int, float] = {}

    @property
    def sizes(self) -> set[int]:
        return {size for by_size in self.points.values() for size in by_size}


class Curve(NamedTuple):
    """One figure of a run over the number of GPUs."""

    title: str
    label: str
    value: Callable[[RunResult], float | None]
    depends_on_work: bool = True  # False: only the hardware must be equal within one set of axes
    grows: bool = False  # with the number of GPUs, so that linear scaling is drawn beside it


CURVES = {
    "tokens_per_sec_vs_gpu": Curve("Throughput", "tokens/s, all {units}", TOKENS_PER_SECOND.value, grows=True),
    "step_time_vs_gpu": Curve("Step time", "median step time (s)", MEDIAN_STEP_TIME_S.value),
    "gbps_vs_gpu": Curve("Host-to-device copy", "GB/s per GPU, slowest GPU", H2D_GB_PER_S.value, depends_on_work=False),
}


def scaling_efficiency(measured: Sequence[RunResult]) -> Figure:
    """Each strategy's throughput per GPU in percent of its base's; the noise includes the base's."""
    scaling = entry_scaling(measured)
    facets, bases, is_elsewhere = [], set[int](), False
    for name, group in named_work_groups(measured):
        points: Points = {}
        for entry in all_entries(group):
            if scaled := scaling(entry):
                base = scaled.efficiency
                bases.add(base.base_world_size)
                is_elsewhere = is_elsewhere or base.elsewhere is not None
                by_size = points.setdefault(entry.strategy.value, {base.base_world_size: (100.0, 0.0)})
                by_size[entry.world_size] = (scaled.pct, scaled.pct * (scaled.noise_pct or 0.0) / 100)
        facets.append(Facet(name, points, plural(group.rank_noun)))
    noun = rank_noun(measured)
    base_sizes = f"{listing(map(str, sorted(bases)))} {noun if bases == {1} else plural(noun)}"
    if is_elsewhere:
        base_sizes += ",\nsome on other machines"
    figure = draw_facets(facets, "Scaling efficiency", f"% of the throughput per {noun} at {base_sizes}")
    for axes in figure.axes:
        axes.axhline(100, color=SOFT, linestyle=":", linewidth=1)
        axes.set_ylim(top=max(110.0, axes.get_ylim()[1]))
    return figure


def curves(measured: Sequence[RunResult], curve: Curve) -> Figure:
    """A plot of one figure over the number of GPUs, with axes for each work."""
    facets = []
    groups = named_work_groups(measured)
    if not curve.depends_on_work:
        groups = [(group.hardware, group) for group in work_groups(measured, lambda spec: "any work")]
    for name, group in groups:
        points: Points = {}
        for entry in all_entries(group):
            if (number := entry.median(curve.value)) is not None:
                # the noise of the throughput does not apply to a probe
                noise_pct = entry.noise_pct if curve.depends_on_work else None
                of_strategy = points.setdefault(entry.strategy.value, {})
                of_strategy[entry.world_size] = (number, number * (noise_pct or 0.0) / 100)
        facets.append(Facet(name, points, plural(group.rank_noun), linear(points) if curve.grows else {}))
    return draw_facets(facets, curve.title, curve.label.format(units=plural(rank_noun(measured))))


def linear(points: Points) -> dict[int, float]:
    """Linear scaling: number of GPUs -> GPUs x the best value per GPU at the smallest size. Empty for one size."""
    sizes = sorted({size for by_size in points.values() for size in by_size})
    if len(sizes) < 2:
        return {}
    smallest = sizes[0]
    per_gpu = max(by_size[smallest][0] for by_size in points.values() if smallest in by_size) / smallest
    return {size: per_gpu * size for size in sizes}


def draw_facets(facets: Sequence[Facet], title: str, label: str) -> Figure:
    """One set of axes for each work, each with a scale of its own because works are not comparable.

    The numbers of GPUs are the same for all, so that a work measured at one of them shows which one.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    filled = [facet for facet in facets if facet.points]
    shown = filled[:MAX_FACETS]
    columns = min(MAX_COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    width, height = (7.5, 4.4) if len(shown) == 1 else (4.3 * columns, 3.5 * rows + 0.8)
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    all_axes = figure.subplots(rows, columns, squeeze=False).ravel()
    sizes = sorted({size for facet in shown for size in facet.sizes})
    margin = 0.08 * (sizes[-1] - sizes[0]) or 0.5
    for axes, facet in zip(all_axes, shown, strict=False):
        _draw_facet(axes, facet, label, apart=APART * (sizes[-1] - sizes[0]))
        axes.set_xticks(sizes)
        axes.set_xlim(sizes[0] - margin, sizes[-1] + margin)
    for axes in all_axes[len(shown) :]:
        axes.remove()
    left_out = f"; {len(filled) - len(shown)} more in metrics.csv" if len(filled) > len(shown) else ""
    has_noise = any(half for facet in shown for by_size in facet.points.values() for _, half in by_size.values())
    about = f"median of the runs{', bars: noise' if has_noise else ''}{left_out}"
    figure.suptitle(f"{title} ({about})", x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    has_own = any(Strategy.OWN in facet.points for facet in shown)
    styles = [name for name in STYLES if (name == Strategy.OWN) == has_own]  # a command of one's own runs alone
    add_legend(figure, (*styles, IDEAL), ncols=5, handlelength=3.5)
    return figure


def _draw_facet(axes: Axes, facet: Facet, label: str, apart: float) -> None:
    if facet.ideal:
        axes.plot(list(facet.ideal), list(facet.ideal.values()), color=SOFT, linestyle=":", linewidth=1, label=IDEAL)
    there = {size: [name for name in STYLES if size in facet.points.get(name, ())] for size in facet.sizes}
    for strategy in sorted(facet.points, key=list(STYLES).index):
        points = sorted(facet.points[strategy].items())
        marker, line, shade, is_filled = STYLES[strategy]
        axes.errorbar(
            # Of the three strategies of a size the first stands left of it, the last right.
            [size + apart * (there[size].index(strategy) - (len(there[size]) - 1) / 2) for size, _ in points],
            [value for _, (value, _) in points],
            yerr=[half for _, (_, half) in points],
            marker=marker,
            linestyle=line,
            color=shade,
            markerfacecolor=shade if is_filled else CARD,
            markersize=7,
            elinewidth=1,
            capsize=3,
            label=strategy,
        )
    bars = (value + half for by_size in facet.points.values() for value, half in by_size.values())
    top = max(*bars, *facet.ideal.values(), 0.0)
    axes.set_xlabel(facet.units)
    axes.set_ylabel(label, fontsize=9)
    axes.set_ylim(0, 1.15 * top or 1.0)
    if top >= 1000:
        axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y")
    axes.set_title(textwrap.fill(facet.title, 46), fontsize=9)


NAMES = ("node_variance", "tokens_per_sec_vs_gpu", "step_time_vs_gpu", "scaling_efficiency", "gbps_vs_gpu")
MAX_NODES = 40  # of one group
MAX_GROUPS = 6
MAX_ROWS = 100  # of all groups: a picture of 4,500 pixels
_LEGEND = ("run", "re-run", "median", "median, red node", "noise (chance alone)", "limits", "expected")


def draw(campaign: Campaign) -> dict[str, Figure]:
    """Name -> picture, those that the data can fill."""
    measured = tuple(filter(is_measured, campaign.results))  # drills would distort the curves
    drawable = {"node_variance"} if campaign.nodes and _compared(campaign, rates_by_node(campaign)) else set()
    if len({result.spec.placement.world_size for result in measured}) > 1 and not campaign.is_link_search:
        drawable |= set(NAMES[1:])
    if not any(efficiencies(measured)):
        drawable.discard("scaling_efficiency")
    if not any(result.probes.h2d_gb_per_s for result in measured):
        drawable.discard("gbps_vs_gpu")
    makes: dict[str, Callable[[], Figure]] = {
        "node_variance": lambda: _node_variance(campaign),
        "scaling_efficiency": lambda: scaling_efficiency(measured),
    }
    makes |= {name: partial(curves, measured, curve) for name, curve in CURVES.items()}
    with drawing():
        return {name: makes[name]() for name in NAMES if name in drawable}


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


def _compared(campaign: Campaign, measured: Mapping[tuple[str, str], object]) -> tuple[GroupVerdict, ...]:
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
        if value is None:  # one of its runs may have a figure, which is drawn
            told = word(node) if runs[row] else f"{word(node)}: no figure"
            axes.annotate(told, (0.01, row), xycoords=place, color=BAD, va="center")
        elif expected and row in red:
            look: dict[str, Any] = {"xytext": (0, 9), "textcoords": "offset points", "ha": "center", "fontsize": 9}
            axes.annotate(percent(expected.deviation), (value, row), color=BAD, **look)


def _furthest(group: GroupVerdict, most: int) -> Sequence[NodeVerdict]:
    """At most `most` nodes in the group's order; the worst and large deviations are kept first."""

    def unimportance(node: NodeVerdict) -> tuple[tuple[int, int], float]:
        return node.urgency(), -abs(node.deviation(Metric.SAMPLES_PER_SECOND) or 0.0)

    kept = {node.node for node in sorted(group.nodes, key=unimportance)[:most]}
    return [node for node in group.nodes if node.node in kept]
