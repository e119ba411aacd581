"""Traits of each strategy: its throughput and memory against those of the other strategies.

The rules know figures only, never which strategy they belong to. They hold for equal work on one number of GPUs. The
first choice is also better than fewer GPUs: faster, and not dearer per sample, against a base on the same machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from trainbench.comparison.entries import (
    Entry,
    entries,
    is_tie,
    level_with,
    named_work_groups,
    tie_sentences,
    world_sizes,
)
from trainbench.comparison.scaling import GOOD_SCALING_PCT, Scaling, entry_scaling
from trainbench.core.formats import NA, count, listing, percent, plural, share
from trainbench.core.tables import Table, make_table, median_run, text
from trainbench.figure_catalogue.run_figures import PEAK_MEMORY_GB, SCALING_EFFICIENCY_PCT, TOKENS_PER_SECOND
from trainbench.figure_catalogue.table_figures import PATTERN
from trainbench.results.campaign import Campaign

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
    Pattern.SWEET_SPOT: (
        "The fastest here, with no more memory than most, and no dearer per sample than fewer {units}."
    ),
    Pattern.FASTEST: "The fastest on this number of {units}, and it needs no more memory than most.",
    Pattern.NO_GAIN: "More {units} do not make it faster.",
    Pattern.HUNGRY: "Fast, and pays for it with memory: right for a model that fits.",
    Pattern.SAVER: "Needs little memory and is not slow: for models and batches that do not fit otherwise.",
    Pattern.OVERHEAD: "Its overhead cancels the gain of more {units} at this work. A larger model may hide it.",
    Pattern.SLOWER: "Slower than most and saves no memory.",
    Pattern.MIDDLE: "Neither the fastest nor the smallest.",
}
CPU_SWEET_SPOT = "The fastest here, with no more memory than most, and no less throughput per process than fewer have."
TRADE = "Saves memory and pays for it with speed: for what does not fit otherwise."


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """`scaling` is None without a smaller size; `outdone_by`: clearly faster, and with no more memory."""

    entry: Entry
    kind: Pattern
    throughput: Standing
    memory: Standing
    scaling: Scaling | None
    level_with: tuple[str, ...]
    outdone_by: tuple[str, ...]

    @property
    def pattern(self) -> str:
        return f"{self.kind}: {self.throughput} throughput, {self.memory} memory"

    @property
    def meaning(self) -> str:
        trades = self.kind is Pattern.SAVER and self.throughput is Standing.LOW
        sentences = [TRADE if trades else MEANINGS[self.kind].format(units=self._units), *self._against_base]
        if self.entry.on_cpu and self.kind is Pattern.SWEET_SPOT:
            sentences[0] = CPU_SWEET_SPOT
        if self.outdone_by:
            verb = "is" if len(self.outdone_by) == 1 else "are"
            sentences.append(f"{listing(self.outdone_by)} {verb} faster with no more memory.")
        if self.level_with:
            sentences.append(f"Level with {listing(self.level_with)} within the noise.")
        return " ".join(sentences)

    @property
    def _units(self) -> str:
        return plural(self.entry.rank_noun)

    @property
    def _against_base(self) -> tuple[str, ...]:
        """Why the fastest on one number of GPUs is not the first choice."""
        if self.kind not in (Pattern.FASTEST, Pattern.NO_GAIN):
            return ()
        if self.scaling is None:
            return (f"Fewer {self._units} were not measured, so it is unknown whether they are enough.",)
        base = self.scaling.efficiency
        if base.elsewhere:
            fewer = f"fewer {self._units}"
            return (f"Its base, {base.base}, ran on {base.elsewhere}, so it is unknown whether {fewer} are enough.",)
        if self.scaling.is_no_faster:
            return (f"{base.base} is as fast.",)
        if self.entry.on_cpu:
            return (f"Its throughput per process is {share(100 - self.scaling.pct)} below that of {base.base}.",)
        return (f"{base.base} costs {share(100 - self.scaling.pct)} less per sample.",)


def traits_of(peers: Sequence[Entry], scaling: Sequence[Scaling | None]) -> tuple[Traits, ...]:
    """The traits of strategies with equal work on one number of GPUs; empty for fewer than three, or without memory."""
    if len(peers) < MIN_STRATEGIES or any(entry.memory_gb is None for entry in peers):
        return ()
    rows, memories = [], [_memory(peer) for peer in peers]
    first = max(peers, key=lambda peer: peer.tokens_per_s)
    for entry, scaled in zip(peers, scaling, strict=True):
        throughput = _level(entry.tokens_per_s, [peer.tokens_per_s for peer in peers])
        throughput, memory = Standing.HIGHEST if is_tie(entry, first) else throughput, _level(_memory(entry), memories)
        clearly_faster = [o for o in peers if o.tokens_per_s > entry.tokens_per_s and not is_tie(o, entry)]
        rows.append(
            Traits(
                entry=entry,
                kind=_kind(throughput, memory, scaled),
                throughput=throughput,
                memory=memory,
                scaling=scaled,
                level_with=tuple(other.strategy.value for other in level_with(entry, peers)),
                outdone_by=tuple(o.strategy.value for o in clearly_faster if _memory(o) <= _memory(entry)),
            )
        )
    return tuple(rows)


def tables(campaign: Campaign) -> tuple[Table, ...]:
    """One for each work, at the largest number of GPUs on which three strategies ran."""
    if len({result.spec.placement.strategy for result in campaign.results}) < MIN_STRATEGIES:
        return ()
    scaling, tables_of_sizes = entry_scaling(campaign.results), []
    for name, group in named_work_groups(campaign.results):
        for size in reversed(world_sizes(group)):
            peers = entries(group, size)
            if rows := traits_of(peers, [scaling(entry) for entry in peers]):
                tables_of_sizes.append(_table(rows, f"{name}, on {count(size, group.rank_noun)}"))
                break
    return tuple(tables_of_sizes)


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


def _table(rows: Sequence[Traits], title: str) -> Table:
    rates = statistics.median(row.entry.tokens_per_s for row in rows)
    memories = statistics.median(_memory(row.entry) for row in rows)
    return make_table(
        rows,
        (
            text("strategy", lambda row: row.entry.strategy.value),
            PATTERN.column(lambda row: row.pattern, is_number=False),
            TOKENS_PER_SECOND.own(row=attrgetter("entry")),
            PATTERN.column(lambda row: _against(row.entry.tokens_per_s, rates), "against the median"),
            PEAK_MEMORY_GB.own(row=attrgetter("entry")),
            PATTERN.column(lambda row: _against(_memory(row.entry), memories), "and its median"),
            SCALING_EFFICIENCY_PCT.column(lambda row: row.scaling.text if row.scaling else NA),
            PATTERN.column(lambda row: row.meaning, "what it means", is_number=False),
        ),
        run_id=lambda row: median_run(row.entry.results),
        notes=(
            f"High and low: more than {CLOSE_PCT:g} % from the median of these {len(rows)} strategies.",
            *tie_sentences([row.entry for row in rows]),
        ),
        title=title,
    )


def _against(value: float, middle: float) -> str:
    return percent(100 * (value / middle - 1) if middle else None)
