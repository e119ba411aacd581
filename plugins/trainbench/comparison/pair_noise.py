"""The noise of one comparison of two configurations, mostly from these two alone.

With k pairs of runs the logarithm of the ratio has the variance 2 / k * sd^2, `sd` of one run. Two estimates, the one
with the wider interval counts:

- *within runs*: Welch's. The variances of the log rates of either configuration's windows about their run's mean, v and
  w with m and n degrees of freedom: sd^2 = (v + w) / 2, with (v + w)^2 / (v^2 / m + w^2 / n) degrees of freedom
  (Satterthwaite, Biometrics Bulletin 2, 1946), rounded down. Not divided by the number of windows: see `noise`.
- *between runs* (two rounds or more): the paired t test with a moderated variance. Student's t of the two or three
  rounds of a night is 64 or 10, so the d degrees of freedom of the pair's own variance v (half that of the log ratios
  about their node's mean) are joined by p = PRIOR_DEGREES of the variance w of the other configurations:
  sd^2 = (p w + d v) / (p + d) with p + d degrees (Smyth, Statistical Applications in Genetics and Molecular Biology 3,
  2004; one degree, so that a pair noisier than the others is soon judged by itself).

Simulated, at most 2 % of equally fast configurations are called different. One whose runs scatter 10 times as much as
the others', and its windows do not, is called different in up to 7 % of the campaigns of two rounds and 3 % of three:
its few runs may lie close together by chance, and then it does not stand out.

**A noisy configuration** is left out of w, and its own comparisons have no prior. The residuals of a table of n
configurations fall into those of the table without one of them and that one's own: the ratio of both mean squares has
an F distribution. The one with the largest is left out where P * n < ALPHA, and the rest is tested again (Cochran's
test of an outlying variance as an F test: 't Lam, Analytica Chimica Acta 659, 2010).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trainbench.judging import noise
from trainbench.judging.noise import Noise, Run

ALPHA = 0.05  # share of campaigns of equal noise in which a configuration is left out
PRIOR_DEGREES = 1  # of the other configurations' noise in that of one comparison

Runs = Mapping[str, Sequence[Run]]  # node -> the runs of one configuration there, in the order of the rounds


def half_width(base: Runs, other: Runs, beside: Sequence[Runs]) -> float | None:
    """Half-width of the 99 % interval of the mean log ratio; None: nothing was repeated. All three have the same rounds
    on the same nodes; `beside`: the other configurations.
    """
    num_pairs = sum(map(len, base.values()))
    estimates = [one for one in (_between(base, other, beside), _within(base, other)) if one]
    return max((one.half_width(2 / num_pairs) for one in estimates), default=None)


def _within(base: Runs, other: Runs) -> Noise | None:
    """None: the windows of one of the two say nothing."""
    first, second = (noise.within_runs(list(runs.values())) for runs in (base, other))
    if first is None or second is None:
        return None
    variances, degrees = (first.sd**2, second.sd**2), (first.degrees_of_freedom, second.degrees_of_freedom)
    total = sum(variances)
    spread = sum(variance**2 / df for variance, df in zip(variances, degrees, strict=True))
    return Noise(math.sqrt(total / 2), math.floor(total**2 / spread) if spread else sum(degrees))


def _between(base: Runs, other: Runs, beside: Sequence[Runs]) -> Noise | None:
    own, alike = _residual([base, other]), _alike([base, other, *beside])
    pooled = _residual(alike)
    if own is None or pooled is None or not all(any(one is member for one in alike) for member in (base, other)):
        return own
    degrees = pooled.degrees_of_freedom - own.degrees_of_freedom
    if not degrees:  # nothing is beside them
        return own
    others = max(pooled.degrees_of_freedom * pooled.sd**2 - own.degrees_of_freedom * own.sd**2, 0.0) / degrees
    total = PRIOR_DEGREES + own.degrees_of_freedom
    return Noise(math.sqrt((PRIOR_DEGREES * others + own.degrees_of_freedom * own.sd**2) / total), total)


def _alike(configurations: Sequence[Runs]) -> Sequence[Runs]:
    """Those whose noise between runs does not stand out; two at least."""
    from scipy.special import fdtrc

    alike = list(configurations)
    while len(alike) > 2 and (all_ := _residual(alike)):
        # Without the one with the largest mean square the least is left.
        rests = [(rest, i) for i in range(len(alike)) if (rest := _residual([*alike[:i], *alike[i + 1 :]]))]
        rest, i = min(rests, key=lambda pair: pair[0].sd)
        df = all_.degrees_of_freedom - rest.degrees_of_freedom
        squares = all_.degrees_of_freedom * all_.sd**2 - rest.degrees_of_freedom * rest.sd**2
        ratio = max(squares, 0.0) / df / max(rest.sd, noise.MIN_SD) ** 2  # never below 0 but for rounding
        if len(alike) * fdtrc(df, rest.degrees_of_freedom, ratio) >= ALPHA:
            break
        del alike[i]
    return alike


def _residual(configurations: Sequence[Runs]) -> Noise | None:
    """Noise between runs, what a round does to all and what a configuration is taken out, pooled over the nodes."""
    tables = [[runs[node] for runs in configurations] for node in configurations[0]]
    nodes = [one for table in tables if (one := noise.between_runs(table, rounds_are_shared=True))]
    degrees = sum(one.degrees_of_freedom for one in nodes)
    squares = sum(one.degrees_of_freedom * one.sd**2 for one in nodes)
    return Noise(math.sqrt(squares / degrees), degrees) if degrees else None
