"""How a cell of the map reads: its words for everybody, its mark and shade for the eye."""

from __future__ import annotations

from bench_control.pages.listings import words
from bench_control.pages.views import HeatCell
from bench_control.words.formats import count, percent
from bench_control.words.verdicts import RED, State

STEPS = (2.5, 4.0)  # percent: from where a shade begins; below, nights differ by chance
ASIDE = frozenset({State.BUSY, State.NOT_JUDGED})
MARKS = {State.FAILED: "✕", State.MISSING: "?", State.BUSY: "·", State.NOT_JUDGED: "·"}


def title(node: str, cell: HeatCell) -> str:
    """ "node-3, 2026-11-21: breach, samples/s -7.3 % against its peers" and what else there is to say."""
    drill = "drill, " if cell.is_drill else ""
    parts = [f"{node}, {cell.day}: {drill}{words(cell.state)}"]
    if cell.deviation_pct is not None:
        parts.append(f"samples/s {percent(cell.deviation_pct)} against its peers")
    if cell.is_behind_own_past:
        parts.append("behind its own past")
    if cell.num_verdicts > 1:
        parts.append(f"the worst of {count(cell.num_verdicts, 'verdict')}")
    return ", ".join(parts)


def mark(cell: HeatCell) -> str:
    """What is wrong is told without colour too: a breach's percent, a cross, a question mark."""
    if cell.state is State.BREACH:
        return "!" if cell.deviation_pct is None else f"{cell.deviation_pct:+.0f}".replace("-", "−")
    return MARKS.get(cell.state, "")


def kind(cell: HeatCell) -> str:
    """The classes of its shade."""
    more = (" past" if cell.is_behind_own_past else "") + (" drill" if cell.is_drill else "")
    if cell.state in RED:
        return f"c red{more}"
    if cell.state in ASIDE or cell.deviation_pct is None:
        return f"c aside{more}"
    size = sum(abs(cell.deviation_pct) >= step for step in STEPS)
    side = "level" if size == 0 else f"{'slow' if cell.deviation_pct < 0 else 'fast'}{size}"
    return f"c {side}{more}"
