"""Tables and advice on more GPUs: time and cost of a number of samples at each measured size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from bench_image.contract.work import Device
from trainbench.comparison.comparable import WorkGroup, named_work_groups
from trainbench.comparison.entries import Entry, all_entries, level_with, world_sizes
from trainbench.comparison.scaling import Scaling, base_size, entry_scaling
from trainbench.comparison.scaling_cost import (
    ScalingPoint,
    ScalingStep,
    comparable_points,
    crossover_cost_samples,
    crossover_time_samples,
    scaling_point,
    scaling_step,
    worth_choosing,
)
from trainbench.core.formats import NA, count, duration, figure, listing, percent, usd
from trainbench.core.tables import Table, integer, make_table, median_run, text
from trainbench.figure_catalogue.run_figures import (
    EXPOSED_COMMUNICATION_PCT,
    SAMPLES_PER_SECOND,
    SCALING_EFFICIENCY_PCT,
    USD_PER_1000_SAMPLES,
)
from trainbench.figure_catalogue.table_figures import AGAINST_SMALLEST, EXAMPLE
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
