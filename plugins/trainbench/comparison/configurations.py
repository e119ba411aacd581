"""Compares the configurations of a campaign with its baseline, on each kind of GPU."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from bench_image.contract.result import RunResult
from trainbench.comparison.entries import (
    MeasuredRuns,
    changed_fields,
    gpu_kind_by_node,
    kind_of_skipped,
    run_of,
    value_text,
)
from trainbench.core.grouping import grouped
from trainbench.figure_catalogue.figure import Figure
from trainbench.figure_catalogue.run_figures import PEAK_MEMORY_GB, USD_PER_1M_TOKENS, USD_PER_1000_SAMPLES
from trainbench.judging import noise
from trainbench.judging.noise import Noise, Run
from trainbench.params.variants import BASELINE, VARIANTS
from trainbench.planning.plan import Skipped
from trainbench.prices.quote import savings_pct
from trainbench.results.campaign import Campaign
from trainbench.results.readings import is_measured

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
    return noise.joined(noise.between_runs(table, rounds_are_shared=True) for table in tables)


UNEVEN = 0.2  # from here on the interval's sides differ so much that one figure would mislead


class SpeedUp(NamedTuple):
    """`log_half_width`: of the ratio's logarithm, 99 %; None: nothing was repeated."""

    ratio: float
    log_half_width: float | None

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
    return SpeedUp(ratio, half_width(first, second, others))


def paired_runs(base: Sequence[RunResult], other: Sequence[RunResult]) -> tuple[tuple[RunResult, ...], ...]:
    """The runs of each in rounds and on nodes of both, so that no difference between nodes enters."""
    rounds = _by_round(base).keys() & _by_round(other).keys()
    return tuple(
        tuple(r for r in runs if (r.spec.identity.node, r.spec.identity.round) in rounds) for runs in (base, other)
    )


def _by_round(results: Sequence[RunResult]) -> Mapping[tuple[str, int], noise.Run]:
    return {
        (r.spec.identity.node, r.spec.identity.round): run_of(r) for r in results if r.performance.samples_per_second
    }


WORTH_PCT = 1.0  # smaller differences do not matter, however certain
TELLING_PCT = 5.0  # larger noise hides differences that matter


class Verdict(StrEnum):
    """The verdict on a configuration, in the order of the reports."""

    BASELINE = "baseline"
    HELPED = "helped"
    OTHER_WORK = "other work"
    NO_DIFFERENCE = "no difference"
    SAME_WORK = "the baseline itself"
    SLOWER = "slower"
    UNCLEAR = "too noisy to tell"
    NOT_COMPARED = "not compared"
    FAILED = "failed"
    NOT_RUN = "did not run"


@dataclass(frozen=True, kw_only=True)
class Standing(MeasuredRuns):
    """One configuration and its good runs; `per_sample` and `per_token` compare samples/s and
    tokens/s. `why_not`: why there is nothing to compare, else "".
    """

    name: str
    verdict: Verdict
    why_not: str
    changes: tuple[str, ...]
    failed: tuple[RunResult, ...]
    per_sample: SpeedUp | None
    per_token: SpeedUp | None
    memory_pct: float | None  # against the baseline's
    saving_pct: float | None
    token_saving_pct: float | None

    @property
    def seq_length(self) -> int | None:
        return self.results[0].spec.work.seq_length if self.results else None


class ConfigurationStep(NamedTuple):
    """A configuration against another than the baseline."""

    name: str
    against: str
    speed_up: SpeedUp
    memory_pct: float | None
    saving_pct: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuKindComparison:
    """All configurations on one kind of GPU, the baseline first."""

    gpu: str
    standings: tuple[Standing, ...]
    steps: tuple[ConfigurationStep, ...]
    num_rounds: int

    @property
    def baseline(self) -> Standing:
        return self.standings[0]

    @property
    def has_noise(self) -> bool:
        """Whether any configuration is compared with a known noise."""
        return any(one.per_sample and one.per_sample.log_half_width is not None for one in self.standings)


def compare_by_gpu_kind(campaign: Campaign) -> tuple[GpuKindComparison, ...]:
    of_node = gpu_kind_by_node(campaign)
    names = dict.fromkeys(of_node[r.spec.identity.node] for r in campaign.results)
    skipped = dict.fromkeys(kind for skip in campaign.skipped for kind in kind_of_skipped(skip, of_node))
    return tuple(_Comparer(campaign, of_node, gpu).kind() for gpu in dict.fromkeys([*names, *skipped]))


class _Comparer:
    """The inputs from one campaign to compare the configurations on one kind of GPU."""

    def __init__(self, campaign: Campaign, of_node: Mapping[str, str], gpu: str) -> None:
        self._gpu = gpu
        self._params = campaign.params
        self._runs: dict[str, list[RunResult]] = {}
        for result in campaign.results:
            if of_node[result.spec.identity.node] == gpu:
                name = campaign.labels.get(result.spec.identity.group_id, result.spec.identity.group_id)
                self._runs.setdefault(name, []).append(result)
        self._skips: dict[str, Skipped] = {
            skip.label: skip
            for skip in campaign.skipped
            if skip.label and (not skip.nodes or gpu in kind_of_skipped(skip, of_node))
        }
        owners = {name: campaign.labels.get(skip.group_id or "") for name, skip in self._skips.items()}
        self._twins = {name: owner for name, owner in owners.items() if owner and owner != name}
        self._base = runs_with_throughput(self._runs_of(BASELINE))
        self._good = {name: runs_with_throughput(runs) for name, runs in self._runs.items()}
        self._asked = tuple(campaign.labels.values())

    def kind(self) -> GpuKindComparison:
        names = dict.fromkeys([BASELINE, *self._asked, *self._skips])
        known = [BASELINE, *VARIANTS]
        ordered = sorted(names, key=lambda name: known.index(name) if name in known else len(known))
        standings = tuple(
            self._standing(name) for name in ordered if self._runs_of(name) or name in self._skips or name == BASELINE
        )
        return GpuKindComparison(
            gpu=self._gpu,
            standings=standings,
            steps=tuple(step for one in standings if (step := self._step(one, standings))),
            num_rounds=len({r.spec.identity.round for r in self._base}),
        )

    def _runs_of(self, name: str) -> Sequence[RunResult]:
        return self._runs.get(self._twins.get(name, name), ())

    def _standing(self, name: str) -> Standing:
        runs = self._runs_of(name)
        results = runs_with_throughput(runs)
        failed = tuple(r for r in runs if r.error)
        rate = self._speed_up(self._base, results)
        tokens = rate and rate.scaled(_tokens_per_sample(results) / _tokens_per_sample(self._base))
        verdict, why_not = self._verdict(name, results, failed, tokens)
        memory_pct, saving_pct = _memory_and_saving(USD_PER_1000_SAMPLES, self._base, results)
        return Standing(
            name=name,
            verdict=verdict,
            why_not=why_not,
            changes=self._changes(name, runs),
            results=results,
            failed=failed,
            per_sample=rate,
            per_token=tokens,
            memory_pct=memory_pct,
            saving_pct=saving_pct,
            token_saving_pct=_memory_and_saving(USD_PER_1M_TOKENS, self._base, results)[1],
        )

    def _verdict(
        self, name: str, results: Sequence[RunResult], failed: Sequence[RunResult], tokens: SpeedUp | None
    ) -> tuple[Verdict, str]:
        if not results:
            if failed and failed[0].error:
                return Verdict.FAILED, f"{failed[0].status.value}: {failed[0].error.message}"
            return Verdict.NOT_RUN, self._skips[name].reason if name in self._skips else "the plan has no run of it"
        if name == BASELINE:
            return Verdict.BASELINE, ""
        if self._twins.get(name) == BASELINE:
            return Verdict.SAME_WORK, self._skips[name].reason
        if tokens is None:
            return Verdict.NOT_COMPARED, "the baseline gave no figure in any round that this one ran in"
        if results[0].spec.work.seq_length != self._base[0].spec.work.seq_length:
            return Verdict.OTHER_WORK, ""
        if not tokens.is_beyond_noise and (tokens.log_half_width is None or tokens.log_half_width > TELLING_PCT / 100):
            return Verdict.UNCLEAR, ""
        if not tokens.is_beyond_noise or abs(tokens.ratio - 1) * 100 < WORTH_PCT:
            return Verdict.NO_DIFFERENCE, ""
        return (Verdict.HELPED if tokens.ratio > 1 else Verdict.SLOWER), ""

    def _changes(self, name: str, runs: Sequence[RunResult]) -> tuple[str, ...]:
        if name in self._twins:
            return (f"none: the work of {self._twins[name]}",)
        base = self._base or self._runs_of(BASELINE)
        if runs and base:
            return changed_fields(base[0].effective_spec, (runs_with_throughput(runs) or runs)[0].effective_spec)
        own: Any = self._params.get("own_variants") or {}
        declared = VARIANTS[name].changes if name in VARIANTS else own.get(name, {})
        return tuple(
            f"{field} {value_text(value)}" for field, value in declared.items() if self._params.get(field) != value
        )

    def _step(self, one: Standing, standings: Sequence[Standing]) -> ConfigurationStep | None:
        against = VARIANTS[one.name].against if one.name in VARIANTS else None
        other = next((standing for standing in standings if standing.name == against), None)
        rate = self._speed_up(other.results, one.results) if other else None
        if against is None or other is None or rate is None:
            return None
        memory_pct, saving_pct = _memory_and_saving(USD_PER_1000_SAMPLES, other.results, one.results)
        return ConfigurationStep(one.name, against, rate, memory_pct, saving_pct)

    def _speed_up(self, base: Sequence[RunResult], results: Sequence[RunResult]) -> SpeedUp | None:
        rate = speed_up(base, results, [runs for runs in self._good.values() if runs not in (base, results)])
        return rate._replace(log_half_width=None) if rate and results == base else rate  # nothing differs from itself


def _memory_and_saving(
    price: Figure, base: Sequence[RunResult], results: Sequence[RunResult]
) -> tuple[float | None, float | None]:
    """The change of memory and the saving, in percent of the base's, in the rounds that both ran in. The saving is
    negative where it costs more.
    """
    before, after = (MeasuredRuns(results=runs) for runs in paired_runs(base, results))
    old, new = before.figure(price), after.figure(price)
    memory_pct = _change_pct(before.figure(PEAK_MEMORY_GB), after.figure(PEAK_MEMORY_GB))
    return memory_pct, savings_pct(old, new) if old and new is not None else None


def _tokens_per_sample(results: Sequence[RunResult]) -> float:
    performance = results[0].performance
    return (performance.tokens_per_second or 0.0) / (performance.samples_per_second or 1.0)


def _change_pct(before: float | None, after: float | None) -> float | None:
    return 100 * (after / before - 1) if before and after is not None else None
