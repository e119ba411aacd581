"""When does one scatter stand out from others by more than chance? Degrees of freedom -> limit of their ratio.

**Rule.** Of normal values, a mean square with v degrees of freedom is s^2 * X, X = chi squared(v) / v. One of them is
set beside M, the (upper) median of those of the others. It stands out when it is over c * M, with c such that
P(X > c * M) = alpha / (number of those tested): by chance any of them stands out in a share alpha of the groups at most
(Bonferroni). X and M are independent, so P is the integral of P(X > c * m) over the distribution of M, the k-th of n
values: P(M <= m) = sum over j >= k of binomial(n, j) F(m)^j (1 - F(m))^(n - j).

Of four nodes with three windows each (2 degrees of freedom), chi squared(2) / 2 is exponential, and P has a closed
form: 6 / ((c + 2) (c + 3)). At 0.001 / 4 that is c = 152: a standard deviation 12 times that of the peers.
Of 8 such nodes c is 45 (6.7 times), of 32 it is 21, of 256 it is 23 (4.8 times).
"""

from __future__ import annotations

import math
from functools import lru_cache

ALPHA = 0.001  # share of the nights in which nothing is wrong and something stands out
_MAX_OTHERS = 51  # the median of more is known better, so this limit is never too low for them
_POINTS = 600
_LOG_X = (math.log(1e-8), math.log(50.0))  # of chi squared / v: what lies outside has no weight


@lru_cache(maxsize=2000)
def outlier_ratio(own_df: int, other_df: int, num_others: int, num_tested: int, alpha: float = ALPHA) -> float:
    """c: the ratio of a mean square to the upper median of `num_others` others from which on it stands out."""
    weights = _median_weights(other_df, min(num_others, _MAX_OTHERS))
    share = alpha / num_tested
    low, high = 0.0, math.log(1e15)
    for _ in range(50):
        middle = (low + high) / 2
        ratio = math.exp(middle)
        chance = sum(weight * chi_squared_tail(own_df, own_df * ratio * x) for x, weight in weights)
        low, high = (middle, high) if chance > share else (low, middle)
    return math.exp(high)


@lru_cache(maxsize=200)
def _median_weights(df: int, num: int) -> tuple[tuple[float, float], ...]:
    """(value, probability) of the upper median of `num` mean squares with `df` degrees of freedom each."""
    low, high = _LOG_X
    edges = [math.exp(low + (high - low) * i / _POINTS) for i in range(_POINTS + 1)]
    below = [_at_least_half(1 - chi_squared_tail(df, df * x), num) for x in edges]
    return tuple(
        (math.sqrt(edges[i] * edges[i + 1]), below[i + 1] - below[i]) for i in range(_POINTS) if below[i + 1] > below[i]
    )


def _at_least_half(share: float, num: int) -> float:
    """Probability that the upper median of `num` values is among a share `share` of the smallest."""
    needed = num // 2 + 1
    return math.fsum(math.comb(num, j) * share**j * (1 - share) ** (num - j) for j in range(needed, num + 1))


def chi_squared_tail(df: int, value: float) -> float:
    """P(chi squared with `df` degrees of freedom > `value`), by Q(a + 1, z) = Q(a, z) + z^a exp(-z) / Gamma(a + 1)."""
    z = value / 2
    if z > 700:  # exp(-z) ends there as a float
        return 0.0
    a, tail = (0.5, math.erfc(math.sqrt(z))) if df % 2 else (1.0, math.exp(-z))
    term = math.exp(-z) * z**a / math.gamma(a + 1)
    while a < df / 2:
        tail += term
        a += 1
        term *= z / a  # z^a exp(-z) / Gamma(a + 1) again
    return min(tail, 1.0)
