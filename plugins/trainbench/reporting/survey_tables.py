"""The tables of a hardware survey: speed, memory, rent or buy, and what a budget buys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from bench_image.contract.work import AUTO
from trainbench.comparison import hardware_survey
from trainbench.comparison.entries import Entry
from trainbench.comparison.gpu_kinds import CPU
from trainbench.comparison.hardware_survey import (
    EVERYTHING,
    SurveyCell,
    baseline,
    comparison_params,
    has_gangs,
    measured,
    predicted_gb,
    relative_speed,
    saved_memory,
    survey_cells,
)
from trainbench.comparison.scaling import Scaling, entry_scaling
from trainbench.core.formats import NA, count, figure, listing, one_line, percent, plural, usd
from trainbench.core.grouping import grouped
from trainbench.core.tables import Column, Table, Tone, integer, make_table, median_run, text
from trainbench.figure_catalogue.run_figures import (
    MFU_PCT,
    PEAK_MEMORY_GB,
    SAMPLES_PER_SECOND,
    SCALING_EFFICIENCY_PCT,
    TOKENS_PER_SECOND,
    USD_PER_1M_TOKENS,
    USD_PER_1000_SAMPLES,
    USD_PER_GPU_HOUR,
)
from trainbench.figure_catalogue.table_figures import EPOCH, FORMULA_GB, FULL_GB, PER_GPU, RELATIVE_SPEED
from trainbench.params.campaign_kind import CampaignKind
from trainbench.params.campaign_params import ComparisonParams
from trainbench.results.campaign import Campaign
from trainbench.results.readings import rank_noun

MAX_SENTENCES = 3
ORIGIN = {True: "by formula", False: "measured"}  # of the memory of full fine-tuning


def speed(campaign: Campaign) -> tuple[Table, ...]:
    """One table for each model: its recipes on each kind and number of GPUs."""
    if campaign.campaign_kind is not CampaignKind.HARDWARE:
        return ()
    all_cells, wanted = survey_cells(campaign), comparison_params(campaign)
    models = dict.fromkeys(cell.model for cell in all_cells if cell.model != EVERYTHING)
    priced: list[str] = []
    if campaign.params.get("usd_per_gpu_hour") and len({cell.gpu for cell in measured(all_cells)}) > 1:
        priced = ["One price was given for all kinds of GPU (usd_per_gpu_hour): the costs differ by speed only."]
    nowhere = [cell for cell in all_cells if cell.model == EVERYTHING]
    scaling = entry_scaling(campaign.results)
    return tuple(
        _speed(model, [c for c in all_cells if c.model == model], nowhere, wanted, priced, scaling) for model in models
    )


def memory(campaign: Campaign) -> tuple[Table, ...]:
    """Tables of the memory that each recipe saves against full fine-tuning; empty where no GPU memory was measured."""
    if campaign.campaign_kind is not CampaignKind.HARDWARE:
        return ()
    all_cells = survey_cells(campaign)
    rows = [(cell, saved_memory(cell, all_cells)) for cell in measured(all_cells) if cell.memory_gb is not None]
    made = make_table(
        rows,
        (
            text("model", lambda pair: pair[0].model),
            text("recipe", lambda pair: pair[0].recipe),
            text("GPU", lambda pair: pair[0].hardware),
            text("micro-batch", lambda pair: _micro_batches(pair[0]), is_number=True),
            PEAK_MEMORY_GB.column(lambda pair: pair[0].memory_gb, "measured GB"),
            FORMULA_GB.column(lambda pair: predicted_gb(pair[0].results[0].effective_spec)),
            FULL_GB.column(lambda pair: pair[1].full_gb if pair[1] else ""),
            FULL_GB.column(lambda pair: percent(pair[1].pct) if pair[1] else "", "saved"),
            FULL_GB.column(lambda pair: ORIGIN[pair[1].by_formula] if pair[1] else "", "full is", is_number=False),
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
    all_cells, wanted = measured(survey_cells(campaign)), comparison_params(campaign)
    if all(cell.gpu == CPU and cell.price is None for cell in all_cells):
        return ()  # a trial: nobody rents or buys by it
    every = (
        hardware_survey.rental_table(all_cells, wanted),
        hardware_survey.purchase_table(all_cells, wanted),
        hardware_survey.rent_or_buy_table(all_cells, wanted),
    )
    return tuple(made for made in every if made.rows)


def headline(campaign: Campaign) -> tuple[str, ...]:
    """Sentences on the fastest and the cheapest GPU for the first works."""
    if campaign.campaign_kind is not CampaignKind.HARDWARE:
        return ()
    by_work = grouped((cell.work, cell) for cell in measured(survey_cells(campaign)))
    sentences = [_best(work, of_work) for work, of_work in list(by_work.items())[:MAX_SENTENCES]]
    return (
        *sentences,
        *([f"The report has {len(by_work) - MAX_SENTENCES} more."] if len(by_work) > MAX_SENTENCES else []),
    )


def _best(work: str, of_work: Sequence[SurveyCell]) -> str:
    fastest = max(of_work, key=lambda cell: cell.tokens_per_s or 0.0)
    cheapest = min(of_work, key=lambda cell: cell.usd_per_1m_samples or float("inf"))
    rate = f"{figure(fastest.tokens_per_s)} tokens/s on {fastest.hardware}"
    price = cheapest.usd_per_1m_samples
    if price is None:
        return f"{work}: {rate}, without a price."
    if len(of_work) == 1:
        return f"{work}: {rate}, {usd(price)} per 1M samples."
    of = "" if all(cell.usd_per_1m_samples for cell in of_work) else ", of those with a price"
    return f"{work}: fastest {rate}, cheapest {usd(price)} per 1M samples on {cheapest.hardware}{of}."


class _Row(NamedTuple):
    """`base`: the cell of relative speed 1, on as many GPUs; `scaling`: against fewer GPUs of the same kind."""

    cell: SurveyCell
    base: SurveyCell | None = None
    scaling: Scaling | None = None


def _speed(
    model: str,
    of_model: Sequence[SurveyCell],
    nowhere: Sequence[SurveyCell],
    wanted: ComparisonParams,
    more: Sequence[str],
    scaling: Callable[[Entry], Scaling | None],
) -> Table:
    has_several = len({cell.gpu for cell in measured(of_model)}) > 1
    rows: list[_Row] = []
    notes = []
    for recipe, of_recipe in grouped((cell.recipe, cell) for cell in of_model).items():
        by_size = grouped((cell.num_gpus, cell) for cell in sorted(of_recipe, key=lambda cell: cell.num_gpus))
        for of_size in by_size.values():
            base = baseline(of_size, wanted.baseline_gpu) if has_several else None
            fastest_first = sorted(of_size, key=lambda cell: -(cell.tokens_per_s or 0.0))
            rows += [_Row(cell, base, scaling(_entry(cell)) if cell.results else None) for cell in fastest_first]
        notes += _unequal(recipe, measured(of_recipe))
    return make_table(
        [*rows, *map(_Row, nowhere)],
        _speed_columns(wanted, has_several, of_model),
        tone=lambda row: Tone.PLAIN if row.cell.results else Tone.WARN,
        run_id=lambda row: median_run(row.cell.results),
        notes=(
            *_speed_notes(of_model, wanted, has_several),
            *hardware_survey.price_notes(measured(of_model)),
            *more,
            *notes,
        ),
        title=_model_name(model, of_model),
    )


def _entry(cell: SurveyCell) -> Entry:
    placement = cell.results[0].spec.placement
    return Entry(strategy=placement.strategy, world_size=cell.num_gpus, results=cell.results)


def _speed_columns(
    wanted: ComparisonParams, has_several: bool, of_model: Sequence[SurveyCell]
) -> tuple[Column[_Row], ...]:
    """The columns of a row; a cell without a result has no figure."""
    own = attrgetter("cell")
    gangs: tuple[Column[_Row], ...] = ()
    shares: tuple[Column[_Row], ...] = ()
    if has_gangs(of_model):
        noun = _rank_noun(of_model)
        gangs = (
            integer(plural(noun), lambda row: row.cell.num_gpus),
            text("strategy", lambda row: row.cell.strategy.value if row.cell.strategy else NA),
        )
        shares = (
            PER_GPU.column(lambda row: row.cell.tokens_per_s_per_gpu, f"per {noun}"),
            SCALING_EFFICIENCY_PCT.column(lambda row: row.scaling.text if row.scaling else NA),
        )
    return (
        text("recipe", lambda row: row.cell.recipe),
        text("GPU", lambda row: row.cell.gpu),
        *gangs,
        text("micro-batch", lambda row: _micro_batches(row.cell), is_number=True),
        TOKENS_PER_SECOND.own(row=own),
        SAMPLES_PER_SECOND.own(row=own),
        *shares,
        *((RELATIVE_SPEED.column(lambda row: _relative(row.cell, row.base)),) if has_several else ()),
        MFU_PCT.own(row=own),
        PEAK_MEMORY_GB.column(lambda row: row.cell.memory_gb),
        EPOCH.column(lambda row: wanted.epoch_samples / row.cell.samples_per_s if row.cell.samples_per_s else None),
        USD_PER_GPU_HOUR.own(row=own),
        USD_PER_1000_SAMPLES.column(lambda row: row.cell.usd_per_1m_samples, "per 1M samples"),
        USD_PER_1M_TOKENS.own(row=own),
        text("remark", lambda row: _remark(row.cell)),
    )


def _rank_noun(cells: Sequence[SurveyCell]) -> str:
    return rank_noun([result for cell in cells for result in cell.results])


def _micro_batches(cell: SurveyCell) -> str:
    return " or ".join(str(size) for size in cell.micro_batches) or NA


def _relative(cell: SurveyCell, base: SurveyCell | None) -> str:
    ratio = relative_speed(cell, base) if base else None
    if not ratio:
        return NA
    return f"{ratio.text()} (baseline)" if cell is base else ratio.text()


def _model_name(model: str, of_model: Sequence[SurveyCell]) -> str:
    results = [result for cell in of_model for result in cell.results]
    if not results:
        return model
    spec = results[0].spec
    return f"{model}, {spec.work.seq_length:,} tokens, {spec.work.precision}, {spec.work.preset}"


def _remark(cell: SurveyCell) -> str:
    if not cell.results:
        return one_line(cell.why_not)
    parts = [f"{count(len(cell.results), 'run')} on {count(cell.num_nodes, 'node')}"]
    if cell.num_failed:
        parts.append(f"{cell.num_failed} more failed")
    return ", ".join(parts)


def _speed_notes(of_model: Sequence[SurveyCell], wanted: ComparisonParams, has_several: bool) -> list[str]:
    noun = _rank_noun(of_model)
    together = f"Several {plural(noun)} of one node work together" if has_gangs(of_model) else f"One {noun} each"
    notes = [f"{together}; medians over runs. 1 epoch: {wanted.epoch_samples:,} samples, start-up left out."]
    if has_gangs(of_model):
        notes.append(
            f"The micro-batch is that of each {noun}. Scaling: throughput per {noun} against that of the fewest "
            f"{plural(noun)} that did equal work; n/a without them."
        )
    if has_several:
        against = f"'{wanted.baseline_gpu}'" if wanted.baseline_gpu else "the fastest"
        against += " with as many GPUs" if has_gangs(of_model) else ""
        notes.append(
            f"Relative speed: tokens/s over those of {against}, ± 99 % interval of the runs and windows. It holds for "
            "the measured GPUs: cards of one kind differ by some percent."
        )
    elif gpus := {cell.gpu for cell in measured(of_model)}:
        notes.append(f"Only {gpus.pop()} was measured: there is no base for relative speed.")
    if has_several and wanted.baseline_gpu:
        notes += _without_baseline(measured(of_model), wanted.baseline_gpu)
    return notes


def _without_baseline(cells: Sequence[SurveyCell], wanted: str) -> list[str]:
    """A sentence on recipes that no GPU of this name ran, with the names that would do."""
    by_recipe = grouped((cell.recipe, cell) for cell in cells)
    lost = {recipe: of_recipe for recipe, of_recipe in by_recipe.items() if not baseline(of_recipe, wanted)}
    names = dict.fromkeys(cell.gpu for of_recipe in lost.values() for cell in of_recipe)
    if not lost:
        return []
    return [
        f"{listing(lost)}: no relative speed, because baseline_gpu '{wanted}' names none of the GPUs measured there: "
        f"{listing(names)}."
    ]


def _unequal(recipe: str, of_recipe: Sequence[SurveyCell]) -> list[str]:
    if len({cell.micro_batches for cell in of_recipe}) < 2:
        return []
    sizes = "; ".join(f"{' or '.join(map(str, cell.micro_batches))} on {cell.hardware}" for cell in of_recipe)
    is_auto = any(result.spec.work.micro_batch_size == AUTO for cell in of_recipe for result in cell.results)
    why = "each GPU ran its fastest setting" if is_auto else "as set in the form"
    return [f"Unequal work with {recipe}: the micro-batch is {sizes} ({why}). A step is not the same work on each."]
