"""The tables of a hardware survey: speed, memory, rent or buy, and what a budget buys."""

from __future__ import annotations

from collections.abc import Sequence

from bench_image.contract.work import AUTO
from trainbench.comparison import recommend
from trainbench.comparison.survey import (
    EVERYTHING,
    Cell,
    asked,
    baseline,
    cells,
    measured,
    predicted_gb,
    relative,
    saved_memory,
)
from trainbench.core.formats import NA, count, duration, figure, listing, one_line, percent, usd
from trainbench.core.tables import Row, Table, Tone, median_run
from trainbench.params.campaign_kind import Question
from trainbench.params.comparison_params import ComparisonParams
from trainbench.results.campaign import Campaign

SPEED = (
    "micro-batch", "tokens/s", "samples/s", "relative speed", "memory GB", "1 epoch", "per GPU-hour", "per 1M samples",
    "per 1M tokens",
)  # fmt: skip
MAX_TOLD = 3


def speed(campaign: Campaign) -> tuple[Table, ...]:
    """One table for each model: its recipes on each kind of GPU."""
    if campaign.question is not Question.HARDWARE:
        return ()
    found, wanted = cells(campaign), asked(campaign)
    models = dict.fromkeys(cell.model for cell in found if cell.model != EVERYTHING)
    priced: list[str] = []
    if campaign.params.get("usd_per_gpu_hour") and len({cell.gpu for cell in measured(found)}) > 1:
        priced = ["One price was given for all kinds of GPU (usd_per_gpu_hour): the costs differ by speed only."]
    nowhere = [cell for cell in found if cell.model == EVERYTHING]
    return tuple(_speed(model, [c for c in found if c.model == model], nowhere, wanted, priced) for model in models)


def memory(campaign: Campaign) -> tuple[Table, ...]:
    """What each recipe saves against full fine-tuning; nothing where no memory of a GPU was measured."""
    if campaign.question is not Question.HARDWARE:
        return ()
    found = cells(campaign)
    rows = tuple(_memory_row(cell, found) for cell in measured(found) if cell.memory_gb is not None)
    columns = ("micro-batch", "measured GB", "formula GB", "full GB", "saved")
    notes = (
        "Saved: against full fine-tuning of the same model on the same kind of GPU, micro-batch and all else equal. "
        "Where full was not measured so, its memory is the formula's (docs/sizing.md has the formula's errors).",
    )
    numeric = frozenset(columns)
    table = Table(
        columns=("model", "recipe", "GPU", *columns, "full is"),
        rows=rows,
        numeric=numeric,
        notes=notes,
        title="By model, recipe and GPU",
    )
    return (table,) if rows else ()


def money(campaign: Campaign) -> tuple[Table, ...]:
    """Rent or buy, and what each budget buys."""
    if campaign.question is not Question.HARDWARE:
        return ()
    found, wanted = measured(cells(campaign)), asked(campaign)
    every = (
        recommend.rented(found, wanted),
        recommend.owned(found, wanted),
        recommend.rent_or_buy_table(found, wanted),
    )
    return tuple(table for table in every if table.rows)


def headline(campaign: Campaign) -> tuple[str, ...]:
    """The fastest and the cheapest GPU, for the first works."""
    if campaign.question is not Question.HARDWARE:
        return ()
    by_work: dict[str, list[Cell]] = {}
    for cell in measured(cells(campaign)):
        by_work.setdefault(cell.work, []).append(cell)
    told = [_best(work, found) for work, found in list(by_work.items())[:MAX_TOLD]]
    return (*told, *([f"The report has {len(by_work) - MAX_TOLD} more."] if len(by_work) > MAX_TOLD else []))


def _best(work: str, found: Sequence[Cell]) -> str:
    fastest = max(found, key=lambda cell: cell.tokens_per_s or 0.0)
    cheapest = min(found, key=lambda cell: cell.usd_per_1m_samples or float("inf"))
    rate = f"{figure(fastest.tokens_per_s)} tokens/s on {fastest.gpu}"
    price = cheapest.usd_per_1m_samples
    if price is None:
        return f"{work}: {rate}, without a price."
    if len(found) == 1:
        return f"{work}: {rate}, {usd(price)} per 1M samples."
    of = "" if all(cell.usd_per_1m_samples for cell in found) else ", of those with a price"
    return f"{work}: fastest {rate}, cheapest {usd(price)} per 1M samples on {cheapest.gpu}{of}."


def _speed(
    model: str, found: Sequence[Cell], nowhere: Sequence[Cell], wanted: ComparisonParams, more: Sequence[str]
) -> Table:
    has_several = len({cell.gpu for cell in measured(found)}) > 1
    columns = tuple(name for name in SPEED if has_several or name != "relative speed")
    rows, notes = [], []
    for recipe in dict.fromkeys(cell.recipe for cell in found):
        of_recipe = [cell for cell in found if cell.recipe == recipe]
        base = baseline(of_recipe, wanted.baseline_gpu)
        for cell in sorted(of_recipe, key=lambda cell: -(cell.tokens_per_s or 0.0)):
            rows.append(_speed_row(cell, base if has_several else None, wanted, has_several))
        notes += _unequal(recipe, measured(of_recipe))
    rows += [_speed_row(cell, None, wanted, has_several) for cell in nowhere]
    return Table(
        columns=("recipe", "GPU", *columns, "remark"),
        numeric=frozenset(columns),
        rows=tuple(rows),
        notes=(*_speed_notes(found, wanted, has_several), *recommend.price_notes(measured(found)), *more, *notes),
        title=_model_name(model, found),
    )


def _model_name(model: str, found: Sequence[Cell]) -> str:
    results = [result for cell in found for result in cell.results]
    if not results:
        return model
    spec = results[0].spec
    return f"{model}, {spec.seq_length:,} tokens, {spec.precision}, {spec.preset}"


def _speed_row(cell: Cell, base: Cell | None, wanted: ComparisonParams, has_several: bool) -> Row:
    if not cell.results:
        blank = len(SPEED) - (0 if has_several else 1)
        remark = one_line(cell.why_not)
        return Row(cells=(cell.recipe, cell.gpu, *[NA] * blank, remark), tone=Tone.WARN)
    ratio = relative(cell, base) if base else None
    told = f"{ratio.text()} (baseline)" if ratio and cell is base else ratio.text() if ratio else NA
    epoch = wanted.epoch_samples / cell.samples_per_s if cell.samples_per_s else None
    figures = (
        " or ".join(str(size) for size in cell.micro_batches),
        figure(cell.tokens_per_s),
        figure(cell.samples_per_s),
        *((told,) if has_several else ()),
        figure(cell.memory_gb),
        duration(epoch),
        usd(cell.usd_per_gpu_hour),
        usd(cell.usd_per_1m_samples),
        usd(cell.usd_per_1m_tokens),
    )
    return Row(cells=(cell.recipe, cell.gpu, *figures, _remark(cell)), run_id=median_run(cell.results))


def _remark(cell: Cell) -> str:
    parts = [f"{count(len(cell.results), 'run')} on {count(cell.num_nodes, 'node')}"]
    if cell.num_failed:
        parts.append(f"{cell.num_failed} more failed")
    return ", ".join(parts)


def _speed_notes(found: Sequence[Cell], wanted: ComparisonParams, has_several: bool) -> list[str]:
    notes = [f"One GPU each; medians over runs. 1 epoch: {wanted.epoch_samples:,} samples, start-up left out."]
    if has_several:
        against = f"'{wanted.baseline_gpu}'" if wanted.baseline_gpu else "the fastest"
        notes.append(
            f"Relative speed: tokens/s over those of {against}, ± 99 % interval of the runs and windows. It is of the "
            "GPUs that ran: cards of one kind differ by some percent."
        )
    elif gpus := {cell.gpu for cell in measured(found)}:
        notes.append(f"Only {gpus.pop()} was measured: there is nothing to be relative to.")
    if has_several and wanted.baseline_gpu:
        recipes = dict.fromkeys(cell.recipe for cell in measured(found))
        lost = [r for r in recipes if not baseline([c for c in found if c.recipe == r], wanted.baseline_gpu)]
        notes += [f"{listing(lost)}: no '{wanted.baseline_gpu}' was measured to be relative to."] if lost else []
    return notes


def _unequal(recipe: str, found: Sequence[Cell]) -> list[str]:
    if len({cell.micro_batches for cell in found}) < 2:
        return []
    sizes = "; ".join(f"{' or '.join(map(str, cell.micro_batches))} on {cell.gpu}" for cell in found)
    why = "each GPU ran what suits it best" if _is_auto(found) else "they were asked for so"
    return [f"Unequal work with {recipe}: the micro-batch is {sizes} ({why}). A step is not the same work on each."]


def _is_auto(found: Sequence[Cell]) -> bool:
    return any(result.spec.micro_batch_size == AUTO for cell in found for result in cell.results)


def _memory_row(cell: Cell, found: Sequence[Cell]) -> Row:
    saved = saved_memory(cell, found)
    return Row(
        cells=(
            cell.model,
            cell.recipe,
            cell.gpu,
            " or ".join(str(size) for size in cell.micro_batches),
            figure(cell.memory_gb),
            figure(predicted_gb(cell.results[0].work)),
            figure(saved.full_gb) if saved else "",
            percent(saved.pct) if saved else "",
            "" if not saved else "by formula" if saved.by_formula else "measured",
        ),
        run_id=median_run(cell.results),
    )
