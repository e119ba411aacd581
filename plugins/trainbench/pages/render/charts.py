"""Plotly figures as plain JSON values. Colours are names of the page's palette, which the page's script resolves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from trainbench.core.formats import PERCENT, figure, percent, signed
from trainbench.core.verdicts import State
from trainbench.pages.reads.rows import CostRow, EventKind, NodeEvent, NodePoint, NodeSeries

EVENT_MARKS = {
    EventKind.SETUP: ("diamond", "accent"),
    EventKind.OPENED: ("x", "bad"),
    EventKind.CLOSED: ("circle", "good"),
    EventKind.ACKNOWLEDGED: ("square", "warn"),
    EventKind.BASELINE: ("triangle-up", "accent"),
    EventKind.MARKED: ("square-open", "warn"),
    EventKind.FREED: ("circle-open", "good"),
}
HEIGHTS = {1: 200, 2: 270, 3: 340}  # pixels, by the number of panels
HALF_A_DAY = timedelta(hours=12)
EDGE = 0.02  # share of the shown time: margin beside the first and last mark
Figure = dict[str, Any]
Hover = Callable[[NodePoint], str]
Read = Callable[[NodePoint], float | None]
Values = Sequence[tuple[NodePoint, float | None]]
Span = tuple[datetime, datetime]


def plain(text: str) -> str:
    """Text escaped for plotly, which reads some HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def node_chart(series: NodeSeries, events: Sequence[NodeEvent]) -> Figure | None:
    """Samples/s with the band of the limit around its peers, its own past and its level; memory and temperature against
    the peers; what happened above. A band is as wide as the limit of each night's campaign; where that was not
    recorded there is none. None when no point has a figure.
    """
    points = series.points
    if not any(point.samples_per_second is not None for point in points):
        return None
    first, last = points[0].at, points[-1].at
    span = _span(first, last)
    panels = [_throughput(points), _against_peers(points, span, *_MEMORY), _against_peers(points, span, *_TEMPERATURE)]
    shown = [panel for panel in panels if panel]
    within = [event for event in events if first <= event.at <= last]
    layout: Figure = {
        "height": HEIGHTS[len(shown)],
        "showlegend": False,
        "xaxis": {"type": "date", "anchor": "free", "position": 0, "range": [at.isoformat() for at in span]},
        "shapes": [],
        "annotations": [],
    }
    traces: list[Figure] = []
    for row, panel in enumerate(shown, start=1):
        axis = "y" if row == 1 else f"y{row}"
        traces += [{**trace, "yaxis": axis, "xaxis": "x"} for trace in panel["traces"]]
        domain = _domain(row, len(shown))
        layout[axis.replace("y", "yaxis", 1)] = {"domain": domain, "nticks": 5} | panel.get("axis", {})
        layout["annotations"] += [_panel_title(panel["title"], domain[1])]
        layout["shapes"] += [{**shape, "yref": axis} for shape in panel["shapes"]]
    if within:
        traces += [_event_trace(within)]
        layout["yaxis9"] = {"domain": [0.95, 1.0], "visible": False, "range": [0, 1], "fixedrange": True}
        layout["shapes"] += [_event_line(event) for event in within]
    return {"data": traces, "layout": layout}


def limits_of_last(series: Sequence[NodeSeries]) -> str:
    """ "±5 %, memory ±2 %, ±10 °C": of the newest campaign; "" where it used none."""
    newest = max((each.points[-1] for each in series), key=lambda point: point.at, default=None)
    if newest is None:
        return ""
    known = (
        ("", newest.samples_per_second_limit_pct, " %"),
        ("memory ", newest.memory_limit_pct, " %"),
        ("", newest.temperature_limit_c, " °C"),
    )
    return ", ".join(f"{name}±{limit:g}{unit}" for name, limit, unit in known if limit is not None)


def months_chart(months: Sequence[CostRow]) -> Figure | None:
    """The chart of monthly costs; None for fewer than two months with a known cost."""
    known = [row for row in reversed(months) if row.usd is not None]
    if len(known) < 2:
        return None
    bars = {
        "type": "bar",
        "x": [row.name for row in known],
        "y": [row.usd for row in known],
        "marker": {"color": "var(--accent)"},
        "hovertemplate": "%{x}: $%{y:,.2f}<extra></extra>",
    }
    layout = {
        "height": 180,
        "bargap": 0.5,
        "xaxis": {"type": "category"},
        "yaxis": {"tickprefix": "$", "rangemode": "tozero", "nticks": 5},
        "showlegend": False,
    }
    return {"data": [bars], "layout": layout}


def _throughput(points: Sequence[NodePoint]) -> Figure:
    bands = [
        (p.at.isoformat(), p.peers_expected, p.samples_per_second_limit_pct / 100)
        for p in points
        if p.peers_expected is not None and p.samples_per_second_limit_pct is not None
    ]
    days = [day for day, _, _ in bands]
    band = [
        {"x": days, "y": [peers * (1 - share) for _, peers, share in bands], **_invisible()},
        {"x": days, "y": [peers * (1 + share) for _, peers, share in bands], **_invisible(), "fill": "tonexty",
         "fillcolor": "var(--band)"},
    ]  # fmt: skip
    expected = (("past_expected", "dot", "soft"), ("level_expected", "dash", "accent"))
    values = [(point, point.samples_per_second) for point in points]
    return {
        "title": "samples/s",
        "traces": [
            *(band if len(bands) > 1 else []),
            *filter(None, (_line(points, *line) for line in expected)),
            *_marks(values, _hover),
        ],
        "shapes": [],
    }


def _line(points: Sequence[NodePoint], name: str, dash: str, colour: str) -> Figure | None:
    known = [(point.at.isoformat(), value) for point in points if (value := getattr(point, name)) is not None]
    line = {"color": f"var(--{colour})", "dash": dash, "width": 1.5, "shape": "hv"}
    x, y = [at for at, _ in known], [value for _, value in known]
    drawn = {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip"}
    return drawn if len(known) > 1 else None


# Name, deviation and limit of a point, unit.
_MEMORY = ("memory", attrgetter("memory_deviation_pct"), attrgetter("memory_limit_pct"), PERCENT)
_TEMPERATURE = ("temperature", attrgetter("temperature_deviation_c"), attrgetter("temperature_limit_c"), " °C")


def _against_peers(
    points: Sequence[NodePoint], span: Span, what: str, own: Read, limit: Read, unit: str
) -> Figure | None:
    """A panel of deviations from the peers within the band of the limit; None where none is known."""
    values = [(point, own(point)) for point in points]
    if not any(value is not None for _, value in values):
        return None

    def hover(point: NodePoint) -> str:
        deviation = signed(own(point) or 0.0, unit, decimals=1 if unit == PERCENT else 0)
        return f"{_day(point.at)}<br>{what} {deviation}{_of_limit(limit(point), unit)}"

    stretches = _stretches([(point, limit(point)) for point in points], span)
    bands = [
        {
            "type": "rect", "xref": "x", "x0": since.isoformat(), "x1": until.isoformat(), "y0": -limit, "y1": limit,
            "layer": "below", "fillcolor": "var(--band)", "line": {"width": 0},
        }
        for since, until, limit in stretches
    ]  # fmt: skip
    reach = max(  # panels are low, so marks at the edge need a margin
        [limit * 1.5 for _, _, limit in stretches] + [abs(value) * 1.3 for _, value in values if value is not None]
    )
    return {
        "title": f"{what} against its peers,{unit}",
        "traces": _marks(values, hover),
        "shapes": bands,
        "axis": {"range": [-reach, reach] if reach else [-1, 1], "nticks": 4},
    }


def _stretches(limits: Values, span: Span) -> list[tuple[datetime, datetime, float]]:
    """(since, until, limit) for each span of one limit; the first and last extend to the edges."""
    begun: list[tuple[datetime, float | None]] = []
    for point, limit in limits:
        if not begun or begun[-1][1] != limit:
            begun.append((point.at if begun else span[0], limit))
    ends = [*(at for at, _ in begun[1:]), span[1]]
    return [(at, end, limit) for (at, limit), end in zip(begun, ends, strict=True) if limit is not None]


def _marks(values: Values, hover: Hover) -> list[Figure]:
    """One line with a mark for each campaign; red verdicts differ by mark and colour."""
    known = [(point, value) for point, value in values if value is not None]
    red = [point.state is State.RED for point, _ in known]
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": [point.at.isoformat() for point, _ in known],
            "y": [value for _, value in known],
            "text": [hover(point) for point, _ in known],
            "hovertemplate": "%{text}<extra></extra>",
            "line": {"color": "var(--ink)", "width": 1},
            "marker": {
                "color": ["var(--bad)" if is_red else "var(--ink)" for is_red in red],
                "symbol": ["x" if is_red else "circle" for is_red in red],
                "size": [9 if is_red else 5 for is_red in red],
                "opacity": 1,  # plotly makes marks of different sizes see-through
                "line": {"width": 0},
            },
        }
    ]


def _hover(point: NodePoint) -> str:
    peers = "" if point.deviation_pct is None else f", {percent(point.deviation_pct)} against its peers"
    peers += _of_limit(point.samples_per_second_limit_pct, " %") if peers else ""
    past = "" if point.past_deviation_pct is None else f", {percent(point.past_deviation_pct)} against its own past"
    level = "" if point.level_deviation_pct is None else f", {percent(point.level_deviation_pct)} against its level"
    return (
        f"{_day(point.at)}<br>{figure(point.samples_per_second)} samples/s{peers}{past}{level}<br>{plain(point.word)}"
    )


def _of_limit(limit: float | None, unit: str) -> str:
    return "" if limit is None else f" (limit {limit:g}{unit})"


def _event_trace(events: Sequence[NodeEvent]) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [event.at.isoformat() for event in events],
        "y": [0.5] * len(events),
        "yaxis": "y9",
        "xaxis": "x",
        "text": [f"{_day(event.at)}<br>{_wrapped(event.text)}" for event in events],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "symbol": [EVENT_MARKS[event.kind][0] for event in events],
            "color": [f"var(--{EVENT_MARKS[event.kind][1]})" for event in events],
            "size": 9,
        },
    }


def _event_line(event: NodeEvent) -> Figure:
    at = event.at.isoformat()
    line = {"color": f"var(--{EVENT_MARKS[event.kind][1]})", "width": 1, "dash": "dot"}
    return {
        "type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 0.95, "line": line,
        "layer": "below",
    }  # fmt: skip


def _wrapped(text: str, width: int = 60, most: int = 240) -> str:
    """Lines that fit a hover label."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    rows, row = [], ""
    for word in cut.split():
        if row and len(row) + len(word) >= width:
            rows.append(row)
            row = ""
        row = f"{row} {word}".strip()
    return "<br>".join(plain(line) for line in [*rows, row])


def _invisible() -> Figure:
    return {"type": "scatter", "mode": "lines", "line": {"width": 0, "shape": "hv"}, "hoverinfo": "skip"}


def _span(first: datetime, last: datetime) -> Span:
    """The range of the time axis; a day for a single night, where plotly would label milliseconds."""
    room = max(HALF_A_DAY, (last - first) * EDGE)
    return first - room, last + room


def _panel_title(text: str, top: float) -> Figure:
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": top, "yref": "paper", "yanchor": "bottom"}
    return {"text": text, "showarrow": False, "font": {"size": 11}, **place}


def _domain(row: int, count: int) -> list[float]:
    """The panel's share of the height, from below; the first panel is the largest, with the events above it."""
    return {1: [[0.0, 0.84]], 2: [[0.36, 0.88], [0.0, 0.26]], 3: [[0.51, 0.9], [0.25, 0.43], [0.0, 0.17]]}[count][
        row - 1
    ]


def _day(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
