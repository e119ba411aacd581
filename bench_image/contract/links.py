"""The links between the ranks of a run: which sweep a spec asks for, and the figures of its result.

Sizes and bus bandwidths are those of nccl-tests (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import FailFast, Field

from bench_image.contract.fingerprint import Part
from bench_image.contract.frozen import Frozen, Slotted, slotted
from bench_image.contract.result_bounds import GigabytesPerSecond, PositiveSeconds

SMALLEST_BYTES = 8192


class Collective(StrEnum):
    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"


def bus_gb_per_s(collective: Collective, num_bytes: int, seconds: float, ranks: int) -> float:
    """Bus bandwidth in GB/s (1e9 bytes): bytes / seconds x 2 (n-1)/n of an all-reduce, x (n-1)/n of the others.

    `num_bytes`: the larger of a rank's two buffers. The factor makes figures of different n comparable with the speed
    of a link.
    """
    factor = (ranks - 1) / ranks * (2 if collective is Collective.ALL_REDUCE else 1)
    return num_bytes / seconds * factor / 1e9


class LinkSweep(Part):
    """Every collective at every size, before training."""

    top_bytes: int = Field(
        2**30, ge=SMALLEST_BYTES, le=2**34, description="the largest size; the smallest is 8 KiB, each next one twice"
    )
    inner_link: bool = Field(
        True,
        description="false: without NVLink and direct copies between GPUs, so that what stays slow is the network's",
    )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes, ascending."""
        doublings = (self.top_bytes // SMALLEST_BYTES).bit_length()
        return tuple(SMALLEST_BYTES << power for power in range(doublings))


@slotted
class LinkFigure(Slotted):
    """One collective at one size."""

    collective: Collective
    num_bytes: Annotated[int, Field(ge=1, le=2**34, description="the larger of a rank's two buffers")]
    latency_s: Annotated[PositiveSeconds, Field(description="of one call, median of batches, slowest rank")]
    bus_gb_per_s: Annotated[GigabytesPerSecond, Field(description="as nccl-tests define it")]


class Links(Frozen):
    """The links between all ranks of the run, by collective and size."""

    backend: Literal["nccl", "gloo"]
    figures: Annotated[tuple[LinkFigure, ...], FailFast()] = Field(max_length=1000)

    def peak_gb_per_s(self, collective: Collective) -> float | None:
        """The largest bus bandwidth over the sizes; None: the sweep has no figure of this collective."""
        return max((each.bus_gb_per_s for each in self.figures if each.collective is collective), default=None)

    def latency_s(self, collective: Collective) -> float | None:
        """Of the smallest size; None: the sweep has no figure of this collective."""
        own = [each for each in self.figures if each.collective is collective]
        return min(own, key=lambda each: each.num_bytes).latency_s if own else None
