"""Figures of each model and recipe on each kind and number of GPUs of a survey; `survey_tables` makes the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from bench_image.contract.gpu_specs import name_parts
from bench_image.contract.memory_estimate import memory_need_bytes
from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Cost
from bench_image.contract.spec import RunSpec
from trainbench.comparison.configurations import SpeedUp, runs_with_throughput
from trainbench.comparison.entries import Entry, by_placed_work, gpu_kind_by_node, kind_of_skipped
from trainbench.core.formats import DAYS_FROM_H, NA, figure, listing, usd
from trainbench.core.grouping import grouped
from trainbench.core.tables import Column, Table, make_table, text, text_columns
from trainbench.figure_catalogue.run_figures import USD_PER_1000_SAMPLES, USD_PER_GPU_HOUR
from trainbench.figure_catalogue.table_figures import BUDGET, RENT_OR_BUY
from trainbench.params.campaign_params import ComparisonParams
from trainbench.prices.price_tables import ListPrice, list_price
from trainbench.prices.quote import rent_or_buy
from trainbench.results.campaign import Campaign

ANYWHERE = "any GPU"
EVERYTHING = "everything"


@dataclass(frozen=True, kw_only=True)
class SurveyCell(Entry):
    """One model with one recipe on one kind and number of GPUs. `why_not`: why nothing was measured, else ""."""

    model: str
    recipe: str
    gpu: str
    strategy: Strategy | None  # type: ignore[assignment] # None: skipped whatever the strategy
    num_failed: int
    why_not: str

    @property
    def key(self) -> tuple[str, str, str, Strategy | None, int]:
        return self.model, self.recipe, self.gpu, self.strategy, self.world_size

    @property
    def work(self) -> str:
        return f"{self.model} {self.recipe}"

    @property
    def hardware(self) -> str:
        """ "NVIDIA A10"; of several GPUs "2 x NVIDIA A10, ddp"."""
        return self.gpu if self.world_size == 1 else f"{self.world_size} x {self.gpu}, {self.strategy}"

    @cached_property
    def gpu_memory_gb(self) -> float | None:
        """Peak memory in 1e9 bytes as CUDA counts it; None on a CPU, where the process holds more than the training."""
        return self.median(lambda r: r.memory.peak_during_training if r.memory.kind == "cuda_allocated" else None)

    @property
    def micro_batches(self) -> tuple[int, ...]:
        return tuple(sorted({r.effective_spec.work.samples_per_micro_step for r in self.results}))

    @property
    def price(self) -> Cost | None:
        """Which price counts, and whose it is."""
        return next((run.cost for run in self.results if run.cost.usd_per_gpu_hour is not None), None)

    @property
    def usd_per_1m_samples(self) -> float | None:
        usd = self.figure(USD_PER_1000_SAMPLES)
        return None if usd is None else 1000 * usd


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """Memory saved against full fine-tuning, in percent of `full_gb`; `by_formula`: full was not measured on
    equal work, so `full_gb` is the formula's for it.
    """

    pct: float
    full_gb: float
    by_formula: bool


def survey_cells(campaign: Campaign) -> tuple[SurveyCell, ...]:
    """One cell for each model, recipe, kind of GPU, strategy and number of GPUs, in the order of the parameters;
    skipped ones included, unless another node of the kind ran them.
    """
    of_node = gpu_kind_by_node(campaign)
    ran: dict[object, SurveyCell] = {}
    of_cells = grouped(
        (
            (
                spec.work.model,
                spec.work.recipe,
                of_node[spec.identity.node],
                spec.placement.strategy,
                spec.placement.world_size,
            ),
            run,
        )
        for run in campaign.results
        for spec in [run.spec]
    )
    for runs in of_cells.values():
        cell = _cell(runs, of_node[runs[0].spec.identity.node])
        ran[cell.key] = cell
    left_out = (
        SurveyCell(
            model=skip.model or EVERYTHING,
            recipe=skip.recipe or EVERYTHING,
            gpu=gpu,
            strategy=skip.strategy,
            world_size=skip.gpus_per_node or 1,
            results=(),
            num_failed=0,
            why_not=skip.reason,
        )
        for skip in campaign.skipped
        for gpu in kind_of_skipped(skip, of_node) or (ANYWHERE,)
    )
    # The works, such as "gpt2 full", in the order of the plan's labels.
    works = {r.spec.identity.group_id: f"{r.spec.work.model} {r.spec.work.recipe}" for r in campaign.results}
    works |= {skip.group_id: f"{skip.model} {skip.recipe}" for skip in campaign.skipped if skip.group_id}
    order = list(dict.fromkeys(works[group_id] for group_id in campaign.labels if group_id in works))
    cells = (*ran.values(), *(cell for cell in left_out if cell.key not in ran))
    return tuple(sorted(cells, key=lambda cell: order.index(cell.work) if cell.work in order else len(order)))


def comparison_params(campaign: Campaign) -> ComparisonParams:
    """The parameters of the comparison."""
    known = {name: value for name, value in campaign.params.items() if name in ComparisonParams.model_fields}
    return ComparisonParams.model_validate(known)


def measured(among: Sequence[SurveyCell]) -> tuple[SurveyCell, ...]:
    return tuple(cell for cell in among if cell.results)


def has_gangs(among: Sequence[SurveyCell]) -> bool:
    """Whether any of them needs several GPUs."""
    return any(cell.world_size > 1 for cell in among)


def baseline(among: Sequence[SurveyCell], wanted: str | None) -> SurveyCell | None:
    """Of cells of one work and number of GPUs: the fastest on a GPU that `wanted` names, or the fastest at all. None:
    nothing fits.
    """
    fitting = [cell for cell in measured(among) if not wanted or name_parts(wanted) <= name_parts(cell.gpu)]
    return max(fitting, key=lambda cell: cell.tokens_per_s, default=None)


def relative_speed(cell: SurveyCell, base: SurveyCell) -> SpeedUp | None:
    """Tokens/s over those of `base`, with the noise of both; nothing is paired."""
    if not cell.tokens_per_s or not base.tokens_per_s:
        return None
    ratio = cell.tokens_per_s / base.tokens_per_s
    if cell is base:
        return SpeedUp(ratio, None)
    return SpeedUp(ratio, math.hypot(cell.noise, base.noise))


def saved_memory(cell: SurveyCell, among: Sequence[SurveyCell]) -> Saved | None:
    """Against full fine-tuning of the same model with all else equal, on the same hardware. None: nothing to say."""
    if cell.recipe == Recipe.FULL or cell.gpu_memory_gb is None:
        return None
    full = _in_full(cell.results[0])
    for other in measured(among):
        is_full = (other.model, other.recipe, other.gpu) == (cell.model, Recipe.FULL, cell.gpu)
        if is_full and other.gpu_memory_gb and by_placed_work(_in_full(other.results[0])) == by_placed_work(full):
            full_gb, by_formula = other.gpu_memory_gb, False
            break
    else:
        full_gb, by_formula = predicted_gb(full), True
    return Saved(pct=100 * (1 - cell.gpu_memory_gb / full_gb), full_gb=full_gb, by_formula=by_formula)


def _in_full(result: RunResult) -> RunSpec:
    """The same work as full fine-tuning."""
    return result.effective_spec.changed(work={"recipe": Recipe.FULL, "lora": None, "quantisation": None})


def predicted_gb(spec: RunSpec) -> float:
    return memory_need_bytes(spec).total / 1e9


def _cell(runs: Sequence[RunResult], gpu: str) -> SurveyCell:
    work, placement, results = runs[0].spec.work, runs[0].spec.placement, runs_with_throughput(runs)
    failed = [f"{r.status.value}: {r.error.message}" for r in runs if r.error]
    return SurveyCell(
        model=work.model,
        recipe=work.recipe.value,
        gpu=gpu,
        strategy=placement.strategy,
        world_size=placement.world_size,
        results=results,
        num_failed=len(failed),
        why_not="" if results else next(iter(failed), "it gave no figure"),
    )


NO_PURCHASE_PRICE = "it has no list price: give its price in purchase_usd"
NO_PURCHASE_PRICES = "cannot be answered: these GPUs have no list price: give their prices in purchase_usd"
OWNED = "What a budget buys, owned"
OWNED_COLUMNS = text_columns("budget", "buys", "which together do")


def rental_table(cells: Sequence[SurveyCell], wanted: ComparisonParams) -> Table:
    """For each work the hardware that is cheapest per sample, and how far each budget goes on it."""
    rows = []
    for work, of_work in grouped((cell.work, cell) for cell in cells).items():
        priced = (cell for cell in of_work if cell.usd_per_1m_samples)
        rows.append((work, of_work, min(priced, key=lambda cell: cell.usd_per_1m_samples or 0.0, default=None)))

    def budget_column(budget_usd: float) -> Column[tuple[str, list[SurveyCell], SurveyCell | None]]:
        return BUDGET.column(
            lambda row: _rented(budget_usd, row[1], row[2], wanted), f"{usd(budget_usd)} buys", is_number=False
        )

    return make_table(
        rows,
        (
            text("work", lambda row: row[0]),
            text("cheapest GPU", lambda row: row[2].hardware if row[2] else NA),
            USD_PER_1000_SAMPLES.column(lambda row: row[2].usd_per_1m_samples if row[2] else None, "per 1M samples"),
            *map(budget_column, wanted.budgets_usd),
        ),
        notes=(
            f"Rented by the hour: samples, epochs of {wanted.epoch_samples:,} samples, time on the GPU or GPUs named. "
            "Start-up and storage are left out; more GPUs take less time, at the efficiency that a scaling study "
            "measures. A GPU costs its share of its instance, although some providers rent only whole instances.",
            *price_notes(cells),
        ),
        title="What a budget buys, rented",
    )


def _rented(budget_usd: float, cells: Sequence[SurveyCell], best: SurveyCell | None, wanted: ComparisonParams) -> str:
    if best is None:
        return f"cannot be answered: no price for {' or '.join(dict.fromkeys(cell.gpu for cell in cells))}"
    # Budget / price of a sample; over samples/s it is the time.
    assert best.usd_per_1m_samples is not None, "only priced cells are compared"
    samples = budget_usd / best.usd_per_1m_samples * 1e6
    hours = samples / best.samples_per_s / 3600
    time = f"{figure(hours / 24, 3)} days" if hours > DAYS_FROM_H else f"{figure(hours, 3)} h"
    return f"{figure(samples / 1e6, 3)} M samples, {figure(samples / wanted.epoch_samples, 3)} epochs, {time}"


def price_notes(cells: Sequence[SurveyCell]) -> Iterator[str]:
    """For each kind of GPU whose price counts."""
    for gpu, known in grouped((cell.gpu, cell.price) for cell in cells).items():
        price = next(filter(None, known), None)
        if price is None:
            yield f"No price of {gpu} is known: it is compared by speed only."
            continue
        as_of = f" of {price.price_as_of}" if price.price_as_of else ""
        yield f"Price of {gpu}: {usd(price.usd_per_gpu_hour)} per GPU-hour, {price.price_source}{as_of}."


def purchase_table(cells: Sequence[SurveyCell], wanted: ComparisonParams) -> Table:
    """For each budget how many GPUs it buys, best first by what they do together on the work that most GPUs ran."""
    if not cells:
        return Table(columns=())
    if not any(purchase_price(cell.gpu, wanted) for cell in cells):
        return make_table([("any", NO_PURCHASE_PRICES, NA)], OWNED_COLUMNS, title=OWNED)
    gpus_of_work = grouped((cell.work, cell.gpu) for cell in cells)
    work = max(gpus_of_work, key=lambda work: len(set(gpus_of_work[work])))
    of_work = [cell for cell in cells if cell.work == work]
    ran, left_out = dict.fromkeys(cell.gpu for cell in of_work), []
    if others := [gpu for gpu in dict.fromkeys(cell.gpu for cell in cells) if gpu not in ran]:
        left_out.append(f"Left out, because this work was not measured on them: {listing(others)}.")
    if unpriced := [gpu for gpu in ran if not purchase_price(gpu, wanted)]:
        left_out.append(f"Left out, without a list price or one in purchase_usd: {listing(unpriced)}.")
    return make_table(
        [_owned_row(budget, of_work, wanted) for budget in wanted.budgets_usd],
        OWNED_COLUMNS,
        notes=(
            f"By {work}, the work that most kinds of GPU ran. Each GPU, or each group that was measured together, "
            "works on its own: no loss by communication between them.",
            *left_out,
            *purchase_notes(of_work, wanted),
        ),
        title=OWNED,
    )


def _owned_row(budget_usd: float, cells: Sequence[SurveyCell], wanted: ComparisonParams) -> tuple[str, str, str]:
    priced = [(cell, bought.usd) for cell in cells if (bought := purchase_price(cell.gpu, wanted))]
    if not priced:
        return usd(budget_usd), f"cannot be answered: {NO_PURCHASE_PRICE}", NA
    groups = [(int(budget_usd // (price * cell.world_size)), cell, price) for cell, price in priced]
    number, cell, price = max(groups, key=lambda group: group[0] * group[1].tokens_per_s)
    if not number:
        cell, price = min(priced, key=lambda item: item[1] * item[0].world_size)
        return (
            usd(budget_usd),
            f"none: the cheapest with a price is {cell.hardware} at {usd(price * cell.world_size)}",
            NA,
        )
    each = f" in groups of {cell.world_size} by {cell.strategy}" if cell.world_size > 1 else ""
    rate = figure(number * cell.tokens_per_s)
    return usd(budget_usd), f"{number * cell.world_size} x {cell.gpu} at {usd(price)}{each}", f"{rate} tokens/s"


def rent_or_buy_table(cells: Sequence[SurveyCell], wanted: ComparisonParams) -> Table:
    """One row for each kind of GPU."""
    notes = (
        f"Owned: {figure(wanted.used_hours_per_month, 3)} h of use a month, worth 0 after "
        f"{figure(wanted.life_months, 3)} months, {usd(wanted.opex_usd_per_gpu_hour)} of running cost per GPU-hour.",
        *price_notes(cells),
        *purchase_notes(cells, wanted),
    )
    return make_table(
        [_choice_row(gpu, of_gpu[0], wanted) for gpu, of_gpu in grouped((cell.gpu, cell) for cell in cells).items()],
        (
            text("GPU", lambda row: row[0]),
            USD_PER_GPU_HOUR.column(lambda row: row[1], "rent per GPU-hour"),
            RENT_OR_BUY.column(lambda row: row[2]),
            RENT_OR_BUY.column(lambda row: row[3], "pays above h a month"),
            RENT_OR_BUY.column(lambda row: row[4], "choice", is_number=False),
        ),
        notes=notes,
        title="Rent or buy",
    )


def _choice_row(gpu: str, cell: SurveyCell, wanted: ComparisonParams) -> tuple[str, str, str, str, str]:
    rent, price = cell.figure(USD_PER_GPU_HOUR), purchase_price(gpu, wanted)
    capex = price.usd if price else None
    if rent is None or capex is None:
        missing = NO_PURCHASE_PRICE if capex is None else "no price per hour is known: usd_per_gpu_hour"
        return gpu, usd(rent), usd(capex), NA, f"cannot be answered: {missing}"
    hours, why = rent_or_buy(
        rent, capex, wanted.used_hours_per_month, wanted.life_months, opex_usd_per_gpu_hour=wanted.opex_usd_per_gpu_hour
    )
    return gpu, usd(rent), usd(capex), "never" if hours is None else figure(hours, 3), why


class PurchasePrice(NamedTuple):
    """US dollars for one GPU. `listed`: the list price that they are; None: given by the user."""

    usd: float
    listed: ListPrice | None = None


def purchase_price(gpu: str, wanted: ComparisonParams) -> PurchasePrice | None:
    """The given price whose words are all in the GPU's name, of several the one with the most; else its list price."""
    fitting = [name for name in wanted.purchase_usd if name_parts(name) <= name_parts(gpu)]
    if fitting:
        return PurchasePrice(wanted.purchase_usd[max(fitting, key=lambda name: len(name_parts(name)))])
    listed = list_price(gpu)
    return PurchasePrice(listed.usd, listed) if listed else None


def purchase_notes(cells: Sequence[SurveyCell], wanted: ComparisonParams) -> Iterator[str]:
    """For each kind of GPU with a list price that counts: the price, its date and its source."""
    for gpu in dict.fromkeys(cell.gpu for cell in cells):
        price = purchase_price(gpu, wanted)
        if price and price.listed:
            yield (
                f"Purchase of {gpu}: {usd(price.usd)}, list price of {price.listed.as_of}, {price.listed.source}. It "
                "is that of the bare card at its launch; give what you would pay, with the server, in purchase_usd."
            )
