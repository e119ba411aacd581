"""How much faster one configuration is than another on the same nodes, and how sure that is.

**Ratio.** Both ran in the same rounds, so each round gives one ratio, in which a drift of the machine cancels; their
geometric mean counts. **Uncertainty.** The noise of these two configurations, from the rounds and from the windows, and
a little that of the others between rounds, without any that stands out: `pair_noise` has the formulas.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bench_image.contract.result import RunResult
from trainbench.comparison import pair_noise
from trainbench.core.grouping import grouped
from trainbench.judging import noise
from trainbench.results.readings import is_measured

UNEVEN = 0.2  # from here on the interval's sides differ so much that one figure would mislead


class SpeedUp(NamedTuple):
    """`log_half_width`: of the ratio's logarithm, 99 %; None: nothing was repeated."""

    ratio: float
    log_half_width: float | None
    num_pairs: int

    @property
    def is_beyond_noise(self) -> bool:
        """Whether the ratio differs from 1 by more than the noise; False where the noise is not known."""
        return self.log_half_width is not None and abs(math.log(self.ratio)) > self.log_half_width

    @property
    def half_width(self) -> float | None:
        """Half-width of the ratio's 99 % interval, on its wider side."""
        return None if self.log_half_width is None else self.ratio * math.expm1(self.log_half_width)

    def scaled(self, factor: float) -> SpeedUp:
        return self._replace(ratio=self.ratio * factor)

    def text(self) -> str:
        """ "1.88x ± 0.02", with a decimal more where it is known so well; "1.84x (0.92x to 3.70x)" where it is not, or
        where the wider side would include 1, which the interval does not.
        """
        wide = self.half_width
        if wide is None:
            return f"{self.ratio:.2f}x"
        is_at_edge = self.is_beyond_noise and abs(self.ratio - 1) <= wide
        if self.log_half_width is not None and (is_at_edge or self.log_half_width > UNEVEN):
            low, high = (self.ratio * math.exp(side * self.log_half_width) for side in (-1, 1))
            return f"{self.ratio:.2f}x ({low:.2f}x to {high:.2f}x)"
        decimals = 3 if wide < 0.01 else 2
        return f"{self.ratio:.{decimals}f}x ± {max(wide, 0.001):.{decimals}f}"


def runs_with_throughput(results: Iterable[RunResult]) -> tuple[RunResult, ...]:
    """The runs that measured a throughput, without failed runs and drills."""
    return tuple(filter(is_measured, results))


def speed_up(
    base: Sequence[RunResult], other: Sequence[RunResult], beside: Iterable[Sequence[RunResult]] = ()
) -> SpeedUp | None:
    """Samples/s of `other` over those of `base`; None where they share no round of a node. All are good runs; `beside`:
    those of further configurations, whose noise counts where they ran in all rounds that both share.
    """
    before, after = _by_round(base), _by_round(other)
    shared = sorted(before.keys() & after.keys())
    if not shared:
        return None
    ratio = math.exp(statistics.fmean(math.log(after[key].rate / before[key].rate) for key in shared))
    complete = [runs for results in beside if (runs := _by_round(results)).keys() >= set(shared)]
    first, second, *others = [
        grouped((node, runs[node, round_]) for node, round_ in shared) for runs in (before, after, *complete)
    ]
    return SpeedUp(ratio, pair_noise.half_width(first, second, others), len(shared))


def paired_runs(base: Sequence[RunResult], other: Sequence[RunResult]) -> tuple[tuple[RunResult, ...], ...]:
    """The runs of each in rounds and on nodes of both, so that no difference between nodes enters."""
    rounds = _by_round(base).keys() & _by_round(other).keys()
    return tuple(
        tuple(r for r in runs if (r.spec.identity.node, r.spec.identity.round) in rounds) for runs in (base, other)
    )


def noise_of_one_run(configurations: Iterable[Sequence[RunResult]]) -> noise.Noise | None:
    """The noise of good runs on nodes of one kind; `configurations`: the runs of each. None: nothing was repeated."""
    of_nodes = (grouped((result.spec.identity.node, _run(result)) for result in results) for results in configurations)
    by_node = grouped(pair for of_node in of_nodes for pair in of_node.items())
    estimates = [estimate for runs in by_node.values() if (estimate := noise.estimate(runs))]
    degrees = sum(one.degrees_of_freedom for one in estimates)
    if not degrees:
        return None
    squares = sum(one.degrees_of_freedom * one.sd**2 for one in estimates)
    return noise.Noise(math.sqrt(squares / degrees), degrees)


def _by_round(results: Sequence[RunResult]) -> Mapping[tuple[str, int], noise.Run]:
    return {(r.spec.identity.node, r.spec.identity.round): _run(r) for r in results if r.performance.samples_per_second}


def _run(result: RunResult) -> noise.Run:
    performance = result.performance
    windows = tuple(window.samples_per_second for window in performance.windows)
    return noise.Run(result.spec.identity.round, performance.samples_per_second or 0.0, windows)
