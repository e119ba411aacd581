"""The noise of one run, estimated from repeats, and the deviation that chance alone can cause.

**Model.** Logarithms, because machine noise is a factor: `log(samples/s) = node + round + error`, and the error of a
run has the standard deviation `sd`. It is estimated twice, and the larger estimate counts:

- *between runs* (two rounds or more): the residuals of the runs after each node's mean and each round's mean are
  subtracted. A drift that is common to all nodes of a round is no difference between nodes. Degrees of freedom
  (nodes - 1) * (rounds - 1), from nodes that have every round; with one node, or a reference that does not share
  the rounds (history, fixed), the rounds stay in and nodes * (rounds - 1) are left.
- *within runs*: the windows of each run about their mean, pooled. It is not divided by sqrt(windows): windows of one
  pod are seconds apart and correlated, so more of them do not predict the next pod better.

One node that is far off enlarges this for all; `scatter` keeps such a node apart when it judges a fleet.

**Half-width.** A node's value is the median of its k runs, its reference the median of m others, so the deviation has
the variance sd^2 * (c(k) + c(m) * c(k')), where c(n) * sd^2 bounds the variance of a median of n: exactly 1/n up to
two, below pi / (2 n) from there on (asymptotic variance of the median of normal values; for n = 3 it is 0.449, the
bound 0.524). Times Student's t at 99.5 % on either side, with the estimate's degrees of freedom.

A node is red only when the run and its re-run are both beyond limit *and* noise, on the same side. docs/detection.md
has the rates of detection and of false alarms. One round cannot show differences between pods: use three on shared
machines.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple


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


@cache  # the nodes of a fleet share a few degrees of freedom
def t_995(degrees_of_freedom: int) -> float:
    """One-sided 99.5 % quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, 0.995))


def median_variance(n: int) -> float:
    """Upper bound of the variance of the median of `n` normal values, in units of one value's variance."""
    return 1 / n if n <= 2 else math.pi / (2 * n)


def estimate(nodes: Sequence[Sequence[Run]], *, rounds_are_shared: bool = True) -> Noise | None:
    """The noise of one run; None when nothing was repeated."""
    estimates = [e for e in (between_runs(nodes, rounds_are_shared=rounds_are_shared), within_runs(nodes)) if e]
    return max(estimates, key=lambda noise: noise.sd, default=None)


def between_runs(nodes: Sequence[Sequence[Run]], *, rounds_are_shared: bool) -> Noise | None:
    """Residual standard deviation of log samples/s in a table of nodes x rounds: two-way analysis of variance without
    replication where `rounds_are_shared`, else one-way by node. None: no node has two rounds.
    """
    # Rows: the nodes that have every round.
    rounds = sorted({run.round for runs in nodes for run in runs})
    by_round = [{run.round: math.log(run.rate) for run in runs} for runs in nodes]
    table = [[rates[r] for r in rounds] for rates in by_round if len(rates) == len(rounds)]
    if not table or len(rounds) < 2:
        return None
    # Subtract each node's mean, then each round's common effect on all nodes.
    residuals = [[value - statistics.fmean(row) for value in row] for row in table]
    degrees_of_freedom = len(table) * (len(rounds) - 1)
    if rounds_are_shared and len(table) > 1:
        drift = [statistics.fmean(column) for column in zip(*residuals, strict=True)]
        residuals = [[value - common for value, common in zip(row, drift, strict=True)] for row in residuals]
        degrees_of_freedom = (len(table) - 1) * (len(rounds) - 1)
    return Noise(
        math.sqrt(sum(value**2 for row in residuals for value in row) / degrees_of_freedom), degrees_of_freedom
    )


def within_runs(nodes: Sequence[Sequence[Run]]) -> Noise | None:
    """Pooled standard deviation of the windows' log samples/s about their run's mean; None: no run has two windows."""
    repeated = [[math.log(rate) for rate in run.windows] for runs in nodes for run in runs if len(run.windows) > 1]
    degrees_of_freedom = sum(len(windows) - 1 for windows in repeated)
    if not degrees_of_freedom:
        return None
    squares = sum((rate - statistics.fmean(windows)) ** 2 for windows in repeated for rate in windows)
    return Noise(math.sqrt(squares / degrees_of_freedom), degrees_of_freedom)


def to_pct(half_width: float, *, slow: bool) -> float:
    """A logarithmic half-width as percent of the reference, on the given side: 0.693 is 50 % slow or 100 % fast."""
    # exp() of more than 700 overflows: such noise is unbounded
    return 100 * (-math.expm1(-half_width) if slow else math.expm1(min(half_width, 700.0)))


def from_pct(pct: float, *, slow: bool) -> float:
    """The inverse of `to_pct`."""
    return -math.log1p(-pct / 100) if slow else math.log1p(pct / 100)


def deviation_pct(value: float, reference: float) -> float:
    # rounded, so that 4.75 against 5.00 is exactly -5 %
    return round(100 * (value - reference) / reference, 9)
