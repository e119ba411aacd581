"""What kind of choice each strategy is, told from its figures against those of the strategies beside it.

The rules know figures only, never which strategy they belong to. They hold for equal work on one number of GPUs.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench_control.collecting.campaign import Campaign
from bench_control.comparing.comparison import work_groups, work_names
from bench_control.comparing.entries import Entry, entries, is_tie, level_with, sizes, tie_words
from bench_control.comparing.scaling import entry_efficiencies
from bench_control.words.formats import count, figure, listing, percent, share
from bench_control.words.tables import Row, Table, median_run

CLOSE_PCT = 5.0  # nearer than this to the median of its peers, a strategy is neither high nor low
# Published for four GPUs: "35 to 45 % is good", with two GPUs taken for one. Against the true base that is 70 to 90 %.
GOOD_SCALING_PCT = 70.0
MIN_STRATEGIES = 3  # fewer have no middle


class Standing(StrEnum):
    """Against the median of the strategies beside it; `highest`: the first, or not to be told from it."""

    HIGHEST = "highest"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Kind(StrEnum):
    SWEET_SPOT = "sweet spot"
    HUNGRY = "fast, memory-hungry"
    SAVER = "saves memory"
    OVERHEAD = "high overhead"
    SLOWER = "slower"
    MIDDLE = "in between"


MEANINGS = {
    Kind.SWEET_SPOT: "The fastest here, and it needs no more memory than most: the first choice for this work.",
    Kind.HUNGRY: "Fast, and pays for it with memory: right for a model that fits.",
    Kind.SAVER: "Needs little memory and is not slow: for models and batches that do not fit otherwise.",
    Kind.OVERHEAD: "Its overhead eats what more GPUs bring: not for this work. A larger model may hide it.",
    Kind.SLOWER: "Slower than most and saves no memory: choose another for this work.",
    Kind.MIDDLE: "Neither the fastest nor the smallest.",
}
TRADE = "Saves memory and pays for it with speed: for what does not fit otherwise."


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """`efficiency_pct` is None without a smaller size; `outdone_by`: clearly faster, and with no more memory."""

    entry: Entry
    kind: Kind
    throughput: Standing
    memory: Standing
    efficiency_pct: float | None
    level_with: tuple[str, ...]
    outdone_by: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"{self.kind}: {self.throughput} throughput, {self.memory} memory"

    @property
    def meaning(self) -> str:
        trades = self.kind is Kind.SAVER and self.throughput is Standing.LOW
        told = [TRADE if trades else MEANINGS[self.kind]]
        if self.outdone_by:
            verb = "is" if len(self.outdone_by) == 1 else "are"
            told.append(f"{listing(self.outdone_by)} {verb} faster with no more memory.")
        if self.level_with:
            told.append(f"Level with {listing(self.level_with)} within the noise.")
        return " ".join(told)


def patterns(peers: Sequence[Entry], efficiency_pct: Sequence[float | None]) -> tuple[Pattern, ...]:
    """Of strategies that did equal work on one number of GPUs; empty for fewer than three, or without their memory."""
    if len(peers) < MIN_STRATEGIES or any(entry.memory_gb is None for entry in peers):
        return ()
    return tuple(_pattern(entry, pct, peers) for entry, pct in zip(peers, efficiency_pct, strict=True))


def tables(campaign: Campaign) -> tuple[Table, ...]:
    """One for each work, at the largest number of GPUs on which three strategies ran."""
    if len({result.spec.strategy for result in campaign.results}) < MIN_STRATEGIES:
        return ()
    groups, efficiency = work_groups(campaign.results), entry_efficiencies(campaign.results)
    found = []
    for group, name in zip(groups, work_names(groups), strict=True):
        for size in reversed(sizes(group)):
            peers = entries(group, size)
            if told := patterns(peers, [efficiency(entry) for entry in peers]):
                found.append(_table(told, f"{name}, on {count(size, 'GPU')}"))
                break
    return tuple(found)


def _pattern(entry: Entry, efficiency_pct: float | None, peers: Sequence[Entry]) -> Pattern:
    throughput, memory = _throughput(entry, peers), _level(_memory(entry), [_memory(peer) for peer in peers])
    return Pattern(
        entry=entry,
        kind=_kind(throughput, memory, efficiency_pct),
        throughput=throughput,
        memory=memory,
        efficiency_pct=efficiency_pct,
        level_with=tuple(other.strategy.value for other in level_with(entry, peers)),
        outdone_by=tuple(other.strategy.value for other in peers if _outdoes(other, entry)),
    )


def _kind(throughput: Standing, memory: Standing, efficiency_pct: float | None) -> Kind:
    is_slow = throughput is Standing.LOW
    if is_slow and efficiency_pct is not None and efficiency_pct < GOOD_SCALING_PCT:
        return Kind.OVERHEAD
    if throughput is Standing.HIGHEST and memory is not Standing.HIGH:
        return Kind.SWEET_SPOT
    if throughput in (Standing.HIGHEST, Standing.HIGH) and memory is Standing.HIGH:
        return Kind.HUNGRY
    if memory is Standing.LOW:
        return Kind.SAVER
    return Kind.SLOWER if is_slow else Kind.MIDDLE


def _throughput(entry: Entry, peers: Sequence[Entry]) -> Standing:
    first = max(peers, key=lambda peer: peer.tokens_per_s)
    if is_tie(entry, first):
        return Standing.HIGHEST
    return _level(entry.tokens_per_s, [peer.tokens_per_s for peer in peers])


def _level(value: float, among: Sequence[float]) -> Standing:
    middle = statistics.median(among)
    apart_pct = 100 * (value / middle - 1) if middle else 0.0
    if abs(apart_pct) <= CLOSE_PCT:
        return Standing.MEDIUM
    return Standing.HIGH if apart_pct > 0 else Standing.LOW


def _outdoes(other: Entry, entry: Entry) -> bool:
    faster = other.tokens_per_s > entry.tokens_per_s and not is_tie(other, entry)
    return faster and _memory(other) <= _memory(entry)


def _memory(entry: Entry) -> float:
    return entry.memory_gb or 0.0


def _table(found: Sequence[Pattern], title: str) -> Table:
    rates = statistics.median(pattern.entry.tokens_per_s for pattern in found)
    memories = statistics.median(_memory(pattern.entry) for pattern in found)
    columns = (
        "strategy",
        "pattern",
        "tokens/s",
        "against the median",
        "memory GB",
        "and its median",
        "scaling",
        "what it means",
    )
    return Table(
        columns=columns,
        numeric=frozenset(columns[2:7]),
        rows=tuple(
            Row(
                cells=(
                    pattern.entry.strategy.value,
                    pattern.words,
                    figure(pattern.entry.tokens_per_s),
                    _against(pattern.entry.tokens_per_s, rates),
                    figure(pattern.entry.memory_gb),
                    _against(_memory(pattern.entry), memories),
                    share(pattern.efficiency_pct),
                    pattern.meaning,
                ),
                run_id=median_run(pattern.entry.results),
            )
            for pattern in found
        ),
        notes=(
            f"High and low: more than {CLOSE_PCT:g} % from the median of these {len(found)} strategies.",
            *tie_words([pattern.entry for pattern in found]),
        ),
        title=title,
    )


def _against(value: float, middle: float) -> str:
    return percent(100 * (value / middle - 1) if middle else None)
