"""The tables of a hardware survey: speed, memory, rent or buy, and what a budget buys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from bench_image.contract.work import AUTO
from trainbench.comparison import hardware_survey as survey
from trainbench.comparison.entries import CPU
from trainbench.comparison.hardware_survey import SurveyCell
from trainbench.comparison.scaling import entry_scaling, scaling_texts
from trainbench.core.formats import NA, count, figure, listing, one_line, percent, plural, usd
from trainbench.core.grouping import grouped
from trainbench.core.tables import Column, Table, Tone, integer, make_table, median_run, text
from trainbench.figure_catalogue import run_figures, table_figures
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import ComparisonParams
from trainbench.results.campaign import Campaign
from trainbench.results.readings import rank_noun

MAX_SENTENCES = 3
ORIGIN = {True: "by formula", False: "measured"}  # of the memory of full fine-tuning


class _Row(NamedTuple):
    """`base`: the cell of relative speed 1, on as many GPUs; `scaling`: against fewer GPUs of the same kind."""

    cell: SurveyCell
    base: SurveyCell | None = None
    scaling: str = NA

    @property
    def relative_speed(self) -> str:
        ratio = survey.relative_speed(self.cell, self.base) if self.base else None
        if not ratio:
            return NA
        return f"{ratio.text()} (baseline)" if self.cell is self.base else ratio.text()

    @property
    def remark(self) -> str:
        if not self.cell.results:
            return one_line(self.cell.why_not)
        failed = f", {self.cell.num_failed} more failed" if self.cell.num_failed else ""
        return f"{count(len(self.cell.results), 'run')} on {count(len(self.cell.nodes), 'node')}{failed}"


def speed(campaign: Campaign) -> tuple[Table, ...]:
    """One table for each model: its recipes on each kind and number of GPUs."""
    if campaign.campaign_kind is not CampaignKind.HARDWARE:
        return ()
    by_model = grouped((cell.model, cell) for cell in survey.survey_cells(campaign))
    nowhere = by_model.pop(survey.EVERYTHING, [])
    gpus = {cell.gpu for of_model in by_model.values() for cell in survey.measured(of_model)}
    priced = []
    if campaign.params.get("usd_per_gpu_hour") and len(gpus) > 1:
        priced = ["One price was given for all kinds of GPU (usd_per_gpu_hour): the costs differ by speed only."]
    scaling = entry_scaling(campaign.results)
    wanted = survey.comparison_params(campaign)
    tables = []
    for model, of_model in by_model.items():
        done = survey.measured(of_model)
        has_several = len({cell.gpu for cell in done}) > 1
        rows = []
        texts: dict[object, str] = {}
        for of_kind in grouped(((cell.recipe, cell.gpu), cell) for cell in done).values():
            texts |= zip((cell.key for cell in of_kind), scaling_texts(of_kind, scaling), strict=True)
        for of_recipe in grouped((cell.recipe, cell) for cell in of_model).values():
            for _, of_size in sorted(grouped((cell.world_size, cell) for cell in of_recipe).items()):
                base = survey.baseline(of_size, wanted.baseline_gpu) if has_several else None
                for cell in sorted(of_size, key=lambda cell: -cell.tokens_per_s):
                    rows.append(_Row(cell, base, texts.get(cell.key, NA)))
        notes = (*_notes(of_model, wanted, has_several), *survey.price_notes(done), *priced, *_unequal(done))
        title = model
        if done:
            work = done[0].results[0].spec.work
            title = f"{model}, {work.seq_length:,} tokens, {work.precision}, {work.preset}"
        tables.append(_speed([*rows, *map(_Row, nowhere)], of_model, wanted, has_several, title, notes))
    return tuple(tables)


def _speed(
    rows: Sequence[_Row],
    of_model: Sequence[SurveyCell],
    wanted: ComparisonParams,
    has_several: bool,
    title: str,
    notes: Sequence[str],
) -> Table:
    """`has_several`: kinds of GPU. A cell without a result has no figure."""
    own, noun, has_gangs = attrgetter("cell"), _rank_noun(of_model), survey.has_gangs(of_model)
    gangs: tuple[Column[_Row], ...] = (
        integer(plural(noun), lambda row: row.cell.world_size),
        text("strategy", lambda row: row.cell.strategy.value if row.cell.strategy else NA),
    )
    shares: tuple[Column[_Row], ...] = (
        table_figures.PER_GPU.column(lambda row: row.cell.tokens_per_s / row.cell.world_size or None, f"per {noun}"),
        run_figures.SCALING_EFFICIENCY_PCT.column(lambda row: row.scaling),
    )
    relative: Column[_Row] = table_figures.RELATIVE_SPEED.column(lambda row: row.relative_speed)
    return make_table(
        rows,
        (
            text("recipe", lambda row: row.cell.recipe),
            text("hardware", lambda row: row.cell.gpu),
            *(gangs if has_gangs else ()),
            text("micro-batch", lambda row: _micro_batches(row.cell) or NA, is_number=True),
            run_figures.TOKENS_PER_SECOND.own(row=own),
            run_figures.SAMPLES_PER_SECOND.own(row=own),
            *(shares if has_gangs else ()),
            *((relative,) if has_several else ()),
            run_figures.MFU_PCT.own(row=own),
            run_figures.PEAK_MEMORY_GB.column(lambda row: row.cell.gpu_memory_gb),
            table_figures.EPOCH.column(
                lambda row: wanted.epoch_samples / row.cell.samples_per_s if row.cell.samples_per_s else None
            ),
            run_figures.USD_PER_GPU_HOUR.own(row=own),
            run_figures.USD_PER_1000_SAMPLES.column(lambda row: row.cell.usd_per_1m_samples, "per 1M samples"),
            run_figures.USD_PER_1M_TOKENS.own(row=own),
            text("remark", lambda row: row.remark),
        ),
        tone=lambda row: Tone.PLAIN if row.cell.results else Tone.WARN,
        run_id=lambda row: median_run(row.cell.results),
        notes=tuple(notes),
        title=title,
    )


def _rank_noun(cells: Sequence[SurveyCell]) -> str:
    return rank_noun([result for cell in cells for result in cell.results])


def _micro_batches(cell: SurveyCell) -> str:
    return " or ".join(map(str, cell.micro_batches))


def _notes(of_model: Sequence[SurveyCell], wanted: ComparisonParams, has_several: bool) -> Iterator[str]:
    noun, has_gangs, done = _rank_noun(of_model), survey.has_gangs(of_model), survey.measured(of_model)
    together = f"Several {plural(noun)} of one node work together" if has_gangs else f"One {noun} each"
    yield f"{together}; medians over runs. 1 epoch: {wanted.epoch_samples:,} samples, start-up left out."
    if has_gangs:
        yield (
            f"The micro-batch is that of each {noun}. Scaling: throughput per {noun} against that of the fewest "
            f"{plural(noun)} that did equal work; n/a without them."
        )
    if not has_several:
        if done:
            yield f"Only {done[0].gpu} was measured: there is no base for relative speed."
        return
    against = f"'{wanted.baseline_gpu}'" if wanted.baseline_gpu else "the fastest"
    yield (
        f"Relative speed: tokens/s over those of {against}{' with as many GPUs' if has_gangs else ''}, ± 99 % interval "
        "of the runs and windows. It holds for the measured GPUs: cards of one kind differ by some percent."
    )
    by_recipe = grouped((cell.recipe, cell) for cell in done)
    lost = {recipe: cells for recipe, cells in by_recipe.items() if not survey.baseline(cells, wanted.baseline_gpu)}
    if lost:  # no GPU of this name ran them; the sentence names those that would do
        names = listing(dict.fromkeys(cell.gpu for cells in lost.values() for cell in cells))
        yield (
            f"{listing(lost)}: no relative speed, because baseline_gpu '{wanted.baseline_gpu}' names none of the GPUs "
            f"measured there: {names}."
        )


def _unequal(cells: Sequence[SurveyCell]) -> Iterator[str]:
    for recipe, of_recipe in grouped((cell.recipe, cell) for cell in cells).items():
        if len({cell.micro_batches for cell in of_recipe}) > 1:
            sizes = "; ".join(f"{_micro_batches(cell)} on {cell.hardware}" for cell in of_recipe)
            is_auto = any(run.spec.work.micro_batch_size == AUTO for cell in of_recipe for run in cell.results)
            why = "each GPU ran its fastest setting" if is_auto else "as set in the form"
            yield (
                f"Unequal work with {recipe}: the micro-batch is {sizes} ({why}). A step is not the same work on each."
            )


def memory(campaign: Campaign) -> tuple[Table, ...]:
    """Tables of the memory that each recipe saves against full fine-tuning; empty where no GPU memory was measured."""
    if campaign.campaign_kind is not CampaignKind.HARDWARE:
        return ()
    cells = survey.survey_cells(campaign)
    rows = [
        (cell, survey.saved_memory(cell, cells)) for cell in survey.measured(cells) if cell.gpu_memory_gb is not None
    ]
    full_gb = table_figures.FULL_GB
    made = make_table(
        rows,
        (
            text("model", lambda pair: pair[0].model),
            text("recipe", lambda pair: pair[0].recipe),
            text("hardware", lambda pair: pair[0].hardware),
            text("micro-batch", lambda pair: _micro_batches(pair[0]), is_number=True),
            run_figures.PEAK_MEMORY_GB.column(lambda pair: pair[0].gpu_memory_gb, "measured GB"),
            table_figures.FORMULA_GB.column(lambda pair: survey.predicted_gb(pair[0].results[0].effective_spec)),
            full_gb.column(lambda pair: pair[1].full_gb if pair[1] else ""),
            full_gb.column(lambda pair: percent(pair[1].pct) if pair[1] else "", "saved"),
            full_gb.column(lambda pair: ORIGIN[pair[1].by_formula] if pair[1] else "", "full is", is_number=False),
        ),
        run_id=lambda pair: median_run(pair[0].results),
        notes=(
            "Saved: against full fine-tuning of the same model on the same GPUs, micro-batch and all else equal."
            " Without such a full run, its memory is by formula (docs/internals/sizing.md has the formula's errors).",
        ),
        title="By model, recipe and GPU",
    )
    return (made,) if rows else ()


def money(campaign: Campaign) -> tuple[Table, ...]:
    """Tables on renting or buying, and on what each budget buys."""
    if campaign.campaign_kind is not CampaignKind.HARDWARE:
        return ()
    cells, wanted = survey.measured(survey.survey_cells(campaign)), survey.comparison_params(campaign)
    if all(cell.gpu == CPU and cell.price is None for cell in cells):
        return ()  # a trial: nobody rents or buys by it
    makes = (survey.rental_table, survey.purchase_table, survey.rent_or_buy_table)
    return tuple(made for make in makes if (made := make(cells, wanted)).rows)


def headline(campaign: Campaign) -> tuple[str, ...]:
    """Sentences on the fastest and the cheapest GPU for the first works."""
    if campaign.campaign_kind is not CampaignKind.HARDWARE:
        return ()
    by_work = grouped((cell.work, cell) for cell in survey.measured(survey.survey_cells(campaign)))
    sentences = [_best(work, of_work) for work, of_work in list(by_work.items())[:MAX_SENTENCES]]
    left_out = len(by_work) - len(sentences)
    return (*sentences, *([f"The report has {left_out} more."] if left_out else []))


def _best(work: str, of_work: Sequence[SurveyCell]) -> str:
    fastest = max(of_work, key=lambda cell: cell.tokens_per_s)
    cheapest = min(of_work, key=lambda cell: cell.usd_per_1m_samples or float("inf"))
    rate = f"{figure(fastest.tokens_per_s)} tokens/s on {fastest.hardware}"
    price = cheapest.usd_per_1m_samples
    if price is None:
        return f"{work}: {rate}, without a price."
    if len(of_work) == 1:
        return f"{work}: {rate}, {usd(price)} per 1M samples."
    of = "" if all(cell.usd_per_1m_samples for cell in of_work) else ", of those with a price"
    return f"{work}: fastest {rate}, cheapest {usd(price)} per 1M samples on {cheapest.hardware}{of}."
