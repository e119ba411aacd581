"""The picture of a node over the nights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from trainbench.core.formats import PERCENT, figure, percent, signed
from trainbench.core.verdicts import State
from trainbench.pages.reads.rows import EventKind, NodeEvent, NodePoint, Series
from trainbench.reporting.pictures import ACCENT, BAD, BAND, GOOD, INK, LINE, SOFT, WARN, drawing, svg, tell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVENT_MARKS = {  # marker, colour, filled or not
    EventKind.SETUP: ("D", ACCENT, True),
    EventKind.OPENED: ("X", BAD, True),
    EventKind.CLOSED: ("o", GOOD, True),
    EventKind.ACKNOWLEDGED: ("s", WARN, True),
    EventKind.BASELINE: ("^", ACCENT, True),
    EventKind.MARKED: ("s", WARN, False),
    EventKind.FREED: ("o", GOOD, False),
}
HALF_A_DAY = timedelta(hours=12)
EDGE = 0.02  # share of the shown time: margin beside the first and last mark
BESIDE = 0.012  # share of the shown time: events that are closer stand above one another
Axes = Any  # whose stubs know no dates
Read = Callable[[NodePoint], float | None]


def node_chart(series: Series, events: Sequence[NodeEvent]) -> Markup | None:
    """`node_figure` for a page; None when no point has a figure."""
    if not any(point.samples_per_second is not None for point in series):
        return None
    return svg(node_figure(series, events))


def node_figure(points: Series, events: Sequence[NodeEvent]) -> Figure:
    """Samples/s with the band of the limit around its peers, its own past and its level; memory and temperature against
    the peers; what happened above. A band is as wide as the limit of each night's campaign; where that was not
    recorded there is none.
    """
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    against = [
        ("memory", PERCENT, 1, attrgetter("memory_deviation_pct"), attrgetter("memory_limit_pct")),
        ("temperature", " °C", 0, attrgetter("temperature_deviation_c"), attrgetter("temperature_limit_c")),
    ]
    beside = "its peers" if any(point.peers_expected is not None for point in points) else "its own past"
    shown = [each for each in against if any(each[3](point) is not None for point in points)]
    with drawing():
        made = Figure(figsize=(11, 2.5 + 0.85 * len(shown)))
        heights = [2.2, *[1] * len(shown)]
        all_axes = made.subplots(len(heights), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
        _throughput(all_axes[0], points)
        for axes, (name, unit, decimals, own, limit) in zip(all_axes[1:], shown, strict=True):
            _against_peers(axes, points, name, unit, decimals, own, limit)
            axes.set_title(f"{name} against {beside},{unit}", fontsize=9, pad=3)
        for axes in all_axes:
            axes.grid(axis="y")
            axes.tick_params(length=0, labelsize=9)
        first, last = points[0].at, points[-1].at
        room = max(HALF_A_DAY, (last - first) * EDGE)  # a day for a single night
        all_axes[0].set_xlim(first - room, last + room)
        _events(list(all_axes), [event for event in events if first <= event.at <= last], (last - first) * BESIDE)
        dates = AutoDateLocator()  # type: ignore[no-untyped-call]
        all_axes[-1].xaxis.set_major_locator(dates)
        all_axes[-1].xaxis.set_major_formatter(ConciseDateFormatter(dates))  # type: ignore[no-untyped-call]
        all_axes[-1].xaxis.get_offset_text().set_fontsize(9)
        made.subplots_adjust(left=0.065, right=0.99, bottom=0.11, top=0.88, hspace=0.45)
    return made


def limits_of_last(series: Sequence[Series]) -> str:
    """ "±5 %, memory ±2 %, ±10 °C": of the newest campaign; "" where it used none."""
    newest = max((each[-1] for each in series), key=lambda point: point.at, default=None)
    if newest is None:
        return ""
    known = (
        ("", newest.samples_per_second_limit_pct, " %"),
        ("memory ", newest.memory_limit_pct, " %"),
        ("", newest.temperature_limit_c, " °C"),
    )
    return ", ".join(f"{name}±{limit:g}{unit}" for name, limit, unit in known if limit is not None)


def _throughput(axes: Axes, points: Sequence[NodePoint]) -> None:
    band = [
        (point.at, point.peers_expected, point.samples_per_second_limit_pct / 100)
        for point in points
        if point.peers_expected is not None and point.samples_per_second_limit_pct is not None
    ]
    if len(band) > 1:
        low, high = ([peers * (1 + sign * share) for _, peers, share in band] for sign in (-1, 1))
        axes.fill_between([at for at, _, _ in band], low, high, step="post", color=BAND, linewidth=0, label="limits")
    for name, dash, colour in (("past_expected", ":", SOFT), ("level_expected", "--", ACCENT)):
        known = [(point.at, value) for point in points if (value := getattr(point, name)) is not None]
        if len(known) > 1:
            axes.plot(*zip(*known, strict=True), dash, color=colour, linewidth=1.5, drawstyle="steps-post", label=name)

    def said(point: NodePoint, value: float) -> str:
        compared = (
            (point.deviation_pct, "its peers", point.samples_per_second_limit_pct),
            (point.past_deviation_pct, "its own past", None),
            (point.level_deviation_pct, "its level", None),
        )
        texts = "".join(
            f", {percent(pct)} against {what}" + ("" if limit is None else f" (limit {limit:g} %)")
            for pct, what, limit in compared
            if pct is not None
        )
        return f"{figure(value)} samples/s{texts}\n{point.word}"

    _marks(axes, [(p, p.samples_per_second, said) for p in points])
    axes.set_ylabel("samples/s", fontsize=9)
    axes.margins(y=0.12)


def _against_peers(
    axes: Axes, points: Sequence[NodePoint], name: str, unit: str, decimals: int, own: Read, limit: Read
) -> None:
    """Deviations from the peers within the band of the limit of each night, with room for the marks."""
    limits = [limit(point) for point in points]
    ends = [*(point.at for point in points[1:]), points[-1].at + HALF_A_DAY]
    nights = [at for point, until in zip(points, ends, strict=True) for at in (point.at, until)]
    band = [math.nan if most is None else most for most in limits for _ in range(2)]
    axes.fill_between(nights, [-most for most in band], band, color=BAND, linewidth=0)

    def said(point: NodePoint, value: float) -> str:
        most = limit(point)
        return f"{name} {signed(value, unit, decimals)}" + ("" if most is None else f" (limit {most:g}{unit})")

    _marks(axes, [(point, own(point), said) for point in points])
    values = [abs(value) * 1.3 for point in points if (value := own(point)) is not None]
    reach = max([*values, *(most * 1.5 for most in limits if most is not None)]) or 1.0
    axes.set_ylim(-reach, reach)


def _marks(axes: Axes, values: Sequence[tuple[NodePoint, float | None, Callable[[NodePoint, float], str]]]) -> None:
    """One line with a mark for each campaign; red verdicts differ by mark and colour."""
    known = [(point, value, said) for point, value, said in values if value is not None]
    axes.plot([p.at for p, _, _ in known], [value for _, value, _ in known], color=INK, linewidth=1)
    for is_red, marker, colour, size in ((False, "o", INK, 4), (True, "X", BAD, 9)):
        marked = [each for each in known if (each[0].state is State.RED) is is_red]
        if marked:
            xs, ys = [point.at for point, _, _ in marked], [value for _, value, _ in marked]
            look = {"color": colour, "markersize": size, "markeredgecolor": "none"}
            (line,) = axes.plot(xs, ys, marker, label="red" if is_red else "node", **look)
            tell(line, [f"{p.at:%Y-%m-%d %H:%M} UTC\n{said(p, value)}" for p, value, said in marked])


def _events(all_axes: Sequence[Axes], events: Sequence[NodeEvent], beside: timedelta) -> None:
    """A mark above for each event, higher than those less than `beside` before it, and a line through all panels."""
    above = all_axes[0].get_xaxis_transform()
    heights: dict[NodeEvent, float] = {}
    last: dict[float, datetime] = {}  # height -> time of the last mark there
    for event in sorted(events, key=attrgetter("at")):
        free = (1.08 + 0.11 * row for row in range(len(events)))
        heights[event] = next(y for y in free if y not in last or event.at - last[y] > beside)
        last[heights[event]] = event.at
    for kind, (marker, colour, is_filled) in EVENT_MARKS.items():
        of_kind = [event for event in events if event.kind is kind]
        if of_kind:
            face = colour if is_filled else "none"
            look = {"color": colour, "markerfacecolor": face, "markersize": 7, "transform": above, "clip_on": False}
            at = [event.at for event in of_kind]
            (line,) = all_axes[0].plot(at, [heights[event] for event in of_kind], marker, label=kind, **look)
            tell(line, [f"{event.at:%Y-%m-%d %H:%M} UTC\n{event.text}" for event in of_kind])
            for axes in all_axes:
                axes.vlines(at, 0, 1, color=LINE, linestyle=":", transform=axes.get_xaxis_transform(), zorder=0)
