"""Random token batches in memory: full length, no padding, the same for the same seed whatever the number of ranks."""

from __future__ import annotations

import zlib

import torch

from bench_image.contract import RunSpec

POOL_STEPS = 8  # optimizer steps until the data repeats


def seeded(device: torch.device, seed: int, name: str) -> torch.Generator:
    """A generator for one named thing, the same whatever was drawn before it."""
    # Hashed into 32 bits, because torch's CPU generator ignores the seed's upper half.
    return torch.Generator(device=device).manual_seed(zlib.crc32(f"{seed} {name}".encode()))


class TokenPool:
    """Host batches of one rank, drawn before the measured window; pinned on CUDA so that the copy can be asynchronous.

    Micro-step a of optimizer step s of rank r draws global micro-batch (s * accumulation + a) * world + r, so that
    single with accumulation 2 and two ranks without accumulation train on the same samples.
    """

    def __init__(self, spec: RunSpec, rank: int, vocab_size: int, *, pinned: bool) -> None:
        self._accumulation = spec.gradient_accumulation_steps
        self._batches = []
        for micro_step in range(POOL_STEPS * self._accumulation):
            index = micro_step * spec.world_size + rank
            size = (spec.micro_batch_size, spec.seq_length)
            batch = torch.randint(vocab_size, size, generator=seeded(torch.device("cpu"), spec.seed, f"batch {index}"))
            self._batches.append(batch.pin_memory() if pinned else batch)

    def batch(self, step: int, micro_step: int) -> torch.Tensor:
        """Token ids on the host, (micro batch, sequence); also their own labels."""
        return self._batches[(step % POOL_STEPS) * self._accumulation + micro_step]
