"""Clues to a node that is faster than its peers, holds other memory, or is hotter or cooler."""

from __future__ import annotations

from collections.abc import Iterator

from trainbench.core.verdicts import Clue
from trainbench.figure_catalogue.run_figures import POWER_MEAN_W, SM_CLOCK_MEAN_MHZ, TEMPERATURE_MEAN_C
from trainbench.judging.diagnosis.clues import Case, ranked_clues
from trainbench.judging.diagnosis.evidence import MIN_WAIT_POINTS, allocator_clues, difference_clues, waited_pct
from trainbench.judging.diagnosis.evidence_gpu import (
    MIN_CLOCK_GAP_PCT,
    MIN_POWER_LIMIT_GAP_PCT,
    MIN_THROTTLE_SHARE_PCT,
    THROTTLES,
)
from trainbench.judging.diagnosis.peer_gaps import memory_total_gb, peer_gap, power_limit_w, throttle_share

MIN_POWER_GAP_PCT = 5.0
MIN_TOTAL_GAP_PCT = 1.0
LOOK_AT_PEERS = "look at its peers first: a fault that they share makes the healthy node stand out"


def fast_clues(case: Case) -> tuple[Clue, ...]:
    return ranked_clues(
        [*_peers_throttle(case), *_peers_wait(case), *_more_power(case), *difference_clues(case)], case.off_pct
    )


def memory_clues(case: Case) -> tuple[Clue, ...]:
    """Clues for a memory deviation: differences that change the bytes that torch allocates."""
    return (
        *_other_gpu(case),
        *allocator_clues(case),
        *(c for c in difference_clues(case) if c.category != "other_host"),
    )


def temperature_clues(case: Case) -> tuple[Clue, ...]:
    """Clues for a temperature deviation: at the same power the cooling is the cause, else the power."""
    heat, power = (
        peer_gap(case.own, case.peers, TEMPERATURE_MEAN_C.value),
        peer_gap(case.own, case.peers, POWER_MEAN_W.value),
    )
    if heat is None:
        return ()
    hot = heat.points > 0
    measured, expected = f"{heat.own:.0f} °C", f"{heat.peers:.0f} °C as on its peers"
    if power is not None:
        measured, expected = f"{measured} at {power.own:.0f} W", f"{expected} at {power.peers:.0f} W"
    category, cause, resolution = _hot(power and power.pct) if hot else _cool(power and power.pct)
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


def _cool(power_pct: float | None) -> tuple[str, str, str]:
    if power_pct is not None and power_pct <= -MIN_POWER_GAP_PCT:
        return (
            "low_power",
            f"it draws {-power_pct:.0f} % less power than its peers, so it works less",
            "see why it works less: clocks, power limit, waiting for data or host",
        )
    return (
        "cooler",
        "it is cooler than its peers at their power: it is cooled better, or they are cooled worse",
        "nothing to repair if its place is cool; else check the cooling of its peers",
    )


def _peers_throttle(case: Case) -> Iterator[Clue]:
    clock = peer_gap(case.own, case.peers, SM_CLOCK_MEAN_MHZ.value)
    for throttle in THROTTLES:
        share, usual = throttle_share(case.own, throttle.classes), throttle_share(case.peers, throttle.classes)
        if share is not None and usual is not None and usual - share >= MIN_THROTTLE_SHARE_PCT:
            yield Clue(
                category="peers_throttle",
                measured=f"{share:.0f} % of the time",
                expected=f"{usual:.0f} % as on its peers",
                cause=f"its peers are the slow ones ({throttle.category.replace('_', ' ')} for {usual:.0f} % of the "
                f"time, here {share:.0f} %)",
                resolution=f"{LOOK_AT_PEERS}; on them: {throttle.resolution}",
                explains_pct=clock.pct if clock and clock.pct >= MIN_CLOCK_GAP_PCT else None,
            )
            return


def _peers_wait(case: Case) -> Iterator[Clue]:
    wait = peer_gap(case.own, case.peers, lambda run: run.performance.loader_wait_pct)
    if wait and wait.points <= -MIN_WAIT_POINTS:
        lost = waited_pct(wait.peers, wait.own)
        yield Clue(
            category="peers_wait",
            measured=f"waits for data {wait.own:.1f} % of the time",
            expected=f"{wait.peers:.1f} % as on its peers",
            cause=f"its peers wait for their data {wait.peers:.1f} % of the time, it does {wait.own:.1f} %",
            resolution=f"{LOOK_AT_PEERS}: the disk or mount that their data comes from",
            explains_pct=100 * lost / (100 - lost),
        )


def _more_power(case: Case) -> Iterator[Clue]:
    clock, limit = (
        peer_gap(case.own, case.peers, SM_CLOCK_MEAN_MHZ.value),
        peer_gap(case.own, case.peers, power_limit_w),
    )
    is_high_limit = limit is not None and limit.pct >= MIN_POWER_LIMIT_GAP_PCT
    is_high_clock = clock is not None and clock.pct >= MIN_CLOCK_GAP_PCT
    if limit is not None and is_high_limit:
        faster = f"; its clock is {clock.pct:.1f} % higher" if clock and is_high_clock else ""
        yield Clue(
            category="power_limit_high",
            measured=f"power limit {limit.own:.0f} W",
            expected=f"{limit.peers:.0f} W as on its peers",
            cause=f"its power limit is {limit.own:.0f} W, its peers' {limit.peers:.0f} W{faster}",
            resolution="decide on one power limit for all nodes of this kind, and set it",
            explains_pct=clock.pct if clock and is_high_clock else None,
        )
    elif clock is not None and is_high_clock:
        yield Clue(
            category="high_clock",
            measured=f"{clock.own:.0f} MHz",
            expected=f"{clock.peers:.0f} MHz as on its peers",
            cause=f"its SM clock is {clock.pct:.1f} % above its peers'",
            resolution="compare clock settings (nvidia-smi -q -d CLOCK) and cooling with its peers",
            explains_pct=clock.pct,
        )


def _other_gpu(case: Case) -> Iterator[Clue]:
    total = peer_gap(case.own, case.peers, memory_total_gb)
    if total and abs(total.pct) >= MIN_TOTAL_GAP_PCT:
        yield Clue(
            category="other_gpu_memory",
            measured=f"{total.own:.1f} GB of GPU memory",
            expected=f"{total.peers:.1f} GB as on its peers",
            cause=f"its GPU has {total.own:.1f} GB of memory, its peers' {total.peers:.1f} GB",
            resolution="see whether it is another model or partitioned (MIG), and compare it with its own kind only",
        )
