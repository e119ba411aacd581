"""Simulated nights of a fleet, judged by the real rules: slow nodes detected, good nodes blamed by chance.

**Model.** log samples/s of window w of a run = node + round + run + window_w, and the run's rate is exp of the mean
over its three windows (of their logs). With the noise s of a run and the share f (`windows_show`, 0.3 unless said
otherwise):

    node     ~ N(0, spread^2)      drawn once a night for each node
    round    ~ N(0, s^2)           one for all nodes of a round, so it drops out of a comparison with peers, but not out
                                   of that of a re-run, which comes later, nor out of one with an own past
    run      ~ N(0, (1 - f) s^2)   for each run
    window_w ~ N(0, 3 f s^2)       for each window; the mean of three has the variance f s^2

So a run's error run + mean(window) has the variance s^2, and the variance between the windows of one run, as an
estimate from them sees it, is 3 f s^2: 0.9 s^2 at f = 0.3, 0.3 s^2 at f = 0.1.

A slow node has its own effect, too, and loses `slow_pct` of its speed. A disturbed run loses 10 to 30 % in all its
windows, evenly drawn, a re-run as well. A node with an uneven window loses `window_pct` in the second window of its
first run. Every night has its own seed, so it is the same in every process.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from bench_image.contract.frozen import Frozen
from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Window
from bench_image.contract.spec import Drill, RunSpec
from trainbench.core.verdicts import RED, GroupVerdict, NodeVerdict, ReferenceMode, State, Tolerances
from trainbench.judging.over_time.baseline_deviation import judge_history
from trainbench.judging.peers.confirmation import confirm
from trainbench.judging.peers.node_verdicts import judge_groups, nodes_to_confirm

CAMPAIGN = Path(__file__).resolve().parents[1] / "docs" / "results" / "campaigns" / "h200-aa-2026-11-21"
TYPICAL = 10.0  # samples/s of a typical node
NUM_WINDOWS = 3
PAST_RUNS = 10  # behind the figure that the reference `history` compares with


class Fleet(Frozen):
    """One kind of night. The first `len(slow_pct)` nodes are slow, the first one is hot, heavy or drilled, and the last
    one has the uneven window.
    """

    nodes: int
    spread_pct: float = 0.4
    noise_pct: float = 0.1
    rounds: int = 1
    slow_pct: tuple[float, ...] = ()
    reference: ReferenceMode = ReferenceMode.LEAVE_ONE_OUT_MEDIAN
    tails: Literal["normal", "t3"] = "normal"  # t3: Student's t with 3 degrees of freedom, of the same deviation
    windows_show: float = 0.3  # share of a run's variance that its windows bring in
    window_pct: float = 0.0  # what the last node loses in one window
    disturbed_pct: float = 0.0  # share of the runs that something else slows by 10 to 30 %
    drill_pct: float = 0.0
    temperature_spread_c: float = 0.0
    hot_c: float = 0.0
    memory_spread_pct: float = 0.0
    heavy_pct: float = 0.0

    @property
    def num_bad(self) -> int:
        return max(len(self.slow_pct), int(bool(self.hot_c or self.heavy_pct or self.drill_pct)))


class Past(Frozen):
    """One node against its own history."""

    points: int
    noise_pct: float
    drop_pct: float = 0.0


def simulate(case: Fleet | Past, nights: int) -> dict[str, int]:
    """Name -> in how many nights; what starts with `bad_` counts bad nodes instead, with `uneven_` the one node."""
    counts: Counter[str] = Counter(nights=nights)
    for night in range(nights):
        # S311: a simulation wants the same numbers again, not secret ones
        draw = random.Random(f"{case.model_dump_json(exclude_defaults=True)} night {night}")  # noqa: S311
        counts.update(_past_night(case, draw) if isinstance(case, Past) else _fleet_night(case, draw))
    return dict(sorted(counts.items()))


def _fleet_night(fleet: Fleet, draw: random.Random) -> Sequence[str]:
    effects = [draw.gauss(0, fleet.spread_pct / 100) for _ in range(fleet.nodes)]
    own_past = {
        _name(i): TYPICAL * math.exp(effect + statistics.median(_past_errors(fleet, draw)))
        for i, effect in enumerate(effects)
    }
    for i, slow in enumerate(fleet.slow_pct):
        effects[i] += math.log1p(-slow / 100)
    if fleet.drill_pct:
        effects[0] += math.log1p(-fleet.drill_pct / 100)
    hidden = _other_metrics(fleet, draw)
    rounds = range(1, fleet.rounds + 1)
    results = []
    for round_ in rounds:
        drift = draw.gauss(0, fleet.noise_pct / 100)
        results += [_run(fleet, i, round_, effect + drift, hidden.get(i, {}), draw) for i, effect in enumerate(effects)]
    limits = Tolerances(reference=fleet.reference, fixed_samples_per_second=TYPICAL)
    first = judge_groups(results, (), limits, own_past)
    suspects = nodes_to_confirm(first)
    drift = draw.gauss(0, fleet.noise_pct / 100)
    again = [
        _run(fleet, i, fleet.rounds + 1, effect + drift, hidden.get(i, {}), draw)
        for i, effect in enumerate(effects)
        if _name(i) in suspects
    ]
    return _counted(fleet, first, confirm(first, again, limits))


def _counted(fleet: Fleet, first: Sequence[GroupVerdict], settled: Sequence[GroupVerdict]) -> list[str]:
    bad_names = {_name(i) for i in range(fleet.num_bad)}
    uneven = _name(fleet.nodes - 1) if fleet.window_pct else None
    before = {node.node: node for group in first for node in group.nodes}
    nodes = [node for group in settled for node in group.nodes]
    good = [node for node in nodes if node.node not in bad_names and node.node != uneven]
    bad = [node for node in nodes if node.node in bad_names]
    counted = [f"bad_{_word(node)}" for node in bad] + ["bad"] * len(bad)
    counted += ["bad_first_red" for node in bad if before[node.node].state in RED]
    counted += ["red_first"] if any(before[node.node].state in RED for node in good) else []
    counted += ["named"] if any(node.is_unsteady for node in good) else []
    counted += [f"uneven_{_word(node)}" for node in nodes if node.node == uneven]
    counted += ["uneven_named" for node in nodes if node.node == uneven and node.is_unsteady]
    return counted + sorted({_word(node) for node in good} - {"well"})


def _word(node: NodeVerdict) -> str:
    """red; reported: watched, or out of the limits once; unsure; well."""
    if node.state in RED:
        return "red"
    if node.is_watched:
        return "watched"
    return {State.INSUFFICIENT: "unsure", State.NOTICE: "notice", State.OK: "well"}[node.state]


def _past_night(past: Past, draw: random.Random) -> Sequence[str]:
    sd = past.noise_pct / 100
    before = [TYPICAL * math.exp(draw.gauss(0, sd)) for _ in range(past.points)]
    rate = TYPICAL * (1 - past.drop_pct / 100) * math.exp(draw.gauss(0, sd))
    usual = template()
    result = usual.model_copy(update={"performance": usual.performance.model_copy(update={"samples_per_second": rate})})
    state = judge_history(result, before, Tolerances()).state
    return (state.value,)


def _run(
    fleet: Fleet, node: int, round_: int, log_rate: float, sections: Mapping[str, object], draw: random.Random
) -> RunResult:
    if draw.random() < fleet.disturbed_pct / 100:
        log_rate += math.log1p(-draw.uniform(0.10, 0.30))
    across, *inside = _errors(fleet, draw, 1 + NUM_WINDOWS)
    log_rate += across * math.sqrt(1 - fleet.windows_show)
    windows = [log_rate + error * math.sqrt(NUM_WINDOWS * fleet.windows_show) for error in inside]
    if fleet.window_pct and (node, round_) == (fleet.nodes - 1, 1):
        windows[1] += math.log1p(-fleet.window_pct / 100)
    usual = template()
    performance = usual.performance.model_copy(
        update={
            "samples_per_second": TYPICAL * math.exp(statistics.fmean(windows)),
            "windows": tuple(_window(TYPICAL * math.exp(window)) for window in windows),
        }
    )
    spec = _spec(node, round_, fleet.drill_pct if node == 0 else 0.0)
    return usual.model_copy(update={"spec": spec, "performance": performance, **sections})


def _errors(fleet: Fleet, draw: random.Random, number: int) -> list[float]:
    sd = fleet.noise_pct / 100
    if fleet.tails == "normal":
        return [draw.gauss(0, sd) for _ in range(number)]
    # Student's t with 3 degrees of freedom has the variance 3, and chi squared / 3 is gamma(1.5, 2) / 3
    return [draw.gauss(0, sd) / math.sqrt(draw.gammavariate(1.5, 2) / 3) / math.sqrt(3) for _ in range(number)]


def _past_errors(fleet: Fleet, draw: random.Random) -> list[float]:
    """Of runs on other nights: each in a round of its own."""
    return [draw.gauss(0, fleet.noise_pct / 100) + error for error in _errors(fleet, draw, PAST_RUNS)]


def _other_metrics(fleet: Fleet, draw: random.Random) -> dict[int, dict[str, object]]:
    """Node -> the sections of its results that are not the template's. They belong to the node, not to the run."""
    if not (fleet.temperature_spread_c or fleet.hot_c or fleet.memory_spread_pct or fleet.heavy_pct):
        return {}
    usual = template()
    sections: dict[int, dict[str, object]] = {}
    gpu, peak = usual.telemetry.gpus[0], usual.memory.peak_during_training or 0.0
    for node in range(fleet.nodes):
        celsius = 60 + draw.gauss(0, fleet.temperature_spread_c) + (fleet.hot_c if node == 0 else 0)
        memory = peak * (1 + draw.gauss(0, fleet.memory_spread_pct / 100)) * (1 + fleet.heavy_pct / 100 * (node == 0))
        warm = (gpu.model_copy(update={"temperature_mean_c": celsius}),)
        sections[node] = {
            "telemetry": usual.telemetry.model_copy(update={"gpus": warm}),
            "memory": usual.memory.model_copy(update={"peak_during_training": memory}),
        }
    return sections


def _name(node: int) -> str:
    return f"node-{node}"


@cache
def template() -> RunResult:
    """A measured run; what the simulation says replaces what it measured."""
    return parse_result(min(CAMPAIGN.glob("runs/*/result.json")).read_bytes())


@cache
def _spec(node: int, round_: int, drill_pct: float) -> RunSpec:
    identity = {"node": _name(node), "round": round_, "run_id": f"{_name(node)}-r{round_}"}
    drill = Drill(slowdown_pct=drill_pct) if drill_pct else None
    return template().spec.changed(identity=identity).model_copy(update={"drill": drill})


def _window(samples_per_s: float) -> Window:
    return template().performance.windows[0].model_copy(update={"samples_per_second": samples_per_s})
