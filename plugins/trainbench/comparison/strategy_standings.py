"""Traits of each strategy: its throughput and memory against those of the other strategies.

The rules know figures only, never which strategy they belong to. They hold for equal work on one number of GPUs. The
sweet spot is also better than fewer GPUs: faster, and not dearer per sample, against a base on the same machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from trainbench.comparison.entries import Entry, is_tie
from trainbench.comparison.scaling import GOOD_SCALING_PCT, Scaling

CLOSE_PCT = 5.0  # nearer than this to the median of its peers, a strategy is neither high nor low
MIN_STRATEGIES = 3  # fewer have no middle


class Standing(StrEnum):
    """Against the median of the strategies beside it; `highest`: the first, or level with it within the noise."""

    HIGHEST = "highest"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Pattern(StrEnum):
    SWEET_SPOT = "sweet spot"
    FASTEST = "fastest"
    NO_GAIN = "no gain"
    HUNGRY = "fast, memory-hungry"
    SAVER = "saves memory"
    OVERHEAD = "high overhead"
    SLOWER = "slower"
    MIDDLE = "in between"


MEANINGS = {
    Pattern.SWEET_SPOT: "the fastest, no more memory than most, and no less throughput per {unit} than fewer have.",
    Pattern.FASTEST: "no more memory than most; fewer {units} may be enough, or cheaper per sample.",
    Pattern.NO_GAIN: "more {units} do not make it faster.",
    Pattern.HUNGRY: "right for a model that fits.",
    Pattern.SAVER: "for models and batches that do not fit otherwise.",
    Pattern.OVERHEAD: "it cancels the gain of more {units} at this work; a larger model may hide it.",
    Pattern.SLOWER: "slower than most, and saves no memory.",
    Pattern.MIDDLE: "neither the fastest nor the smallest.",
}


class Traits(NamedTuple):
    kind: Pattern
    throughput: Standing
    memory: Standing

    @property
    def pattern(self) -> str:
        return f"{self.kind}: {self.throughput} throughput, {self.memory} memory"


def traits_of(peers: Sequence[Entry], scaling: Sequence[Scaling | None]) -> tuple[Traits, ...]:
    """The traits of strategies with equal work on one number of GPUs; empty for fewer than three, or without memory."""
    if len(peers) < MIN_STRATEGIES or any(entry.memory_gb is None for entry in peers):
        return ()
    traits, memories = [], [_memory(peer) for peer in peers]
    first = max(peers, key=lambda peer: peer.tokens_per_s)
    for entry, scaled in zip(peers, scaling, strict=True):
        throughput = _level(entry.tokens_per_s, [peer.tokens_per_s for peer in peers])
        throughput, memory = Standing.HIGHEST if is_tie(entry, first) else throughput, _level(_memory(entry), memories)
        traits.append(Traits(_kind(throughput, memory, scaled), throughput, memory))
    return tuple(traits)


def _kind(throughput: Standing, memory: Standing, scaling: Scaling | None) -> Pattern:
    is_slow = throughput is Standing.LOW
    # A base on another machine says nothing of the strategy.
    known = None if scaling is None or scaling.efficiency.elsewhere else scaling
    if is_slow and known and known.pct < GOOD_SCALING_PCT:
        return Pattern.OVERHEAD
    if known and known.is_no_faster and memory is not Standing.LOW:
        return Pattern.NO_GAIN
    if throughput is Standing.HIGHEST and memory is not Standing.HIGH:
        return Pattern.SWEET_SPOT if known and not known.is_no_faster and not known.is_dearer else Pattern.FASTEST
    if throughput in (Standing.HIGHEST, Standing.HIGH) and memory is Standing.HIGH:
        return Pattern.HUNGRY
    if memory is Standing.LOW:
        return Pattern.SAVER
    return Pattern.SLOWER if is_slow else Pattern.MIDDLE


def _level(value: float, among: Sequence[float]) -> Standing:
    middle = statistics.median(among)
    apart_pct = 100 * (value / middle - 1) if middle else 0.0
    if abs(apart_pct) <= CLOSE_PCT:
        return Standing.MEDIUM
    return Standing.HIGH if apart_pct > 0 else Standing.LOW


def _memory(entry: Entry) -> float:
    return entry.memory_gb or 0.0
