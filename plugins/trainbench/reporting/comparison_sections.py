"""The tables that compare what ran, one set for each question: the same in every report, in this order."""

from __future__ import annotations

from dataclasses import dataclass

from trainbench.comparison import strategy_profiles
from trainbench.core.tables import Table
from trainbench.reporting import (
    configuration_tables,
    gpu_tables,
    more_gpus,
    noise_tables,
    preset_tables,
    strategy_tables,
    survey_tables,
)
from trainbench.results.campaign import Campaign


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """`anchor` is stable: other pages link to it. Each table carries the work that it compares as its title."""

    anchor: str
    name: str  # in the page's navigation
    title: str
    tables: tuple[Table, ...]


def answers(campaign: Campaign) -> tuple[Answer, ...]:
    """Those that have something to say of this campaign."""
    every = (
        Answer(
            anchor="gpus",
            name="GPUs",
            title="Each GPU by itself",
            tables=gpu_tables.gpu_tables(campaign),
        ),
        Answer(
            anchor="configurations",
            name="Configurations",
            title="Configurations, against the baseline",
            tables=configuration_tables.configurations(campaign),
        ),
        Answer(
            anchor="hardware",
            name="Hardware",
            title="Kinds of GPU, side by side",
            tables=survey_tables.speed(campaign),
        ),
        Answer(
            anchor="memory",
            name="Memory",
            title="What a recipe saves in memory",
            tables=survey_tables.memory(campaign),
        ),
        Answer(
            anchor="budgets",
            name="Budgets",
            title="What a budget buys, and whether to rent or to buy",
            tables=survey_tables.money(campaign),
        ),
        Answer(
            anchor="strategies",
            name="Strategies",
            title="Strategies, on equal work",
            tables=tuple(strategy_tables.strategies(campaign)),
        ),
        Answer(
            anchor="patterns",
            name="Patterns",
            title="What kind of choice each strategy is",
            tables=strategy_profiles.tables(campaign),
        ),
        Answer(
            anchor="more-gpus",
            name="More GPUs",
            title="When more GPUs pay",
            tables=more_gpus.tables(campaign),
        ),
        Answer(
            anchor="presets",
            name="Presets",
            title="Presets, on the same training job",
            tables=tuple(preset_tables.presets(campaign)),
        ),
        Answer(
            anchor="noise",
            name="Noise",
            title="How much equal runs differ here",
            tables=noise_tables.noise_tables(campaign),
        ),
    )
    return tuple(answer for answer in every if answer.tables)
