"""Duration, GPU-hours and cost of a plan before anything runs, for each kind of run.

The duration of a run is the median of what equal runs on the same GPU took here, where the history has any. Else it is
a formula, not a measurement: START_S, then the warm-up steps and the longest windows, at the step time that
ASSUMED_MFU_PCT gives. Of the 130 results of H200s under docs/results at least nine in ten took between half and twice
of it; tests/unit/cost/test_plan_estimate.py computes it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from bench_image.contract.frozen import Frozen
from bench_image.contract.gpu_specs import names_gpu
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import AUTO, Device
from trainbench.core.formats import listing, share
from trainbench.core.number_checks import QuantityError
from trainbench.cost.job_estimates import MemoryFit, memory_fit, rate_by_mfu
from trainbench.history.history import PastRun
from trainbench.planning.nodes import GpuNode
from trainbench.planning.plan import Plan
from trainbench.prices.price_tables import Price, exact_prices, price_for

START_S = 25.0  # launch, imports, model, probes, compilation and profile: the median of the committed results is 25 s
ASSUMED_MFU_PCT = 40.0
ASSUMED_MICRO_BATCH = 8  # for `auto`
Past = Mapping[str, Sequence[PastRun]]
NO_PAST: Past = {}


class Amounts(Frozen):
    """What all runs of a kind, or of a plan, take. None: unknown."""

    total_s: float | None
    gpu_hours: float | None
    on_demand_usd: float | None
    spot_usd: float | None


class RunKind(Amounts):
    """Runs of equal work on equal GPUs. None: unknown. `run_s`: seconds of one run.

    `num_past_runs`: the runs of the history whose median `run_s` is; 0: it is computed by the formula.
    """

    work: str
    gpu: str | None
    num_gpus: int
    num_runs: int
    run_s: float | None
    num_past_runs: int
    memory: MemoryFit | None


class PlanEstimate(Amounts):
    """The kinds of runs and their sums, one run after another. `limit_s`: the sum of the runs' time limits.

    `longest_s`: the runs of the node that takes longest, where the DAG runs nodes side by side; None for a comparison.
    """

    kinds: tuple[RunKind, ...]
    num_runs: int
    limit_s: float
    longest_s: float | None
    notes: tuple[str, ...]


def estimate_plan(plan: Plan, prices: Sequence[Price], past: Past = NO_PAST) -> PlanEstimate:
    """The estimate of the plan's runs; re-runs of suspects come on top. `past`: earlier runs by group id."""
    nodes, is_cuda = {node.name: node for node in plan.known}, plan.params.work.device is Device.CUDA
    alike: dict[tuple[str, str | None], list[RunSpec]] = {}
    for spec in plan.specs:
        node = nodes.get(spec.identity.node) if is_cuda else None
        alike.setdefault((spec.identity.group_id, node.gpu_product if node else None), []).append(spec)
    kinds, by_node = [], dict[str, list[float | None]]()
    for (group_id, gpu), specs in alike.items():
        seconds = [
            run.seconds
            for run in past.get(group_id, ())
            if (names_gpu(gpu, run.gpu_name or "") if gpu else run.gpu_name is None)
        ]
        kinds.append(_kind(plan, specs, gpu, nodes.get(specs[0].identity.node), prices, seconds))
        for spec in specs:
            by_node.setdefault(spec.identity.node, []).append(kinds[-1].run_s)
    of_nodes = [of_node for parts in by_node.values() if (of_node := _sum(parts))]
    is_known = plan.judges_nodes and len(of_nodes) == len(by_node)
    return PlanEstimate(
        kinds=tuple(kinds),
        num_runs=len(plan.specs),
        limit_s=sum(spec.timeout_s for spec in plan.specs),
        longest_s=max(of_nodes) if is_known else None,
        notes=tuple(_notes(plan, kinds, prices)),
        **{name: _sum([getattr(kind, name) for kind in kinds]) for name in Amounts.model_fields},
    )


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


def run_s(spec: RunSpec, gpu_name: str | None) -> float | None:
    """Seconds from process start to result, by formula; None where the GPU's peak is unknown, and on a CPU.

    A window takes at most `max_measured_steps`, and ends after `max_window_s`.
    """
    if spec.work.device is Device.CPU or gpu_name is None or spec.work.own_job:
        return None
    if spec.work.micro_batch_size == AUTO:
        spec = spec.changed(work={"micro_batch_size": ASSUMED_MICRO_BATCH})
    try:
        step = spec.samples_per_step / rate_by_mfu(spec, gpu_name, ASSUMED_MFU_PCT)[0]
    except QuantityError:
        return None
    rules = spec.measurement
    windows = rules.repeats * min(rules.max_window_s, rules.max_measured_steps * step)
    # The program's own time limit ends a longer run.
    return min(START_S + rules.warmup_steps * step + windows, spec.timeout_s)


def _kind(
    plan: Plan,
    specs: Sequence[RunSpec],
    gpu: str | None,
    node: GpuNode | None,
    prices: Sequence[Price],
    past_s: Sequence[float],
) -> RunKind:
    spec, is_cuda = specs[0], specs[0].work.device is Device.CUDA
    one = statistics.median(past_s) if past_s else run_s(spec, gpu)
    total = None if one is None else one * len(specs)
    hours = total * spec.placement.world_size / 3600 if total is not None and is_cuda else None
    on_demand, spot = price_for(gpu, prices, plan.params.usd_per_gpu_hour), cheapest_spot(gpu, prices)
    memory = None
    if is_cuda and not spec.work.own_job:
        memory = memory_fit(spec, gpu, node.gpu_memory_bytes if node else None)
    work = f"{spec.work.name} {spec.placement.strategy}"
    return RunKind(
        work=plan.labels.get(spec.identity.group_id) or work,
        gpu=gpu,
        num_gpus=spec.placement.world_size,
        num_runs=len(specs),
        run_s=one,
        num_past_runs=len(past_s),
        total_s=total,
        gpu_hours=hours,
        on_demand_usd=hours * on_demand.usd_per_gpu_hour if hours and on_demand else None,
        spot_usd=hours * spot.spot_usd_per_gpu_hour if hours and spot and spot.spot_usd_per_gpu_hour else None,
        memory=memory,
    )


def cheapest_spot(gpu_name: str | None, prices: Sequence[Price]) -> Price | None:
    """The cheapest spot price among those that name the GPU most exactly; None where none has a spot price."""
    rows = [price for price in exact_prices(gpu_name, prices) if price.spot_usd_per_gpu_hour]
    return min(rows, key=lambda price: price.spot_usd_per_gpu_hour or 0.0, default=None)


def _notes(plan: Plan, kinds: Sequence[RunKind], prices: Sequence[Price]) -> Iterator[str]:
    gpus = list(dict.fromkeys(kind.gpu for kind in kinds if kind.gpu))
    is_cpu = plan.params.work.device is Device.CPU
    if not gpus and not is_cpu:
        yield (
            "No GPU is visible here, so duration, cost and what fits are not known: name a GPU by --gpu, for example "
            "--gpu 'H100 80GB HBM3' --gpus 8."
        )
        return
    if any(kind.num_past_runs for kind in kinds):
        yield "By past runs: the median of what equal runs took here on the same GPU or CPU."
    if is_cpu:
        of_all = "its cost is not" if all(kind.run_s for kind in kinds) else "neither its duration nor its cost is"
        yield f"A trial on a CPU: {of_all} estimated."
    elif not all(kind.num_past_runs for kind in kinds):
        yield (
            f"By formula: {START_S:.0f} s to start, then warm-up and windows at an MFU of "
            f"{share(ASSUMED_MFU_PCT, 0)}; expect half to twice of it."
        )
    if plan.judges_nodes and any(kind.run_s for kind in kinds):
        yield "Re-runs of suspects come on top."
    if is_cpu:
        return
    if any(spec.work.micro_batch_size == AUTO for spec in plan.specs):
        yield f"Micro-batch auto counts as {ASSUMED_MICRO_BATCH}."
    if unrated := dict.fromkeys(kind.gpu for kind in kinds if kind.gpu and kind.run_s is None):
        yield f"The peak FLOP/s of {listing(unrated)} is not known, so neither is the duration."
    yield from (_prices_note(gpu, plan, prices) for gpu in gpus)
    if tight := [kind.work for kind in kinds if kind.memory and kind.memory.fits is False]:
        yield (
            f"{listing(dict.fromkeys(tight))}: by formula more memory than a GPU has to spare; "
            f"{'it' if len(tight) == 1 else 'each'} may end out of memory."
        )


def _prices_note(gpu: str, plan: Plan, prices: Sequence[Price]) -> str:
    on_demand, spot = price_for(gpu, prices, plan.params.usd_per_gpu_hour), cheapest_spot(gpu, prices)
    if on_demand is None:
        return f"No price of {gpu}: give one by --set usd_per_gpu_hour=2.50, or a table by TRAINBENCH_PRICES."
    spot_text = "; no spot price is known"
    if spot:
        spot_text = (
            f"; spot at ${spot.spot_usd_per_gpu_hour:.2f} ({spot.offer}; on demand ${spot.usd_per_gpu_hour:.2f}), the "
            "cheapest"
        )
    return f"{gpu}: on demand at ${on_demand.usd_per_gpu_hour:.2f} per GPU-hour ({on_demand.offer}){spot_text}."
