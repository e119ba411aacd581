"""Advice on the limits from a noise floor: sensible here, too tight, or wider than they need to be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from trainbench.comparison.noise_floor import ROUNDS, Floor, floors
from trainbench.core.formats import count, degrees, share
from trainbench.core.states import METRIC_NAMES
from trainbench.core.verdicts import Metric, Tolerances
from trainbench.results.campaign import Campaign

USUAL_NODES = 4  # where one node alone was measured
TIGHT = 0.5  # a limit of which equal runs use up more than this share
ROOMY = 3.0  # times what chance reaches: a lower limit would do
STEP_PCT = 0.5  # limits are proposed in steps of this


def headline(campaign: Campaign) -> str | None:
    """The noisiest work in one sentence; None where nothing was repeated."""
    measured = [(floor.between.sd_pct, floor) for floor in floors(campaign.results) if floor.between]
    if not measured:
        return None
    _, floor = max(measured, key=lambda pair: pair[0])
    nodes = num_nodes(floor)
    slowdown_pct = share(floor.detectable_pct(1, nodes - 1, in_19_of_20=True), 2)
    between = floor.between
    assert between is not None
    return (
        f"Equal runs differ by {share(between.sd_pct, 2)} here (standard deviation, 95 %: {share(between.low_pct, 2)} "
        f"to {share(between.high_pct, 2)}); one round on {count(nodes, 'node')} detects a "
        f"{'GPU' if floor.is_per_gpu else 'node'} that is {slowdown_pct} slow."
    )


def num_nodes(floor: Floor) -> int:
    return floor.num_nodes if floor.num_nodes > 2 else USUAL_NODES


def noise_advice(floor: Floor, params: Mapping[str, object]) -> tuple[str, ...]:
    """One sentence for each limit, and one on what would help."""
    limits = _limits(params)
    return tuple(
        sentence
        for sentence in (
            *_throughput(floor, limits[Metric.SAMPLES_PER_SECOND]),
            _past(floor),
            *(_spread(floor, metric, limits[metric]) for metric in (Metric.MEMORY_GB, Metric.TEMPERATURE_C)),
            *_sources(floor),
        )
        if sentence
    )


def _limits(params: Mapping[str, object]) -> dict[Metric, float]:
    usual = Tolerances()
    limits = {
        Metric.SAMPLES_PER_SECOND: (params.get("samples_per_second_tolerance_pct"), usual.samples_per_second_pct),
        Metric.MEMORY_GB: (params.get("memory_tolerance_pct"), usual.memory_pct),
        Metric.TEMPERATURE_C: (params.get("temperature_tolerance_c"), usual.temperature_c),
    }
    return {metric: float(x) if isinstance(x, int | float) else other for metric, (x, other) in limits.items()}


def _throughput(floor: Floor, limit: float) -> Iterator[str]:
    nodes = num_nodes(floor)
    chance = floor.detectable_pct(1, nodes - 1)
    if chance is None:
        yield "The limit for samples/s cannot be judged: no node ran twice."
        return
    name = f"The limit of ±{share(limit)} for samples/s"
    reached = f"with one round on {count(nodes, 'node')} chance alone reaches {share(chance, 2)}"
    # The limit exceeds chance: it is sensible, and perhaps wider than necessary.
    if chance <= limit:
        lower = _up(chance)
        is_roomy = floor.nodes_sd_pct is not None and ROOMY * chance < limit
        less = f"; ±{share(lower)} would do as well" if is_roomy else ""
        yield f"{name} is sensible: {reached}{less}."
        return
    # Chance exceeds the limit: the fewest rounds whose median brings it below, else a wider limit.
    enough = next(
        (k for k in ROUNDS if (pct := floor.detectable_pct(k, nodes - 1)) is not None and pct <= limit),
        None,
    )
    most = floor.detectable_pct(ROUNDS[-1], nodes - 1)
    way = f"take {enough} rounds, or" if enough else f"{ROUNDS[-1]} rounds are not enough ({share(most, 2)}):"
    yield f"{name} is too tight: {reached}; {way} raise it to ±{share(_up(chance if enough else most or chance))}."


def _past(floor: Floor) -> str | None:
    limit, chance = Tolerances().past_pct, floor.detectable_pct(1, None)
    if chance is None:
        return None
    reach = f"chance alone reaches {share(chance, 2)} with one round; changes between days add to it"
    if chance <= limit:
        return f"The limit of {share(limit)} against the own past is sensible: {reach}."
    return (
        f"The limit of {share(limit)} against the own past is below the noise: {reach}; a node counts as slow beyond "
        "both only."
    )


def _spread(floor: Floor, metric: Metric, limit: float) -> str | None:
    seen = floor.largest.get(metric)
    if seen is None:
        return None
    write = degrees if metric is Metric.TEMPERATURE_C else share
    name = f"The limit of ±{write(limit)} for {METRIC_NAMES[metric]}"
    runs = f"the run furthest from the median is {write(seen)} away"
    if seen > limit:
        return f"{name} is too tight: {runs}, without a known fault."
    return f"{name} is {'tight' if seen > TIGHT * limit else 'sensible'}: {runs}."


def _sources(floor: Floor) -> Iterator[str]:
    if floor.between and floor.within:
        if floor.between.sd_pct > 2 * floor.within.sd_pct:
            yield "Pods differ more than the windows of one pod: more rounds help, more windows do not."
        elif floor.between.sd_pct <= floor.within.sd_pct:
            yield "Pods differ no more than the windows of one pod: one round is nearly as precise as several."
    if floor.nodes_sd_pct is None:
        yield "The difference between good nodes is unknown: it needs three nodes. The figures hold for equal nodes."
    elif floor.between and floor.nodes_sd_pct > floor.between.sd_pct:
        units = "GPUs" if floor.is_per_gpu else "nodes"
        yield (
            f"The {units} differ by {share(floor.nodes_sd_pct, 2)} (standard deviation) beyond the noise of their "
            "runs. More rounds do not make the comparison with peers more sensitive; the own past is free of it."
        )


def _up(pct: float) -> float:
    return STEP_PCT * math.ceil(pct / STEP_PCT)
