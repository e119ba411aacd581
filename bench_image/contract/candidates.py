"""What 'auto' may become: micro-batch sizes and checkpointing, each with the memory that it needs by formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bench_image.contract.memory_estimate import USABLE_SHARE, memory_need_bytes, partly_checkpointed
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import AUTO

SIZES = tuple(2**power for power in range(11))  # micro-batches that 'auto' considers


class Candidate(NamedTuple):
    """A spec without 'auto', the bytes it is predicted to need, and how many layers are checkpointed if not all are."""

    spec: RunSpec
    need: int
    checkpointed_layers: int = 0

    def __str__(self) -> str:
        checkpointing = "on" if self.spec.work.gradient_checkpointing else "off"
        if self.checkpointed_layers:
            checkpointing = f"in {self.checkpointed_layers} of {self.spec.work.shape.num_layers} layers"
        return f"micro-batch {self.spec.work.micro_batch_size}, checkpointing {checkpointing}"


def candidates(spec: RunSpec, memory: int) -> Iterator[Candidate]:
    """From the probably fastest to the one that needs least memory."""
    checkpointing = [False, True] if spec.work.gradient_checkpointing == AUTO else [spec.work.gradient_checkpointing]
    sizes = SIZES[::-1] if spec.work.micro_batch_size == AUTO else (spec.work.micro_batch_size,)
    for checkpoints in checkpointing:
        for size in sizes:
            whole = spec.changed(work={"gradient_checkpointing": checkpoints, "micro_batch_size": size})
            yield Candidate(whole, memory_need_bytes(whole, memory).total)
        if len(checkpointing) > 1 and not checkpoints and len(sizes) == 1:
            for layers, need in partly_checkpointed(whole, memory):
                yield Candidate(whole.changed(work={"gradient_checkpointing": True}), need, layers)


def predicted(spec: RunSpec, memory: int) -> Candidate:
    """The first candidate that fits `memory` bytes of a GPU by formula, else the one that needs least."""
    for candidate in candidates(spec, memory):
        if candidate.need <= USABLE_SHARE * memory:
            break
    return candidate
