"""The sections of a report that compare runs, with the tables of strategies, presets and noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.work import Device
from trainbench.comparison import entries as compared
from trainbench.comparison import strategy_standings
from trainbench.comparison.entries import Entry, WorkGroup
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
from trainbench.comparison.scaling import Scaling, entry_scaling, scaling_texts
from trainbench.core.formats import NA, count, figure, listing, plural, share
from trainbench.core.grouping import grouped
from trainbench.core.tables import Column, Table, Tone, integer, make_table, median_run, text, text_row
from trainbench.figure_catalogue import run_figures, table_figures
from trainbench.judging.noise import one_run_pct
from trainbench.reporting import (
    configuration_tables,
    link_tables,
    recommendations,
    survey_tables,
    verdict_text,
    work_names,
)
from trainbench.reporting.document import Section
from trainbench.results.campaign import Campaign
from trainbench.results.readings import gpu_name

NODES = (3, 4, 8, 16)
# Over the runs of an entry.
MEDIANS = (
    run_figures.MEDIAN_STEP_TIME_S, run_figures.PEAK_MEMORY_GB, run_figures.MFU_PCT,
    run_figures.EXPOSED_COMMUNICATION_PCT,
)  # fmt: skip


def noise_tables(campaign: Campaign) -> Iterator[Table]:
    """Two tables for each work and kind of GPU; none where the noise was not measured."""
    if not measures_noise(campaign):
        return
    runs = verdict_text.runs_of_groups(campaign)
    for floor in floors(campaign.results):
        name = work_names.group_name(campaign, floor.group_id)
        yield _noise(floor, name, runs[floor.group_id], noise_advice(floor, campaign.params))
        if floor.between is not None:
            yield _smallest_slowdowns(floor, name)


def _noise(floor: Floor, name: str, runs: Mapping[str, str | None], advice: Iterable[str]) -> Table:
    """`runs`: node -> id of the run to show."""

    def spread(of: Spread | None) -> tuple[str, str]:
        return (share(of.sd_pct, 2), f"{share(of.low_pct, 2)} to {share(of.high_pct, 2)}") if of else (NA, NA)

    gpu = ("all",) if floor.is_per_gpu else ()
    num_runs = str(sum(node.num_runs for node in floor.nodes))
    pooled = text_row("all nodes", *gpu, num_runs, NA, *spread(floor.between), spread(floor.within)[0], NA)
    one_at_a_time = ", one GPU of each node at a time" if floor.is_per_gpu else ""
    return make_table(
        floor.nodes,
        (
            text("node", lambda node: node.node),
            *((text("GPU", lambda node: node.gpu or "all"),) if floor.is_per_gpu else ()),
            integer("runs", lambda node: node.num_runs),
            run_figures.SAMPLES_PER_SECOND.column(lambda node: node.samples_per_second),
            table_figures.NOISE_BETWEEN_RUNS.column(lambda node: spread(node.between)[0]),
            table_figures.NOISE_INTERVAL.column(lambda node: spread(node.between)[1]),
            table_figures.NOISE_WITHIN_RUNS.column(lambda node: spread(node.within)[0]),
            table_figures.RANGE.column(lambda node: node.range_pct, write=run_figures.share_2),
        ),
        run_id=lambda node: runs[node.node],
        more=[pooled] if len(floor.nodes) > 1 else (),
        notes=(
            "Standard deviations of samples/s. All nodes: pooled, without the common effect of a round"
            f"{one_at_a_time}.",
            *advice,
        ),
        title=name,
    )


def _smallest_slowdowns(floor: Floor, name: str) -> Table:
    unit, own = ("GPU", "the slowest GPU of a node ") if floor.is_per_gpu else ("node", "")

    def slowdown(heading: str, peers: int | None) -> Column[int]:
        detectable = partial(floor.detectable_pct, peers=peers, in_19_of_20=True)
        return table_figures.SMALLEST_SLOWDOWN.column(detectable, heading, write=run_figures.share_2)

    return make_table(
        ROUNDS,
        (
            integer("rounds", lambda rounds: rounds),
            *(slowdown(f"{size} nodes", size - 1) for size in sorted({*NODES, num_nodes(floor)})),
            slowdown("own past", None),
        ),
        notes=(
            f"A {unit} that is slower by this much is detected in 19 of 20 nights, unless the limit is wider. Own "
            f"past: {own}against its last {PAST_CAMPAIGNS} campaigns, without changes between days.",
        ),
        title=f"Smallest slowdown that is detected: {name}",
    )


def presets(campaign: Campaign) -> Iterator[Table]:
    """One table for each training job with several presets; the notes list the settings that differ."""
    for group in compared.work_groups(campaign.results, compared.by_job):
        by_preset = grouped((result.spec.work.preset, result) for result in group.results)
        if len(by_preset) > 1:
            of_presets = (
                compared.work_groups(by_preset[preset], compared.by_placed_work) for preset in sorted(by_preset)
            )
            yield _presets(group, [way for ways in of_presets for way in ways])


def _presets(group: WorkGroup, ways: Sequence[WorkGroup]) -> Table:
    """`ways`: the same job as each preset does it."""
    work, placement = group.spec.work, group.spec.placement
    rows = [
        (
            way,
            Entry(strategy=way.spec.placement.strategy, world_size=way.spec.placement.world_size, results=way.results),
        )
        for way in ways
    ]
    base = rows[0][1].tokens_per_s
    return make_table(
        rows,
        (
            text("preset", lambda pair: pair[0].spec.work.preset.value),
            text("optimizer", lambda pair: pair[0].spec.work.optimizer.value),
            text("checkpointing", lambda pair: "on" if pair[0].spec.work.gradient_checkpointing else "off"),
            run_figures.TOKENS_PER_SECOND.own(row=itemgetter(1)),
            table_figures.AGAINST_FIRST.column(
                lambda pair: f"{figure(pair[1].tokens_per_s / base, 3)}x" if base else ""
            ),
            run_figures.PEAK_MEMORY_GB.own(row=itemgetter(1)),
            run_figures.MFU_PCT.own(row=itemgetter(1)),
            integer("runs", lambda pair: len(pair[0].results)),
        ),
        run_id=lambda pair: median_run(pair[0].results),
        notes=tuple(
            f"{way.spec.work.preset} instead of {ways[0].spec.work.preset}: {_changed_settings(ways[0], way)}."
            for way in ways[1:]
        ),
        title=f"{work.model} {work.recipe}, {placement.strategy}, {count(placement.world_size, group.rank_noun)}, "
        f"batch {work.micro_batch_size} x {work.seq_length} tokens, {group.hardware}",
    )


def _changed_settings(one: WorkGroup, other: WorkGroup) -> str:
    """ "optimizer adamw_torch, was paged_adamw_8bit; ...": fields of the spec, then what the runs say."""
    old, new = (
        {name: compared.value_text(getattr(way.spec.work, name)) for name in sorted(compared.DECIDED_BY_PRESET)}
        for way in (one, other)
    )
    if (before := one.results[0].chosen) and (after := other.results[0].chosen):
        names = before.execution | after.execution
        old |= {name: before.execution.get(name, "none") for name in names}
        new |= {name: after.execution.get(name, "none") for name in names}
    return "; ".join(f"{name} {value}, was {old[name]}" for name, value in new.items() if value != old[name])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Placed:
    """An entry with its place among those of its size."""

    entry: Entry
    place: str
    first: Entry
    scaling: str
    pattern: str

    @property
    def of_fastest_pct(self) -> float | None:
        fastest = self.first.tokens_per_s
        return 100 * self.entry.tokens_per_s / fastest if fastest else None


def strategies(campaign: Campaign) -> tuple[Table, ...]:
    """One table for each work; none where a single strategy at a single size was measured."""
    named = compared.named_work_groups(campaign.results)
    placements = (run.spec.placement for _, group in named for run in group.results)
    if campaign.is_link_search or len({(each.strategy, each.world_size) for each in placements}) < 2:
        return ()
    scaling = entry_scaling(campaign.results)
    return tuple(_strategies(campaign, named, scaling, name, group) for name, group in named)


def _strategies(
    campaign: Campaign,
    named: Sequence[tuple[str, WorkGroup]],
    scaling: Callable[[Entry], Scaling | None],
    name: str,
    group: WorkGroup,
) -> Table:
    """`named`: every work of the campaign."""
    rows, kinds = [], dict[strategy_standings.Pattern, None]()
    every = compared.all_entries(group)
    texts = {entry.name: each for entry, each in zip(every, scaling_texts(every, scaling), strict=True)}
    for size in compared.world_sizes(group):
        peers = compared.entries(group, size)
        scaled = [scaling(entry) for entry in peers]
        traits = strategy_standings.traits_of(peers, scaled)
        kinds |= dict.fromkeys(each.kind for each in traits)
        patterns = [each.pattern for each in traits] or [""] * len(peers)
        for entry, place, pattern in zip(peers, compared.places(peers), patterns, strict=True):
            rows.append(_Placed(entry=entry, place=place, first=peers[0], scaling=texts[entry.name], pattern=pattern))
    # An OOM, say: it stands beside the measured runs of the work.
    failed = [
        run
        for run in campaign.results
        if run.error is not None
        and fingerprint(run.effective_spec.work) == fingerprint(group.spec.work)
        and gpu_name(run) in (None, group.gpu_name)
    ]
    cost = run_figures.USD_PER_1M_TOKENS
    has_cost = group.spec.work.device is not Device.CPU or any(cost.value(run) is not None for run in group.results)
    return make_table(
        rows,
        (
            integer(plural(group.rank_noun), lambda placed: placed.entry.world_size),
            text("strategy", lambda placed: placed.entry.strategy.value),
            table_figures.PLACE.column(lambda placed: placed.place),
            run_figures.TOKENS_PER_SECOND.own(row=attrgetter("entry")),
            table_figures.PLACE.column(lambda placed: share(placed.of_fastest_pct), "of the fastest"),
            table_figures.PER_GPU.column(
                lambda placed: placed.entry.tokens_per_s / placed.entry.world_size, f"per {group.rank_noun}"
            ),
            *(each.own(row=attrgetter("entry")) for each in MEDIANS),
            run_figures.SCALING_EFFICIENCY_PCT.column(lambda placed: placed.scaling),
            *((cost.own(row=attrgetter("entry")),) if has_cost else ()),
            table_figures.PATTERN.column(lambda placed: placed.pattern, is_number=False),
        ),
        run_id=lambda placed: median_run(placed.entry.results),
        more=[
            text_row(
                str(run.spec.placement.world_size),
                run.spec.placement.strategy.value,
                run.status.value,
                tone=Tone.BAD,
                run_id=run.spec.identity.run_id,
            )
            for run in failed
        ],
        notes=(*_notes(named, scaling, group), *_meanings(kinds, group)),
        title=name,
    )


def _meanings(kinds: Iterable[strategy_standings.Pattern], group: WorkGroup) -> Iterator[str]:
    """One note on what the patterns of the table mean."""
    units = {"unit": group.rank_noun, "units": plural(group.rank_noun)}
    if told := [f"{kind.capitalize()}: {strategy_standings.MEANINGS[kind].format(**units)}" for kind in kinds]:
        high = f"High and low: more than {strategy_standings.CLOSE_PCT:g} % from the median of a size's strategies."
        yield " ".join((high, *told))


def _notes(
    named: Sequence[tuple[str, WorkGroup]], scaling: Callable[[Entry], Scaling | None], group: WorkGroup
) -> Iterator[str]:
    runs, units = count(len(group.results), "run"), plural(group.rank_noun)
    yield f"Equal work: places hold within one number of {units}. {runs}; where a row has several, their median."
    of_sizes = [compared.entries(group, size) for size in compared.world_sizes(group)]
    if any(len(peers) > 1 and min(len(entry.results) for entry in peers) < 2 for peers in of_sizes):
        yield f"One run alone may be {share(one_run_pct(), 0)} off by chance: only a repeated one shows its own noise."
    for peers in of_sizes:
        yield from compared.tie_sentences(peers)
    known = [scaled.efficiency for entry in compared.all_entries(group) if (scaled := scaling(entry))]
    if bases := sorted({(each.base_world_size, each.base_strategy.value, each.base_size) for each in known}):
        smallest = listing(f"{size} ({strategy})" for _, strategy, size in bases)
        yield f"Scaling: throughput per {group.rank_noun} against that at {smallest}, the smallest size measured."
    if strange := sorted({f"{e.base} on {e.elsewhere}" for e in known if e.elsewhere}):
        yield f"Base elsewhere: {listing(strange)}. That scaling compares machines, too, so no advice rests on it."
    if not known:
        smallest_here = min(compared.world_sizes(group))
        for _, other in named:
            size = min(compared.world_sizes(other))
            is_same_work = fingerprint(other.spec.work) == fingerprint(group.spec.work)
            if is_same_work and other.hardware != group.hardware and size < smallest_here:
                yield (
                    f"No scaling: {count(size, other.rank_noun)} did this work only as {other.hardware}, which does "
                    f"not apply to {group.hardware}."
                )
                break
    if near := compared.nearest_group(group, [other for _, other in named]):
        name = next(name for name, other in named if other is near)
        fields = listing(compared.differences(group, near), most=8)
        yield f"Other work is not ranked here. Nearest is {name}; it differs in: {fields}."


# Anchor, name in the page's navigation, title, and the tables of a campaign.
_ALL: tuple[tuple[str, str, str, Callable[[Campaign], Iterable[Table]]], ...] = (
    ("gpus", "GPUs", "Each GPU by itself", verdict_text.gpu_tables),
    ("links", "Links", "Links between the nodes", link_tables.tables),
    ("configurations", "Configurations", "Configurations, against the baseline", configuration_tables.configurations),
    ("hardware", "Hardware", "Hardware, side by side", survey_tables.speed),
    ("memory", "Memory", "What a recipe saves in memory", survey_tables.memory),
    ("budgets", "Budgets", "What a budget buys, and whether to rent or to buy", survey_tables.money),
    ("strategies", "Strategies", "Strategies, on equal work", strategies),
    ("more-gpus", "More GPUs", "When more GPUs pay", recommendations.tables),
    ("presets", "Presets", "Presets, on the same training job", presets),
    ("noise", "Noise", "How much equal runs differ here", noise_tables),
)


def comparison_sections(campaign: Campaign) -> tuple[Section, ...]:
    """The sections that have tables for this campaign."""
    made = (Section(title, tuple(make(campaign)), anchor, name) for anchor, name, title, make in _ALL)
    return tuple(section for section in made if section.parts)
