"""Strategies side by side: ranked where the work was equal, apart with the reason where it was not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.result import RunResult
from trainbench.comparison.comparable import ACROSS, WorkGroup, differences, nearest, work_groups, work_names
from trainbench.comparison.entries import Entry, entries, level_with, sizes, tie_words
from trainbench.comparison.scaling import Scaling, entry_scaling
from trainbench.comparison.strategy_profiles import patterns
from trainbench.core.formats import NA, count, figure, listing, share, usd
from trainbench.core.tables import Row, Table, Tone, median_run
from trainbench.results.campaign import Campaign
from trainbench.results.readings import exposed_communication_pct, gpu_name

FIGURES = (
    "place", "tokens/s", "of the fastest", "per GPU", "median step ms", "memory GB", "MFU", "exposed comm.", "scaling",
    "per 1M tokens",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class _Comparison:
    """One campaign's groups of equal work; `usd_per_1m_tokens` is by run id."""

    campaign: Campaign
    groups: Sequence[WorkGroup]
    names: Sequence[str]
    scaling: Callable[[Entry], Scaling | None]
    usd_per_1m_tokens: Mapping[str, float | None]

    def name(self, group: WorkGroup) -> str:
        return next(name for other, name in zip(self.groups, self.names, strict=True) if other is group)


def strategies(campaign: Campaign) -> tuple[Table, ...]:
    """One table for each work; none where a single strategy at a single size was measured."""
    groups = work_groups(campaign.results)
    if len({(r.spec.strategy, r.spec.world_size) for group in groups for r in group.results}) < 2:
        return ()
    comparison = _Comparison(
        campaign=campaign,
        groups=groups,
        names=work_names(groups),
        scaling=entry_scaling(campaign.results),
        usd_per_1m_tokens={cost.run_id: cost.usd_per_1m_tokens for cost in campaign.costs},
    )
    return tuple(_table(comparison, group) for group in groups)


def leaders(campaign: Campaign) -> tuple[str, ...]:
    """Which strategy made the most tokens at the largest size, one sentence for each work that had a choice."""
    told = []
    groups = work_groups(campaign.results)
    for group, name in zip(groups, work_names(groups), strict=True):
        size = max(result.spec.world_size for result in group.results)
        first, *others = entries(group, size)
        if others:
            what = f" of {name}" if len(groups) > 1 else ""
            level = level_with(first, others)
            who = listing(entry.strategy.value for entry in (first, *level))
            place = "share the first place" if level else "is first"
            told.append(f"On {count(size, 'GPU')} {who} {place}{what}: {figure(first.tokens_per_s)} tokens/s.")
    return tuple(told)


def _table(comparison: _Comparison, group: WorkGroup) -> Table:
    rows: list[Row] = []
    for size in sizes(group):
        rows += _rows(comparison, entries(group, size))
    rows += [_failed_row(result) for result in _failed(comparison.campaign, group)]
    return Table(
        columns=("GPUs", "strategy", *FIGURES, "pattern"),
        numeric=frozenset(("GPUs", *FIGURES)),
        rows=tuple(rows),
        notes=_notes(comparison, group),
        title=comparison.name(group),
    )


def _rows(comparison: _Comparison, peers: Sequence[Entry]) -> list[Row]:
    scaling = [comparison.scaling(entry) for entry in peers]
    words = [pattern.words for pattern in patterns(peers, scaling)] or [""] * len(peers)
    return [
        _row(comparison, entry, f"{place} of {len(peers)}", peers[0], scaled, pattern)
        for place, (entry, scaled, pattern) in enumerate(zip(peers, scaling, words, strict=True), start=1)
    ]


def _row(comparison: _Comparison, entry: Entry, place: str, first: Entry, scaled: Scaling | None, pattern: str) -> Row:
    return Row(
        cells=(
            str(entry.world_size),
            entry.strategy.value,
            place,
            figure(entry.tokens_per_s),
            share(100 * entry.tokens_per_s / first.tokens_per_s if first.tokens_per_s else None),
            figure(entry.tokens_per_s / entry.world_size),
            figure(entry.median(_step_ms)),
            figure(entry.memory_gb),
            share(entry.median(lambda r: r.performance.mfu_pct)),
            share(entry.median(exposed_communication_pct)),
            scaled.text if scaled else NA,
            usd(entry.median(lambda r: comparison.usd_per_1m_tokens.get(r.spec.run_id))),
            pattern,
        ),
        run_id=median_run(entry.results),
    )


def _step_ms(result: RunResult) -> float | None:
    return result.performance.step_time.median_s * 1000 if result.performance.step_time else None


def _failed(campaign: Campaign, group: WorkGroup) -> list[RunResult]:
    """Runs of this very work that failed, such as an OOM: they belong beside those that measured something."""
    key = fingerprint(group.work, ACROSS)
    return [
        result
        for result in campaign.results
        if result.error is not None
        and fingerprint(result.work, ACROSS) == key
        and gpu_name(result) in (None, group.gpu_name)
    ]


def _failed_row(result: RunResult) -> Row:
    cells = (str(result.spec.world_size), result.spec.strategy.value, result.status.value)
    return Row(cells=(*cells, *[""] * len(FIGURES)), tone=Tone.BAD, run_id=result.spec.run_id)


def _notes(comparison: _Comparison, group: WorkGroup) -> tuple[str, ...]:
    runs = count(len(group.results), "run")
    notes = [f"Equal work: places hold within one number of GPUs. {runs}; where a row has several, their median."]
    for size in sizes(group):
        notes += tie_words(entries(group, size))
    of_group = [entry for size in sizes(group) for entry in entries(group, size)]
    found = [scaled.efficiency for entry in of_group if (scaled := comparison.scaling(entry))]
    if bases := sorted({(efficiency.base_world_size, efficiency.base_strategy.value) for efficiency in found}):
        told = listing(f"{count(size, 'GPU')} ({strategy})" for size, strategy in bases)
        notes.append(f"Scaling: throughput per GPU against that at {told}, the smallest size measured.")
    if strange := sorted({f"{e.base} on {e.elsewhere}" for e in found if e.elsewhere}):
        notes.append(
            f"Base elsewhere: {listing(strange)}. That scaling compares machines, too, so no advice rests on it."
        )
    if not found and (other := _base_on_other_gpu(comparison, group)):
        notes.append(other)
    if near := nearest(group, comparison.groups):
        fields = listing(differences(group, near), most=8)
        notes.append(f"Other work is not ranked here. Nearest is {comparison.name(near)}; it differs in: {fields}.")
    return tuple(notes)


def _base_on_other_gpu(comparison: _Comparison, group: WorkGroup) -> str | None:
    """Why there is no scaling although fewer GPUs did the same work: they were of another kind."""
    key, smallest = fingerprint(group.work, ACROSS), min(sizes(group))
    for other in comparison.groups:
        if fingerprint(other.work, ACROSS) == key and other.hardware != group.hardware and min(sizes(other)) < smallest:
            size = count(min(sizes(other)), "GPU")
            return f"No scaling: {size} did this work only as {other.hardware}, which says nothing of {group.hardware}."
    return None
