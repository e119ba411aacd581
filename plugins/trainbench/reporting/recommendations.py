"""The recommendation of a strategy study: strategy and number of GPUs of each work, and what more GPUs cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bench_image.contract.work import Device
from trainbench.comparison.entries import (
    Entry,
    WorkGroup,
    all_entries,
    is_tie,
    level_with,
    named_work_groups,
    world_sizes,
)
from trainbench.comparison.scaling import (
    Scaling,
    ScalingPoint,
    base_size,
    comparable_points,
    crossover_cost_samples,
    crossover_time_samples,
    entry_scaling,
    scaling_point,
    scaling_step,
    scaling_texts,
    worth_choosing,
)
from trainbench.core.formats import count, duration, figure, listing, percent, usd
from trainbench.core.tables import Table, integer, make_table, median_run, text
from trainbench.figure_catalogue import run_figures
from trainbench.figure_catalogue.table_figures import AGAINST_SMALLEST, EXAMPLE
from trainbench.prices.quote import usd_per_1m_tokens
from trainbench.results.campaign import Campaign

SAMPLES = 10_000
MAX_CHOICES_SHOWN = 4
MAX_WORKS = 4  # of a headline


def points_of_work(group: WorkGroup) -> tuple[ScalingPoint, ...]:
    """Points of all strategies at all sizes of one work, smallest size first."""
    return comparable_points(list(map(scaling_point, all_entries(group))))


def _price(point: ScalingPoint) -> str:
    cost = point.usd(SAMPLES)
    return f"{figure(point.gpu_hours(SAMPLES), 3)} GPU-hours" if cost is None else usd(cost)


def _time(point: ScalingPoint) -> str:
    return duration(point.hours(SAMPLES) * 3600)


# The tables, and the advice below them.


def tables(campaign: Campaign) -> tuple[Table, ...]:
    """Tables, one for each work that was measured on several numbers of GPUs; processes on a CPU have no cost."""
    if campaign.is_link_search or len({result.spec.placement.world_size for result in campaign.results}) < 2:
        return ()
    named, scaling = named_work_groups(campaign.results), entry_scaling(campaign.results)
    return tuple(
        _table(name, points_of_work(group), scaling)
        for name, group in named
        if len(world_sizes(group)) > 1 and group.spec.work.device is Device.CUDA
    )


def _table(name: str, of_work: Sequence[ScalingPoint], scaling: Callable[[Entry], Scaling | None]) -> Table:
    scaled = [(point, scaling(point.entry)) for point in of_work]
    # No advice on points whose base ran on another machine: its own speed would be part of the difference.
    elsewhere = [point for point, of in scaled if of and of.efficiency.elsewhere]
    rest = [point for point in of_work if point not in elsewhere]
    notes = list(advice(rest)) if not elsewhere or len({point.gpus for point in rest}) > 1 else []
    if elsewhere:
        names = listing(point.entry.name for point in elsewhere)
        notes.append(
            f"No advice on {names}: the base ran on another machine, whose own speed is part of the difference."
        )
    prices = sorted({point.usd_per_gpu_hour for point in of_work if point.usd_per_gpu_hour is not None})
    paid = listing(f"{usd(price)} per GPU-hour" for price in prices)
    unpriced = "No price is known for all of these runs: cost is shown in GPU-hours, all GPUs counted."
    texts = scaling_texts([point.entry for point in of_work], scaling)
    return make_table(
        list(zip(of_work, texts, strict=True)),
        (
            integer("GPUs", lambda row: row[0].gpus),
            text("strategy", lambda row: row[0].entry.strategy.value),
            integer("nodes", lambda row: row[0].entry.num_nodes),
            run_figures.SAMPLES_PER_SECOND.own(row=lambda row: row[0].entry),
            run_figures.SCALING_EFFICIENCY_PCT.column(lambda row: row[1]),
            run_figures.EXPOSED_COMMUNICATION_PCT.own(row=lambda row: row[0].entry),
            EXAMPLE.column(lambda row: _time(row[0]), f"{SAMPLES:,} samples take"),
            EXAMPLE.column(lambda row: _price(row[0]), "they cost"),
            run_figures.USD_PER_1000_SAMPLES.column(lambda row: row[0].usd(1000)),
            AGAINST_SMALLEST.column(lambda row: _against_base(row[0], of_work), is_number=False),
        ),
        run_id=lambda row: median_run(row[0].entry.results),
        notes=(*notes, f"All GPUs are paid for, at {paid}." if prices else unpriced),
        title=name,
    )


def _against_base(larger: ScalingPoint, among: Sequence[ScalingPoint]) -> str:
    """ "54 min 43 s sooner, +4.3 % cost", against the base of its scaling efficiency; "" without one."""
    by_size = {(point.entry.strategy, point.gpus): point for point in among}
    size = base_size((larger.entry.strategy, larger.gpus), by_size)
    if size is None:
        return ""
    step = scaling_step(by_size[size], larger, SAMPLES)
    apart_s = (step.base_hours - step.hours) * 3600
    noise = " (within the noise)" if step.is_within_noise else ""
    when = f"{duration(abs(apart_s))} {'sooner' if apart_s >= 0 else 'later'}"
    return f"{when}, {percent(step.extra_pct)} cost{noise}"


def advice(of_work: Sequence[ScalingPoint]) -> Iterator[str]:
    """Sentences on the choice by cost and by deadline, and on when more GPUs stop paying."""
    chosen = worth_choosing(of_work, SAMPLES)
    fastest, cheapest = chosen[0], chosen[-1]
    yield f"By cost: {cheapest.entry.name}, {_price(cheapest)} for {SAMPLES:,} samples in {_time(cheapest)}."
    if len(chosen) == 1:
        yield "It is also the fastest: no measured size beats it in time or in cost."
    else:
        for faster in reversed(chosen[:-1][-MAX_CHOICES_SHOWN:]):
            yield _what_more_pays(cheapest, faster)
        # Fastest first: each is the cheapest that meets deadlines up to the next one's time.
        shown = (*chosen[:MAX_CHOICES_SHOWN], *chosen[MAX_CHOICES_SHOWN:][-1:])
        deadlines = "; ".join(f"from {_time(point)} on {point.entry.name} ({_price(point)})" for point in shown)
        yield f"By deadline: {deadlines}. Nothing measured is faster than {_time(fastest)}."
    for one in chosen:
        if level := level_with(one.entry, [point.entry for point in of_work if point.gpus == one.gpus]):
            names = listing(entry.strategy.value for entry in level)
            yield f"{names} would do as well as {one.entry.name}: the difference lies within the noise."
    if len(chosen) == 1:
        return
    for larger in chosen[:-1][:MAX_CHOICES_SHOWN]:  # with start-up, the choice depends on the number of samples
        small, large = sorted((cheapest, larger), key=lambda point: point.gpus)
        if small.startup_s is not None and large.startup_s is not None and small.gpus != large.gpus:
            sooner = _from(crossover_time_samples(small, large), crossover_time_samples(large, small), "sooner")
            cheaper = _from(crossover_cost_samples(small, large), crossover_cost_samples(large, small), "cheaper")
            yield f"Start-up counted, {large.entry.name} against {small.entry.name}: {sooner}, {cheaper}."
    yield _left_out(chosen)


def _left_out(shown: Sequence[ScalingPoint]) -> str:
    known = sorted((point.gpus, point.startup_s, point.entry.size) for point in shown if point.startup_s is not None)
    times = listing(dict.fromkeys(f"{duration(seconds)} on {size}" for _, seconds, size in known))
    here = f"here it takes {times}" if known else "it is not known here"
    return f"Times and costs leave out checkpoints and start-up (launch, import, build, compile); {here}."


def _what_more_pays(base: ScalingPoint, larger: ScalingPoint) -> str:
    """ "ddp on 2 GPUs of 2 nodes finishes 10,000 samples in 1 h 00 min instead of 1 h 54 min (single on 1 GPU) for
    $0.0600 more (+5.3 %): $0.0667 for each hour saved."
    """
    step = scaling_step(base, larger, SAMPLES)
    if step.hours >= step.base_hours:
        return f"{larger.entry.name} is not faster than {base.entry.name}: it does not pay."
    noise = ", within the noise" if step.is_within_noise else ""
    extra = f"{percent(step.extra_pct)} GPU-hours{noise}"
    if step.extra_usd is not None:
        more = "less" if step.extra_pct < 0 else "more"
        extra = f"{usd(abs(step.extra_usd))} {more} ({percent(step.extra_pct)}{noise})"
    saved = step.usd_per_hour_saved
    per_hour = f": {usd(saved)} for each hour saved" if saved is not None else ""
    return (
        f"{larger.entry.name} finishes {SAMPLES:,} samples in {_time(larger)} instead of {_time(base)} "
        f"({base.entry.name}) for {extra}{per_hour}."
    )


def _from(samples: float | None, other_from: float | None, word: str) -> str:
    """The range of samples for which the larger size is better. `other_from`: from here on the smaller one is."""
    if samples is None:
        until = round(other_from or 0)
        return f"{word} up to {count(until, 'sample')} only" if until else f"never {word}"
    return f"{word} from {count(math.ceil(samples), 'sample')} on" if samples else f"always {word}"


# The choice of each work, in the headline.


class Recommendation(NamedTuple):
    """The choice for one work by cost and by time; often both are one."""

    work: str
    cheapest: ScalingPoint
    fastest: ScalingPoint

    @property
    def text(self) -> str:
        """ "ddp on 4 GPUs: $0.0343 per 1M tokens"."""
        cheapest, fastest = self.cheapest, self.fastest
        if cheapest is fastest:
            return f"{fastest.entry.name}: {_cost(fastest)}"
        return (
            f"{cheapest.entry.name} for the least cost ({_cost(cheapest)}) or {fastest.entry.name} for the least time "
            f"({_cost(fastest)})"
        )


def recommendations(campaign: Campaign) -> tuple[Recommendation, ...]:
    """One for each work that several strategies, or several numbers of GPUs, did."""
    placements = {(run.spec.placement.strategy, run.spec.placement.world_size) for run in campaign.results}
    if campaign.is_link_search or len(placements) < 2:
        return ()
    named, scaling = named_work_groups(campaign.results), entry_scaling(campaign.results)
    choices = []
    for name, group in named:
        peers = [point for point in points_of_work(group) if point.entry.tokens_per_s > 0]
        # Machines differ in speed: where fewer GPUs ran on other ones, only the largest size is compared.
        if any((of := scaling(point.entry)) and of.efficiency.elsewhere for point in peers):
            largest = max(point.gpus for point in peers)
            peers = [point for point in peers if point.gpus == largest]
        if len(peers) > 1:
            choices.append(Recommendation(name, *cheapest_and_fastest(peers)))
    return tuple(choices)


def cheapest_and_fastest(peers: Sequence[ScalingPoint]) -> tuple[ScalingPoint, ScalingPoint]:
    """Often both are one. Without a cost: of those that are as fast as the fastest within the noise, the smallest."""
    if not all(point.has_cost for point in peers):
        first = max(peers, key=lambda point: point.entry.tokens_per_s)
        level = (point for point in peers if is_tie(point.entry, first.entry))
        smallest = min(level, key=lambda point: (point.gpus, -point.entry.tokens_per_s))
        return smallest, smallest
    fastest, *others = worth_choosing(peers, SAMPLES)
    cheapest = others[-1] if others else fastest
    # A cheaper one that is as fast within the noise is the fastest; a faster one that costs no more is the cheapest.
    fastest = next((point for point in reversed(others) if is_tie(point.entry, fastest.entry)), fastest)
    if fastest is not cheapest and scaling_step(cheapest, fastest, SAMPLES).is_within_noise:
        cheapest = fastest
    return cheapest, fastest


def headline(campaign: Campaign) -> str | None:
    """ "Choose ddp on 4 GPUs: $0.0343 per 1M tokens."; one sentence for each work; None without a choice."""
    chosen = recommendations(campaign)
    names = short_work_names([choice.work for choice in chosen]) if len(chosen) > 1 else [""]
    told = [
        f"{f'For {name} choose' if name else 'Choose'} {choice.text}."
        for choice, name in zip(chosen, names, strict=False)
    ]
    more = [f"And {len(told) - MAX_WORKS} more works: see the strategies."] if len(told) > MAX_WORKS else []
    return " ".join([*told[:MAX_WORKS], *more]) or None


def _cost(point: ScalingPoint) -> str:
    """ "$0.0343 per 1M tokens"; GPU-hours where no price is known, and on a CPU the throughput."""
    if not point.has_cost:
        return f"{figure(point.entry.tokens_per_s)} tokens/s{' of CPU time' if point.entry.by_cpu_time else ''}"
    price = point.usd_per_gpu_hour
    if price is None:
        return f"{figure(1e6 * point.gpus / (point.entry.tokens_per_s * 3600), 3)} GPU-hours per 1M tokens"
    return f"{usd(usd_per_1m_tokens(price, point.gpus, point.entry.tokens_per_s))} per 1M tokens"


def short_work_names(names: Sequence[str]) -> list[str]:
    """Model and recipe; where two works have the same, without the parts that all of them share."""
    split = [name.split(", ") for name in names]
    if len({parts[0] for parts in split}) == len(names):
        return [parts[0] for parts in split]
    shared = set.intersection(*map(set, split)) if split else set()
    return [", ".join(part for part in parts if part not in shared) for parts in split]
