"""The noise of one run, estimated from repeats, and the deviation that chance alone can cause. No other module
estimates noise: judging, comparison, A/A campaigns and the detection study use these functions.

**Model.** Logarithms, because machine noise is a factor: `log(samples/s) = node + round + error`, and the error of a
run has the standard deviation `sd`. It is estimated twice, and the larger estimate counts:

- *between runs* (two rounds or more): the residuals of the runs after each node's mean and each round's common effect
  are subtracted. A drift that is common to all nodes of a round is no difference between nodes. PRIOR joins it: two
  rounds of one or two nodes have a single degree of freedom, by which nothing differs from chance.
- *within runs*: the windows of each run about their mean. It is not divided by sqrt(windows): windows of one pod are
  seconds apart and correlated, so more of them do not predict the next pod better.

`pooled` caps each unit's variance by the median of the fleet, so that no bad unit moves it much, and says which units
scatter so much more that they are judged by their own noise.

`chance_of_median` is for runs of which few are repeated: strategies, kinds of GPU. What one run hides, PRIOR says.

**Chance.** A figure with the variance v * sd^2 lies within t * sd * sqrt(v), where t is Student's quantile with the
estimate's degrees of freedom. `chance_quantile` chooses t so that in one healthy night of a hundred any unit of the
whole fleet lies beyond it (Sidak).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from trainbench.core.grouping import grouped

FALSE_NIGHTS = 0.01  # healthy nights in which chance may show a deviation anywhere in the fleet
MOST_TIMES = 4.0  # the median variance
MIN_POOL = 3  # units: of two nobody knows which one is typical
MIN_SD = 1e-4  # 0.01 %: clocks and counters resolve no less


class Run(NamedTuple):
    """Samples/s of one run, as a whole and of its windows."""

    round: int
    rate: float
    windows: tuple[float, ...]


class Noise(NamedTuple):
    """`sd`: standard deviation of one run's log samples/s, so 0.01 is 1 %."""

    sd: float
    degrees_of_freedom: int

    def half_width(self, variance: float) -> float:
        """Half-width, as a logarithm, of a figure with the variance `variance` * sd^2."""
        return t_995(self.degrees_of_freedom) * self.sd * math.sqrt(variance)

    def chance(self, variance: float, num_units: int) -> float:
        """The largest deviation, as a logarithm, that chance shows among `num_units` figures with that variance."""
        return chance_quantile(self.degrees_of_freedom, num_units) * self.sd * math.sqrt(variance)


# What equal runs differ by before one was repeated: healthy H200s differ by 0.1 to 0.3 % from night to night. It counts
# as much as three of them: of two single runs chance explains 6.8 %.
PRIOR = Noise(0.005, 2)


class Pool(NamedTuple):
    """`noise`: of one run of a typical unit; None: nothing was repeated. `own`: index of a unit that scatters far more
    -> its own noise.
    """

    noise: Noise | None
    own: Mapping[int, Noise]


@cache  # the nodes of a fleet share a few degrees of freedom
def t_995(degrees_of_freedom: int) -> float:
    """One-sided 99.5 % quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, 0.995))


@cache
def chance_quantile(degrees_of_freedom: int, num_units: int) -> float:
    """One-sided quantile of Student's t that any of `num_units` exceeds by chance in one night of a hundred."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, (1 - FALSE_NIGHTS) ** (1 / max(num_units, 1))))


def median_variance(n: int) -> float:
    """Upper bound of the variance of the median of `n` normal values, in units of one value's variance."""
    return 1 / n if n <= 2 else math.pi / (2 * n)


def pooled(units: Sequence[Sequence[Run]], least_sd: float = MIN_SD) -> Pool:
    """The noise of a fleet: of each unit its variance between runs and within runs, then `median_noise` of both.

    A unit is far outside where its variance exceeds that so much that chance shows it among all units in one
    night of a hundred (F test). Of fewer than three units the mean is taken, and none is outside. `least_sd`: by which
    runs differ even where no repeat shows it.
    """
    scatters = ((place, within_runs([runs])) for place, runs in enumerate(units))
    within = {place: (scatter.sd**2, scatter.degrees_of_freedom) for place, scatter in scatters if scatter}
    estimates = [(squares, median_noise(squares, lost)) for squares, lost in (between_rounds(units), (within, 0))]
    (_, between), (_, within_run) = estimates
    found = [joined([PRIOR, between]) if between else None, within_run]
    noise = max(filter(None, found), key=lambda one: one.sd, default=None)
    own: dict[int, Noise] = {}
    for squares, pool in estimates:
        if pool is None or len(squares) < MIN_POOL:
            continue
        for unit, (variance, df) in squares.items():
            if variance > _f_quantile(df, pool.degrees_of_freedom, len(squares)) * pool.sd**2:
                known = own.get(unit)
                own[unit] = max(filter(None, (known, Noise(math.sqrt(variance), df))), key=lambda one: one.sd)
    return Pool(noise and noise._replace(sd=max(noise.sd, least_sd)), own)


Squares = Mapping[int, tuple[float, int]]  # unit -> its variance, with its degrees of freedom


def between_rounds(
    units: Sequence[Sequence[Run]],
    least_units: float = 2,
    middle: Callable[[Iterable[float]], float] = statistics.median,
) -> tuple[Squares, int]:
    """The variance of each unit's runs about its mean without the rounds' common effect, and how many degrees of
    freedom these effects take from all units together. In a round of fewer than `least_units` nobody knows what is
    common.

    The common effect of n units has a part of each in it. It takes that part of the variance with it: of the residuals
    1 - 1/n is left, half of it for two units.
    """
    logs = {place: {run.round: math.log(run.rate) for run in runs} for place, runs in enumerate(units)}
    residuals = {
        place: {round_: value - statistics.fmean(own.values()) for round_, value in own.items()}
        for place, own in logs.items()
        if len(own) > 1
    }
    together = grouped((round_, value) for own in residuals.values() for round_, value in own.items())
    common = {
        round_: (middle(values), 1 - 1 / len(values))
        for round_, values in together.items()
        if len(values) >= least_units
    }
    squares = {}
    for place, own in residuals.items():
        effects, shares = zip(*(common.get(round_, (0.0, 1.0)) for round_ in own), strict=True)
        left = math.fsum((value - effect) ** 2 for value, effect in zip(own.values(), effects, strict=True))
        squares[place] = left / (len(own) - 1) / statistics.fmean(shares), len(own) - 1
    return squares, max(len(common) - 1, 0)


def median_noise(squares: Squares, lost: int = 0) -> Noise | None:
    """The noise of all units: the mean of their variances, weighted by the degrees of freedom, in which no variance
    counts for more than MOST_TIMES the median. `lost`: degrees of freedom that they have not together.

    One bad unit of four can raise it by 20 %, of ten by 8 %. Of healthy units the cap cuts off 6 % of the variance
    (two degrees of freedom each), which is less than what it is uncertain by.
    """
    variances = [variance for variance, _ in squares.values()]
    most = MOST_TIMES * statistics.median(variances) if len(squares) >= MIN_POOL else math.inf
    return joined((Noise(math.sqrt(min(variance, most)), df) for variance, df in squares.values()), lost)


@cache
def _f_quantile(of_unit: int, of_pool: int, num_units: int) -> float:
    from scipy.special import fdtri

    return float(fdtri(of_unit, of_pool, (1 - FALSE_NIGHTS) ** (1 / num_units)))


def one_run_pct() -> float:
    return to_pct(PRIOR.half_width(1))


def chance_of_median(runs: Sequence[Run]) -> float:
    """How far chance moves the median of equal runs, as a logarithm (99 %): by what runs differ by, PRIOR among them,
    or by what their windows differ by. The larger counts.
    """
    logs = [math.log(run.rate) for run in runs]
    repeated = Noise(statistics.stdev(logs), len(logs) - 1) if len(logs) > 1 else None
    estimates = filter(None, (joined([PRIOR, repeated]), within_runs([runs])))
    return max(noise.half_width(median_variance(len(runs))) for noise in estimates)


def joined(estimates: Iterable[Noise | None], lost: int = 0) -> Noise | None:
    """The mean of the known variances, weighted by their degrees of freedom, of which `lost` are lost together."""
    known = [one for one in estimates if one]
    degrees = sum(one.degrees_of_freedom for one in known)
    squares = sum(one.degrees_of_freedom * one.sd**2 for one in known)
    return Noise(math.sqrt(squares / degrees), degrees - lost) if degrees else None


def between_runs(nodes: Sequence[Sequence[Run]], *, rounds_are_shared: bool) -> Noise | None:
    """Residual standard deviation of log samples/s in a table of nodes x rounds: two-way analysis of variance without
    replication where `rounds_are_shared`, else one-way by node. None: no node has two rounds. Nodes that lack a round
    do not count.
    """
    num_rounds = len({run.round for runs in nodes for run in runs})
    complete = [runs for runs in nodes if len({run.round for run in runs}) == num_rounds]
    squares, lost = between_rounds(complete, 2 if rounds_are_shared else math.inf, statistics.fmean)
    return joined((Noise(math.sqrt(variance), df) for variance, df in squares.values()), lost)


def median_sd(values: Sequence[float]) -> float:
    """The standard deviation by the median distance from the median, which a few bad values do not move."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def within_runs(nodes: Sequence[Sequence[Run]]) -> Noise | None:
    """Pooled standard deviation of the windows' log samples/s about their run's mean; None: no run has two windows."""
    repeated = [[math.log(rate) for rate in run.windows] for runs in nodes for run in runs if len(run.windows) > 1]
    degrees_of_freedom = sum(len(windows) - 1 for windows in repeated)
    if not degrees_of_freedom:
        return None
    squares = sum((rate - statistics.fmean(windows)) ** 2 for windows in repeated for rate in windows)
    return Noise(math.sqrt(squares / degrees_of_freedom), degrees_of_freedom)


def to_pct(half_width: float) -> float:
    """A logarithmic half-width as percent of the reference, on the slow side: 0.693 is 50 %."""
    return -100 * math.expm1(-half_width)


def deviation_pct(value: float, reference: float) -> float:
    # rounded, so that 4.75 against 5.00 is exactly -5 %
    return round(100 * (value - reference) / reference, 9)
