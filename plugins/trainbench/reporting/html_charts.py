"""The geometry of the page's own charts, in percent of their width: dots for the nodes, bars for the seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainbench.core.formats import duration, figure, percent
from trainbench.core.tables import short_names
from trainbench.core.verdicts import GroupVerdict, NodeVerdict, State
from trainbench.figure_catalogue.run_figures import STARTUP_FIGURES
from trainbench.reporting.run_tables import OTHER, ended_well, phase_seconds
from trainbench.reporting.verdict_text import badness, expected_rate, rates_by_node, state_text
from trainbench.results.campaign import Campaign

MAX_ROWS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    x: float
    width: float
    kind: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dot:
    x: float
    rerun: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    x: float
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRow:
    node: str
    text: str
    red: bool
    band: Span | None
    reference: float | None
    noise: Span | None
    median: float | None
    dots: tuple[Dot, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeChart:
    rows: tuple[NodeRow, ...]
    ticks: tuple[Tick, ...]
    num_left_out: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BarRow:
    name: str
    text: str
    parts: tuple[Span, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BarChart:
    rows: tuple[BarRow, ...]
    kinds: tuple[str, ...]
    num_left_out: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Values between `low` and `high` as percent of the width."""

    low: float
    high: float

    def x(self, value: float) -> float:
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    def span(self, middle: float, half: float) -> Span:
        low, high = max(self.low, middle - half), min(self.high, middle + half)
        return Span(x=self.x(low), width=round(self.x(high) - self.x(low), 2))


def node_chart(campaign: Campaign, group: GroupVerdict) -> NodeChart | None:
    """A chart of each node's runs, median, noise and limits on one scale; None when no node has a figure."""
    runs = rates_by_node(campaign)
    nodes = sorted(group.nodes, key=badness)[:MAX_ROWS]
    numbers = [number for node in nodes for number in _extent(node)]
    numbers += [rate for node in nodes for rate, _ in runs.get((group.group_id, node.node), ())]
    if not numbers:
        return None
    margin = 0.04 * (max(numbers) - min(numbers)) or 0.05 * max(numbers)
    scale = Scale(low=max(0.0, min(numbers) - margin), high=max(numbers) + margin)
    return NodeChart(
        rows=tuple(_node_row(node, runs.get((group.group_id, node.node), ()), scale) for node in nodes),
        ticks=_ticks(scale),
        num_left_out=len(group.nodes) - len(nodes),
    )


def startup_chart(campaign: Campaign) -> BarChart | None:
    """A chart of each run's seconds by phase, on one scale; None when no run has phases."""
    results = [result for result in ended_well(campaign) if phase_seconds(result)]
    if not results:
        return None
    longest = max(sum(seconds for _, seconds in phase_seconds(result)) for result in results)
    names = short_names(campaign.results, campaign.labels)
    rows = []
    for result in results[:MAX_ROWS]:
        parts, at = [], 0.0
        for kind, seconds in phase_seconds(result):
            width = round(100 * seconds / longest, 2)
            parts.append(Span(x=round(at, 2), width=width, kind=kind, text=f"{kind}: {duration(seconds)}"))
            at += width
        total = duration(sum(seconds for _, seconds in phase_seconds(result)))
        rows.append(BarRow(name=names[result.spec.identity.run_id], text=total, parts=tuple(parts)))
    used = {part.kind for row in rows for part in row.parts}
    return BarChart(
        rows=tuple(rows),
        kinds=tuple(kind for kind in (*(each.label for each in STARTUP_FIGURES), OTHER) if kind in used),
        num_left_out=len(results) - len(rows),
    )


def _extent(node: NodeVerdict) -> Sequence[float]:
    known = expected_rate(node)
    return (known.expected * (1 - known.limit / 100), known.expected * (1 + known.limit / 100)) if known else ()


def _node_row(node: NodeVerdict, runs: Sequence[tuple[float, bool]], scale: Scale) -> NodeRow:
    value, known, noise = node.samples_per_second, expected_rate(node), node.noise_pct
    deviation = f" ({percent(known.deviation)})" if known else ""
    return NodeRow(
        node=node.node,
        text=state_text(node) if value is None else f"{figure(value)}{deviation}",
        red=node.state in (State.RED, State.DRILL),
        band=scale.span(known.expected, known.expected * known.limit / 100) if known else None,
        reference=scale.x(known.expected) if known else None,
        noise=scale.span(value, value * noise / 100) if value is not None and noise is not None else None,
        median=None if value is None else scale.x(value),
        dots=tuple(Dot(x=scale.x(rate), rerun=rerun) for rate, rerun in runs),
    )


def _ticks(scale: Scale) -> tuple[Tick, ...]:
    """About five round values between the ends of the scale."""
    rough = (scale.high - scale.low) / 6
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough)
    first = math.ceil(scale.low / step)
    values = [step * count for count in range(first, math.floor(scale.high / step) + 1)]
    decimals = max(0, -math.floor(math.log10(step)))
    return tuple(Tick(x=scale.x(value), text=f"{value:,.{decimals}f}") for value in values)
