"""Throughput of a training job: measured, given, or by formula from a stated MFU."""

from __future__ import annotations

from bench_image.contract.flops import flops_per_token, tokens_per_sample
from bench_image.contract.frozen import Frozen
from bench_image.contract.gpu_specs import PEAK_TFLOPS, peak_tflops
from bench_image.contract.spec import RunSpec
from trainbench.core.formats import count, figure, share
from trainbench.core.number_checks import QuantityError, positive, used_share
from trainbench.exchange.comparison_rows import ComparisonRow


class Rate(Frozen):
    """Samples per second of all GPUs together, with the source of the figure."""

    samples_per_s: float
    num_gpus: int
    source: str  # a phrase


def measured_rate(row: ComparisonRow) -> Rate:
    """The median of the row's runs."""
    runs = f"the median of {count(row.num_runs, 'run')}" if row.num_runs > 1 else "one run"
    apart = "" if row.apart_pct is None else f", ± {share(row.apart_pct)} ({row.apart_from})"
    return Rate(
        samples_per_s=row.samples_per_s,
        num_gpus=row.num_gpus or row.num_ranks,
        source=f"measured: {runs} of {row.name}{apart}",
    )


def scaled_rate(rate: Rate, num_gpus: int, efficiency: float) -> Rate:
    """The rate on a number of GPUs that was not measured: rate per GPU x GPUs x efficiency. Raises QuantityError."""
    per_gpu = rate.samples_per_s / rate.num_gpus
    share_kept = used_share(efficiency, "scaling efficiency")
    return Rate(
        samples_per_s=per_gpu * positive(num_gpus, "number of GPUs") * share_kept,
        num_gpus=num_gpus,
        source=(
            f"{rate.source}, on {count(rate.num_gpus, 'GPU')}; taken to {count(num_gpus, 'GPU')} at the given scaling "
            f"efficiency of {share(100 * share_kept)}"
        ),
    )


def given_rate(samples_per_s: float, num_gpus: int) -> Rate:
    """The given rate, checked. Raises QuantityError."""
    return Rate(
        samples_per_s=positive(samples_per_s, "samples/s"), num_gpus=num_gpus, source="given, of all GPUs together"
    )


def rate_by_mfu(spec: RunSpec, gpu_name: str, mfu_pct: float) -> Rate:
    """The rate by formula: MFU x peak x GPUs / (model FLOPs per token x tokens per sample). Raises QuantityError, also
    where the GPU's peak is unknown.
    """
    # The FLOP/s that the job reaches, over the FLOPs of a sample.
    mfu = used_share(mfu_pct / 100, "MFU / 100")
    peak = peak_tflops(gpu_name, spec.work.precision)
    if peak is None:
        known = ", ".join(PEAK_TFLOPS)
        raise QuantityError(
            f"the peak of '{gpu_name}' in {spec.work.precision} is not known: name the GPU as NVML does, with words "
            f"such as {known}; or give samples/s"
        )
    flops = flops_per_token(
        spec.work.shape,
        spec.work.recipe,
        spec.work.seq_length,
        spec.work.lora,
        spec.work.gradient_checkpointing is True,
    )
    per_sample = flops.model * tokens_per_sample(spec.work.shape, spec.work.seq_length)
    return Rate(
        samples_per_s=mfu * peak * 1e12 * spec.placement.world_size / per_sample,
        num_gpus=spec.placement.world_size,
        source=(
            f"by formula, not measured: the given MFU of {share(mfu_pct)} of {figure(peak, 3)} TFLOP/s "
            f"({spec.work.precision}, dense) and {figure(per_sample / 1e12, 3)} TFLOP per sample"
        ),
    )
