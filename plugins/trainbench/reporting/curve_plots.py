"""Figures over the number of GPUs: one set of axes for each work, one curve for each strategy."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench_image.contract.options import Strategy
from bench_image.contract.result import RunResult
from trainbench.comparison.comparable import named_work_groups, work_groups
from trainbench.comparison.entries import all_entries
from trainbench.comparison.scaling import entry_scaling
from trainbench.core.formats import listing, plural
from trainbench.figure_catalogue.run_figures import H2D_GB_PER_S, MEDIAN_STEP_TIME_S, TOKENS_PER_SECOND
from trainbench.reporting.pictures import CARD, GOOD, INK, PALETTE, SOFT, WARN, add_legend
from trainbench.results.readings import rank_noun

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
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """A point of a curve. `noise_pct`: its half-width by chance; None: unknown."""

    value: float
    noise_pct: float | None = None

    @property
    def half(self) -> float:
        return self.value * (self.noise_pct or 0.0) / 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Facet:
    """One work's curves: strategy -> number of GPUs -> median of its runs."""

    title: str
    points: Mapping[str, Mapping[int, CurvePoint]]
    units: str = "GPUs"  # "processes" on a CPU
    ideal: Mapping[int, float] = field(default_factory=dict)  # number of GPUs -> value of linear scaling

    @property
    def sizes(self) -> set[int]:
        return {size for by_size in self.points.values() for size in by_size}

    def place(self, strategy: str, size: int) -> float:
        """The place of a strategy's point among those of its size: -1, 0 and 1 for three of them."""
        there = [name for name in STYLES if size in self.points.get(name, ())]
        return there.index(strategy) - (len(there) - 1) / 2

    @property
    def top(self) -> float:
        measured = [point.value + point.half for by_size in self.points.values() for point in by_size.values()]
        return max(*measured, *self.ideal.values(), 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One figure of a run over the number of GPUs."""

    title: str
    label: str
    value: Callable[[RunResult], float | None]
    depends_on_work: bool = True  # False: only the hardware must be equal within one set of axes
    grows: bool = False  # with the number of GPUs, so that linear scaling is drawn beside it


CURVES = {
    "tokens_per_sec_vs_gpu": Curve(
        title="Throughput", label="tokens/s, all {units}", value=TOKENS_PER_SECOND.value, grows=True
    ),
    "step_time_vs_gpu": Curve(title="Step time", label="median step time (s)", value=MEDIAN_STEP_TIME_S.value),
    "gbps_vs_gpu": Curve(
        title="Host-to-device copy", label="GB/s per GPU, slowest GPU", value=H2D_GB_PER_S.value, depends_on_work=False
    ),
}


def scaling_efficiency(measured: Sequence[RunResult]) -> Figure:
    """Each strategy's throughput per GPU in percent of its base's; the noise includes the base's."""
    scaling = entry_scaling(measured)
    facets, bases, is_elsewhere = [], set[int](), False
    for name, group in named_work_groups(measured):
        points: dict[str, dict[int, CurvePoint]] = {}
        for entry in all_entries(group):
            if scaled := scaling(entry):
                base = scaled.efficiency
                bases.add(base.base_world_size)
                is_elsewhere = is_elsewhere or base.elsewhere is not None
                by_size = points.setdefault(entry.strategy.value, {base.base_world_size: CurvePoint(value=100.0)})
                by_size[entry.world_size] = CurvePoint(value=scaled.pct, noise_pct=scaled.noise_pct)
        facets.append(Facet(title=name, points=points, units=plural(group.rank_noun)))
    noun = rank_noun(measured)
    base_sizes = f"{listing(map(str, sorted(bases)))} {noun if bases == {1} else plural(noun)}"
    if is_elsewhere:
        base_sizes += ",\nsome on other machines"
    figure = _facets(facets, "Scaling efficiency", f"% of the throughput per {noun} at {base_sizes}")
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
        points: dict[str, dict[int, CurvePoint]] = {}
        for entry in all_entries(group):
            if (number := entry.median(curve.value)) is not None:
                # the noise of the throughput does not apply to a probe
                noise_pct = entry.noise_pct if curve.depends_on_work else None
                points.setdefault(entry.strategy.value, {})[entry.world_size] = CurvePoint(
                    value=number, noise_pct=noise_pct
                )
        ideal = linear(points) if curve.grows else {}
        facets.append(Facet(title=name, points=points, units=plural(group.rank_noun), ideal=ideal))
    return _facets(facets, curve.title, curve.label.format(units=plural(rank_noun(measured))))


def linear(points: Mapping[str, Mapping[int, CurvePoint]]) -> dict[int, float]:
    """Linear scaling: number of GPUs -> GPUs x the best value per GPU at the smallest size. Empty for one size."""
    sizes = sorted({size for by_size in points.values() for size in by_size})
    if len(sizes) < 2:
        return {}
    smallest = sizes[0]
    per_gpu = max(by_size[smallest].value for by_size in points.values() if smallest in by_size) / smallest
    return {size: per_gpu * size for size in sizes}


def _facets(facets: Sequence[Facet], title: str, label: str) -> Figure:
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
    sizes = sorted(set[int]().union(*(facet.sizes for facet in shown)))
    margin = 0.08 * (sizes[-1] - sizes[0]) or 0.5
    for axes, facet in zip(all_axes, shown, strict=False):
        _draw_facet(axes, facet, label, apart=APART * (sizes[-1] - sizes[0]))
        axes.set_xticks(sizes)
        axes.set_xlim(sizes[0] - margin, sizes[-1] + margin)
    for axes in all_axes[len(shown) :]:
        axes.remove()
    left_out = f"; {len(filled) - len(shown)} more in metrics.csv" if len(filled) > len(shown) else ""
    has_noise = any(point.half for facet in shown for by_size in facet.points.values() for point in by_size.values())
    bars = ", bars: noise" if has_noise else ""
    figure.suptitle(
        f"{title} (median of the runs{bars}{left_out})", x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK
    )
    add_legend(figure, (*STYLES, IDEAL), ncols=5, handlelength=3.5)
    return figure


def _draw_facet(axes: Axes, facet: Facet, label: str, apart: float) -> None:
    if facet.ideal:
        axes.plot(list(facet.ideal), list(facet.ideal.values()), color=SOFT, linestyle=":", linewidth=1, label=IDEAL)
    for strategy in sorted(facet.points, key=list(STYLES).index):
        by_size = facet.points[strategy]
        measured = sorted(by_size)
        marker, line, shade, is_filled = STYLES[strategy]
        axes.errorbar(
            [size + apart * facet.place(strategy, size) for size in measured],
            [by_size[size].value for size in measured],
            yerr=[by_size[size].half for size in measured],
            marker=marker,
            linestyle=line,
            color=shade,
            markerfacecolor=shade if is_filled else CARD,
            markersize=7,
            elinewidth=1,
            capsize=3,
            label=strategy,
        )
    axes.set_xlabel(facet.units)
    axes.set_ylabel(label, fontsize=9)
    axes.set_ylim(0, 1.15 * facet.top or 1.0)
    if facet.top >= 1000:
        axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y")
    axes.set_title(textwrap.fill(facet.title, 46), fontsize=9)
