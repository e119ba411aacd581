"""How ranks work together: single and ddp, behind one small interface."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench_image.contract import Device, RunSpec, Strategy

PEER_TIMEOUT = timedelta(seconds=120)  # a peer that is silent for longer is taken for dead


class Single:
    """One rank. Also the interface: whatever concerns other ranks is the identity here."""

    rank = 0
    local_rank = 0
    world_size = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def accumulating(self, model: nn.Module) -> contextlib.AbstractContextManager[None]:
        """For a micro-step whose gradients need not be exchanged yet."""
        return contextlib.nullcontext()

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


class Ddp(Single):
    """Each rank holds the whole model; gradients are averaged in buckets while backward still runs."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.rank, self.local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        # Tensors on the host travel by gloo and never touch the GPU's streams: agreeing costs no synchronisation.
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=PEER_TIMEOUT)

    def wrap(self, model: nn.Module) -> nn.Module:
        # The only buffers are rotary frequencies, equal everywhere: nothing to broadcast at each step.
        return DistributedDataParallel(
            model,
            device_ids=[self.device.index] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,
        )

    def accumulating(self, model: nn.Module) -> contextlib.AbstractContextManager[None]:
        assert isinstance(model, DistributedDataParallel)
        return model.no_sync()

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
    """This process's place among the ranks; waits for the others. RuntimeError without the GPU that the spec wants."""
    device = _device(spec)
    return {Strategy.SINGLE: Single, Strategy.DDP: Ddp}[spec.strategy](device)


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
