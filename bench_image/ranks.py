"""One rank by itself, and what every gang of ranks shares: the interface that the training loop sees."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta

import psutil
import torch
import torch.distributed as dist
from torch import nn

from bench_image.build import Built
from bench_image.contract import RunSpec
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

    def memory_bytes(self) -> int:
        """What the smallest GPU of the ranks has in all; on the CPU what is free, shared by all ranks."""
        if self.device.type == "cuda":
            own = torch.cuda.mem_get_info(self.device)[1]
        else:
            own = psutil.virtual_memory().available // self.world_size
        return int(-self.slowest([-float(own)])[0])

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
