"""Clues in the GPU itself: heat, power, clock, bare speed, memory, other work on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bench_image.contract.result import RunResult
from trainbench.core.verdicts import Clue
from trainbench.figure_catalogue.run_figures import POWER_MEAN_W, SM_CLOCK_MEAN_MHZ, TEMPERATURE_MEAN_C
from trainbench.judging.diagnosis.peer_gaps import (
    Case,
    memory_total_gb,
    peer_gap,
    power_limit_w,
    throttle_share,
    worst_value,
)
from trainbench.results.shared_gpu import SharedGpu, shared_by

# A share of the measured window: below it a throttle class cannot cost 5 %.
MIN_THROTTLE_SHARE_PCT = 5.0
MIN_CLOCK_GAP_PCT = 3.0
MIN_POWER_LIMIT_GAP_PCT = 2.0
MIN_MATMUL_GAP_PCT = 3.0
SAME_CLOCK_PCT = 1.0
MIN_HOTTER_C = 5.0
MIN_POWER_GAP_PCT = 5.0
MIN_TOTAL_GAP_PCT = 1.0


class _Throttle(NamedTuple):
    category: str
    classes: tuple[str, ...]
    cause: str
    resolution: str


THERMAL = _Throttle(
    "thermal_throttling",
    ("thermal", "hw_slowdown"),
    "the GPU was too hot and slowed itself down",
    "check fans, air flow and inlet",
)
THROTTLES = (
    THERMAL,
    _Throttle(
        "power_capping",
        ("power_cap",),
        "the GPU ran into its power limit",
        "compare power limits and supplies with its peers",
    ),
    _Throttle(
        "power_brake",
        ("power_brake",),
        "the machine's power supply made the GPU slow down",
        "check the power supplies of the machine and the power budget of its rack",
    ),
    _Throttle(
        "clocks_locked",
        ("user_clocks",),
        "the GPU's clocks were limited by hand",
        "see who set them, and reset them (nvidia-smi -rac, -rgc)",
    ),
)


def ecc_clues(case: Case) -> Iterator[Clue]:
    errors = worst_value(case.own, lambda gpu: gpu.ecc_uncorrected)
    rows = worst_value(case.own, lambda gpu: gpu.remapped_rows)
    if errors or (rows and rows > (worst_value(case.peers, lambda gpu: gpu.remapped_rows) or 0)):
        yield Clue(
            category="ecc_errors",
            measured=f"{errors or 0:g} uncorrected errors, {rows or 0:g} remapped rows",
            expected="0",
            cause="the GPU's memory has faults",
            resolution="drain the node, reset the GPU, and have it exchanged if the count grows",
        )


def other_process_clues(case: Case) -> Iterator[Clue]:
    own, peers = most_shared(case.own), most_shared(case.peers)
    if own and (peers is None or _size(own) > _size(peers)):
        yield Clue(
            category="other_processes",
            measured=own.sentence,
            expected=peers.sentence if peers else "none",
            cause=own.sentence,
            resolution="find the processes with nvidia-smi on the node, stop what does not belong there, and repeat",
        )


def most_shared(runs: Iterable[RunResult]) -> SharedGpu | None:
    """Of the run that shared its GPU with the most processes, or with the most memory of others."""
    return max((shared for run in runs if (shared := shared_by(run))), key=_size, default=None)


def _size(shared: SharedGpu) -> tuple[int, float]:
    return shared.num_processes or 0, shared.memory_gb or 0.0


def clock_clues(case: Case) -> Iterator[Clue]:
    """One clue for heat, power limit and clock: the first two act through the clock."""
    clock = peer_gap(case.own, case.peers, SM_CLOCK_MEAN_MHZ.value)
    limit = peer_gap(case.own, case.peers, power_limit_w)
    throttles = sorted(_throttles(case), key=lambda throttle: -throttle[1])
    is_low_limit = limit is not None and limit.pct <= -MIN_POWER_LIMIT_GAP_PCT
    # A reason for a low clock makes a small gap of the clock significant.
    least_gap_pct = SAME_CLOCK_PCT if throttles or is_low_limit else MIN_CLOCK_GAP_PCT
    is_low_clock = clock is not None and clock.pct <= -least_gap_pct
    if not (throttles or is_low_clock or is_low_limit):
        return
    measured, expected, causes = [], [], []
    category, resolution = "low_clock", "look for locked clocks or persistence mode off (nvidia-smi -q -d CLOCK)"
    for throttle, share, usual in throttles:
        measured.append(f"throttled {share:.0f} % of the time")
        expected.append(f"{usual:.0f} % as on its peers")
        causes.append(f"{throttle.cause} for {share:.0f} % of the time{_heat(case) if throttle is THERMAL else ''}")
    if throttles:
        category, resolution = throttles[0][0].category, throttles[0][0].resolution
    if limit is not None and is_low_limit:
        measured.append(f"power limit {limit.own:.0f} W")
        expected.append(f"{limit.peers:.0f} W as on its peers")
        causes.append(f"its power limit is {limit.own:.0f} W, its peers' {limit.peers:.0f} W")
        if category in ("low_clock", "power_capping"):
            category, resolution = "power_limit_low", f"set the power limit to {limit.peers:.0f} W (nvidia-smi -pl)"
    # Only the clock states how much speed is lost.
    if clock is not None and is_low_clock:
        measured.append(f"{clock.own:.0f} MHz")
        expected.append(f"{clock.peers:.0f} MHz as on its peers")
        causes.append(f"the SM clock is {-clock.pct:.1f} % below its peers'")
    elif clock is not None and throttles:
        causes.append("its mean clock is nevertheless as high as its peers'")
    yield Clue(
        category=category,
        measured=", ".join(measured),
        expected=", ".join(expected),
        cause="; ".join(causes),
        resolution=resolution,
        explains_pct=-clock.pct if clock is not None and is_low_clock else None,
    )


def _throttles(case: Case) -> Iterator[tuple[_Throttle, float, float]]:
    for throttle in THROTTLES:
        share = throttle_share(case.own, throttle.classes)
        usual = throttle_share(case.peers, throttle.classes) or 0.0
        if share is not None and share - usual >= MIN_THROTTLE_SHARE_PCT:
            yield throttle, share, usual


def _heat(case: Case) -> str:
    heat = peer_gap(case.own, case.peers, TEMPERATURE_MEAN_C.value)
    return f" ({heat.own:.0f} °C, its peers {heat.peers:.0f} °C)" if heat and heat.points >= MIN_HOTTER_C else ""


def matmul_clues(case: Case) -> Iterator[Clue]:
    rate = peer_gap(case.own, case.peers, lambda run: run.probes.matmul_tflops)
    if rate and rate.pct <= -MIN_MATMUL_GAP_PCT:
        yield Clue(
            category="slow_gpu",
            measured=f"{rate.own:.0f} TFLOP/s",
            expected=f"{rate.peers:.0f} TFLOP/s as on its peers",
            cause=f"a bare matrix multiplication is {-rate.pct:.1f} % slower than on its peers: it is the GPU itself, "
            "not data or host",
            resolution="run dcgmi diag on the GPU, and swap it with a neighbour to see whether the fault moves with it",
            explains_pct=-rate.pct,
        )


def temperature_clues(case: Case) -> tuple[Clue, ...]:
    """Clues for a hot node: at the same power the cooling is the cause, else the power."""
    heat, power = (
        peer_gap(case.own, case.peers, TEMPERATURE_MEAN_C.value),
        peer_gap(case.own, case.peers, POWER_MEAN_W.value),
    )
    if heat is None or heat.points <= 0:
        return ()
    measured, expected = f"{heat.own:.0f} °C", f"{heat.peers:.0f} °C as on its peers"
    if power is not None:
        measured, expected = f"{measured} at {power.own:.0f} W", f"{expected} at {power.peers:.0f} W"
    category, cause, resolution = _hot(power and power.pct)
    return (Clue(category=category, measured=measured, expected=expected, cause=cause, resolution=resolution),)


def _hot(power_pct: float | None) -> tuple[str, str, str]:
    if power_pct is None:
        return (
            "hot",
            "it is hotter than its peers; what power it draws is not known",
            "check fans, air flow and inlet, and compare its power with that of its peers",
        )
    if power_pct >= MIN_POWER_GAP_PCT:
        return (
            "high_power",
            f"it draws {power_pct:.0f} % more power than its peers, which becomes heat",
            "compare its power limit and clocks with its peers'",
        )
    return (
        "cooling",
        "it is hotter though it draws no more power than its peers: it is cooled worse",
        "check fans, dust, air flow and inlet temperature, then the GPU's heat sink",
    )


def other_gpu_clues(case: Case) -> Iterator[Clue]:
    total = peer_gap(case.own, case.peers, memory_total_gb)
    if total and abs(total.pct) >= MIN_TOTAL_GAP_PCT:
        yield Clue(
            category="other_gpu_memory",
            measured=f"{total.own:.1f} GB of GPU memory",
            expected=f"{total.peers:.1f} GB as on its peers",
            cause=f"its GPU has {total.own:.1f} GB of memory, its peers' {total.peers:.1f} GB",
            resolution="see whether it is another model or partitioned (MIG), and compare it with its own kind only",
        )
