"""The ratio at which one scatter stands out from others by more than chance, from degrees of freedom.

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
from typing import Any

ALPHA = 0.001  # share of healthy nights in which something stands out
_MAX_OTHERS = 51  # the median of more values is more precise, so this limit is never too low
_SUPPORT = (1e-8, 50.0)  # of chi squared / v: the rest has no weight
_POINTS = 600
_MAX_LOG_RATIO = math.log(1e15)


@lru_cache(maxsize=2000)
def outlier_ratio(own_df: int, other_df: int, num_others: int, num_tested: int, alpha: float = ALPHA) -> float:
    """c: the ratio of a mean square to the upper median of `num_others` others from which on it stands out."""
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import chdtrc

    medians, weights = _median_distribution(other_df, min(num_others, _MAX_OTHERS))

    def excess(log_ratio: float) -> float:
        """P(X > c * M) minus the allowed share."""
        return float(weights @ chdtrc(own_df, own_df * np.exp(log_ratio) * medians)) - alpha / num_tested

    return math.exp(brentq(excess, 0.0, _MAX_LOG_RATIO))


@lru_cache(maxsize=200)
def _median_distribution(df: int, num: int) -> tuple[Any, Any]:
    """Values and their probabilities, of the upper median of `num` mean squares with `df` degrees of freedom each."""
    import numpy as np
    from scipy.special import betainc, chdtr

    edges = np.geomspace(*_SUPPORT, _POINTS + 1)
    rank = num // 2 + 1
    # P(at least `rank` of `num` values lie below x) is a regularised incomplete beta function (DLMF 8.17.5).
    below = betainc(rank, num - rank + 1, chdtr(df, df * edges))
    return np.sqrt(edges[:-1] * edges[1:]), np.diff(below)
