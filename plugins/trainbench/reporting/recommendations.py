"""The recommendation of a strategy study: strategy and number of GPUs of each work, and what more GPUs cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench_image.contract.result_sections import Clock
from bench_image.contract.work import Device
from trainbench.comparison.entries import (
    Entry,
    WorkGroup,
    all_entries,
    apart_pct,
    is_tie,
    level_with,
    named_work_groups,
    world_sizes,
)
from trainbench.comparison.scaling import (
    Scaling,
    ScalingPoint,
    ScalingStep,
    base_size,
    comparable_points,
    crossover_cost_samples,
    crossover_time_samples,
    entry_scaling,
    scaling_point,
    scaling_step,
    worth_choosing,
)
from trainbench.core.formats import NA, count, duration, figure, listing, percent, plural, usd
from trainbench.core.grouping import grouped
from trainbench.core.tables import Table, integer, make_table, median_run, text
from trainbench.figure_catalogue.run_figures import (
    EXPOSED_COMMUNICATION_PCT,
    SAMPLES_PER_SECOND,
    SCALING_EFFICIENCY_PCT,
    USD_PER_1000_SAMPLES,
)
from trainbench.figure_catalogue.table_figures import AGAINST_SMALLEST, EXAMPLE
from trainbench.prices.quote import usd_per_1m_tokens
from trainbench.results.campaign import Campaign

SAMPLES = 10_000
TAKE = f"{SAMPLES:,} samples take"
MAX_CHOICES_SHOWN = 4


def tables(campaign: Campaign) -> tuple[Table, ...]:
    """Tables, one for each work that was measured on several numbers of GPUs; processes on a CPU have no cost."""
    if len({result.spec.placement.world_size for result in campaign.results}) < 2:
        return ()
    named, scaling = named_work_groups(campaign.results), entry_scaling(campaign.results)
    return tuple(
        _table(name, points_of_work(campaign, group), scaling)
        for name, group in named
        if len(world_sizes(group)) > 1 and group.spec.work.device is Device.CUDA
    )


def points_of_work(campaign: Campaign, group: WorkGroup) -> tuple[ScalingPoint, ...]:
    """Points of all strategies at all sizes of one work, smallest size first."""
    prices = {cost.run_id: cost.usd_per_gpu_hour for cost in campaign.costs}
    return comparable_points(
        [scaling_point(each, lambda run: prices.get(run.spec.identity.run_id)) for each in all_entries(group)]
    )


def base_of(larger: ScalingPoint, among: Sequence[ScalingPoint]) -> ScalingPoint | None:
    """The point that is the base of a point's scaling efficiency; None without one."""
    by_size = {(p.entry.strategy, p.gpus): p for p in among}
    size = base_size((larger.entry.strategy, larger.gpus), by_size)
    return by_size[size] if size else None


def _table(name: str, of_work: Sequence[ScalingPoint], scaling: Callable[[Entry], Scaling | None]) -> Table:
    scaled = [(p, scaling(p.entry)) for p in of_work]
    return make_table(
        scaled,
        (
            integer("GPUs", lambda row: row[0].gpus),
            text("strategy", lambda row: row[0].entry.strategy.value),
            integer("nodes", lambda row: row[0].entry.num_nodes),
            SAMPLES_PER_SECOND.own(row=lambda row: row[0].entry),
            SCALING_EFFICIENCY_PCT.column(lambda row: row[1].text if row[1] else NA),
            EXPOSED_COMMUNICATION_PCT.own(row=lambda row: row[0].entry),
            EXAMPLE.column(lambda row: _time(row[0]), TAKE),
            EXAMPLE.column(lambda row: _price(row[0]), "they cost"),
            USD_PER_1000_SAMPLES.column(lambda row: row[0].usd(1000)),
            AGAINST_SMALLEST.column(lambda row: _against(row[0], base_of(row[0], of_work)), is_number=False),
        ),
        run_id=lambda row: median_run(row[0].entry.results),
        notes=(*_advice_on_one_machine(scaled), *_price_notes(of_work)),
        title=name,
    )


def _advice_on_one_machine(scaled: Sequence[tuple[ScalingPoint, Scaling | None]]) -> tuple[str, ...]:
    """Advice without points whose base ran on another machine, whose own speed would be part of the difference."""
    elsewhere = [p for p, scaled_point in scaled if scaled_point and scaled_point.efficiency.elsewhere]
    rest = [p for p, scaled_point in scaled if not (scaled_point and scaled_point.efficiency.elsewhere)]
    if not elsewhere:
        return advice(rest)
    names = listing(p.entry.name for p in elsewhere)
    left_out = f"No advice on {names}: the base ran on another machine, whose own speed is part of the difference."
    return (*(advice(rest) if len({p.gpus for p in rest}) > 1 else ()), left_out)


def _against(larger: ScalingPoint, base: ScalingPoint | None) -> str:
    """ "54 min 43 s sooner, +4.3 % cost"."""
    if base is None:
        return ""
    step_up = scaling_step(base, larger, SAMPLES)
    apart_s = (step_up.base_hours - step_up.hours) * 3600
    noise = " (within the noise)" if step_up.is_within_noise else ""
    when = f"{duration(abs(apart_s))} {'sooner' if apart_s >= 0 else 'later'}"
    return f"{when}, {percent(step_up.extra_pct)} cost{noise}"


def _price_notes(of_work: Sequence[ScalingPoint]) -> tuple[str, ...]:
    prices = sorted({p.usd_per_gpu_hour for p in of_work if p.usd_per_gpu_hour is not None})
    if not prices:
        return ("No price is known for all of these runs: cost is shown in GPU-hours, all GPUs counted.",)
    prices_text = listing(f"{usd(price)} per GPU-hour" for price in prices)
    return (f"All GPUs are paid for, at {prices_text}.",)


def step_sentence(step_up: ScalingStep) -> str:
    """ "ddp on 2 GPUs of 2 nodes finishes 10,000 samples in 1 h 00 min instead of 1 h 54 min (single on 1 GPU) for
    $0.0600 more (+5.3 %): $0.0667 for each hour saved."
    """
    if step_up.hours >= step_up.base_hours:
        return f"{step_up.larger.entry.name} is not faster than {step_up.base.entry.name}: it does not pay."
    saved = step_up.usd_per_hour_saved
    per_hour = f": {usd(saved)} for each hour saved" if saved is not None else ""
    return (
        f"{step_up.larger.entry.name} finishes {SAMPLES:,} samples in {duration(step_up.hours * 3600)} instead of "
        f"{duration(step_up.base_hours * 3600)} ({step_up.base.entry.name}) for {_extra(step_up)}{per_hour}."
    )


def advice(of_work: Sequence[ScalingPoint]) -> tuple[str, ...]:
    """Sentences on the choice by cost, by deadline, and on the size at which more GPUs stop paying."""
    chosen = worth_choosing(of_work, SAMPLES)
    cheapest, fastest = chosen[-1], chosen[0]
    lines = [f"By cost: {cheapest.entry.name}, {_price(cheapest)} for {SAMPLES:,} samples in {_time(cheapest)}."]
    if len(chosen) == 1:
        return (
            *lines,
            "It is also the fastest: no measured size beats it in time or in cost.",
            *_ties(chosen, of_work),
        )
    lines += [
        step_sentence(scaling_step(cheapest, faster, SAMPLES)) for faster in reversed(chosen[:-1][-MAX_CHOICES_SHOWN:])
    ]
    lines.append(f"By deadline: {_deadlines(chosen)} Nothing measured is faster than {_time(fastest)}.")
    return (*lines, *_ties(chosen, of_work), *_crossovers(cheapest, chosen[:-1]), _startup(chosen))


def _deadlines(chosen: Sequence[ScalingPoint]) -> str:
    """The choice by deadline, fastest first: each is the cheapest that meets deadlines up to the next one's time."""
    parts = [f"from {_time(point)} on {point.entry.name} ({_price(point)})" for point in chosen[:MAX_CHOICES_SHOWN]]
    if len(chosen) > MAX_CHOICES_SHOWN:
        parts.append(f"from {_time(chosen[-1])} on {chosen[-1].entry.name} ({_price(chosen[-1])})")
    return f"{'; '.join(parts)}."


def _ties(chosen: Sequence[ScalingPoint], of_work: Sequence[ScalingPoint]) -> tuple[str, ...]:
    lines = []
    for one in chosen:
        beside = [p.entry for p in of_work if p.gpus == one.gpus]
        if level := level_with(one.entry, beside):
            names = listing(entry.strategy.value for entry in level)
            lines.append(f"{names} would do as well as {one.entry.name}: the difference lies within the noise.")
    return tuple(lines)


def _crossovers(cheapest: ScalingPoint, larger: Sequence[ScalingPoint]) -> tuple[str, ...]:
    """Sentences on the number of samples from which a larger size is sooner or cheaper, start-up included."""
    lines = []
    for larger_point in larger[:MAX_CHOICES_SHOWN]:
        small, large = sorted((cheapest, larger_point), key=lambda p: p.gpus)
        if small.startup_s is None or large.startup_s is None or small.gpus == large.gpus:
            continue
        sooner = _from(crossover_time_samples(small, large), crossover_time_samples(large, small), "sooner")
        cheaper = _from(crossover_cost_samples(small, large), crossover_cost_samples(large, small), "cheaper")
        lines.append(f"Start-up counted, {large.entry.name} against {small.entry.name}: {sooner}, {cheaper}.")
    return tuple(lines)


def _from(samples: float | None, other_from: float | None, word: str) -> str:
    """The range of samples for which the larger size is better. `other_from`: from here on the smaller one is."""
    if samples is None:
        until = round(other_from or 0)
        return f"{word} up to {count(until, 'sample')} only" if until else f"never {word}"
    return f"{word} from {count(math.ceil(samples), 'sample')} on" if samples else f"always {word}"


def _startup(chosen: Sequence[ScalingPoint]) -> str:
    known = sorted((p.gpus, p.startup_s, p.entry.size) for p in chosen if p.startup_s is not None)
    times = listing(f"{duration(seconds)} on {size}" for _, seconds, size in known)
    more = f"; here it takes {times}" if known else "; it is not known here"
    return f"Times and costs leave out checkpoints and start-up (launch, import, build, compile){more}."


def _extra(step_up: ScalingStep) -> str:
    noise = ", within the noise" if step_up.is_within_noise else ""
    if step_up.extra_usd is None:
        return f"{percent(step_up.extra_pct)} GPU-hours{noise}"
    word = "less" if step_up.extra_pct < 0 else "more"
    return f"{usd(abs(step_up.extra_usd))} {word} ({percent(step_up.extra_pct)}{noise})"


def _price(point: ScalingPoint) -> str:
    cost = point.usd(SAMPLES)
    return f"{figure(point.gpu_hours(SAMPLES), 3)} GPU-hours" if cost is None else usd(cost)


def _time(point: ScalingPoint) -> str:
    return duration(point.hours(SAMPLES) * 3600)


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
