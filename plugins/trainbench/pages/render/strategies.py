"""The page of strategies: the choice of each work by cost and by time, and its strategies beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, cast

from trainbench.comparison.entries import Entry, both_noises_pct, gpu_label, level_with, places
from trainbench.comparison.scaling import ScalingPoint, comparable_points
from trainbench.core.csv_cells import lines
from trainbench.core.formats import listing, share
from trainbench.core.grouping import grouped
from trainbench.core.tables import Cell, Table, Tone, integer, make_table, text, text_cell
from trainbench.figure_catalogue import run_figures as figures
from trainbench.figure_catalogue.table_figures import PLACE
from trainbench.pages.reads.rows import StrategyRow
from trainbench.pages.render.links import Links
from trainbench.pages.render.listings import moment
from trainbench.reporting.recommendations import SAMPLES, Recommendation, cheapest_and_fastest, short_work_names

CSV_COLUMNS = (
    "gpu_name", "model", "recipe", "preset", "micro_batch_size", "seq_length", "strategy", "world_size",
    "num_campaigns", "num_runs", "num_failed", "is_imported", *(each.name for each in figures.STORED),
)  # fmt: skip


class Work(NamedTuple):
    """Rows of equal work on one kind of GPU. `anchor`: of its table on the page."""

    name: str
    anchor: str
    rows: Sequence[StrategyRow]


class Choice(NamedTuple):
    """What a report would choose of one campaign, told of the `points` of a work: what was measured here. No advice:
    other sizes may have run on other machines.
    """

    work: Work
    points: Sequence[ScalingPoint]
    best: Recommendation

    @property
    def at(self) -> datetime:
        """When it was measured last."""
        newest: datetime = max(row.at for row in self.work.rows)
        return newest

    @property
    def text(self) -> str:
        """ "zero2 on 2 GPUs: $0.0303 per 1M tokens; too noisy to rank beside ddp on 2 GPUs"."""
        fastest = self.best.fastest
        level = level_with(fastest.entry, [point.entry for point in self.points if point.gpus == fastest.gpus])
        noisy = f"; too noisy to rank beside {listing(each.name for each in level)}" if level else ""
        return f"{self.best.text}{noisy}"


def works(rows: Sequence[StrategyRow]) -> tuple[list[Choice], list[Work]]:
    """The works with a choice, the one that was measured last first, and those with fewer than two measured rows."""
    of_works = list(grouped(((row.work_key, row.gpu_name), row) for row in rows).values())
    names = [_name(of[0]) for of in of_works]
    choices, alone = [], []
    for name, of in zip(names, of_works, strict=True):
        key = of[0].work_key[:8]
        told = name if names.count(name) == 1 else f"{name}, other settings differ (fingerprint {key})"
        work = Work(told, gpu_label(f"{key} {of[0].gpu_name or 'CPU'}"), of)
        points = comparable_points(
            [
                # A row has all that a choice asks of an entry.
                ScalingPoint(entry=cast("Entry", row), usd_per_gpu_hour=row.usd_per_gpu_hour, startup_s=None)
                for row in of
                if row.is_measured_here
            ]
        )
        if len(points) > 1:
            choices.append(Choice(work, points, Recommendation(told, *cheapest_and_fastest(points))))
        else:
            alone.append(work)
    return sorted(choices, key=lambda choice: choice.at, reverse=True), alone


def _name(row: StrategyRow) -> str:
    size = f"batch {row.micro_batch_size} × {row.seq_length} tokens" if row.seq_length else ""
    return ", ".join(filter(None, (f"{row.model} {row.recipe}", row.gpu_name or "CPU", row.preset, size)))


def choices_table(choices: Sequence[Choice], links: Links) -> Table:
    """One row for each work: what is best, and how far ahead of the next."""

    names = short_work_names([choice.work.name for choice in choices])
    name_of = {choice.work.anchor: name for choice, name in zip(choices, names, strict=True)}

    def work(choice: Choice) -> Cell:
        first = choice.work.rows[0]
        href = links.page("strategies", gpu=first.gpu_name, model=first.model, recipe=first.recipe)
        return text_cell(name_of[choice.work.anchor], href=f"{href}#{choice.work.anchor}")

    def ahead(
        choice: Choice, chosen: ScalingPoint, size: Callable[[ScalingPoint], float], gain: Callable[[float], float]
    ) -> str:
        """ "10.9 % than zero3 on 2 GPUs", the next by this size; or those that chance alone may have put behind."""
        others = sorted((point for point in choice.points if point is not chosen), key=size)
        noisy = [
            point.entry.name
            for point in others
            if 100 * (1 - size(chosen) / size(point)) <= both_noises_pct(chosen.entry, point.entry)
        ]
        if noisy:
            return f"too noisy beside {listing(noisy, 2)}"
        return f"{share(100 * gain(size(chosen) / size(others[0])))} than {others[0].entry.name}"

    def cheaper(choice: Choice) -> str:
        cheapest = choice.best.cheapest
        gain = ahead(choice, cheapest, lambda point: point.price(SAMPLES), lambda ratio: 1 - ratio)
        return gain if cheapest.has_cost else "no price"

    def faster(choice: Choice) -> str:
        return ahead(choice, choice.best.fastest, lambda point: point.hours(SAMPLES), lambda ratio: 1 / ratio - 1)

    return make_table(
        choices,
        (
            text("work", work, is_long=True),
            text("least cost", lambda choice: choice.best.cheapest.entry.name),
            figures.USD_PER_1M_TOKENS.own(row=lambda choice: choice.best.cheapest.entry),
            text("cheaper by", cheaper),
            text("least time", lambda choice: choice.best.fastest.entry.name),
            figures.TOKENS_PER_SECOND.own(row=lambda choice: choice.best.fastest.entry),
            text("faster by", faster),
            text("measured (UTC)", lambda choice: moment(choice.at)),
        ),
        name="choices",
        title="Best measured",
    )


def strategies_table(rows: Sequence[StrategyRow]) -> Table:
    """Strategies of one work, the fastest first; bars compare tokens/s. Processes without a price have no cost."""
    on_cpu = bool(rows) and rows[0].on_cpu

    def failed(row: StrategyRow) -> Cell:
        tone = Tone.BAD if row.num_failed else Tone.PLAIN
        return Cell(text=f"{row.num_failed:,}", value=row.num_failed, tone=tone)

    of_sizes = grouped((row.world_size, cast("Entry", row)) for row in rows if row.is_measured_here)
    place = {id(row): told for of in of_sizes.values() for row, told in zip(of, places(of), strict=True)}
    prices = (figures.USD_PER_1000_SAMPLES.own(), figures.USD_PER_1M_TOKENS.own())
    has_cost = not on_cpu or any(row.figure(figures.USD_PER_1M_TOKENS) is not None for row in rows)
    return make_table(
        rows,
        (
            text("strategy", lambda row: row.strategy + (", imported" if row.is_imported else "")),
            integer("processes" if on_cpu else "GPUs", lambda row: row.world_size),
            figures.SAMPLES_PER_SECOND.own(),
            figures.TOKENS_PER_SECOND.own(has_bar=True),
            figures.PEAK_MEMORY_GB.own(),
            figures.MFU_PCT.own(),
            figures.SCALING_EFFICIENCY_PCT.own(),
            *(prices if has_cost else ()),
            PLACE.column(lambda row: place.get(id(row), "")),
            integer("campaigns", lambda row: row.num_campaigns),
            integer("runs", lambda row: row.num_runs),
            integer("failed", failed),
        ),
        name="strategies",
        title="Strategies",
        empty="Nothing was measured.",
    )


def strategies_csv(rows: Sequence[StrategyRow]) -> str:
    return lines([CSV_COLUMNS, *([getattr(row, name) for name in CSV_COLUMNS] for row in rows)])
