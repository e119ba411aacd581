"""The strategies: what each keeps in a rank's memory, and the process group that runs it.

Bytes per rank for W ranks. w: all weights as the recipe holds them; t: the trainable ones alone (2 bytes a number for
bf16 full and bf16 `tuned`, else 4); s: AdamW's two moments (2 t; for the 8-bit optimizers about 2 bytes a number).

| strategy | weights | gradients | copy | moments | temporary |
|---|---|---|---|---|---|
| single, independent | w | t, freed by the update | - | s | |
| ddp | w | t, always there (buckets) | - | s | |
| fsdp | w / W | t / W, freed by the update | - | s / W | the root's weights (embedding, head), two layers |
| zero2 | w | t / W, freed by the update | t / W | s / W | two buckets of at most 5e8 trainable numbers |
| zero3 | w / W | t / W, always there | t / W | s / W | one such bucket, always there; layers gathered ahead |

fsdp with room for it (see fsdp.py): + w until backward, and + t while gradients accumulate. Fused 4-bit weights with
room for it (`memory_estimate.keeps_unpacked`): + 2 bytes a number until backward. zero3 keeps tensors of less than 1e5
numbers whole: norms, and LoRA adapters of small rank. Scales of 4-bit weights are whole on every rank.
test_strategies.py counts all of these but the last column and what there must be room for. Weights, gradients and
moments have the same dtype under every strategy: `model_dtypes` decides, never the strategy.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from bench_image.contract.options import Strategy
from bench_image.contract.pod_io import OUTPUT_DIR_ENV
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from bench_image.parallel.process_group import PEER_TIMEOUT_S, DistributedGroup, IndependentGroup, ProcessGroup
from bench_image.parallel.visible_gpus import VISIBLE


def join_group(spec: RunSpec) -> ProcessGroup:
    """The process group of the spec's strategy, joined by this process; waits for the other ranks.

    Raises RuntimeError without the GPU that the spec needs, with GPUs of different models, or when a rank does not join
    within `peer_timeout_s`.
    """
    device = torch.device("cpu")
    independent = spec.placement.strategy is Strategy.INDEPENDENT
    if spec.work.device is Device.CUDA:
        index, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if index >= count:
            of_pod = "check the driver (nvidia-smi), and in a pod its GPU limit"
            raise RuntimeError(
                f"rank {os.environ['RANK']} of gpus_per_node {spec.placement.gpus_per_node} has no GPU: torch does not "
                f"see {os.environ.get(VISIBLE, 'any')}; {of_pod}"
                if independent
                else f"device 'cuda' with gpus_per_node {spec.placement.gpus_per_node}, but torch sees {count} GPUs "
                f"here: {of_pod}, or choose device 'cpu'"
            )
        torch.cuda.set_device(index)
        device = torch.device("cuda", index)
    if spec.placement.strategy is Strategy.SINGLE:
        return ProcessGroup(device)
    if independent:
        return IndependentGroup(
            device, Path(os.environ[OUTPUT_DIR_ENV]), int(os.environ["RANK"]), spec.placement.gpus_per_node
        )
    group = _group_of(spec.placement.strategy, device, peer_timeout_s(spec))
    group.check_same_gpu(device_name(device))
    return group


def peer_timeout_s(spec: RunSpec) -> float:
    """Seconds until a missing rank is an error: before the supervisor ends the run at `timeout_s`."""
    return min(PEER_TIMEOUT_S, spec.timeout_s / 2)


def _group_of(strategy: Strategy, device: torch.device, timeout_s: float) -> DistributedGroup:
    """Of a strategy with several ranks; imported here, because DeepSpeed takes seconds to import."""
    if strategy is Strategy.FSDP:
        from bench_image.parallel.fsdp import FsdpGroup

        return FsdpGroup(device, timeout_s)
    if strategy is Strategy.DDP:
        from bench_image.parallel.ddp import DdpStep

        return DistributedGroup(device, timeout_s, DdpStep)
    from bench_image.parallel.deepspeed import ZeroStep

    return DistributedGroup(device, timeout_s, ZeroStep)


def device_name(device: torch.device) -> str:
    """The GPU's product name, or CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
