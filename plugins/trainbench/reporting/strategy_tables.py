"""Tables of strategies: ranked within equal work; other work stands apart, with the difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.result import RunResult
from bench_image.contract.work import Device
from trainbench.comparison.comparable import WorkGroup, differences, named_work_groups, nearest_group
from trainbench.comparison.entries import Entry, all_entries, entries, tie_sentences, world_sizes
from trainbench.comparison.scaling import Scaling, entry_scaling
from trainbench.comparison.strategy_standings import traits_of
from trainbench.core.formats import NA, count, listing, plural, share
from trainbench.core.tables import Column, Row, Table, Tone, integer, make_table, median_run, text, text_row
from trainbench.figure_catalogue.run_figures import (
    EXPOSED_COMMUNICATION_PCT,
    MEDIAN_STEP_TIME_S,
    MFU_PCT,
    PEAK_MEMORY_GB,
    SCALING_EFFICIENCY_PCT,
    TOKENS_PER_SECOND,
    USD_PER_1M_TOKENS,
)
from trainbench.figure_catalogue.table_figures import PATTERN, PER_GPU, PLACE
from trainbench.results.campaign import Campaign
from trainbench.results.readings import gpu_name

MEDIANS = (MEDIAN_STEP_TIME_S, PEAK_MEMORY_GB, MFU_PCT, EXPOSED_COMMUNICATION_PCT)  # over the runs of an entry


@dataclass(frozen=True, kw_only=True, slots=True)
class _Comparison:
    """One campaign's groups of equal work; `usd_per_1m_tokens` is by run id."""

    campaign: Campaign
    named: Sequence[tuple[str, WorkGroup]]
    scaling: Callable[[Entry], Scaling | None]
    usd_per_1m_tokens: Mapping[str, float | None]

    def name(self, group: WorkGroup) -> str:
        return next(name for name, other in self.named if other is group)


def strategies(campaign: Campaign) -> tuple[Table, ...]:
    """One table for each work; none where a single strategy at a single size was measured."""
    named = named_work_groups(campaign.results)
    placements = (run.spec.placement for _, group in named for run in group.results)
    if len({(placement.strategy, placement.world_size) for placement in placements}) < 2:
        return ()
    comparison = _Comparison(
        campaign=campaign,
        named=named,
        scaling=entry_scaling(campaign.results),
        usd_per_1m_tokens={cost.run_id: cost.usd_per_1m_tokens for cost in campaign.costs},
    )
    return tuple(_table(comparison, group) for _, group in named)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Placed:
    """An entry with its place among those of its size."""

    entry: Entry
    place: str
    first: Entry
    scaling: Scaling | None
    pattern: str


def _table(comparison: _Comparison, group: WorkGroup) -> Table:
    prices = comparison.usd_per_1m_tokens
    usd: Column[_Placed] = USD_PER_1M_TOKENS.column(
        lambda p: p.entry.median(lambda r: prices.get(r.spec.identity.run_id))
    )
    is_priced = any(prices.get(run.spec.identity.run_id) is not None for run in group.results)
    has_cost = is_priced or group.spec.work.device is not Device.CPU
    return make_table(
        [placed for size in world_sizes(group) for placed in _placed(comparison, entries(group, size))],
        (
            integer(plural(group.rank_noun), lambda p: p.entry.world_size),
            text("strategy", lambda p: p.entry.strategy.value),
            PLACE.column(lambda p: p.place),
            TOKENS_PER_SECOND.own(row=attrgetter("entry")),
            PLACE.column(lambda p: share(_of_fastest_pct(p)), "of the fastest"),
            PER_GPU.column(lambda p: p.entry.tokens_per_s / p.entry.world_size, f"per {group.rank_noun}"),
            *(figure.own(row=attrgetter("entry")) for figure in MEDIANS),
            SCALING_EFFICIENCY_PCT.column(lambda p: p.scaling.text if p.scaling else NA),
            *((usd,) if has_cost else ()),
            PATTERN.column(lambda p: p.pattern, is_number=False),
        ),
        run_id=lambda p: median_run(p.entry.results),
        more=[_failed_row(result) for result in _failed(comparison.campaign, group)],
        notes=_notes(comparison, group),
        title=comparison.name(group),
    )


def _placed(comparison: _Comparison, peers: Sequence[Entry]) -> Iterator[_Placed]:
    scaling = [comparison.scaling(entry) for entry in peers]
    patterns = [traits.pattern for traits in traits_of(peers, scaling)] or [""] * len(peers)
    for number, (entry, scaled, pattern) in enumerate(zip(peers, scaling, patterns, strict=True), start=1):
        place = f"{number} of {len(peers)}"
        yield _Placed(entry=entry, place=place, first=peers[0], scaling=scaled, pattern=pattern)


def _of_fastest_pct(placed: _Placed) -> float | None:
    fastest = placed.first.tokens_per_s
    return 100 * placed.entry.tokens_per_s / fastest if fastest else None


def _failed(campaign: Campaign, group: WorkGroup) -> list[RunResult]:
    """Failed runs of this work, such as an OOM; they stand beside the measured ones."""
    key = fingerprint(group.spec.work)
    return [
        result
        for result in campaign.results
        if result.error is not None
        and fingerprint(result.effective_spec.work) == key
        and gpu_name(result) in (None, group.gpu_name)
    ]


def _failed_row(result: RunResult) -> Row:
    cells = (str(result.spec.placement.world_size), result.spec.placement.strategy.value, result.status.value)
    return text_row(*cells, tone=Tone.BAD, run_id=result.spec.identity.run_id)


def _notes(comparison: _Comparison, group: WorkGroup) -> tuple[str, ...]:
    runs, units = count(len(group.results), "run"), plural(group.rank_noun)
    notes = [f"Equal work: places hold within one number of {units}. {runs}; where a row has several, their median."]
    for size in world_sizes(group):
        notes += tie_sentences(entries(group, size))
    known = [scaled.efficiency for entry in all_entries(group) if (scaled := comparison.scaling(entry))]
    if bases := sorted({(each.base_world_size, each.base_strategy.value, each.base_size) for each in known}):
        smallest = listing(f"{size} ({strategy})" for _, strategy, size in bases)
        notes.append(
            f"Scaling: throughput per {group.rank_noun} against that at {smallest}, the smallest size measured."
        )
    if strange := sorted({f"{e.base} on {e.elsewhere}" for e in known if e.elsewhere}):
        notes.append(
            f"Base elsewhere: {listing(strange)}. That scaling compares machines, too, so no advice rests on it."
        )
    if not known and (other := _base_on_other_gpu(comparison, group)):
        notes.append(other)
    if near := nearest_group(group, [other for _, other in comparison.named]):
        fields = listing(differences(group, near), most=8)
        notes.append(f"Other work is not ranked here. Nearest is {comparison.name(near)}; it differs in: {fields}.")
    return tuple(notes)


def _base_on_other_gpu(comparison: _Comparison, group: WorkGroup) -> str | None:
    """A note where fewer GPUs did the same work but are of another kind, so that there is no scaling efficiency."""
    key, smallest = fingerprint(group.spec.work), min(world_sizes(group))
    for _, other in comparison.named:
        if (
            fingerprint(other.spec.work) == key
            and other.hardware != group.hardware
            and min(world_sizes(other)) < smallest
        ):
            size = count(min(world_sizes(other)), other.rank_noun)
            return (
                f"No scaling: {size} did this work only as {other.hardware}, which does not apply to {group.hardware}."
            )
    return None
