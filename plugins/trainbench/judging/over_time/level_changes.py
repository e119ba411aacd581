"""Dated changes of a node's speed, with its other changes at that date; one finding for all nodes of a change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from trainbench.core.formats import count, day, degrees, figure, listing, share_range
from trainbench.core.natural_order import natural
from trainbench.core.verdicts import Finding, Level, RateChange, Tolerances
from trainbench.judging.noise import deviation_pct
from trainbench.judging.over_time import change_points
from trainbench.judging.over_time.change_points import Drift, LevelStep
from trainbench.judging.over_time.node_history import NodeRecord
from trainbench.results.setups import change_phrases, new_gpus

SLOWER_STEP, FASTER_STEP, SLOWER_DRIFT, FASTER_DRIFT = "step_slower", "step_faster", "drift_slower", "drift_faster"
STILL_SLOWER = "still_slower"  # category of `lasting_slowdowns`
SLOWER = frozenset({SLOWER_STEP, SLOWER_DRIFT, STILL_SLOWER})
KNOWN_CHANGES = "driver, image, kernel, VBIOS, power limit, pod template or libraries"
ONE_NIGHT = timedelta(days=2)  # longest time between two consecutive campaigns; beyond it the date is a span
MIN_WARMER_C = 5.0


class LevelChange(NamedTuple):
    """A change of one node's speed at one work. `since`: the first campaign at the new level, or of a drift."""

    node: str
    fingerprint: str
    is_drift: bool
    before: float  # samples/s
    after: float
    limit_pct: float  # percent of `before`; the change is larger
    last_before: datetime
    since: datetime
    num_before: int
    num_after: int
    what: tuple[str, ...]  # recorded changes of the node between both levels
    gpus: tuple[str, ...]  # new on the node
    warmer_c: float | None

    @property
    def change_pct(self) -> float:
        return 100 * (self.after / self.before - 1)

    @property
    def category(self) -> str:
        if self.is_drift:
            return SLOWER_DRIFT if self.after < self.before else FASTER_DRIFT
        return SLOWER_STEP if self.after < self.before else FASTER_STEP


Series = Mapping[tuple[str, str, str | None], Sequence[NodeRecord]]


def series_of(records: Iterable[NodeRecord], names: Mapping[str, str] = {}) -> Series:
    """(node, fingerprint, GPU) -> its records by time. `names`: an old name of a node -> its name of today."""
    by_key: dict[tuple[str, str, str | None], list[NodeRecord]] = {}
    for record in records:
        node, work, gpu = record.series_key
        by_key.setdefault((names.get(node, node), work, gpu), []).append(record)
    return {key: sorted(series, key=lambda record: record.at) for key, series in by_key.items()}


def find(all_series: Series, tolerances: Tolerances) -> tuple[LevelChange, ...]:
    """The last change of each series, judged by the limits of the history; nodes in natural order."""
    last = (_change(key[0], key[1], series, tolerances) for key, series in all_series.items())
    return tuple(sorted((change for change in last if change), key=lambda change: natural(change.node)))


def level_change_findings(dated: Sequence[LevelChange], all_series: Series) -> tuple[Finding, ...]:
    """Findings, one for all nodes with the same recorded change, or without one in the same night."""
    together: dict[tuple[object, ...], list[LevelChange]] = {}
    for change in dated:
        cause = change.what or (change.node if change.is_drift or change.gpus else change.since.date())
        together.setdefault((change.category, cause), []).append(change)
    got: dict[tuple[str, ...], set[str]] = {}
    if any(change.what for change in dated):
        for (node, _, _), series in all_series.items():
            for before, after in pairwise(series):
                if before.setup is not after.setup and (what := change_phrases([before.setup], after.setup)):
                    got.setdefault(what, set()).add(node)
    return tuple(_finding(same, len(got.get(same[0].what, ()))) for same in together.values())


def _change(node: str, work: str, series: Sequence[NodeRecord], tolerances: Tolerances) -> LevelChange | None:
    """The last change of the series, if it still holds on the last night."""
    days = [(point.at - series[0].at) / timedelta(days=1) for point in series]
    rates = [point.samples_per_second for point in series]
    last = change_points.last_change(days, rates, tolerances.history_pct, tolerances.history_mads)
    # The date of an update is known, so a step there needs fewer nights than a step that is searched for.
    updated_at = _updated_at(series)
    if not (isinstance(last, LevelStep) and last.at >= updated_at):
        last = _of_update(rates, updated_at, tolerances) or last
    if last is None:
        return None
    change = _drift(node, work, series, last) if isinstance(last, Drift) else _step(node, work, series, last)
    return _as_of_now(change, rates[-1])


def _updated_at(series: Sequence[NodeRecord]) -> int:
    """Index of the first point with the versions of today."""
    at = len(series) - 1
    while at and (
        series[at - 1].setup is series[at].setup or not change_phrases([series[at - 1].setup], series[-1].setup)
    ):
        at -= 1
    return at


def _of_update(rates: Sequence[float], at: int, tolerances: Tolerances) -> LevelStep | None:
    """The step in the first nights after an update, against the level before it: the past of the same versions is too
    short to judge by, and `change_points` needs three nights to date a level.
    """
    limit_pct, mads = tolerances.history_pct, tolerances.history_mads
    least = max(tolerances.history_min_points, change_points.LEAST)
    if at < least or len(rates) - at > least:
        return None
    earlier = change_points.last_change(range(at), rates[:at], limit_pct, mads)
    begin = earlier.at if isinstance(earlier, LevelStep) else 0
    step = change_points.step_at(rates[begin:], at - begin, limit_pct, mads)
    return step and step._replace(at=at)


def _as_of_now(change: LevelChange, rate: float) -> LevelChange | None:
    """The change with tonight's rate, where the node is already on its way back; None once the rate is back, because
    nobody may be warned of a node that is well again.
    """
    sign = -1 if change.after < change.before else 1
    moved = sign * deviation_pct(rate, change.before)
    if moved <= change.limit_pct / 2:
        return None
    if sign * deviation_pct(rate, change.after) >= -change.limit_pct:
        return change
    return change._replace(after=rate, num_after=1) if moved > change.limit_pct else None


def _drift(node: str, work: str, series: Sequence[NodeRecord], drift: Drift) -> LevelChange:
    # A drift has no night before and after: temperatures are compared between its first and last third.
    third = max(len(series) // 3, 1)
    return LevelChange(
        node=node,
        fingerprint=work,
        is_drift=True,
        before=drift.first,
        after=drift.last,
        limit_pct=drift.limit_pct,
        last_before=series[0].at,
        since=series[0].at,
        num_before=len(series),
        num_after=0,
        what=(),
        gpus=(),
        warmer_c=_warmer(series[:third], series[-third:]),
    )


def _step(node: str, work: str, series: Sequence[NodeRecord], step: LevelStep) -> LevelChange:
    before, after = series[: step.at], series[step.at :]
    level = before[len(before) - step.num_before :]
    return LevelChange(
        node=node,
        fingerprint=work,
        is_drift=False,
        before=step.before,
        after=step.after,
        limit_pct=step.limit_pct,
        last_before=before[-1].at,
        since=after[0].at,
        num_before=len(level),
        num_after=len(after),
        what=change_phrases([point.setup for point in level], after[0].setup),
        gpus=new_gpus([point.setup for point in before], after[0].setup),
        warmer_c=_warmer(level, after),
    )


def _warmer(before: Sequence[NodeRecord], after: Sequence[NodeRecord]) -> float | None:
    def typical(points: Sequence[NodeRecord]) -> float | None:
        known = sorted(point.temperature_c for point in points if point.temperature_c is not None)
        return known[len(known) // 2] if known else None

    was, now = typical(before), typical(after)
    return None if was is None or now is None else now - was


def _finding(same: Sequence[LevelChange], num_got: int) -> Finding:
    first, nodes = same[0], list(dict.fromkeys(change.node for change in same))
    worst = max(same, key=lambda change: abs(change.change_pct))
    slower = first.category in SLOWER
    campaigns = count(worst.num_after, "campaign")
    return Finding(
        level=Level.WARNING if slower else Level.INFO,
        category=first.category,
        nodes=tuple(nodes),
        measured=f"{figure(worst.after)} samples/s"
        + ("" if first.is_drift else f", median of {campaigns}")
        + (f", on {worst.node}" if len(nodes) > 1 else ""),
        expected=f"{figure(worst.before)} samples/s"
        + (f" as on {day(worst.since)}" if first.is_drift else f", median of the {worst.num_before} before"),
        summary=f"{_drifted(same) if first.is_drift else _stepped(same, len(nodes), num_got)}{_temperature(same)}",
        resolution=_resolution(first, len(nodes)) if slower else _FASTER,
        changes=tuple(
            RateChange(node=c.node, fingerprint=c.fingerprint, before=c.before, after=c.after, limit_pct=c.limit_pct)
            for c in same
        ),
    )


def _stepped(same: Sequence[LevelChange], num_nodes: int, num_got: int) -> str:
    first = same[0]
    word = "slower" if first.after < first.before else "faster"
    text = f"{'is' if num_nodes == 1 else 'are'} {_range(same)} {word} since {_when(same)}"
    causes = [*first.what]
    if num_nodes == 1 and first.gpus:
        causes.append(f"{listing(first.gpus)} had not been seen there before")
    if not causes:
        return f"{text}; no change of {KNOWN_CHANGES} is recorded then"
    text += f", when {listing(causes)}"
    if num_nodes < num_got:
        return f"{text}; it is not seen on {num_got - num_nodes} of the {num_got} nodes with this change"
    return f"{text}; so are all nodes that got this change" if num_nodes > 1 else text


def _drifted(same: Sequence[LevelChange]) -> str:
    first = same[0]
    word = "slower" if first.after < first.before else "faster"
    return f"has become {_range(same)} {word} little by little since {day(first.since)}: a drift, not a step"


def _range(same: Sequence[LevelChange]) -> str:
    return share_range(abs(change.change_pct) for change in same)


def _when(same: Sequence[LevelChange]) -> str:
    days = sorted({change.since.date() for change in same})
    if len(days) > 1:
        return f"{day(days[0])} to {day(days[-1])}"
    gap = min(same, key=lambda change: change.since - change.last_before)
    if gap.since - gap.last_before <= ONE_NIGHT:
        return day(days[0])
    return f"some time between {day(gap.last_before)} and {day(days[0])}"


def _temperature(same: Sequence[LevelChange]) -> str:
    warmer = [change.warmer_c for change in same if change.warmer_c is not None]
    if not warmer or min(map(abs, warmer)) < MIN_WARMER_C or min(warmer) * max(warmer) < 0:
        return ""
    most = max(warmer, key=abs)
    return f"; its GPU runs {degrees(abs(most))} {'warmer' if most > 0 else 'cooler'} than it did"


_FASTER = "nothing to do: a new baseline forms by itself; note what was changed, the other nodes may gain as well"


def _resolution(first: LevelChange, num_nodes: int) -> str:
    if first.what:
        one = "it" if num_nodes == 1 else "one of them"
        return f"undo this change on {one} and run the check again; do not roll it out further before that"
    if first.gpus:
        return "compare the new GPU with its neighbours: VBIOS, power limit, clocks, ECC"
    if first.is_drift:
        return (
            "check what wears out: dust, fans, thermal paste, memory; compare its clocks and temperatures then and now"
        )
    where = "this node" if num_nodes == 1 else "these nodes"
    return f"ask what was done to {where} then: cooling, power, firmware, cabling, other tenants, storage"
