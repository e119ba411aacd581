"""Strategies side by side: ranked where the work was equal, apart with the reason where it was not."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench_control.campaign import Campaign
from bench_control.comparison import ACROSS, WorkGroup, differences, nearest, work_groups, work_names
from bench_control.formats import count, figure, listing, share, usd
from bench_control.readings import exposed_communication_pct, gpu_name
from bench_control.scaling import Efficiency, efficiencies
from bench_control.tables import Row, Table, Tone
from bench_image.contract import RunResult, Strategy, fingerprint

FIGURES = (
    "place", "tokens/s", "of the fastest", "per GPU", "median step ms", "memory GB", "MFU", "exposed comm.", "scaling",
    "per 1M tokens",
)  # fmt: skip
CLOSE_PCT = 5.0  # nearer than this to the median of its peers, a strategy is neither high nor low


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """The runs of one strategy at one size, each figure their median."""

    strategy: Strategy
    world_size: int
    results: tuple[RunResult, ...]

    def median(self, value: Callable[[RunResult], float | None]) -> float | None:
        known = [number for result in self.results if (number := value(result)) is not None]
        return statistics.median(known) if known else None

    @property
    def tokens_per_s(self) -> float:
        return self.median(lambda r: r.performance.tokens_per_second) or 0.0

    @property
    def memory_gb(self) -> float | None:
        return self.median(lambda r: r.memory.peak_during_training)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Comparison:
    """One campaign's groups of equal work; `efficiency` and `usd_per_1m_tokens` are by run id."""

    campaign: Campaign
    groups: Sequence[WorkGroup]
    names: Sequence[str]
    efficiency: Mapping[str, Efficiency]
    usd_per_1m_tokens: Mapping[str, float | None]

    def name(self, group: WorkGroup) -> str:
        return next(name for other, name in zip(self.groups, self.names, strict=True) if other is group)


def strategies(campaign: Campaign) -> tuple[Table, ...]:
    """One table for each work; none where a single strategy at a single size was measured."""
    groups = work_groups(campaign.results)
    if len({(r.spec.strategy, r.spec.world_size) for group in groups for r in group.results}) < 2:
        return ()
    found = zip(campaign.results, efficiencies(campaign.results), strict=True)
    comparison = _Comparison(
        campaign=campaign,
        groups=groups,
        names=work_names(groups),
        efficiency={result.spec.run_id: efficiency for result, efficiency in found if efficiency},
        usd_per_1m_tokens={cost.run_id: cost.usd_per_1m_tokens for cost in campaign.costs},
    )
    return tuple(_table(comparison, group) for group in groups)


def leaders(campaign: Campaign) -> tuple[str, ...]:
    """Which strategy made the most tokens at the largest size, one sentence for each work that had a choice."""
    told = []
    groups = work_groups(campaign.results)
    for group, name in zip(groups, work_names(groups), strict=True):
        size = max(result.spec.world_size for result in group.results)
        first, *others = _entries(group, size)
        if others:
            what = f" of {name}" if len(groups) > 1 else ""
            told.append(
                f"On {count(size, 'GPU')} {first.strategy} is first{what}: {figure(first.tokens_per_s)} tokens/s."
            )
    return tuple(told)


def _table(comparison: _Comparison, group: WorkGroup) -> Table:
    rows: list[Row] = []
    for size in sorted({result.spec.world_size for result in group.results}):
        entries = _entries(group, size)
        rows += [_row(comparison, entry, place, entries) for place, entry in enumerate(entries, start=1)]
    rows += [_failed_row(result) for result in _failed(comparison.campaign, group)]
    return Table(
        columns=("GPUs", "strategy", *FIGURES, "pattern"),
        numeric=frozenset(("GPUs", *FIGURES)),
        rows=tuple(rows),
        notes=_notes(comparison, group),
        title=comparison.name(group),
    )


def _entries(group: WorkGroup, size: int) -> list[Entry]:
    """Those of one world size, fastest first."""
    runs: dict[Strategy, list[RunResult]] = {}
    for result in group.results:
        if result.spec.world_size == size:
            runs.setdefault(result.spec.strategy, []).append(result)
    entries = [Entry(strategy=strategy, world_size=size, results=tuple(of)) for strategy, of in runs.items()]
    return sorted(entries, key=lambda entry: -entry.tokens_per_s)


def _row(comparison: _Comparison, entry: Entry, place: int, entries: Sequence[Entry]) -> Row:
    efficiency = [found.pct for r in entry.results if (found := comparison.efficiency.get(r.spec.run_id))]
    return Row(
        cells=(
            str(entry.world_size),
            entry.strategy.value,
            f"{place} of {len(entries)}",
            figure(entry.tokens_per_s),
            share(100 * entry.tokens_per_s / entries[0].tokens_per_s if entries[0].tokens_per_s else None),
            figure(entry.tokens_per_s / entry.world_size),
            figure(entry.median(_step_ms)),
            figure(entry.memory_gb),
            share(entry.median(lambda r: r.performance.mfu_pct)),
            share(entry.median(exposed_communication_pct)),
            share(statistics.median(efficiency) if efficiency else None),
            usd(entry.median(lambda r: comparison.usd_per_1m_tokens.get(r.spec.run_id))),
            pattern(entry, entries),
        )
    )


def _step_ms(result: RunResult) -> float | None:
    return result.performance.step_time.median_s * 1000 if result.performance.step_time else None


def pattern(entry: Entry, entries: Sequence[Entry]) -> str:
    """Throughput and memory against the median of the strategies of the same work and size; "" for fewer than 3."""
    memories = [e.memory_gb for e in entries if e.memory_gb is not None]
    if len(entries) < 3 or entry.memory_gb is None or len(memories) < 3:
        return ""
    rate = _level(entry.tokens_per_s, statistics.median(e.tokens_per_s for e in entries))
    return f"{rate} throughput, {_level(entry.memory_gb, statistics.median(memories))} memory"


def _level(value: float, middle: float) -> str:
    apart_pct = 100 * (value / middle - 1) if middle else 0.0
    return "medium" if abs(apart_pct) <= CLOSE_PCT else "high" if apart_pct > 0 else "low"


def _failed(campaign: Campaign, group: WorkGroup) -> list[RunResult]:
    """Runs of this very work that measured nothing, such as an OOM: they belong beside those that did."""
    key = fingerprint(group.work, ACROSS)
    return [
        result
        for result in campaign.results
        if result.performance.samples_per_second is None
        and fingerprint(result.work, ACROSS) == key
        and gpu_name(result) in (None, group.gpu_name)
    ]


def _failed_row(result: RunResult) -> Row:
    cells = (str(result.spec.world_size), result.spec.strategy.value, result.status.value)
    return Row(cells=(*cells, *[""] * len(FIGURES)), tone=Tone.BAD)


def _notes(comparison: _Comparison, group: WorkGroup) -> tuple[str, ...]:
    runs = count(len(group.results), "run")
    notes = [f"Equal work: places hold within one number of GPUs. {runs}; where a row has several, their median."]
    found = [e for r in group.results if (e := comparison.efficiency.get(r.spec.run_id))]
    if bases := sorted({(efficiency.base_world_size, efficiency.base_strategy.value) for efficiency in found}):
        told = listing(f"{count(size, 'GPU')} ({strategy})" for size, strategy in bases)
        notes.append(f"Scaling: throughput per GPU against that at {told}, the smallest size measured.")
    if near := nearest(group, comparison.groups):
        fields = listing(differences(group, near), most=8)
        notes.append(f"Other work is not ranked here. Nearest is {comparison.name(near)}; it differs in: {fields}.")
    return tuple(notes)
