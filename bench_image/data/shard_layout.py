"""The layout of a data set on disk: its parameters, its shard files and their manifest.

A data set is a folder `tokens-...` named by its parameters, so that jobs with different data never share files, with
`shard_0000.bin` ... of about 128 MB (MB = 1e6 bytes) and `manifest.json`, written last. A shard is samples x length
token ids, little-endian, uint16 where the vocabulary allows it, else uint32; its content follows from (seed, shard).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from bench_image.contract.frozen import Frozen
from bench_image.contract.work import DiskData

SHARD_BYTES = 128_000_000


class DataError(RuntimeError):
    """The data on disk cannot be written or read; the message states the remedy."""


class Shard(Frozen):
    """One file. The checksum is zlib's CRC-32, about 0.25 s per GB: against damage, not against tampering."""

    file: str
    num_samples: int = Field(ge=1)
    num_bytes: int = Field(ge=1)
    crc32: str


class Manifest(Frozen):
    """The content of manifest.json."""

    format: Literal["trainbench-tokens"] = "trainbench-tokens"
    version: Literal[1] = 1
    dtype: Literal["uint16", "uint32"]
    sample_length: int = Field(ge=1)
    vocab_size: int = Field(ge=1)
    num_samples: int = Field(ge=1)
    seed: int
    shards: tuple[Shard, ...]


class Layout(NamedTuple):
    """Everything that follows from a data set's parameters. `length`: tokens of a sample."""

    root: Path
    num_samples: int
    num_shards: int
    length: int
    vocab_size: int
    seed: int

    @classmethod
    def of(cls, data: DiskData, *, length: int, vocab_size: int, seed: int) -> Layout:
        """The layout of the spec's data. Raises DataError for more shards than samples."""
        layout = cls(Path(data.folder), data.num_samples, 1, length, vocab_size, seed)
        num_shards = data.num_shards or -(-layout.num_bytes // SHARD_BYTES)
        if num_shards > data.num_samples:
            raise DataError(f"num_shards {num_shards} for {data.num_samples} samples: at most one shard per sample")
        return layout._replace(num_shards=num_shards)

    @property
    def dtype(self) -> Literal["uint16", "uint32"]:
        return "uint16" if self.vocab_size <= 65_536 else "uint32"

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def sample_bytes(self) -> int:
        return self.length * self.stored_dtype.itemsize

    @property
    def num_bytes(self) -> int:
        return self.num_samples * self.sample_bytes

    @property
    def folder(self) -> Path:
        size = f"{self.num_samples}x{self.length}"
        return self.root / f"tokens-{size}-vocab{self.vocab_size}-seed{self.seed}-shards{self.num_shards}"

    def path(self, shard: int) -> Path:
        return self.folder / f"shard_{shard:04d}.bin"

    def first_sample(self, shard: int) -> int:
        """The number of a shard's first sample. Sizes differ by at most one sample: the first shards hold one more."""
        each, more = divmod(self.num_samples, self.num_shards)
        return shard * each + min(shard, more)

    def samples_of(self, shard: int) -> int:
        return self.first_sample(shard + 1) - self.first_sample(shard)

    def place(self, sample: int) -> tuple[int, int]:
        """(shard, position in it) of a sample; the inverse of `first_sample`."""
        each, more = divmod(self.num_samples, self.num_shards)
        large = more * (each + 1)
        if sample < large:
            return divmod(sample, each + 1)
        shard, position = divmod(sample - large, each)
        return more + shard, position


def describe(layout: Layout, checksums: list[str]) -> Manifest:
    """The manifest of a layout, with the CRC-32 of each shard in hexadecimal."""
    return Manifest(
        dtype=layout.dtype,
        sample_length=layout.length,
        vocab_size=layout.vocab_size,
        num_samples=layout.num_samples,
        seed=layout.seed,
        shards=tuple(
            Shard(
                file=layout.path(index).name,
                num_samples=layout.samples_of(index),
                num_bytes=layout.samples_of(index) * layout.sample_bytes,
                crc32=checksum,
            )
            for index, checksum in enumerate(checksums)
        ),
    )
