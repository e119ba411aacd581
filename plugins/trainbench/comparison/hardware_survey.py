"""Figures of each model and recipe on each kind and number of GPUs of a survey; `survey_tables` makes the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from bench_image.contract.memory_estimate import memory_need_bytes
from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.result import RunResult
from bench_image.contract.spec import RunSpec
from trainbench.comparison.comparable import by_placed_work
from trainbench.comparison.gpu_kinds import gpu_kind_by_node, kind_of_skipped
from trainbench.comparison.measured_runs import MeasuredRuns
from trainbench.comparison.speedups import SpeedUp, noise_of_one_run, runs_with_throughput
from trainbench.core.grouping import grouped
from trainbench.figure_catalogue.run_figures import SAMPLES_PER_SECOND, TOKENS_PER_SECOND, USD_PER_1000_SAMPLES
from trainbench.judging.noise import median_variance
from trainbench.params.comparison_params import ComparisonParams
from trainbench.planning.skipped import Skipped
from trainbench.prices.price_tables import name_parts
from trainbench.prices.run_cost import RunCost
from trainbench.results.campaign import Campaign

ANYWHERE = "any GPU"
EVERYTHING = "everything"


@dataclass(frozen=True, kw_only=True)
class SurveyCell(MeasuredRuns):
    """One model with one recipe on one kind and number of GPUs. `why_not`: why nothing was measured, else ""."""

    model: str
    recipe: str
    gpu: str
    strategy: Strategy | None  # None: skipped whatever the strategy
    num_gpus: int
    num_failed: int
    why_not: str

    @property
    def work(self) -> str:
        return f"{self.model} {self.recipe}"

    @property
    def hardware(self) -> str:
        """ "NVIDIA A10"; of several GPUs "2 x NVIDIA A10, ddp"."""
        return self.gpu if self.num_gpus == 1 else f"{self.num_gpus} x {self.gpu}, {self.strategy}"

    @cached_property
    def samples_per_s(self) -> float | None:
        return self.figure(SAMPLES_PER_SECOND)

    @cached_property
    def tokens_per_s(self) -> float | None:
        return self.figure(TOKENS_PER_SECOND)

    @property
    def tokens_per_s_per_gpu(self) -> float | None:
        return self.tokens_per_s / self.num_gpus if self.tokens_per_s else None

    @cached_property
    def memory_gb(self) -> float | None:
        """Peak memory in 1e9 bytes as CUDA counts it; None on a CPU, where the process holds more than the training."""
        return self.median(lambda r: r.memory.peak_during_training if r.memory.kind == "cuda_allocated" else None)

    @property
    def micro_batches(self) -> tuple[int, ...]:
        return tuple(sorted({r.effective_spec.work.samples_per_micro_step for r in self.results}))

    @property
    def num_nodes(self) -> int:
        return len({r.spec.identity.node for r in self.results})

    @property
    def price(self) -> RunCost | None:
        """The cost that says which price counts, and whose it is."""
        return next((cost for cost in self.costs if cost.usd_per_gpu_hour is not None), None)

    @property
    def usd_per_1m_samples(self) -> float | None:
        usd = self.figure(USD_PER_1000_SAMPLES)
        return None if usd is None else 1000 * usd


class _Key(NamedTuple):
    model: str
    recipe: str
    gpu: str
    strategy: Strategy
    num_gpus: int


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
    costs = {cost.run_id: cost for cost in campaign.costs}
    runs = grouped((_key(result.spec, of_node), result) for result in campaign.results)
    all_cells = [_cell(key, members, costs) for key, members in runs.items()]
    left_out = (
        _left_out(skip, gpu) for skip in campaign.skipped for gpu in kind_of_skipped(skip, of_node) or (ANYWHERE,)
    )
    all_cells += [
        each for each in left_out if (each.model, each.recipe, each.gpu, each.strategy, each.num_gpus) not in runs
    ]
    works = _works_in_order(campaign)
    return tuple(sorted(all_cells, key=lambda cell: works.index(cell.work) if cell.work in works else len(works)))


def comparison_params(campaign: Campaign) -> ComparisonParams:
    """The parameters of the comparison."""
    known = {name: value for name, value in campaign.params.items() if name in ComparisonParams.model_fields}
    return ComparisonParams.model_validate(known)


def measured(among: Sequence[SurveyCell]) -> tuple[SurveyCell, ...]:
    return tuple(cell for cell in among if cell.results)


def has_gangs(among: Sequence[SurveyCell]) -> bool:
    """Whether any of them needs several GPUs."""
    return any(cell.num_gpus > 1 for cell in among)


def baseline(among: Sequence[SurveyCell], wanted: str | None) -> SurveyCell | None:
    """Of cells of one work and number of GPUs: the fastest on a GPU that `wanted` names, or the fastest at all. None:
    nothing fits.
    """
    fitting = [cell for cell in measured(among) if not wanted or name_parts(wanted) <= name_parts(cell.gpu)]
    return max(fitting, key=lambda cell: cell.tokens_per_s or 0.0, default=None)


def relative_speed(cell: SurveyCell, base: SurveyCell) -> SpeedUp | None:
    """Tokens/s over those of `base`, with the noise of both cells' runs and windows; nothing is paired."""
    if not cell.tokens_per_s or not base.tokens_per_s:
        return None
    ratio = cell.tokens_per_s / base.tokens_per_s
    if cell is base:
        return SpeedUp(ratio, None, len(cell.results))
    one_run = noise_of_one_run([cell.results, base.results])
    variance = median_variance(len(cell.results)) + median_variance(len(base.results))
    return SpeedUp(ratio, one_run.half_width(variance) if one_run else None, len(cell.results))


def saved_memory(cell: SurveyCell, among: Sequence[SurveyCell]) -> Saved | None:
    """Against full fine-tuning of the same model with all else equal, on the same hardware. None: nothing to say."""
    if cell.recipe == Recipe.FULL or cell.memory_gb is None:
        return None
    full = _in_full(cell.results[0])
    for other in measured(among):
        is_full = (other.model, other.recipe, other.gpu) == (cell.model, Recipe.FULL, cell.gpu)
        if is_full and other.memory_gb and by_placed_work(_in_full(other.results[0])) == by_placed_work(full):
            return Saved(pct=100 * (1 - cell.memory_gb / other.memory_gb), full_gb=other.memory_gb, by_formula=False)
    full_gb = predicted_gb(full)
    return Saved(pct=100 * (1 - cell.memory_gb / full_gb), full_gb=full_gb, by_formula=True)


def _in_full(result: RunResult) -> RunSpec:
    """The same work as full fine-tuning."""
    return result.effective_spec.changed(work={"recipe": Recipe.FULL, "lora": None, "quantisation": None})


def predicted_gb(spec: RunSpec) -> float:
    return memory_need_bytes(spec).total / 1e9


def _key(spec: RunSpec, of_node: Mapping[str, str]) -> _Key:
    work, placement = spec.work, spec.placement
    gpu = of_node[spec.identity.node]
    return _Key(work.model, work.recipe.value, gpu, placement.strategy, placement.world_size)


def _works_in_order(campaign: Campaign) -> list[str]:
    """The works, such as "gpt2 full", in the order of the plan's labels."""
    works = {r.spec.identity.group_id: f"{r.spec.work.model} {r.spec.work.recipe}" for r in campaign.results}
    works |= {skip.group_id: f"{skip.model} {skip.recipe}" for skip in campaign.skipped if skip.group_id}
    return list(dict.fromkeys(works[group_id] for group_id in campaign.labels if group_id in works))


def _cell(key: _Key, runs: Sequence[RunResult], costs: Mapping[str, RunCost]) -> SurveyCell:
    results = runs_with_throughput(runs)
    failed = [(r.status, r.error) for r in runs if r.error]
    why = f"{failed[0][0].value}: {failed[0][1].message}" if failed else ""
    return SurveyCell(
        **key._asdict(),
        results=results,
        num_failed=len(failed),
        why_not="" if results else why or "it gave no figure",
        costs=tuple(costs[r.spec.identity.run_id] for r in results if r.spec.identity.run_id in costs),
    )


def _left_out(skip: Skipped, gpu: str) -> SurveyCell:
    return SurveyCell(
        model=skip.model or EVERYTHING,
        recipe=skip.recipe or EVERYTHING,
        gpu=gpu,
        strategy=skip.strategy,
        num_gpus=skip.gpus_per_node or 1,
        results=(),
        num_failed=0,
        why_not=skip.reason,
    )
