"""Tables of presets: the same training job with different settings, which the table names."""

from __future__ import annotations

from operator import itemgetter

from bench_image.contract.result import RunResult
from bench_image.contract.work import Preset
from trainbench.comparison.comparable import (
    DECIDED_BY_PRESET,
    WorkGroup,
    by_job,
    by_placed_work,
    value_text,
    work_groups,
)
from trainbench.comparison.entries import Entry
from trainbench.core.formats import count, figure
from trainbench.core.grouping import grouped
from trainbench.core.tables import Table, integer, make_table, median_run, text
from trainbench.figure_catalogue.run_figures import MFU_PCT, PEAK_MEMORY_GB, TOKENS_PER_SECOND
from trainbench.figure_catalogue.table_figures import AGAINST_FIRST
from trainbench.results.campaign import Campaign


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
