"""Token batches from memory or disk: full length, no padding, the same samples for every number of ranks."""

from __future__ import annotations

import functools
import os
import zlib

import torch

from bench_image.contract.flops import tokens_per_sample
from bench_image.contract.spec import RunSpec
from bench_image.data.shard_layout import Layout
from bench_image.data.shard_reader import Place, ShardBatches
from bench_image.data.shards import prepare

POOL_STEPS = 8  # optimizer steps until the data repeats


def seeded(device: torch.device, seed: int, name: str) -> torch.Generator:
    """A random generator for `name`, independent of what was drawn before."""
    # Hashed into 32 bits, because torch's CPU generator ignores the seed's upper half.
    return torch.Generator(device=device).manual_seed(zlib.crc32(f"{seed} {name}".encode()))


def batches(spec: RunSpec, rank: int, vocab_size: int, *, pinned: bool) -> TokenPool | ShardBatches:
    """The batches of this rank; their `source` states in the result where they came from. Raises DataError.

    All ranks of the host first write or verify data on disk.
    """
    if spec.work.data == "memory":
        return TokenPool(spec, rank, vocab_size, pinned=pinned)
    length = tokens_per_sample(spec.work.shape, spec.work.seq_length)
    layout = Layout.of(spec.work.data, length=length, vocab_size=vocab_size, seed=spec.work.seed)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    written = _prepare_once(layout, local_rank=local_rank, num_local_ranks=spec.placement.gpus_per_node)
    place = Place(first=rank, stride=spec.placement.world_size)
    return ShardBatches(layout, spec, place, written=written, pinned=pinned, drops=local_rank == 0)


_prepare_once = functools.cache(prepare)  # trials of batch sizes must not read the checksums of many GB again


class TokenPool:
    """Host batches of one rank, drawn before the measured windows; pinned on CUDA, so that copies are asynchronous.

    Micro-step a of optimizer step s of rank r takes global micro-batch (s * accumulation + a) * world + r: one rank
    with accumulation 2 and two ranks without accumulation train on the same samples.
    """

    source = f"memory: the batches of {POOL_STEPS} steps, drawn before the measured windows and repeated"

    def __init__(self, spec: RunSpec, rank: int, vocab_size: int, *, pinned: bool) -> None:
        self._accumulation = spec.work.gradient_accumulation_steps
        self._batches = []
        for micro_step in range(POOL_STEPS * self._accumulation):
            index = micro_step * spec.placement.world_size + rank
            size = (spec.work.samples_per_micro_step, tokens_per_sample(spec.work.shape, spec.work.seq_length))
            batch = torch.randint(
                vocab_size, size, generator=seeded(torch.device("cpu"), spec.work.seed, f"batch {index}")
            )
            self._batches.append(batch.pin_memory() if pinned else batch)

    def batch(self, step: int, micro_step: int) -> torch.Tensor:
        """Token ids on the host, (micro batch, tokens of a sample), which are also the labels."""
        return self._batches[(step % POOL_STEPS) * self._accumulation + micro_step]

    def close(self) -> None:
        """Nothing to end: there is no thread."""
