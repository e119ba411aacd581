"""A cell of the map: its text, its mark and its shade."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import cache

from markupsafe import Markup, escape

from trainbench.core.formats import count, percent, signed
from trainbench.judging.node_condition import TRAITS, Condition, Reach
from trainbench.pages.reads.rows import HeatCell, HeatMap, HeatRow
from trainbench.pages.render.links import Links

STEPS = (2.5, 4.0)  # percent at which each shade begins; smaller deviations are chance
MAX_WIDE = 31  # columns
MONTH_NAME_DAYS = 3  # narrow columns that "1 Nov" spans
ASIDE = frozenset({Condition.BUSY, Condition.UNDECIDED})
MARKS = {Condition.FAILED: "✕", Condition.MISSING: "?", Condition.BUSY: "·", Condition.UNDECIDED: "·"}
WARNED = frozenset(condition for condition, trait in TRAITS.items() if trait.reach is Reach.WARNING)
RED = frozenset(condition for condition, trait in TRAITS.items() if trait.reach is Reach.RED)


def rows_of(heat: HeatMap, links: Links) -> Iterator[tuple[HeatRow, Markup]]:
    """Rows with cells as HTML. A template takes four times as long for 4,500 cells, a quarter of 50 nodes."""
    report = cache(lambda dag_id, dag_run_id: escape(links.report(dag_id, dag_run_id)))
    narrow = is_narrow(heat)
    for row in heat.rows:
        of_node = escape(links.node(row.node))
        cells = [
            _html(row.node, cell, narrow, report(cell.dag_id, cell.dag_run_id) if cell.dag_run_id else of_node)
            if cell
            else f'<td><span title="{escape(row.node)}, {day}: not judged"></span></td>'
            for day, cell in zip(heat.days, row.cells, strict=True)
        ]
        yield row, Markup("\n".join(cells))  # noqa: S704 - all that is not ours is escaped


def _html(node: str, cell: HeatCell, narrow: bool, href: str) -> str:
    """A cell's HTML. The title names a link without a mark; with a mark a label does. `href` is escaped."""
    text, shown = escape(title(node, cell)), mark(cell, narrow=narrow)
    name = f' aria-label="{text}"' if shown else ""
    return f'<td><a class="{kind(cell)}" href="{href}" title="{text}"{name}>{shown}</a></td>'


def is_narrow(heat: HeatMap) -> bool:
    """Whether a cell has room for one character only."""
    return len(heat.days) > MAX_WIDE


def title(node: str, cell: HeatCell) -> str:
    """ "node-3, 2026-11-21: breach, samples/s -7.3 % against its peers" and further facts."""
    parts = [f"{node}, {cell.day}: {cell.condition}"]
    if cell.deviation_pct is not None:
        parts.append(f"samples/s {percent(cell.deviation_pct)} against its peers")
    if cell.num_verdicts > 1:
        parts.append(f"the worst of {count(cell.num_verdicts, 'verdict')}")
    return ", ".join(parts)


def mark(cell: HeatCell, *, narrow: bool = False) -> str:
    """The mark that shows a condition without colour: a breach's percent, or its sign in a narrow cell; a cross; a
    question mark.
    """
    if cell.condition is Condition.BREACH:
        if cell.deviation_pct is None:
            return "!"
        return signed(cell.deviation_pct, "", 0)[: 1 if narrow else None]
    return MARKS.get(cell.condition, "")


def day_label(day: str, *, is_first: bool, narrow: bool) -> str:
    """Above a column, of "2026-11-21": the day; the first column and each month's first with the month's name. Narrow
    columns have only these, and the Mondays.
    """
    at = date.fromisoformat(day)
    if is_first or at.day == 1:
        return f"{at.day} {at:%b}"
    is_shown = not narrow or (at.weekday() == 0 and at.day > MONTH_NAME_DAYS)
    return str(at.day) if is_shown else ""


def kind(cell: HeatCell) -> str:
    """The CSS classes of a cell's shade."""
    more = (" warned" if cell.condition in WARNED else "") + (" drill" if cell.condition is Condition.DRILL else "")
    if cell.condition in RED:
        return "c red"
    if cell.condition in ASIDE or cell.deviation_pct is None:
        return f"c aside{more}"
    size = sum(abs(cell.deviation_pct) >= step for step in STEPS)
    side = "level" if size == 0 else f"{'slow' if cell.deviation_pct < 0 else 'fast'}{size}"
    return f"c {side}{more}"
