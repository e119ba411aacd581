"""The noise of a fleet's runs, robust against one bad node, and the nodes whose own runs scatter far more.

Two scatters are measured, as in `noise`: of the windows of each run, and of the runs of each unit between rounds. A
unit is a node, or one GPU of a node that measured each of its GPUs by itself.

**Outlying.** A run's windows, or a unit's rounds, stand out when their mean square is over `outlier_ratio` times the
median of those of other nodes (of other GPUs, where there is one node only); for rounds that median is at least the
square of the windows' pool, because of three units the middle one follows the drift and seems not to scatter at all. Of
three runs or more a minority that stands out is left out of the noise, and the rest judges the unit: its median does
not notice them. Else the unit is judged by its own scatter.

**Pool.** The mean squares that do not stand out are pooled, each capped at `MAX_TIMES_MEDIAN` times the median: one
that is too small to stand out among a few nodes cannot widen the noise of all by more than (10 + n - 1) / n in squares.
The larger of both pools counts. With the few degrees of freedom of a small fleet the median is imprecise, so a capped
pool is sometimes too small. That does no harm where it permits a verdict: a node must then exceed the whole limit to be
red. Where even the capped pool is wider than the limit, the pool without a cap counts (`full`).

**Rounds.** The effect of a round on all nodes is removed by the median over the units. The result is divided by (n - 1)
/ n as if it were the mean, which states the noise 6 % (4 nodes) to 17 % (3) too high in squares, never too low. GPUs of
one node share its host and its minutes: where there are several nodes, degrees of freedom are counted once for each
node.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainbench.judging.noise import Noise, Run
from trainbench.judging.peers.outliers import ALPHA, outlier_ratio

MAX_TIMES_MEDIAN = 10.0
# Squares of rounds are correlated by the common drift that is removed, so their ratio must be larger.
ALPHA_OF_ROUNDS = ALPHA / 10
MIN_SD = 1e-5  # 0.001 %: the resolution of a clock; equal windows scatter no less


class Unit(NamedTuple):
    """The valid runs of one node, or of one GPU of it, each round once."""

    node: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class OwnScatter:
    """The outlying scatter of a unit's own runs."""

    noise: Noise
    factor: float  # its standard deviation / the pool's
    what: str  # "windows" or "rounds"


@dataclass(frozen=True)
class Scatter:
    """`pool`: the noise of one run of a unit that does not stand out; None where nothing was repeated. `full`: the same
    without a cap. `apart`: place of a unit -> its own scatter. `outlying`: place of a unit -> the rounds that are left
    out of its noise.
    """

    pool: Noise | None
    full: Noise | None
    apart: Mapping[int, OwnScatter]
    outlying: Mapping[int, frozenset[int]]


class _Square(NamedTuple):
    """Mean square of `df` + 1 log rates about their mean; `round` is None for that of a unit's rounds."""

    unit: int
    node: str
    round: int | None
    df: int
    mean: float


def measure(units: Sequence[Unit], *, rounds_are_shared: bool = True) -> Scatter:
    """Noise of one run, and the units that scatter far more. `rounds_are_shared`: a round slows or speeds all units
    alike, so its drift is taken out.
    """
    # 1. Windows: mean squares of log rates within each run; runs that stand out are left out, or their unit is.
    windows = [
        _square(i, unit.node, run.round, [math.log(rate) for rate in run.windows])
        for i, unit in enumerate(units)
        for run in unit.runs
        if len(run.windows) > 1
    ]
    uneven: dict[int, set[int | None]] = {}
    for square in _standing_out(windows, windows):
        uneven.setdefault(square.unit, set()).add(square.round)
    shaken = {i for i, rounds in uneven.items() if not _is_minority(len(rounds), len(units[i].runs))}
    left_out = {i: {r for r in rounds if r is not None} for i, rounds in uneven.items() if i not in shaken}
    even = [s for s in windows if s.round not in uneven.get(s.unit, ())]
    of_windows = _pooled(even, is_drift_out=False)
    # 2. Rounds, once without drift to find the units that stand out, and once more without those units' runs.
    rows = _without_drift(units, left_out, _nearer_middle if rounds_are_shared else None)
    scattered = _find_scattered(units, rows, left_out, of_windows.sd if of_windows else MIN_SD)
    rows = _without_drift(units, left_out, statistics.median if rounds_are_shared else None)
    between = [_square(i, units[i].node, None, list(row.values())) for i, row in rows.items()]
    usual = [s for s in between if s.unit not in scattered]
    of_rounds = _pooled(usual, is_drift_out=rounds_are_shared)
    # 3. A unit that stands out is judged by the wider of its own scatters.
    apart = {
        i: _widest(
            ([s for s in windows if s.unit == i] if i in shaken else [], of_windows, "windows"),
            ([s for s in between if s.unit == i] if i in scattered else [], of_rounds, "rounds"),
        )
        for i in sorted(shaken | scattered)
    }
    # 4. The same pools without a cap, for a fleet whose capped noise is beyond the limit anyway.
    outlying = {i: frozenset(rounds) for i, rounds in sorted(left_out.items()) if rounds and i not in apart}
    full = (
        _pooled(usual, is_drift_out=rounds_are_shared, most=math.inf),
        _pooled(even, is_drift_out=False, most=math.inf),
    )
    return Scatter(_larger(of_rounds, of_windows), _larger(*full), apart, outlying)


def _larger(*pools: Noise | None) -> Noise | None:
    return max((pool for pool in pools if pool), key=lambda noise: noise.sd, default=None)


def _square(unit: int, node: str, round_: int | None, logs: Sequence[float]) -> _Square:
    middle = statistics.fmean(logs)
    df = len(logs) - 1
    return _Square(unit, node, round_, df, max(math.fsum((x - middle) ** 2 for x in logs) / df, MIN_SD**2))


def _is_minority(number: int, of_runs: int) -> bool:
    """Whether they are so few that they do not determine the median of all runs."""
    return 2 * number < of_runs


def _standing_out(
    tested: Sequence[_Square], all_: Sequence[_Square], min_sd: float = MIN_SD, alpha: float = ALPHA
) -> list[_Square]:
    """The members of `tested` far above the median of the others (see `outliers`); that median is at least `min_sd`
    squared.
    """
    if len({s.unit for s in all_}) < 2:
        return []
    by_node = len({s.node for s in all_}) > 1
    num_own = Counter(_cluster(s, by_node=by_node) for s in all_)
    ordered = sorted(s.mean for s in all_)
    df = statistics.median_low([s.df for s in all_])
    standing_out = []
    for square in tested:
        num_others = len(all_) - num_own[_cluster(square, by_node=by_node)]
        ratio = outlier_ratio(square.df, df, num_others, len(all_), alpha)
        # The median of some of the values is no smaller than the value at its place among all: most are done here.
        if square.mean <= ratio * max(ordered[num_others // 2], min_sd**2):
            continue
        others = sorted(s.mean for s in all_ if _cluster(s, by_node=by_node) != _cluster(square, by_node=by_node))
        if square.mean > ratio * max(others[num_others // 2], min_sd**2):
            standing_out.append(square)
    return standing_out


def _cluster(square: _Square, *, by_node: bool) -> str | int:
    return square.node if by_node else square.unit


def _without_drift(
    units: Sequence[Unit],
    left_out: Mapping[int, Collection[int]],
    middle_of: Callable[[Sequence[float]], float] | None = statistics.median,
) -> dict[int, dict[int, float]]:
    """Unit -> round -> log rate, of units with two rounds or more, without the common effect of each round: `middle_of`
    its effects on the units. `middle_of` None: the rounds' effects stay in.
    """
    # Log rates as rows of units and columns of rounds; a unit with one round has no scatter.
    rows = {
        i: {run.round: math.log(run.rate) for run in unit.runs if run.round not in left_out.get(i, ())}
        for i, unit in enumerate(units)
    }
    rows = {i: row for i, row in rows.items() if len(row) > 1}
    if middle_of is None or len(rows) < 2:
        return rows
    # A round's effect on a unit is the distance from the unit's median; on all, the middle of these.
    shifts: dict[int, list[float]] = {}
    for row in rows.values():
        middle = statistics.median(row.values())
        for round_, value in row.items():
            shifts.setdefault(round_, []).append(value - middle)
    drift = {round_: middle_of(values) for round_, values in shifts.items()}
    return {i: {round_: value - drift[round_] for round_, value in row.items()} for i, row in rows.items()}


def _nearer_middle(values: Sequence[float]) -> float:
    """The median; of an even number the middle value nearer to 0, since two disturbed nodes of four are no drift."""
    return min(statistics.median_low(values), statistics.median_high(values), key=abs)


def _find_scattered(
    units: Sequence[Unit],
    rows: Mapping[int, Mapping[int, float]],
    left_out: dict[int, set[int]],
    min_sd: float,
) -> set[int]:
    """The units whose rounds stand out. Where only a minority of a unit's runs stand out, they go to `left_out`
    instead. `min_sd`: the noise of the windows.
    """
    everybody = [_square(i, units[i].node, None, list(row.values())) for i, row in rows.items()]
    scattered = set()
    for square in _standing_out(everybody, everybody, min_sd, ALPHA_OF_ROUNDS):
        i, rest, gone = square.unit, dict(rows[square.unit]), set(left_out.get(square.unit, ()))
        while _is_minority(len(gone) + 1, len(units[i].runs)) and _standing_out(
            [square], everybody, min_sd, ALPHA_OF_ROUNDS
        ):
            middle = statistics.median(rest.values())
            farthest = max(rest, key=lambda round_: abs(rest[round_] - middle))
            gone.add(farthest)
            del rest[farthest]
            square = _square(i, units[i].node, None, list(rest.values()))
        if _standing_out([square], everybody, min_sd, ALPHA_OF_ROUNDS):
            scattered.add(i)
        else:
            left_out[i] = gone
    return scattered


def _pooled(squares: Sequence[_Square], *, is_drift_out: bool, most: float = MAX_TIMES_MEDIAN) -> Noise | None:
    """The pooled noise of all squares, weighted by their degrees of freedom; None without a square. Removing the drift
    of n units (n nodes, where there are several) removes 1 / n of the squares, which is divided out again.
    """
    if not squares:
        return None
    nodes = {s.node for s in squares}
    by_node = len(nodes) > 1
    num_clusters = len(nodes) if by_node else len({s.unit for s in squares})
    share = (num_clusters - 1) / num_clusters if is_drift_out and num_clusters > 1 else 1.0
    # Squares, each capped at `most` times the median, so that one bad unit cannot widen the noise of all.
    cap = most * statistics.median_low([s.mean for s in squares]) if num_clusters > 2 else math.inf
    sum_ = math.fsum(min(s.mean, cap) * s.df for s in squares)
    known: Counter[tuple[str | int, int | None]] = Counter()
    # Degrees of freedom: GPUs of one node share its host and minutes, so one of them counts.
    for s in squares:
        key = (_cluster(s, by_node=by_node), s.round)
        known[key] = max(known[key], s.df)
    degrees_of_freedom = max(round(share * known.total()), 1)
    return Noise(math.sqrt(sum_ / (share * sum(s.df for s in squares))), degrees_of_freedom)


def _widest(*scatters: tuple[Sequence[_Square], Noise | None, str]) -> OwnScatter:
    own = []
    for squares, pool, what in scatters:
        if squares:
            df = sum(s.df for s in squares)
            sd = math.sqrt(math.fsum(s.mean * s.df for s in squares) / df)
            own.append(OwnScatter(Noise(sd, df), sd / (pool.sd if pool else MIN_SD), what))
    return max(own, key=lambda scatter: scatter.noise.sd)
