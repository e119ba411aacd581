"""Reads batches from shards on disk, ahead of the training loop, in a thread."""

from __future__ import annotations

import contextlib
import functools
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
import torch

from bench_image.contract.spec import RunSpec
from bench_image.data import page_cache
from bench_image.data.shard_layout import DataError, Layout

AHEAD = 5  # batches that are read ahead of the one in use
END_S = 5.0


class Place(NamedTuple):
    """The micro-batches of this rank among those of all ranks: every `stride`-th, from `first` on."""

    first: int
    stride: int


class ShardBatches:
    """Host batches of one rank, with the interface of TokenPool; pinned on CUDA.

    Global micro-batch g holds the samples from g * batch on, in the order of the shards, starting again at the end:
    each rank reads different ones, and the samples of a step are the same for every number of ranks. A thread reads
    the batches in order; its errors (a missing file, a read error) are raised by `batch`. Reads are plain ones, not a
    memory map, where a read error is a SIGBUS that kills the process without a message.
    """

    def __init__(
        self, layout: Layout, spec: RunSpec, place: Place, *, written: bool, pinned: bool, drops: bool
    ) -> None:
        self._layout = layout
        self._batch_size, self._accumulation = spec.work.samples_per_micro_step, spec.work.gradient_accumulation_steps
        self._place = place
        if spec.samples_per_step > self._layout.num_samples:
            raise DataError(
                f"one step takes {spec.samples_per_step} samples, and the data set has {self._layout.num_samples}: "
                "raise data.num_samples, or lower the batch"
            )
        self._pinned = pinned
        # A new thread begins on GPU 0, and would pin memory through it.
        self._begin = functools.partial(torch.cuda.set_device, torch.cuda.current_device()) if pinned else None
        self.source = _describe(layout, written=written)
        self._files = _OpenShard(self._layout, drops=drops)
        self._thread: ThreadPoolExecutor | None = None
        self._next = 0  # the batch that `_ahead` begins with
        self._ahead: deque[Future[torch.Tensor]] = deque()

    def batch(self, step: int, micro_step: int) -> torch.Tensor:
        """Token ids on the host, (micro batch, length). Raises DataError for a read error of the thread.

        Waits for the disk if the batch is not ready, which counts as loader wait.
        """
        index = step * self._accumulation + micro_step
        if self._thread is None or index != self._next:
            self.close()
            self._thread, self._next = ThreadPoolExecutor(1, "shards", self._begin), index
        while len(self._ahead) <= AHEAD:
            self._ahead.append(self._thread.submit(self.read, self._next + len(self._ahead)))
        batch = self._ahead[0].result()  # an error stays for the next call
        self._ahead.popleft()
        self._next += 1
        return batch

    def close(self) -> None:
        """Ends the thread, but waits no longer than END_S for a disk that does not answer."""
        if self._thread:
            for batch in self._ahead:
                batch.cancel()
            self._ahead.clear()
            ended, _ = wait([self._thread.submit(self._files.close)], END_S)
            self._thread.shutdown(wait=bool(ended))
            self._thread = None

    def read(self, index: int) -> torch.Tensor:
        """Reads this rank's micro-batch number `index`, int64 (micro batch, length)."""
        layout, count = self._layout, self._batch_size
        tokens = np.empty((count, layout.length), layout.stored_dtype)
        # Read run by run: a micro-batch may span shards, and the end of the data set.
        sample, done = (self._place.first + index * self._place.stride) * count % layout.num_samples, 0
        while done < count:
            shard, position = layout.place(sample)
            here = min(count - done, layout.samples_of(shard) - position)
            self._files.read(shard, position * layout.sample_bytes, tokens[done : done + here])
            sample, done = (sample + here) % layout.num_samples, done + here
        batch = torch.empty(count, layout.length, dtype=torch.int64, pin_memory=self._pinned)
        np.copyto(batch.numpy(), tokens)
        return batch


def _describe(layout: Layout, *, written: bool) -> str:
    origin = "written in this run" if written else "already on disk, checksums verified"
    size = f"{layout.num_bytes / 1e9:.3g} GB" if layout.num_bytes >= 1e9 else f"{layout.num_bytes / 1e6:.3g} MB"
    data = f"disk: {layout.num_shards} shard{'s' * (layout.num_shards > 1)}, {size}, {origin}"
    resident = page_cache.resident_pct(layout.path(index) for index in range(layout.num_shards))
    if resident is None:
        return f"{data}; reads may come from the page cache, which this system does not report"
    if resident > 1:
        return f"{data}; {resident:.0f} % in the page cache at the start, although it was dropped"
    return f"{data}; page cache dropped before the run, and after each read"


class _OpenShard:
    """The shard that is being read. When it is closed its pages are dropped, so that the next pass reads the disk.

    One rank of a host (`drops`) does that for all; a rank that is behind reads a few pages twice.
    """

    def __init__(self, layout: Layout, *, drops: bool) -> None:
        self._layout, self._drops = layout, drops
        self._shard, self._descriptor, self._end = -1, -1, 0

    def read(self, shard: int, offset: int, into: np.ndarray[Any, np.dtype[Any]]) -> None:
        """Fills `into` from the byte at `offset`. Raises DataError."""
        path = self._layout.path(shard)
        try:
            if shard != self._shard or offset < self._end:  # the second: a new pass over the same file
                self.close()
                self._shard, self._descriptor = shard, os.open(path, os.O_RDONLY)
            view, done = into.data.cast("B"), 0
            while done < len(view):
                count = os.preadv(self._descriptor, [view[done:]], offset + done)
                if count == 0:
                    raise DataError(f"{path} ends at byte {offset + done}: it became shorter while it was read")
                done += count
            self._end = offset + done
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error}") from error

    def close(self) -> None:
        if self._shard < 0:
            return
        os.close(self._descriptor)
        if self._drops:
            with contextlib.suppress(OSError):
                page_cache.drop(self._layout.path(self._shard))
        self._shard, self._end = -1, 0
