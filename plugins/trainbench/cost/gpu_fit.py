"""Facts of the known GPUs and the jobs that fit each, as tables and as docs/internals/gpus.md."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench_image.contract.gpu_specs import GPU_SPECS, PEAK_TFLOPS, GpuSpec, name_parts, names_gpu, peak_tflops
from bench_image.contract.memory_estimate import SIZED, USABLE_SHARE, least, memory_need_bytes
from bench_image.contract.options import Precision, Recipe
from trainbench.core import markdown
from trainbench.core.close_matches import did_you_mean
from trainbench.core.formats import figure, listing, usd
from trainbench.core.number_checks import QuantityError
from trainbench.core.tables import Table, integer, make_table, number, text
from trainbench.cost.job_estimates import gpu_memory_bytes
from trainbench.prices.price_tables import list_price

HEAD = """\
# GPUs: facts, and what fits each

This page is written by `pytest --golden tests/unit/cost/test_gpu_fit.py`; `trainbench gpus` prints the same, and
`trainbench gpus A10` one GPU with the memory that each job needs. [sizing.md](sizing.md) has the
formula and its errors, [cost.md](../cost.md) the prices.

"""


def meant_gpu(name: str) -> str:
    """The GPU that a user's name means, as a name of which memory and peak are known: "A6000" is the RTX A6000, and
    "H100" the H100 HBM3, since the SXM module stands for a GPU of several forms. Raises QuantityError.
    """
    if gpu_memory_bytes(name) and peak_tflops(name, Precision.FP16):
        return name
    words = name_parts(name)
    meant = [known for known in GPU_SPECS if words == name_parts(known)]
    meant = meant or [known for known in GPU_SPECS if words and words < name_parts(known)]
    if len(meant) > 1:
        raise QuantityError(f"GPU '{name}' stands for several: choose {listing(meant)}")
    if not meant:
        raise QuantityError(
            f"GPU '{name}' is not known{did_you_mean(name, GPU_SPECS)}: choose one of {', '.join(GPU_SPECS)}"
        )
    return meant[0] if peak_tflops(meant[0], Precision.FP16) else GPU_SPECS[meant[0]].peak_name


def known_gpu(name: str) -> str:
    """The GPU of the data sheets that a user's name means: "NVIDIA A100-SXM4-80GB" is the A100 80GB. Raises
    QuantityError.
    """
    fitting = [known for known in GPU_SPECS if names_gpu(known, meant_gpu(name))]
    if not fitting:
        raise QuantityError(f"GPU '{name}' has no facts here: choose one of {', '.join(GPU_SPECS)}")
    return max(fitting, key=lambda known: len(name_parts(known)))


def reading(name: str, as_: str) -> str | None:
    """The sentence on the choice; None where both are the same name."""
    return None if name_parts(name) == name_parts(as_) else f"GPU '{name}' is read as {as_}."


def fits(gpu: str, model: str, recipe: Recipe) -> bool:
    """Whether the configuration of least memory fits one such GPU, by formula."""
    memory = GPU_SPECS[gpu].memory_gib * 2**30
    return memory_need_bytes(least(model, recipe), memory).with_paged <= memory * USABLE_SHARE


def facts_table(gpus: Sequence[str] = tuple(GPU_SPECS)) -> Table:
    """Memory, bandwidth, power and dense peaks of each GPU, with the source."""
    return make_table(
        [(name, GPU_SPECS[name]) for name in gpus],
        (
            text("GPU", lambda row: row[0]),
            number("memory GB", lambda row: row[1].memory_gib * 2**30 / 1e9, write=partial(figure, digits=3)),
            number("bandwidth GB/s", lambda row: row[1].memory_gb_per_s),
            integer("TDP W", lambda row: row[1].tdp_w),
            number("16-bit TFLOP/s", lambda row: _peak(row[1], "fp16")),
            number("8-bit TFLOP/s", lambda row: _peak(row[1], "fp8")),
            number("fp32 TFLOP/s", lambda row: _peak(row[1], "fp32")),
            text(
                "list price",
                lambda row: f"{usd(p.usd)} ({p.as_of.year})" if (p := list_price(row[0])) else "none",
                is_number=True,
            ),
            text("source", lambda row: row[1].source),
        ),
        title="Facts",
        notes=(
            "Memory in GB of 1e9 bytes, as everywhere; data sheets and names count in GiB: 80 GB on a card are 85.9.",
            "Dense peaks: of 16-bit floats (bf16 and fp16 alike) and of 8-bit floats with fp32 accumulation; of fp32 "
            "on the CUDA cores. n/a: the GPU has no unit for it, or its data sheet does not say.",
            "Bandwidth and TDP of A10, L4, RTX 4070 Ti and RTX 5090 were compared with pages of third parties only.",
            "List price: NVIDIA's for the bare card at its launch (docs/internals/cost.md has dates and sources); "
            "data-center GPUs have none.",
        ),
    )


def _peak(spec: GpuSpec, precision: str) -> float | None:
    peak: float | None = getattr(PEAK_TFLOPS[spec.peak_name], f"{precision}_tflops")
    return peak


def fits_table() -> Table:
    """For each GPU and model the recipes that fit one GPU."""
    return make_table(
        list(GPU_SPECS),
        (
            text("GPU", str),
            *(text(model, partial(_recipes, model)) for model in SIZED),
        ),
        title="What fits one GPU",
        notes=(CONFIGURATION,),
    )


CONFIGURATION = (
    f"A recipe fits where its configuration of least memory needs at most {100 * USABLE_SHARE:.0f} % of the GPU: one "
    "sample of 2,048 tokens (gpt2: 1,024), gradient checkpointing, 8-bit AdamW, adapters on all linear layers, preset "
    "tuned. The strategies fsdp and zero3 share a larger model over several GPUs."
)


def _recipes(model: str, gpu: str) -> str:
    fitting = [recipe.value for recipe in Recipe if fits(gpu, model, recipe)]
    return ", ".join(fitting) if fitting else "none"


def jobs_table(gpu: str) -> Table:
    """For each model and recipe the memory that it needs on this GPU, and whether it fits."""
    memory = GPU_SPECS[gpu].memory_gib * 2**30
    usable_gb = memory * USABLE_SHARE / 1e9
    jobs = [(model, recipe) for model in SIZED for recipe in Recipe]
    return make_table(
        jobs,
        (
            text("model", lambda job: job[0]),
            text("recipe", lambda job: job[1].value),
            number("needs GB", lambda job: memory_need_bytes(least(*job), memory).with_paged / 1e9),
            text("fits", lambda job: "yes" if fits(gpu, *job) else "no"),
        ),
        title=f"What fits one {gpu}, of whose {figure(memory / 1e9, 3)} GB {figure(usable_gb, 3)} are usable",
        notes=(CONFIGURATION,),
    )


def document() -> str:
    """docs/internals/gpus.md."""
    return HEAD + "\n".join(markdown.section(made) for made in (facts_table(), fits_table()))
