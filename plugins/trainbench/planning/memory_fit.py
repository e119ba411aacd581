"""Checks by formula, before any launch, whether a run can fit the GPUs of a node."""

from __future__ import annotations

from bench_image.contract.memory_estimate import memory_need_bytes
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from trainbench.planning.nodes import GpuNode


def does_not_fit(spec: RunSpec, node: GpuNode) -> str | None:
    """Why the run cannot fit one of the node's GPUs, with need and memory in GB; None: it may fit, or memory is
    unknown.

    Only a need beyond the whole GPU counts: the formula errs by some percent, and a run that ends out of memory is
    better evidence than a skipped one.
    """
    if spec.work.device is not Device.CUDA or node.gpu_memory_bytes is None:
        return None
    # Where the program may choose, count the choice with the smallest need.
    need_bytes = memory_need_bytes(spec, node.gpu_memory_bytes).total
    if need_bytes <= node.gpu_memory_bytes:
        return None
    gpu = f"a GPU of the node ({node.gpu_product})" if node.gpu_product else "a GPU of the node"
    return (
        f"needs about {need_bytes / 1e9:.1f} GB of GPU memory, {gpu} has {node.gpu_memory_bytes / 1e9:.1f} GB: choose "
        "a smaller micro-batch, checkpointing, a strategy that shards or a leaner recipe; force=true runs it all the "
        "same"
    )
