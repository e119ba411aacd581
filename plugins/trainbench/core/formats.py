"""Numbers as text: one format for each kind of figure, in every report. None becomes "n/a"."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, datetime

NA = "n/a"
MINUS = "\u2212"
PERCENT, MOST_PCT = " %", 999
DAYS_FROM_H, SECONDS_PER_DAY = 72, 86_400


def figure(value: float | None, digits: int = 4) -> str:
    """`digits` significant digits, thousands separated: 12,220 and 1.460 and 0.04894."""
    if value is None:
        return NA
    return f"{value:,.{_decimals(value, digits)}f}".replace("-", MINUS)


def percent(value: float | None, decimals: int = 1) -> str:
    """A deviation in percent: "+0.4 %", "0.0 %"."""
    return NA if value is None else signed(value, " %", decimals)


def signed(value: float, unit: str, decimals: int = 1) -> str:
    """A deviation, always with its sign (a real minus, not a hyphen): "+4.0 °C", "0.0 %". Beyond 999 % it becomes
    "more than +999 %".
    """
    rounded = round(value, decimals)
    if unit == PERCENT and abs(rounded) > MOST_PCT:
        return f"more than {'+' if value > 0 else MINUS}{MOST_PCT} %"
    sign = MINUS if rounded < 0 else "+" if rounded > 0 else ""
    return f"{sign}{abs(rounded):,.{decimals}f}{unit}"


def share(value: float | None, decimals: int = 1) -> str:
    """A part of a whole, without a sign: "41.2 %"."""
    return NA if value is None else f"{value:,.{decimals}f} %"


def share_range(sizes: Iterable[float]) -> str:
    """ "6.1 %", or "5.8 to 6.4 %" of several sizes that differ."""
    ordered = sorted(sizes)
    low, high = f"{ordered[0]:.1f}", f"{ordered[-1]:.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def noise_share(value: float | None, decimals: int = 1) -> str:
    """The spread of repeats as a share of their mean: "3.2 %", or "more than 100 %"."""
    return "more than 100 %" if value is not None and value > 100 else share(value, decimals)


def degrees(value: float | None) -> str:
    return NA if value is None else f"{value:.0f} °C"


def usd(value: float | None) -> str:
    """Cents from one dollar up, three significant digits below: "$2.41", "$0.114", "$0.00152"."""
    if value is None:
        return NA
    return f"${value:,.{2 if value >= 1 else _decimals(value, 3)}f}"


def duration(seconds: float | None) -> str:
    """ "0 s", "489 ms", "12.3 s", "5 min 02 s", "3 h 05 min", and beyond 72 h "24.5 days"."""
    if seconds is None:
        return NA
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{figure(seconds * 1000, 3)} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    if minutes > DAYS_FROM_H * 60:
        return f"{seconds / SECONDS_PER_DAY:,.1f} days"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def moment(at: datetime) -> str:
    """To the second, with the zone: "2026-11-21 02:00:00 UTC"."""
    return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname()}"


def day(at: date) -> str:
    """ "12 Nov 2026"."""
    return f"{at.day} {at:%b %Y}"


def sentence(text: str) -> str:
    """`text` with a full stop, unless it ends with a mark of its own."""
    trimmed = text.rstrip()
    return trimmed if trimmed.endswith((".", "!", "?", "…")) else f"{trimmed}."


def capitalised(text: str) -> str:
    """`text` with a capital first letter, the others as they are."""
    return text[:1].upper() + text[1:]


def count(number: int, noun: str) -> str:
    """ "1 node", "4 nodes"."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """ "nodes", "processes"."""
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def listing(names: Iterable[str], most: int = 5) -> str:
    """ "a, b and c"; after `most` of them "and 7 more"."""
    items = list(names)
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most} more"
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]])) if items else "none"


def visible(text: str) -> str:
    """`text` with a space for each character that shows nothing of itself: control characters, line breaks, a
    terminal's escapes, marks that turn the direction of writing.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def one_line(text: str, most: int = 300) -> str:
    """`visible` text, single-spaced and cut after `most` characters."""
    flat = " ".join(visible(text).split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def _decimals(value: float, digits: int) -> int:
    if value == 0:
        return digits - 1
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))
