"""How ranks work together: what each strategy keeps where, and the way in.

Bytes per rank for W ranks. w: of all weights as the recipe holds them; t: of the trainable ones alone (2 bytes a number
for bf16 full and bf16 `tuned`, else 4); s: of AdamW's two moments (2 t; for the 8-bit ones about 2 bytes a number).

| strategy | weights | gradients | copy | moments | while it works |
|---|---|---|---|---|---|
| single, independent | w | t, freed by the update | - | s | |
| ddp | w | t, always there (buckets) | - | s | |
| fsdp | w / W | t / W, freed by the update | - | s / W | the root's weights (embedding, head), two layers |
| zero2 | w | t / W, freed by the update | t / W | s / W | two buckets of at most 5e8 trainable numbers |
| zero3 | w / W | t / W, always there | t / W | s / W | one such bucket, always there; layers gathered ahead |

fsdp with room for it (see fsdp.py): + w until backward, and + t while gradients accumulate. Fused 4-bit weights with
room for it (`memory_estimate.keeps_unpacked`), under every strategy but zero3: + 2 bytes a number until backward. zero3
keeps tensors of less than 1e5 numbers whole: norms, and LoRA adapters of small rank. Scales of 4-bit weights are whole
on every rank. test_strategies.py counts all of these but the last column and what there must be room for. Weights,
gradients and moments have the same dtype under every strategy: `model_dtypes` decides, never the strategy.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

from bench_image.contract.options import Strategy
from bench_image.contract.pod_io import OUTPUT_DIR_ENV
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from bench_image.parallel.process_group import PEER_TIMEOUT_S, DistributedGroup, IndependentGroup, ProcessGroup
from bench_image.parallel.visible_gpus import VISIBLE


def join_group(spec: RunSpec) -> ProcessGroup:
    """This process's place among the ranks; waits for the others.

    RuntimeError without the GPU that the spec wants, with GPUs of different kinds, or when a peer does not come within
    `peer_timeout_s`.
    """
    device = _device(spec)
    if spec.strategy is Strategy.SINGLE:
        return ProcessGroup(device)
    if spec.strategy is Strategy.INDEPENDENT:
        return IndependentGroup(device, Path(os.environ[OUTPUT_DIR_ENV]), int(os.environ["RANK"]), spec.gpus_per_node)
    group = group_class(spec.strategy)(device, peer_timeout_s(spec))
    group.check_same_gpu(device_name(device))
    return group


def peer_timeout_s(spec: RunSpec) -> float:
    """Soon enough that a lost peer becomes an error that says so, before the supervisor ends the run at `timeout_s`."""
    return min(PEER_TIMEOUT_S, spec.timeout_s / 2)


def group_class(strategy: Strategy) -> Callable[[torch.device, float], DistributedGroup]:
    """Each comes from its own module, because DeepSpeed costs seconds to import."""
    if strategy is Strategy.DDP:
        from bench_image.parallel.ddp import DdpGroup

        return DdpGroup
    if strategy is Strategy.FSDP:
        from bench_image.parallel.fsdp import FsdpGroup

        return FsdpGroup
    from bench_image.parallel.deepspeed import Zero2Group, Zero3Group

    return Zero2Group if strategy is Strategy.ZERO2 else Zero3Group


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _device(spec: RunSpec) -> torch.device:
    if spec.device is Device.CPU:
        return torch.device("cpu")
    index, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if index >= count and spec.strategy is Strategy.INDEPENDENT:
        raise RuntimeError(
            f"rank {os.environ['RANK']} of gpus_per_node {spec.gpus_per_node} has no GPU: torch does not see "
            f"{os.environ.get(VISIBLE, 'any')}; check the pod's GPU limit and the driver"
        )
    if index >= count:
        raise RuntimeError(
            f"device 'cuda' with gpus_per_node {spec.gpus_per_node}, but torch sees {count} GPUs here: "
            "check the pod's GPU limit and the driver, or choose device 'cpu'"
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)
