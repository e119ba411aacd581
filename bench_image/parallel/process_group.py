"""The ranks of a run as the training loop sees them: one rank, independent ranks, ranks that communicate."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from torch import nn

from bench_image.contract.spec import RunSpec
from bench_image.model.build import BuiltModel
from bench_image.optimizer.step import OptimizerStep
from bench_image.parallel import file_barrier

PEER_TIMEOUT_S = 120.0  # a rank that does not answer for longer counts as dead
# Groups that have ended, until the process does: the destructor of gloo's may wait for ever for a peer that has ended.
_ENDED: list[object] = []


class ProcessGroup:
    """A group of one rank, and the interface of all groups. Operations between ranks are the identity here."""

    rank = 0
    local_rank = 0
    world_size = 1
    timeout_s = PEER_TIMEOUT_S
    steps_begun = 0  # training steps of this rank
    may_run_trials = True  # whether 'auto' may be decided by trial: no other rank has to decide the same

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def shard(self, module: nn.Module) -> None:
        """Shards a module; called with each layer of a new model once it has its values, at the end with the model."""

    def optimizer_step(self, spec: RunSpec, built: BuiltModel) -> OptimizerStep:
        """The step that trains the model as this strategy does. A distributed group may be called once per model."""
        return OptimizerStep(spec, built.model, built.trainable, self.device)

    def barrier(self) -> None:
        """Returns when all ranks have called it."""

    def max_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Element-wise maximum over ranks."""
        return list(values)

    def mean_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Element-wise mean over ranks."""
        return list(values)

    def broadcast(self, number: int) -> int:
        """Rank 0's number, on all ranks."""
        return number

    def wait_for_neighbours(self) -> None:
        """Waits for independent ranks on the same host, for a limited time; does nothing for other groups."""

    def memory_bytes(self) -> int:
        """Total memory of the ranks' smallest GPU; on the CPU the free memory, divided by the number of ranks."""
        if self.device.type == "cuda":
            own = torch.cuda.mem_get_info(self.device)[1]
            own = int(own * torch.cuda.get_per_process_memory_fraction(self.device))  # 1 unless set
        else:
            own = psutil.virtual_memory().available // self.world_size
        return int(-self.max_over_ranks([-float(own)])[0])

    def close(self) -> None:
        """Ends the communication between the ranks."""


class IndependentGroup(ProcessGroup):
    """One of several ranks of a host, each of which does the work of a single GPU at the same time as the others."""

    may_run_trials = False

    def __init__(self, device: torch.device, folder: Path, number: int, num_ranks: int) -> None:
        """Rank `number` of `num_ranks`, which share `folder`. In its own run it is rank 0 of 1, as each of them is."""
        super().__init__(device)
        self._folder, self._number, self._num_ranks = folder, number, num_ranks

    def wait_for_neighbours(self) -> None:
        file_barrier.arrive(self._folder, self._number)
        if not file_barrier.wait_for_all(self._folder, self._num_ranks):
            sys.stderr.write(f"rank {self._number}: not all neighbours arrived within {file_barrier.TIMEOUT_S:g} s\n")

    def memory_bytes(self) -> int:
        return super().memory_bytes() // (1 if self.device.type == "cuda" else self._num_ranks)


class DistributedGroup(ProcessGroup):
    """Ranks that communicate by torch.distributed, one process each, with torchrun's environment variables."""

    may_run_trials = False

    def __init__(
        self,
        device: torch.device,
        timeout_s: float,
        step: Callable[[RunSpec, BuiltModel, torch.device], OptimizerStep],
    ) -> None:
        """Waits for the other ranks, at most `timeout_s` seconds, which also bounds every later exchange. `step`: as
        the strategy makes it.
        """
        super().__init__(device)
        self.timeout_s, self._step = timeout_s, step
        self.rank, self.local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        if dist.is_initialized():
            return
        # gloo moves tensors on the host and never touches the GPU's streams: a broadcast does not wait for the GPU.
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))

    def check_same_gpu(self, name: str) -> None:
        """Raises RuntimeError on every rank unless all ranks have the GPU model `name`."""
        names: list[str] = [""] * self.world_size
        dist.all_gather_object(names, name)
        if len(set(names)) > 1:
            kinds = ", ".join(f"{kind} (rank {names.index(kind)})" for kind in dict.fromkeys(names))
            raise RuntimeError(
                f"the ranks have different GPUs: {kinds}; the slowest sets the pace of all, so the figures would hold "
                "for none of them: choose nodes of one kind"
            )

    def optimizer_step(self, spec: RunSpec, built: BuiltModel) -> OptimizerStep:
        return self._step(spec, built, self.device)

    def barrier(self) -> None:
        dist.all_reduce(torch.zeros(1))

    def max_over_ranks(self, values: Sequence[float]) -> list[float]:
        return self._reduced(values, dist.ReduceOp.MAX)

    def mean_over_ranks(self, values: Sequence[float]) -> list[float]:
        return [total / self.world_size for total in self._reduced(values, dist.ReduceOp.SUM)]

    def broadcast(self, number: int) -> int:
        shared = torch.tensor([number], dtype=torch.int64)
        dist.broadcast(shared, src=0)
        return int(shared.item())

    def close(self) -> None:
        _ENDED.append(dist.group.WORLD)
        dist.destroy_process_group()

    def _reduced(self, values: Sequence[float], operation: dist.ReduceOp.RedOpType) -> list[float]:
        tensor = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(tensor, op=operation)
        return [float(value) for value in tensor.tolist()]
