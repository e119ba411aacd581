"""Writes the tables of docs/detection.md from the counts of the detection study (studies/detection_study.py).

PYTHONPATH=.:plugins python studies/detection_doc.py
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from detection_nights import Fleet, Past
from trainbench.core.verdicts import ReferenceMode

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "detection-2026-11-22"
COUNTS = RESULTS / "counts.json"
PAGE = ROOT / "docs" / "detection.md"
REFERENCES = {
    ReferenceMode.LEAVE_ONE_OUT_MEDIAN: "median of the others (default)",
    ReferenceMode.MEDIAN: "median of all",
    ReferenceMode.MEAN: "mean of all",
    ReferenceMode.HISTORY: "own history, 10 runs",
    ReferenceMode.FIXED: "fixed figure",
}


class Row(NamedTuple):
    """One case of the study and what was counted."""

    case: Fleet | Past
    counts: Mapping[str, int]

    def rate(self, *names: str, of: str = "nights") -> tuple[int, int]:
        return sum(self.counts.get(name, 0) for name in names), self.counts[of]

    @property
    def fleet(self) -> Fleet:
        assert isinstance(self.case, Fleet)
        return self.case

    @property
    def past(self) -> Past:
        assert isinstance(self.case, Past)
        return self.case


def interval_pct(k: int, n: int) -> tuple[float, float]:
    """95 % of a share: Wilson's; where nothing or everything was counted, the rule of three (3 / n)."""
    if k in (0, n):
        return (0.0, 300 / n) if k == 0 else (100 - 300 / n, 100.0)
    z, p = 1.96, k / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return 100 * (middle - half), 100 * (middle + half)


def share(counted: tuple[int, int]) -> str:
    """ "0 (≤ 0.03)", "47.1 (46.1-48.1)", "100 (≥ 99.97)": percent with its 95 % interval."""
    k, n = counted
    low, high = interval_pct(k, n)
    if k == 0:
        return f"0 (≤ {high:.2g})" if high < 99.5 else "0 (≤ 100)"
    if k == n:
        return f"100 (≥ {_pct(low)})"
    return f"{_pct(100 * k / n)} ({_pct(low)}-{_pct(high)})"


def _pct(value: float) -> str:
    """A percentage with one decimal, or two within 1 of 0 or 100: 47.1, 99.93, 0.04."""
    near = min(value, 100 - value)
    return f"{value:.{1 if near >= 1 else 2}f}"


def load() -> tuple[dict[str, list[Row]], dict[str, object]]:
    """(table -> its rows, about the study)"""
    document = json.loads(COUNTS.read_text())
    tables: dict[str, list[Row]] = {}
    for row in document["cases"]:
        kind = Past if "points" in row["case"] else Fleet
        tables.setdefault(row["table"], []).append(Row(kind.model_validate(row["case"]), row["counts"]))
    return tables, document["about"]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def slow_of(fleet: Fleet) -> float:
    return fleet.slow_pct[0] if fleet.slow_pct else 0.0


def by_slow(rows: Sequence[Row], key: Callable[[Fleet], Sequence[str]]) -> dict[tuple[str, ...], dict[float, Row]]:
    """Cells of the first columns -> slowdown of the bad node in percent -> the case."""
    by_fleet: dict[tuple[str, ...], dict[float, Row]] = {}
    for row in rows:
        by_fleet.setdefault(tuple(key(row.fleet)), {})[slow_of(row.fleet)] = row
    return by_fleet


def reported(row: Row) -> str:
    return share(row.rate("bad_red", "bad_watched", of="bad"))


def red(row: Row) -> str:
    return share(row.rate("bad_red", of="bad"))


def unsure(row: Row) -> str:
    return share(row.rate("bad_unsure", of="bad"))


def chance(row: Row) -> list[str]:
    """The shares of a night's good nodes that are red, watched and undecided."""
    return [share(row.rate("red")), share(row.rate("watched")), share(row.rate("unsure"))]


CHANCE = ("a good node red", "a good node watched", "a good node: undecided")


def of_slow(*percents: float) -> list[str]:
    names = ("reported", "of it red", "undecided", "a good node red beside it")
    return [f"{pct:g} % slow: {name}" if i == 0 else name for pct in percents for i, name in enumerate(names)]


def beside(*rows: Row) -> list[str]:
    return [cell for row in rows for cell in (reported(row), red(row), unsure(row), share(row.rate("red")))]


def targets(rows: Sequence[Row]) -> str:
    groups = by_slow(rows, lambda f: (f"{f.noise_pct:g}", str(f.rounds)))
    head = ["noise %", "rounds", *CHANCE, *of_slow(5, 7)]
    return markdown(head, ([*key, *chance(by[0]), *beside(by[5], by[7])] for key, by in groups.items()))


def grid_chance(rows: Sequence[Row]) -> str:
    groups = by_slow(rows, _setting)
    return markdown(["spread %", "noise %", "rounds", *CHANCE], ([*key, *chance(by[0])] for key, by in groups.items()))


def grid_detected(rows: Sequence[Row]) -> str:
    """Percent of the nights."""
    groups = by_slow(rows, _setting)
    slow = sorted({slow_of(row.fleet) for row in rows} - {0.0})
    head = ["spread %", "noise %", "rounds", *(f"{pct:g} % slow" for pct in slow)]
    return markdown(head, ([*key, *(_outcome(by[pct]) for pct in slow)] for key, by in groups.items()))


def rounds(rows: Sequence[Row]) -> str:
    groups = by_slow(rows, lambda f: (f"{f.noise_pct:g}", str(f.rounds)))
    head = ["noise %", "rounds", *CHANCE, "7 % slow", "10 % slow"]
    return markdown(
        head,
        ([*key, *chance(by[0]), _outcome(by[7]), _outcome(by[10])] for key, by in groups.items()),
    )


def _setting(fleet: Fleet) -> list[str]:
    return [f"{fleet.spread_pct:g}", f"{fleet.noise_pct:g}", str(fleet.rounds)]


def _outcome(row: Row) -> str:
    """ "86 (26), 3, 11": reported, of that red, called well, undecided; percent."""
    names = (("bad_red", "bad_watched"), ("bad_red",), ("bad_well", "bad_notice"), ("bad_unsure",))
    reported_pct, red_pct, missed_pct, unsure_pct = (_whole(row.rate(*name, of="bad")) for name in names)
    return f"{reported_pct} ({red_pct}), {missed_pct}, {unsure_pct}"


def _whole(counted: tuple[int, int]) -> str:
    """Percent without decimals, but never a rounded 0 or 100."""
    k, n = counted
    pct = 100 * k / n
    return f"{pct:.0f}" if k in (0, n) or 0.5 <= pct < 99.5 else "<1" if pct < 0.5 else ">99"


def sizes(rows: Sequence[Row]) -> str:
    groups = by_slow(rows, lambda f: (f"{f.nodes:,}", f"{f.spread_pct:g}"))
    head = ["nodes", "spread %", *CHANCE, *of_slow(5, 7)]
    return markdown(head, ([*key, *chance(by[0]), *beside(by[5], by[7])] for key, by in groups.items()))


def references(rows: Sequence[Row]) -> str:
    slow = (5.0, 6.0, 7.0, 10.0)
    head = [
        "compared with",
        "beside a 10 % slow one: a good node red",
        "undecided",
        *(f"{pct:g} % slow" for pct in slow),
    ]
    groups = by_slow(rows, lambda f: (REFERENCES[f.reference],))
    return markdown(
        head,
        (
            [*key, share(by[10].rate("red")), share(by[10].rate("unsure")), *(_outcome(by[pct]) for pct in slow)]
            for key, by in groups.items()
        ),
    )


def several(rows: Sequence[Row]) -> str:
    head = ["nodes", "of them slow", "by %", "a slow one", "a good node red", "a good node: undecided"]
    return markdown(
        head,
        ([str(r.fleet.nodes), str(r.fleet.num_bad), f"{slow_of(r.fleet):g}", _outcome(r), *_good(r)] for r in rows),
    )


def _good(row: Row) -> list[str]:
    return [share(row.rate("red")), share(row.rate("unsure"))]


def drills(rows: Sequence[Row]) -> str:
    head = ["drill", "another node 7 % slow", "drilled and slow ones", "a good node red", "a good node: undecided"]
    return markdown(
        head,
        ([f"{r.fleet.drill_pct:g} %", "yes" if r.fleet.slow_pct else "no", _outcome(r), *_good(r)] for r in rows),
    )


def tails(rows: Sequence[Row]) -> str:
    groups = by_slow(rows, lambda f: (f"{f.noise_pct:g}", str(f.rounds)))
    head = ["noise %", "rounds", *CHANCE, *of_slow(10)]
    return markdown(head, ([*key, *chance(by[0]), *beside(by[10])] for key, by in groups.items()))


_BOTH_NIGHTS = (
    "a good node red",
    "a good node: undecided",
    "10 % slow: red",
    "10 % slow: undecided",
    "a good node red beside it",
    "a good node beside it: undecided",
)


def _both_nights(by: Mapping[float, Row]) -> list[str]:
    """The cells of `_BOTH_NIGHTS`: nights without a bad node, and nights with one that is 10 % slow."""
    good, slow = by[0], by[10]
    counted = (
        *(good.rate("red"), good.rate("unsure")),
        *(slow.rate("bad_red", of="bad"), slow.rate("bad_unsure", of="bad")),
        *(slow.rate("red"), slow.rate("unsure")),
    )
    return [share(each) for each in counted]


def disturbed(rows: Sequence[Row]) -> str:
    return _both(
        rows,
        ["nodes", "runs disturbed %", "noise %", "rounds"],
        lambda f: (str(f.nodes), f"{f.disturbed_pct:g}", f"{f.noise_pct:g}", str(f.rounds)),
    )


def windows(rows: Sequence[Row]) -> str:
    return _both(
        rows,
        ["share f", "noise %", "rounds"],
        lambda f: (f"{f.windows_show:g}", f"{f.noise_pct:g}", str(f.rounds)),
    )


def uneven(rows: Sequence[Row]) -> str:
    """The table of nights with an uneven window, with the verdicts on its node."""
    head = ["nodes", "window slower by %", "noise %", "rounds"]

    def key(f: Fleet) -> Sequence[str]:
        return str(f.nodes), f"{f.window_pct:g}", f"{f.noise_pct:g}", str(f.rounds)

    return markdown(
        [*head, "named unsteady", "it is red", *_BOTH_NIGHTS],
        (
            [
                *cells,
                share(by[0].rate("uneven_named")),
                share(by[0].rate("uneven_red")),
                *_both_nights(by),
            ]
            for cells, by in by_slow(rows, key).items()
        ),
    )


def _both(rows: Sequence[Row], head: Sequence[str], key: Callable[[Fleet], Sequence[str]]) -> str:
    cells = ([*keys, *_both_nights(by)] for keys, by in by_slow(rows, key).items())
    return markdown([*head, *_BOTH_NIGHTS], cells)


def histories(rows: Sequence[Row]) -> str:
    by: dict[tuple[float, int], dict[float, Row]] = {}
    for row in rows:
        by.setdefault((row.past.noise_pct, row.past.points), {})[row.past.drop_pct] = row
    drops = sorted({row.past.drop_pct for row in rows} - {0.0})
    head = ["noise %", "past runs", "breach by chance", *(f"{drop:g} % drop: detected" for drop in drops)]
    return markdown(
        head,
        (
            [
                f"{noise:g}",
                str(points),
                share(of[0].rate("breach")),
                *(share(of[drop].rate("breach")) for drop in drops),
            ]
            for (noise, points), of in by.items()
        ),
    )


def temperature(rows: Sequence[Row]) -> str:
    return _metric(rows, "spread °C", "°C hotter", lambda f: (f.temperature_spread_c, f.hot_c))


def memory(rows: Sequence[Row]) -> str:
    return _metric(rows, "spread %", "% more", lambda f: (f.memory_spread_pct, f.heavy_pct))


def _metric(rows: Sequence[Row], spread: str, off: str, read: Callable[[Fleet], tuple[float, float]]) -> str:
    by: dict[float, dict[float, Row]] = {}
    for row in rows:
        own, by_how_much = read(row.fleet)
        by.setdefault(own, {})[by_how_much] = row
    steps = sorted({step for of in by.values() for step in of} - {0.0})
    head = [spread, "a good node red", "undecided", *(f"{step:g} {off}: red" for step in steps)]
    return markdown(head, ([f"{own:g}", *_good(of[0]), *(red(of[step]) for step in steps)] for own, of in by.items()))


TABLES: dict[str, tuple[str, Callable[[Sequence[Row]], str]]] = {
    "targets": ("targets", targets),
    "grid_chance": ("grid", grid_chance),
    "grid_detected": ("grid", grid_detected),
    "rounds": ("rounds", rounds),
    "sizes": ("sizes", sizes),
    "references": ("references", references),
    "several": ("several", several),
    "drills": ("drills", drills),
    "tails": ("tails", tails),
    "disturbed": ("disturbed", disturbed),
    "uneven": ("uneven", uneven),
    "windows": ("windows", windows),
    "history": ("history", histories),
    "temperature": ("temperature", temperature),
    "memory": ("memory", memory),
}


def about_text(tables: Mapping[str, Sequence[Row]], about: Mapping[str, object]) -> str:
    cases = sum(len(rows) for rows in tables.values())
    nights = sum(row.counts["nights"] for rows in tables.values() for row in rows)
    return (
        f"{cases} cases, {nights:,} nights: {int(str(about['cpu_s'])):,} s of CPU time in {about['workers']} "
        f"processes, Python {about['python']}."
    )


def refreshed(page: str) -> str:
    """`page` with every table between its marks written anew. Raises KeyError for a mark without a table."""
    tables, about = load()

    def block(match: re.Match[str]) -> str:
        name = match[1]
        if name == "about":
            return f"<!-- {name} -->\n{about_text(tables, about)}\n<!-- /{name} -->"
        of, draw = TABLES[name]
        return f"<!-- {name} -->\n{draw(tables[of])}\n<!-- /{name} -->"

    return re.sub(r"<!-- (\w+) -->.*?<!-- /\1 -->", block, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text()))
