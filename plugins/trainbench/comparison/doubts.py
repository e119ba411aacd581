"""Doubts about figures: of one run by itself, and of runs beside each other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.result import RunResult, Status
from bench_image.contract.work import Device
from trainbench.comparison.entries import entries, work_groups, world_sizes
from trainbench.comparison.scaling import MIN_SCALING_PCT, efficiencies
from trainbench.core.formats import count, listing
from trainbench.core.grouping import grouped
from trainbench.core.verdicts import Finding, Level
from trainbench.params.campaign_params import MIN_GPU_USE_PCT
from trainbench.results.readings import gpu_name

# A GPU's step time that varies more is not steady. docs/results: 0.2 to 0.4 % for the node check's work, and up to
# 14.5 % where steps are short or several GPUs wait for each other: those runs are doubted.
MAX_STEP_CV_PCT = 10.0
MAX_BETWEEN_RUNS_PCT = 10.0  # of the step time, between equal runs on the same machines
MAX_MEMORY_SHARE_PCT = 95.0  # of the GPU: above it the allocator is short of room, and a small change is an OOM
# A published comparison of strategies on A10 nodes gives these ranges for its one work, over all of its strategies.
STATED_GPU = "NVIDIA A10"
STATED_WORK = {
    "model": "tier-a",
    "recipe": Recipe.FULL,
    "seq_length": 2048,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 4,
}
STATED_TOKENS_PER_S = {2: (6_000.0, 11_000.0), 4: (9_000.0, 18_000.0)}
# Sharding saves memory: (less, more), as published for those four. Other models may differ, so it only informs.
MEMORY_ORDER = (
    (Strategy.ZERO2, Strategy.DDP),
    (Strategy.ZERO3, Strategy.DDP),
    (Strategy.FSDP, Strategy.DDP),
    (Strategy.ZERO3, Strategy.FSDP),
)
CLOSE_MEMORY_PCT = 2.0
READING_S = 1.0  # NVML's use of a GPU is that of up to the last second: a shorter window is not all that it covers
TELEMETRY = ("utilisation_mean_pct", "temperature_mean_c", "power_mean_w", "sm_clock_mean_mhz", "throttle_share_pct")


def doubts_of_run(result: RunResult, min_gpu_use_pct: float = MIN_GPU_USE_PCT) -> tuple[Finding, ...]:
    """Doubts about a run that ended well and was no drill; a failed run has its own finding elsewhere.

    `min_gpu_use_pct`: share of the measured time in which a GPU should be busy, in percent.
    """
    if result.status is not Status.OK or result.spec.drill:
        return ()
    on_gpu = result.spec.work.device is Device.CUDA
    return (*(_on_gpu(result, min_gpu_use_pct) if on_gpu else ()), *_everywhere(result))


def _on_gpu(result: RunResult, min_gpu_use_pct: float) -> Iterator[Finding]:
    steps, memory, gpus = result.performance.step_time, result.memory, result.telemetry.gpus
    spec, rate = result.effective_spec, result.performance.tokens_per_second
    if steps and steps.cv_pct > MAX_STEP_CV_PCT:
        yield _doubt(
            result,
            "unstable_step_time",
            f"CV {steps.cv_pct:.1f} %",
            f"at most {MAX_STEP_CV_PCT:g} %",
            "the step time is not stable, so its mean is not reliable",
            "look for other work on the node, slow data or clocks that move; then repeat the run",
        )
    sizes = [g.memory_total_bytes for g in result.context.gpus if g.memory_total_bytes] if result.context else []
    used = memory.peak_reserved_bytes or memory.peak_allocated_bytes
    if sizes and used and 100 * used / min(sizes) > MAX_MEMORY_SHARE_PCT:
        yield _doubt(
            result,
            "memory_nearly_full",
            f"{used / 1e9:.1f} GB",
            f"at most {MAX_MEMORY_SHARE_PCT:g} % of {min(sizes) / 1e9:.1f} GB",
            "the GPU's memory is nearly full",
            "use a smaller micro-batch: the next run may end out of memory",
        )
    gaps, num_gpus = {field for gpu in gpus for field in TELEMETRY if getattr(gpu, field) is None}, len(gpus)
    if num_gpus < (planned := result.spec.placement.gpus_per_node):
        gaps.add(f"{planned - num_gpus} of {planned} GPUs")
    if gaps:
        yield _doubt(
            result,
            "incomplete_telemetry",
            f"missing: {', '.join(sorted(gaps))}",
            "all fields of all GPUs",
            "the GPU telemetry has gaps, so a slow node cannot be explained from it",
            "see `missing` in the result for the reason; check that the driver's NVML works inside the pod",
        )
    shares_pct = [gpu.utilisation_mean_pct for gpu in gpus if gpu.utilisation_mean_pct is not None]
    shortest_s = min((window.wall_s for window in result.performance.windows), default=math.inf)
    if shares_pct and min(shares_pct) < min_gpu_use_pct and shortest_s >= READING_S:
        yield _doubt(
            result,
            "low_gpu_use",
            f"{min(shares_pct):.1f} % of the time busy",
            f"at least {min_gpu_use_pct:g} %",
            "the GPU waited for its host or its peers, so the rate shows them as much as the GPU",
            "use a larger micro-batch, longer samples or the preset `tuned`; look at loader wait and host CPUs",
            Level.INFO,
        )
    is_stated = all(getattr(spec.work, name) == value for name, value in STATED_WORK.items())
    low, high = STATED_TOKENS_PER_S.get(spec.placement.world_size, (0.0, math.inf))
    if is_stated and gpu_name(result) == STATED_GPU and rate is not None and not low <= rate <= high:
        yield _doubt(
            result,
            "throughput_out_of_range",
            f"{rate:,.0f} tokens/s",
            f"{low:,.0f} to {high:,.0f} tokens/s on {spec.placement.world_size} {STATED_GPU}",
            "the throughput lies outside of what was published for this work on this GPU",
            "see clocks, throttling and the links between the GPUs; if all is well, the new figure stands",
            Level.INFO,
        )


def _everywhere(result: RunResult) -> Iterator[Finding]:
    first, last = result.performance.first_loss, result.performance.last_loss
    if first is not None and last is not None and last >= first:
        yield _doubt(
            result,
            "loss_not_falling",
            f"{first:.3f} -> {last:.3f}",
            "falling",
            "the loss did not fall; which is normal with random data and few steps",
            "nothing for throughput; if it rises in every run, check the learning rate and the precision",
            Level.INFO,
        )
    windows, measurement = result.performance.windows, result.spec.measurement
    unsteady = [window.half_width_pct for window in windows if not window.steady]
    if unsteady and result.spec.work.device is Device.CUDA:  # on a shared CPU windows are judged turn by turn
        yield _doubt(
            result,
            "unsteady_windows",
            f"{len(unsteady)} of {len(windows)} windows, worst ± {max(unsteady):.1f} %",
            f"± {measurement.target_half_width_pct:g} % within {measurement.max_measured_steps} steps",
            "the mean step time did not reach the wanted precision within the allowed steps",
            "measure more steps, or find out what disturbs the node",
        )


def doubts_between_runs(results: Sequence[RunResult]) -> tuple[Finding, ...]:
    """Doubts that need several runs: about scaling, about memory of strategies, and about equal runs."""
    on_gpu = [result for result in results if result.spec.work.device is Device.CUDA]
    return (*_scaling(on_gpu), *_memory_order(on_gpu), *_between_runs(on_gpu))


def _scaling(results: Sequence[RunResult]) -> Iterator[Finding]:
    for result, efficiency in zip(results, efficiencies(results), strict=True):
        if efficiency and not efficiency.elsewhere and efficiency.pct < MIN_SCALING_PCT:
            size, gain = result.spec.placement.world_size, "gains little from more GPUs"
            if efficiency.pct * size <= 100 * efficiency.base_world_size:
                gain = f"on {count(size, 'GPU')} is no faster than {efficiency.base}"
            yield _doubt(
                result,
                "low_scaling_efficiency",
                f"{efficiency.pct:.1f} % on {size} GPUs",
                f"at least {MIN_SCALING_PCT:g} % of the throughput per GPU at "
                f"{count(efficiency.base_world_size, 'GPU')}",
                f"'{result.spec.placement.strategy}' {gain}",
                "look at the exposed communication and at the links between the GPUs; try another strategy",
            )


def _memory_order(results: Sequence[RunResult]) -> Iterator[Finding]:
    """Findings on strategies that need more memory than theory predicts, for each work and number of GPUs."""
    for group in work_groups(results):
        for size in world_sizes(group):
            by_strategy = {entry.strategy: entry for entry in entries(group, size) if entry.memory_gb is not None}
            pairs = [(by_strategy.get(less), by_strategy.get(more)) for less, more in MEMORY_ORDER]
            most = 1 + CLOSE_MEMORY_PCT / 100
            wrong = [(a, b) for a, b in pairs if a and b and (a.memory_gb or 0.0) > (b.memory_gb or 0.0) * most]
            if wrong:
                yield _doubt(
                    wrong[0][0].results[0],
                    "memory_order",
                    "; ".join(
                        f"{less.strategy} {less.memory_gb:.2f} GB, {more.strategy} {more.memory_gb:.2f} GB"
                        for less, more in wrong
                    ),
                    listing((f"{less.strategy} below {more.strategy}" for less, more in wrong), most=len(MEMORY_ORDER)),
                    "sharding saves no memory here: the gathered layers take more than sharding saves",
                    "nothing, if the model is small or most of its weights are frozen; else check its set-up",
                    Level.INFO,
                )


def _between_runs(results: Sequence[RunResult]) -> Iterator[Finding]:
    """Findings on equal runs on the same machines that differ too much; drills are left out."""
    # The effective spec, not the spec: "auto" may have chosen differently.
    equal = grouped(
        ((r.effective_spec.fingerprint, *r.spec.identity.nodes), (steps.median_s, r))
        for r in results
        if (steps := r.performance.step_time) and not r.spec.drill
    )
    for runs in equal.values():
        steps_s = [median_s for median_s, _ in runs]
        apart_pct = 100 * (max(steps_s) - min(steps_s)) / statistics.median(steps_s)
        if apart_pct > MAX_BETWEEN_RUNS_PCT:
            yield _doubt(
                max(runs, key=lambda run: run[0])[1],
                "unstable_between_runs",
                f"median step times of {count(len(runs), 'run')} {apart_pct:.1f} % apart",
                f"at most {MAX_BETWEEN_RUNS_PCT:g} %",
                "equal runs on the same machine differ, so one of them is an outlier",
                "compare their clocks, temperatures and other processes; then repeat the run",
            )


def _doubt(
    result: RunResult,
    category: str,
    measured: str,
    expected: str,
    summary: str,
    resolution: str,
    level: Level = Level.WARNING,
) -> Finding:
    return Finding(
        level=level,
        category=category,
        nodes=(result.spec.identity.node,),
        item=result.spec.identity.run_id,
        measured=measured,
        expected=expected,
        summary=summary,
        resolution=resolution,
    )
