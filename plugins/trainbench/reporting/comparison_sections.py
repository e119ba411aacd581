"""The sections of a report that compare runs, with the tables of strategies, presets and noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.result import RunResult
from bench_image.contract.work import Device, Preset
from trainbench.comparison import strategy_standings
from trainbench.comparison.entries import (
    DECIDED_BY_PRESET,
    Entry,
    WorkGroup,
    all_entries,
    by_job,
    by_placed_work,
    differences,
    entries,
    named_work_groups,
    nearest_group,
    tie_sentences,
    value_text,
    work_groups,
    world_sizes,
)
from trainbench.comparison.noise_floor import (
    PAST_CAMPAIGNS,
    ROUNDS,
    Floor,
    Spread,
    floors,
    measures_noise,
    noise_advice,
    num_nodes,
)
from trainbench.comparison.scaling import Scaling, entry_scaling
from trainbench.comparison.strategy_standings import traits_of
from trainbench.core.formats import NA, count, figure, listing, plural, share
from trainbench.core.grouping import grouped
from trainbench.core.tables import Column, Row, Table, Tone, integer, make_table, median_run, text, text_row
from trainbench.figure_catalogue.run_figures import (
    EXPOSED_COMMUNICATION_PCT,
    MEDIAN_STEP_TIME_S,
    MFU_PCT,
    PEAK_MEMORY_GB,
    SAMPLES_PER_SECOND,
    SCALING_EFFICIENCY_PCT,
    TOKENS_PER_SECOND,
    USD_PER_1M_TOKENS,
    share_2,
)
from trainbench.figure_catalogue.table_figures import (
    AGAINST_FIRST,
    NOISE_BETWEEN_RUNS,
    NOISE_INTERVAL,
    NOISE_WITHIN_RUNS,
    PATTERN,
    PER_GPU,
    PLACE,
    RANGE,
    SMALLEST_SLOWDOWN,
)
from trainbench.reporting import configuration_tables, recommendations, survey_tables, verdict_text, work_names
from trainbench.results.campaign import Campaign
from trainbench.results.readings import gpu_name

NODES = (3, 4, 8, 16)


def noise_tables(campaign: Campaign) -> tuple[Table, ...]:
    """Two tables for each work and kind of GPU; empty where the noise was not measured."""
    if not measures_noise(campaign):
        return ()
    runs = verdict_text.runs_of_groups(campaign)
    tables_of_floors = (
        (_noise(campaign, floor, runs), _smallest_slowdowns(campaign, floor)) for floor in floors(campaign.results)
    )
    return tuple(table for tables in tables_of_floors for table in tables if table)


def _noise(campaign: Campaign, floor: Floor, runs: Mapping[str, Mapping[str, str | None]]) -> Table:
    """The table of noise. `runs`: group id -> node -> id of the run to show."""
    pooled = [
        text_row(
            "all nodes",
            *(("all",) if floor.is_per_gpu else ()),
            str(sum(node.num_runs for node in floor.nodes)),
            NA,
            *_spread(floor.between),
            _spread(floor.within)[0],
            NA,
        )
    ]
    return make_table(
        floor.nodes,
        (
            text("node", lambda node: node.node),
            *((text("GPU", lambda node: node.gpu or "all"),) if floor.is_per_gpu else ()),
            integer("runs", lambda node: node.num_runs),
            SAMPLES_PER_SECOND.column(lambda node: node.samples_per_second),
            NOISE_BETWEEN_RUNS.column(lambda node: _spread(node.between)[0]),
            NOISE_INTERVAL.column(lambda node: _spread(node.between)[1]),
            NOISE_WITHIN_RUNS.column(lambda node: _spread(node.within)[0]),
            RANGE.column(lambda node: node.range_pct, write=share_2),
        ),
        run_id=lambda node: runs[floor.group_id][node.node],
        more=pooled if len(floor.nodes) > 1 else (),
        notes=(
            "Standard deviations of samples/s. All nodes: pooled, without the common effect of a round"
            + (", one GPU of each node at a time." if floor.is_per_gpu else "."),
            *noise_advice(floor, campaign.params),
        ),
        title=work_names.group_name(campaign, floor.group_id),
    )


def _smallest_slowdowns(campaign: Campaign, floor: Floor) -> Table | None:
    if floor.between is None:
        return None
    sizes = sorted({*NODES, num_nodes(floor)})
    unit, own = ("GPU", "the slowest GPU of a node ") if floor.is_per_gpu else ("node", "")

    def slowdown_column(heading: str, peers: int | None) -> Column[int]:
        return SMALLEST_SLOWDOWN.column(
            lambda rounds: floor.detectable_pct(rounds, peers, in_19_of_20=True), heading, write=share_2
        )

    return make_table(
        ROUNDS,
        (
            integer("rounds", lambda rounds: rounds),
            *(slowdown_column(f"{size} nodes", size - 1) for size in sizes),
            slowdown_column("own past", None),
        ),
        notes=(
            f"A {unit} that is slower by this much is detected in 19 of 20 nights, unless the limit is wider. Own "
            f"past: {own}against its last {PAST_CAMPAIGNS} campaigns, without changes between days.",
        ),
        title=f"Smallest slowdown that is detected: {work_names.group_name(campaign, floor.group_id)}",
    )


def _spread(spread: Spread | None) -> tuple[str, str]:
    if spread is None:
        return NA, NA
    return share(spread.sd_pct, 2), f"{share(spread.low_pct, 2)} to {share(spread.high_pct, 2)}"


def presets(campaign: Campaign) -> tuple[Table, ...]:
    """One table for each training job with several presets; the notes list the settings that differ."""
    tables = []
    for group in work_groups(campaign.results, by_job):
        by_preset = grouped((result.spec.work.preset, result) for result in group.results)
        if len(by_preset) > 1:
            tables.append(_presets(group, by_preset))
    return tuple(tables)


def _presets(group: WorkGroup, by_preset: dict[Preset, list[RunResult]]) -> Table:
    ways = [way for preset in sorted(by_preset) for way in work_groups(by_preset[preset], by_placed_work)]
    base = _entry(ways[0]).tokens_per_s
    return make_table(
        [(way, _entry(way)) for way in ways],
        (
            text("preset", lambda pair: pair[0].spec.work.preset.value),
            text("optimizer", lambda pair: pair[0].spec.work.optimizer.value),
            text("checkpointing", lambda pair: "on" if pair[0].spec.work.gradient_checkpointing else "off"),
            TOKENS_PER_SECOND.own(row=itemgetter(1)),
            AGAINST_FIRST.column(lambda pair: f"{figure(pair[1].tokens_per_s / base, 3)}x" if base else ""),
            PEAK_MEMORY_GB.own(row=itemgetter(1)),
            MFU_PCT.own(row=itemgetter(1)),
            integer("runs", lambda pair: len(pair[0].results)),
        ),
        run_id=lambda pair: median_run(pair[0].results),
        notes=tuple(
            f"{way.spec.work.preset} instead of {ways[0].spec.work.preset}: "
            f"{'; '.join(_changed_settings(ways[0], way))}."
            for way in ways[1:]
        ),
        title=_job_name(group),
    )


def _job_name(group: WorkGroup) -> str:
    work, gpus = group.spec.work, count(group.spec.placement.world_size, group.rank_noun)
    return (
        f"{work.model} {work.recipe}, {group.spec.placement.strategy}, {gpus}, batch {work.micro_batch_size} x "
        f"{work.seq_length} tokens, {group.hardware}"
    )


def _entry(way: WorkGroup) -> Entry:
    return Entry(strategy=way.spec.placement.strategy, world_size=way.spec.placement.world_size, results=way.results)


def _changed_settings(one: WorkGroup, other: WorkGroup) -> tuple[str, ...]:
    """The differences, as "optimizer adamw_torch, was paged_adamw_8bit": fields of the spec, then what the runs say."""
    fields = {
        name: (value_text(getattr(one.spec.work, name)), value_text(getattr(other.spec.work, name)))
        for name in sorted(DECIDED_BY_PRESET)
    }
    before, after = (group.results[0].chosen for group in (one, other))
    if before and after:
        for name in before.execution | after.execution:
            fields[name] = (before.execution.get(name, "none"), after.execution.get(name, "none"))
    return tuple(f"{name} {new}, was {old}" for name, (old, new) in fields.items() if old != new)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A section of a report. Other pages link to its `anchor`; each table's title names the work that it compares."""

    anchor: str
    name: str  # in the page's navigation
    title: str
    tables: tuple[Table, ...]


def comparison_sections(campaign: Campaign) -> tuple[Section, ...]:
    """The sections that have tables for this campaign."""
    made = (
        Section(anchor=anchor, name=name, title=title, tables=tuple(make(campaign)))
        for anchor, name, title, make in _ALL
    )
    return tuple(section for section in made if section.tables)


# Anchor, name in the page's navigation, title, and the tables of a campaign.
_ALL: tuple[tuple[str, str, str, Callable[[Campaign], Iterable[Table]]], ...] = (
    ("gpus", "GPUs", "Each GPU by itself", verdict_text.gpu_tables),
    ("configurations", "Configurations", "Configurations, against the baseline", configuration_tables.configurations),
    ("hardware", "Hardware", "Kinds of GPU, side by side", survey_tables.speed),
    ("memory", "Memory", "What a recipe saves in memory", survey_tables.memory),
    ("budgets", "Budgets", "What a budget buys, and whether to rent or to buy", survey_tables.money),
    ("strategies", "Strategies", "Strategies, on equal work", strategies),
    ("patterns", "Patterns", "What kind of choice each strategy is", strategy_standings.tables),
    ("more-gpus", "More GPUs", "When more GPUs pay", recommendations.tables),
    ("presets", "Presets", "Presets, on the same training job", presets),
    ("noise", "Noise", "How much equal runs differ here", noise_tables),
)
