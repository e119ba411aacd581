"""A cell of the map: its text, its mark and its shade."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import cache

from markupsafe import Markup, escape

from trainbench.core.formats import count, signed
from trainbench.core.states import NodeState, deviation_text, word
from trainbench.core.verdicts import State, Why
from trainbench.pages.reads.rows import HeatCell, HeatMap, HeatRow
from trainbench.pages.render.links import Links

MAX_WIDE = 31  # columns
MONTH_NAME_DAYS = 3  # narrow columns that "1 Nov" spans
MARKS = {Why.FAILED: "✕", Why.MISSING: "?", Why.OTHER_NUMBERS: "≠"}
STATE_MARKS = {State.RED: "!", State.DRILL: "D", State.LOOK: "~", State.NOT_CHECKED: "·"}  # what has no mark above


def rows_of(heat: HeatMap, links: Links) -> Iterator[tuple[HeatRow, Markup]]:
    """Rows with cells as HTML. A template takes four times as long for 4,500 cells, a quarter of 50 nodes."""
    report = cache(lambda dag_id, dag_run_id: escape(links.report(dag_id, dag_run_id)))
    narrow = is_narrow(heat)
    for row in heat.rows:
        of_node, cells = escape(links.node(row.node)), []
        for day, cell in zip(heat.days, row.cells, strict=True):
            if cell is None:
                cells.append(f'<td><span title="{escape(row.node)}, {day}: not judged"></span></td>')
                continue
            href = report(cell.dag_id, cell.dag_run_id) if cell.dag_run_id else of_node
            text, shown = escape(title(row.node, cell)), mark(cell, narrow=narrow)
            name = f' aria-label="{text}"' if shown else ""  # without a mark the title names the link
            cells.append(f'<td><a class="c {cell.state.value}" href="{href}" title="{text}"{name}>{shown}</a></td>')
        yield row, Markup("\n".join(cells))  # noqa: S704 - all that is not ours is escaped


def is_narrow(heat: HeatMap) -> bool:
    """Whether a cell has room for one character only."""
    return len(heat.days) > MAX_WIDE


def title(node: str, cell: HeatCell) -> str:
    """ "node-3, 2026-11-21: red: slow, samples/s -7.3 % against its peers" and further facts."""
    parts = [f"{node}, {cell.day}: {word(NodeState(node, cell.state, cell.why))}"]
    if decided := deviation_text(cell.metric, cell.against, cell.deviation):
        parts.append(decided)
    if cell.num_verdicts > 1:
        parts.append(f"the worst of {count(cell.num_verdicts, 'verdict')}")
    return ", ".join(parts)


def mark(cell: HeatCell, *, narrow: bool = False) -> str:
    """The mark that shows a state without colour: of a slow node the percent, or the sign in a narrow cell."""
    if cell.why is Why.SLOW and cell.deviation is not None:
        return signed(cell.deviation, "", 0)[: 1 if narrow else None]
    return MARKS.get(cell.why, STATE_MARKS.get(cell.state, ""))


def day_label(day: str, *, is_first: bool, narrow: bool) -> str:
    """Above a column, of "2026-11-21": the day; the first column and each month's first with the month's name. Narrow
    columns have only these, and the Mondays.
    """
    at = date.fromisoformat(day)
    if is_first or at.day == 1:
        return f"{at.day} {at:%b}"
    is_shown = not narrow or (at.weekday() == 0 and at.day > MONTH_NAME_DAYS)
    return str(at.day) if is_shown else ""
