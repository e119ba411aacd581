"""One rank by itself, and what every gang of ranks shares: the interface that the training loop sees."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from torch import nn

from bench_image.contract.spec import RunSpec
from bench_image.model.build import BuiltModel
from bench_image.parallel import file_barrier
from bench_image.parallel.optimizer_step import OptimizerStep

PEER_TIMEOUT_S = 120.0  # a peer that is silent for longer is taken for dead


class ProcessGroup:
    """One rank. Also the interface: whatever concerns other ranks is the identity here."""

    rank = 0
    local_rank = 0
    world_size = 1
    may_run_trials = True  # an 'auto' may be decided by trial: nobody else has to come to the same decision

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def shard(self, module: nn.Module) -> None:
        """Called with each layer of a new model as soon as it holds its values, and with the whole model at the end."""

    def optimizer_step(self, spec: RunSpec, built: BuiltModel) -> OptimizerStep:
        """What trains the model; to be called once per model by a gang."""
        return OptimizerStep(spec, built.model, built.trainable, self.device)

    def barrier(self) -> None:
        """Returns when all ranks have come here."""

    def max_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Element-wise maximum over ranks."""
        return list(values)

    def mean_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Element-wise mean over ranks."""
        return list(values)

    def broadcast(self, number: int) -> int:
        """Rank 0's number, on every rank."""
        return number

    def wait_for_neighbours(self) -> None:
        """Returns when the neighbours that share nothing but the host have come here too, or have had their time."""

    def memory_bytes(self) -> int:
        """What the smallest GPU of the ranks has in all; on the CPU what is free, shared by all ranks."""
        if self.device.type == "cuda":
            own = torch.cuda.mem_get_info(self.device)[1]
        else:
            own = psutil.virtual_memory().available // self.world_size
        return int(-self.max_over_ranks([-float(own)])[0])

    def close(self) -> None:
        """Leaves the group."""


class IndependentGroup(ProcessGroup):
    """A rank with a GPU of its own, whose neighbours on the host do the same work at the same time."""

    may_run_trials = False

    def __init__(self, device: torch.device, folder: Path, number: int, num_ranks: int) -> None:
        """`number` of `num_ranks`, which share `folder`. Towards the work it is rank 0 of 1, as each of them is."""
        super().__init__(device)
        self._folder, self._number, self._num_ranks = folder, number, num_ranks

    def wait_for_neighbours(self) -> None:
        file_barrier.arrive(self._folder, self._number)
        if not file_barrier.wait_for_all(self._folder, self._num_ranks):
            sys.stderr.write(f"rank {self._number}: not all neighbours came within {file_barrier.PATIENCE_S:g} s\n")

    def memory_bytes(self) -> int:
        return super().memory_bytes() // (1 if self.device.type == "cuda" else self._num_ranks)


class DistributedGroup(ProcessGroup):
    """Several ranks, one process each; started with torchrun's environment."""

    may_run_trials = False

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

    def check_same_gpu(self, name: str) -> None:
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

    def max_over_ranks(self, values: Sequence[float]) -> list[float]:
        return self._reduced(values, dist.ReduceOp.MAX)

    def mean_over_ranks(self, values: Sequence[float]) -> list[float]:
        return [total / self.world_size for total in self._reduced(values, dist.ReduceOp.SUM)]

    def broadcast(self, number: int) -> int:
        shared = torch.tensor([number], dtype=torch.int64)
        dist.broadcast(shared, src=0)
        return int(shared.item())

    def close(self) -> None:
        dist.destroy_process_group()

    def _reduced(self, values: Sequence[float], operation: dist.ReduceOp.RedOpType) -> list[float]:
        tensor = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(tensor, op=operation)
        return [float(value) for value in tensor.tolist()]
