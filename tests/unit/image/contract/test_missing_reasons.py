"""Reasons for nulls: which of them cover what, in time that grows with the size and not with its square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bench_image.contract.consistency import unexplained_nulls
from bench_image.contract.result import RankSummary, Status


def rank(number: int, **fields: object) -> RankSummary:
    nulls: dict[str, Any] = {
        "gpu_uuid": None,
        "step_time_median_s": None,
        "peak_allocated_bytes": None,
        "mean_loss": None,
    }
    sections: dict[str, Any] = {"performance": None, "probes": None}
    whole = RankSummary(rank=number, status=Status.OK, **nulls, **sections)
    return whole.model_copy(update=dict.fromkeys(sections, "known") | fields)


def ranks(num: int) -> dict[str, object]:
    return {"ranks": tuple(rank(number) for number in range(num))}


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ((), ["ranks.0.gpu_uuid", "ranks.1.gpu_uuid"]),
        (("ranks.*.gpu_uuid",), []),
        (("ranks.*",), []),
        (("ranks",), []),
        (("ranks.0.gpu_uuid", "ranks.1"), []),
        (("ranks.1.gpu_uuid",), ["ranks.0.gpu_uuid"]),
        (("ranks.0.*",), ["ranks.0.gpu_uuid", "ranks.1.gpu_uuid"]),
        (("ranks.*.gpu_uuid.more", "rank", ""), ["ranks.0.gpu_uuid", "ranks.1.gpu_uuid"]),
        (("ranks.*.mean_loss", "ranks.0"), ["ranks.1.gpu_uuid"]),
    ],
)
def test_a_reason_covers_its_path_and_what_lies_below_it(given: Sequence[str], left: list[str]) -> None:
    known = {"step_time_median_s": 1.0, "peak_allocated_bytes": 1, "mean_loss": 1.0}

    assert list(unexplained_nulls({"ranks": (rank(0, **known), rank(1, **known))}, given)) == left


class Counted(frozenset[str]):
    """Reasons that count how often they are asked."""

    asked = 0

    def __contains__(self, path: object) -> bool:
        self.asked += 1
        return super().__contains__(path)


def lookups(num_ranks: int, num_reasons: int) -> int:
    """For a result with starred reasons that cover nothing."""
    given = Counted(f"ranks.*.nothing_{number}" for number in range(num_reasons))
    assert len(list(unexplained_nulls(ranks(num_ranks), given))) == 4 * num_ranks
    return given.asked


def test_reading_200_ranks_with_1000_starred_reasons_is_not_their_product() -> None:
    """Each reason was matched with each null: 40 kB took 27 s. Each null has two names, with index and with star."""
    assert lookups(200, 1_000) == lookups(200, 10) == 200 * 4 * 5  # ranks; ranks.0, ranks.*; those with the figure
