"""The recommendation of a strategy study: for each work the strategy, the number of GPUs, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench_image.contract.result_sections import Clock
from trainbench.comparison.comparable import named_work_groups
from trainbench.comparison.entries import Entry, apart_pct, is_tie, level_with
from trainbench.comparison.scaling import Scaling, entry_scaling
from trainbench.comparison.scaling_cost import ScalingPoint, scaling_step, worth_choosing
from trainbench.core.formats import figure, listing, percent, plural, usd
from trainbench.core.grouping import grouped
from trainbench.prices.quote import usd_per_1m_tokens
from trainbench.reporting.more_gpus import SAMPLES, points_of_work
from trainbench.results.campaign import Campaign

MAX_LINES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The choice for one work by cost and by time; often both are one. `compares_sizes`: fewer GPUs were measured on
    the same machine, so the number of GPUs is part of the choice.
    """

    work: str
    cheapest: ScalingPoint
    fastest: ScalingPoint
    peers: tuple[ScalingPoint, ...]  # all that were compared
    compares_sizes: bool
    ran_elsewhere: bool  # fewer GPUs did this work on other machines

    @property
    def is_one(self) -> bool:
        return self.cheapest is self.fastest


def recommendations(campaign: Campaign) -> tuple[Recommendation, ...]:
    """One for each work that several strategies, or several numbers of GPUs, did."""
    if len({(run.spec.placement.strategy, run.spec.placement.world_size) for run in campaign.results}) < 2:
        return ()
    named, scaling = named_work_groups(campaign.results), entry_scaling(campaign.results)
    choices = []
    for name, group in named:
        of_work = [point for point in points_of_work(campaign, group) if point.entry.tokens_per_s > 0]
        if len(of_work) > 1 and (choice := _recommendation(name, of_work, scaling)):
            choices.append(choice)
    return tuple(choices)


def headline(campaign: Campaign) -> str | None:
    """ "Choose ddp on 4 GPUs: $0.0343 per 1M tokens."; of several works by name; None without a choice."""
    chosen = recommendations(campaign)
    if not chosen:
        return None
    if len(chosen) == 1:
        choice = chosen[0]
        if choice.is_one:
            return f"Choose {choice.fastest.entry.name}: {_cost(choice.fastest)}."
        return (
            f"Choose {choice.cheapest.entry.name} for the least cost ({_cost(choice.cheapest)}) or "
            f"{choice.fastest.entry.name} for the least time ({_cost(choice.fastest)})."
        )
    names = _short_names([choice.work for choice in chosen])
    one = [(choice.fastest, name) for choice, name in zip(chosen, names, strict=True) if choice.is_one]
    cheap = [(choice.cheapest, name) for choice, name in zip(chosen, names, strict=True) if not choice.is_one]
    fast = [(choice.fastest, name) for choice, name in zip(chosen, names, strict=True) if not choice.is_one]
    sentences = [f"Choose {_by_choice(one)}."] if one else []
    if cheap:
        sentences.append(f"For the least cost choose {_by_choice(cheap)}; for the least time {_by_choice(fast)}.")
    return " ".join(sentences)


def lines(campaign: Campaign) -> tuple[str, ...]:
    """A sentence or two for each work: throughput and cost of the choice, the next best, and what is not known."""
    chosen = recommendations(campaign)
    names = _short_names([choice.work for choice in chosen])
    several = len(chosen) > 1
    all_lines = [
        f"{f'{name}: ' if several else ''}{' '.join(_details(choice))}"
        for name, choice in zip(names, chosen, strict=True)
    ]
    more = [f"And {len(all_lines) - MAX_LINES} more works: see the strategies."] if len(all_lines) > MAX_LINES else []
    return (*all_lines[:MAX_LINES], *more)


def _recommendation(
    name: str, of_work: Sequence[ScalingPoint], scaling: Callable[[Entry], Scaling | None]
) -> Recommendation | None:
    scaled = [scaling(point.entry) for point in of_work]
    ran_elsewhere = any(each and each.efficiency.elsewhere for each in scaled)
    # Machines differ in speed: where fewer GPUs ran on another one, only the largest size is compared.
    largest = max(point.gpus for point in of_work)
    peers = [point for point in of_work if point.gpus == largest] if ran_elsewhere else list(of_work)
    if len(peers) < 2:
        return None
    has_cost = all(point.has_cost for point in peers)
    cheapest, fastest = _by_cost_and_time(peers) if has_cost else (_fastest(peers),) * 2
    return Recommendation(
        work=name,
        cheapest=cheapest,
        fastest=fastest,
        peers=tuple(peers),
        compares_sizes=len({point.gpus for point in peers}) > 1,
        ran_elsewhere=ran_elsewhere,
    )


def _by_cost_and_time(peers: Sequence[ScalingPoint]) -> tuple[ScalingPoint, ScalingPoint]:
    """The cheapest and the fastest; often both are one."""
    fastest, *others = worth_choosing(peers, SAMPLES)
    cheapest = others[-1] if others else fastest
    # A cheaper one that is as fast within the noise is the fastest; a faster one that costs no more is the cheapest.
    fastest = next((point for point in reversed(others) if is_tie(point.entry, fastest.entry)), fastest)
    if fastest is not cheapest and scaling_step(cheapest, fastest, SAMPLES).is_within_noise:
        cheapest = fastest
    return cheapest, fastest


def _fastest(peers: Sequence[ScalingPoint]) -> ScalingPoint:
    """The fastest; of those that are as fast within the noise, the smallest."""
    first = max(peers, key=lambda point: point.entry.tokens_per_s)
    level = [point for point in peers if is_tie(point.entry, first.entry)]
    return min(level, key=lambda point: (point.gpus, -point.entry.tokens_per_s))


def _details(choice: Recommendation) -> Iterator[str]:
    if choice.is_one:
        has_cost = choice.compares_sizes and choice.fastest.has_cost
        best = "the fastest, and nothing measured costs less" if has_cost else "the fastest"
        on = "" if choice.compares_sizes else f" on {choice.fastest.entry.size}"
        yield f"{_figures(choice.fastest)}, {best}{on}."
    else:
        yield f"{_figures(choice.cheapest)}, the cheapest."
        step_up = scaling_step(choice.cheapest, choice.fastest, SAMPLES)
        times = choice.fastest.entry.tokens_per_s / choice.cheapest.entry.tokens_per_s
        yield (
            f"{_figures(choice.fastest)}, the fastest: {times:.2f} times the throughput at "
            f"{percent(step_up.extra_pct)} cost."
        )
    beside = [point.entry for point in choice.peers if point.gpus == choice.fastest.gpus]
    if level := level_with(choice.fastest.entry, beside):
        yield f"{listing(entry.strategy.value for entry in level)} would do as well, within the noise."
    elif after := _next(choice.fastest.entry, beside):
        yield f"Next is {after.strategy}, {percent(-apart_pct(choice.fastest.entry, after))} tokens/s."
    if choice.ran_elsewhere:
        units = plural(choice.fastest.entry.rank_noun)
        yield f"Fewer {units} ran on other machines, so whether they are enough is unknown."


def _next(first: Entry, beside: Sequence[Entry]) -> Entry | None:
    slower = [entry for entry in beside if entry.tokens_per_s < first.tokens_per_s]
    return max(slower, key=lambda entry: entry.tokens_per_s, default=None)


def _figures(point: ScalingPoint) -> str:
    at = f" at {_cost(point)}" if point.has_cost else ""
    return f"{point.entry.name}, {_rate(point)}{at}"


def _rate(point: ScalingPoint) -> str:
    """ "5,120 tokens/s"; on a CPU "of CPU time", which is not the time on the wall."""
    by_cpu_time = point.entry.results[0].performance.clock is Clock.PROCESS_CPU
    return f"{figure(point.entry.tokens_per_s)} tokens/s{' of CPU time' if by_cpu_time else ''}"


def _by_choice(of: Sequence[tuple[ScalingPoint, str]]) -> str:
    """ "ddp on 4 GPUs for tier-a full and mistral-7b lora ($0.0343 to $0.119 per 1M tokens); fsdp on ..."."""
    by_name = grouped((point.entry.name, (point, work)) for point, work in of)
    return "; ".join(
        f"{name} for {listing(work for _, work in pairs)} ({_cost_range([point for point, _ in pairs])})"
        for name, pairs in by_name.items()
    )


def _cost_range(of: Sequence[ScalingPoint]) -> str:
    costs = sorted(cost for point in of if (cost := _usd_per_1m_tokens(point)) is not None)
    if len(costs) < 2 or len(costs) < len(of):
        return listing(map(_cost, of))
    return f"{usd(costs[0])} to {usd(costs[-1])} per 1M tokens"


def _cost(point: ScalingPoint) -> str:
    """ "$0.0343 per 1M tokens"; GPU-hours where no price is known, and on a CPU the throughput."""
    if not point.has_cost:
        return _rate(point)
    cost = _usd_per_1m_tokens(point)
    if cost is None:
        return f"{figure(1e6 * point.gpus / (point.entry.tokens_per_s * 3600), 3)} GPU-hours per 1M tokens"
    return f"{usd(cost)} per 1M tokens"


def _usd_per_1m_tokens(point: ScalingPoint) -> float | None:
    price = point.usd_per_gpu_hour
    return None if price is None else usd_per_1m_tokens(price, point.gpus, point.entry.tokens_per_s)


def _short_names(names: Sequence[str]) -> list[str]:
    """Model and recipe; where two works have the same, without the parts that all of them share."""
    split = [name.split(", ") for name in names]
    if len({parts[0] for parts in split}) == len(names):
        return [parts[0] for parts in split]
    shared = set.intersection(*map(set, split)) if split else set()
    return [", ".join(part for part in parts if part not in shared) for parts in split]
