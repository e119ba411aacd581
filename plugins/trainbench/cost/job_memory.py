"""Memory need of a training job by formula, against the memory of a GPU."""

from __future__ import annotations

from bench_image.contract.frozen import Frozen
from bench_image.contract.memory_estimate import GPU_MEMORY_GIB, USABLE_SHARE, memory_need_bytes, smallest_gpu
from bench_image.contract.spec import RunSpec
from trainbench.core.formats import figure
from trainbench.prices.price_tables import name_parts, names_gpu

SHOWN_FROM_GB = 0.1  # less is not worth a clause


class MemoryFit(Frozen):
    """The memory need against a GPU, in GB of 1e9 bytes. `fits` None: the GPU's memory is unknown."""

    need_gb: float
    paged_gb: float = 0.0  # of the need: states of the paged optimizer, which the driver may move to the host
    gpu_gb: float | None
    fits: bool | None
    smallest_gpu: str | None
    sentence: str


def memory_fit(spec: RunSpec, gpu_name: str | None) -> MemoryFit:
    """The need on one GPU against USABLE_SHARE of its memory, by the formula of docs/internals/sizing.md."""
    memory = gpu_memory_bytes(gpu_name)
    need = memory_need_bytes(spec, memory)
    need_gb, paged_gb = need.with_paged / 1e9, need.paged / 1e9
    smallest = smallest_gpu(spec)
    fits = None if memory is None else need_gb * 1e9 <= memory * USABLE_SHARE
    return MemoryFit(
        need_gb=need_gb,
        paged_gb=paged_gb,
        gpu_gb=None if memory is None else memory / 1e9,
        fits=fits,
        smallest_gpu=smallest,
        sentence=_sentence(need_gb, paged_gb, gpu_name, memory, fits, smallest),
    )


def gpu_memory_bytes(gpu_name: str | None) -> int | None:
    """Memory of a GPU in bytes by its NVML name, from data sheets; None for an unknown GPU, also for a MIG slice and
    for another form of a known one, such as the H100 NVL, which has 94 GB.
    """
    fitting = {name: gib for name, gib in GPU_MEMORY_GIB.items() if names_gpu(name, gpu_name or "")}
    known = [(len(name_parts(name)), gib) for name, gib in fitting.items()]
    return max(known)[1] * 2**30 if known else None


def _sentence(
    need_gb: float, paged_gb: float, gpu_name: str | None, memory: int | None, fits: bool | None, smallest: str | None
) -> str:
    need = f"By formula the job needs {figure(need_gb, 3)} GB on each GPU"
    if paged_gb >= SHOWN_FROM_GB:
        need += f", {figure(paged_gb, 3)} GB of it for the paged optimizer"
    least = (
        f"the smallest GPU of our list that holds it is the {smallest}" if smallest else "no GPU of our list holds it"
    )
    if memory is None or fits is None:
        unknown = f"; the memory of {gpu_name} is not known" if gpu_name else ""
        return f"{need}{unknown}; {least}."
    usable_gb = memory * USABLE_SHARE / 1e9
    usable = f"{figure(usable_gb, 3)} GB of the {figure(memory / 1e9, 3)} GB of {gpu_name} are usable"
    if fits:
        return f"{need}: it fits, {usable}."
    pages = ""
    if need_gb - paged_gb <= usable_gb:
        pages = " It runs only while the driver moves states of the optimizer to the host, which costs time."
    return (
        f"{need}: it does not fit, {usable}; {least}.{pages} Choose a smaller micro-batch, checkpointing, a strategy "
        "that shards or a leaner recipe."
    )
