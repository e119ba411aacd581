"""The sections of a report that compare runs: the same tables in every report, in this order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainbench.comparison import strategy_standings
from trainbench.core.tables import Table
from trainbench.reporting import (
    configuration_tables,
    more_gpus,
    noise_tables,
    preset_tables,
    strategy_tables,
    survey_tables,
    verdict_text,
)
from trainbench.results.campaign import Campaign


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
    ("strategies", "Strategies", "Strategies, on equal work", strategy_tables.strategies),
    ("patterns", "Patterns", "What kind of choice each strategy is", strategy_standings.tables),
    ("more-gpus", "More GPUs", "When more GPUs pay", more_gpus.tables),
    ("presets", "Presets", "Presets, on the same training job", preset_tables.presets),
    ("noise", "Noise", "How much equal runs differ here", noise_tables.noise_tables),
)
