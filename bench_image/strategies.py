"""How ranks work together: the interface, what every gang of ranks shares, and the way in.

Bytes per rank for W ranks. w: of all weights as the recipe holds them; t: of the trainable ones alone (2 bytes a number
for bf16 full and bf16 `tuned`, else 4); s: of AdamW's two moments (2 t; for the 8-bit ones about 2 bytes a number).

| strategy | weights | gradients | copy | moments | while it works |
|---|---|---|---|---|---|
| single | w | t, freed by the update | - | s | |
| ddp | w | t, always there (buckets) | - | s | |
| fsdp | w / W | t / W, freed by the update | - | s / W | the root's weights (embedding, head), two layers |
| zero2 | w | t / W, freed by the update | t / W | s / W | two buckets of at most 5e8 trainable numbers |
| zero3 | w / W | t / W, always there | t / W | s / W | one such bucket, always there; layers gathered ahead |

fsdp with room for it (see fsdp.py): + w until backward, and + t while gradients accumulate. zero3 keeps tensors of less
than 1e5 numbers whole: norms, and LoRA adapters of small rank. Scales of 4-bit weights are whole on every rank.
test_strategies.py counts all of these but the last column. Weights, gradients and moments have the same dtype under
every strategy: `recipes.numerics` decides, never the strategy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

from bench_image.build import Built
from bench_image.contract import Device, RunSpec, Strategy
from bench_image.engine import Engine

PEER_TIMEOUT_S = 120.0  # a peer that is silent for longer is taken for dead


class Single:
    """One rank. Also the interface: whatever concerns other ranks is the identity here."""

    rank = 0
    local_rank = 0
    world_size = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def shard(self, module: nn.Module) -> None:
        """Called with each layer of a new model as soon as it holds its values, and with the whole model at the end."""

    def engine(self, spec: RunSpec, built: Built) -> Engine:
        """What trains the model; to be called once per model by a gang."""
        return Engine(spec, built.model, built.trainable, self.device)

    def barrier(self) -> None:
        """Returns when all ranks have come here."""

    def slowest(self, values: Sequence[float]) -> list[float]:
        """Element-wise maximum over ranks."""
        return list(values)

    def mean(self, values: Sequence[float]) -> list[float]:
        """Element-wise mean over ranks."""
        return list(values)

    def agree(self, decision: bool) -> bool:
        """Rank 0's decision, on every rank."""
        return decision

    def close(self) -> None:
        """Leaves the group."""


class Gang(Single):
    """Several ranks, one process each; started with torchrun's environment."""

    def __init__(self, device: torch.device, timeout_s: float = PEER_TIMEOUT_S) -> None:
        """Waits for the others, at most `timeout_s`, which also bounds every later exchange."""
        super().__init__(device)
        self.rank, self.local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        if dist.is_initialized():
            return
        # Tensors on the host travel by gloo and never touch the GPU's streams: agreeing costs no synchronisation.
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))

    def check_alike(self, name: str) -> None:
        """Raises RuntimeError on every rank if the ranks' GPUs, by name, are not of one kind."""
        names: list[str] = [""] * self.world_size
        dist.all_gather_object(names, name)
        if len(set(names)) > 1:
            kinds = ", ".join(f"{kind} (rank {names.index(kind)})" for kind in dict.fromkeys(names))
            raise RuntimeError(
                f"the ranks have different GPUs: {kinds}; one slow GPU sets the pace of all, so the figures would be "
                "nobody's: choose nodes of one kind"
            )

    def barrier(self) -> None:
        dist.all_reduce(torch.zeros(1))

    def slowest(self, values: Sequence[float]) -> list[float]:
        return self._reduced(values, dist.ReduceOp.MAX)

    def mean(self, values: Sequence[float]) -> list[float]:
        return [total / self.world_size for total in self._reduced(values, dist.ReduceOp.SUM)]

    def agree(self, decision: bool) -> bool:
        flag = torch.tensor([decision], dtype=torch.uint8)
        dist.broadcast(flag, src=0)
        return bool(flag.item())

    def close(self) -> None:
        dist.destroy_process_group()

    def _reduced(self, values: Sequence[float], operation: dist.ReduceOp.RedOpType) -> list[float]:
        tensor = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(tensor, op=operation)
        return [float(value) for value in tensor.tolist()]


def join(spec: RunSpec) -> Single:
    """This process's place among the ranks; waits for the others.

    RuntimeError without the GPU that the spec wants, with GPUs of different kinds, or when a peer does not come within
    `peer_timeout_s`.
    """
    device = _device(spec)
    if spec.strategy is Strategy.SINGLE:
        return Single(device)
    gang = gang_class(spec.strategy)(device, peer_timeout_s(spec))
    gang.check_alike(device_name(device))
    return gang


def peer_timeout_s(spec: RunSpec) -> float:
    """Soon enough that a lost peer becomes an error that says so, before the supervisor ends the run at `timeout_s`."""
    return min(PEER_TIMEOUT_S, spec.timeout_s / 2)


def gang_class(strategy: Strategy) -> Callable[[torch.device, float], Gang]:
    """Each comes from its own module, because DeepSpeed costs seconds to import."""
    if strategy is Strategy.DDP:
        from bench_image.ddp import Ddp

        return Ddp
    if strategy is Strategy.FSDP:
        from bench_image.fsdp import Fsdp

        return Fsdp
    from bench_image.zero import Zero2, Zero3

    return Zero2 if strategy is Strategy.ZERO2 else Zero3


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _device(spec: RunSpec) -> torch.device:
    if spec.device is Device.CPU:
        return torch.device("cpu")
    index, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if index >= count:
        raise RuntimeError(
            f"device 'cuda' with gpus_per_node {spec.gpus_per_node}, but torch sees {count} GPUs here: "
            "check the pod's GPU limit and the driver, or choose device 'cpu'"
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)
