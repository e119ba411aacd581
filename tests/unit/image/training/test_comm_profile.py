"""Exposed communication by interval arithmetic, on timelines drawn by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench_image.training import comm_profile
from bench_image.training.comm_profile import Interval, Timeline, exposed, measure_communication, timeline, union


@pytest.mark.parametrize(
    ("intervals", "merged"),
    [
        ([], []),
        ([(5, 6), (1, 2)], [(1, 2), (5, 6)]),
        ([(1, 4), (2, 3), (4, 6)], [(1, 6)]),
        ([(1, 2), (1, 2)], [(1, 2)]),
    ],
)
def test_union_is_sorted_and_disjoint(intervals: list[Interval], merged: list[Interval]) -> None:
    assert union(intervals) == merged


@pytest.mark.parametrize(
    ("communication", "computation", "total", "open_part"),
    [
        ([], [(0, 9)], 0, 0),
        ([(0, 10)], [], 10, 10),
        ([(0, 10)], [(0, 10)], 10, 0),
        # talk 0..15; work covers 3..8 and 12..15 of it: 15 - 5 - 3
        ([(0, 10), (5, 15)], [(3, 8), (12, 20)], 15, 7),
        # one long computation covers parts of two talks: 2..4 and 6..8 of 1..4 and 6..9
        ([(1, 4), (6, 9)], [(2, 8)], 6, 2),
        # overlapping kernels of several streams count once
        ([(0, 4)], [(1, 3), (2, 3), (1, 2)], 4, 2),
    ],
)
def test_exposed_is_what_no_computation_covers(
    communication: list[Interval], computation: list[Interval], total: float, open_part: float
) -> None:
    assert exposed(communication, computation) == (total, open_part)


def test_kernels_are_classified_by_name() -> None:
    events = [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0.0, 5.0),
        ("gloo:all_reduce", 1.0, 2.0),
        ("sm90_xmma_gemm_bf16", 0.0, 3.0),
        ("Memcpy DtoD (Device -> Device)", 3.0, 4.0),
    ]
    line = timeline(events, span=10.0)

    assert list(line.communication) == [(0.0, 5.0), (1.0, 2.0)]
    assert list(line.computation) == [(0.0, 3.0), (3.0, 4.0)]
    assert line.span == 10.0


def test_a_step_is_the_ranks_own_time_and_its_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 4, 4 and 2 s. It communicates 2, 1 and 1 s of them, and 0.5, 0 and 1 s are hidden: 40 % and 25 %."""
    ns = 10**9
    lines = iter(
        [
            Timeline([(0, 2 * ns)], [(0, ns // 2)], 4 * ns),
            Timeline([(ns, 2 * ns)], [], 4 * ns),
            Timeline([(0, ns)], [(0, 2 * ns)], 2 * ns),
        ]
    )
    monkeypatch.setattr(comm_profile, "_profiled", lambda *_: next(lines))
    alone: Any = SimpleNamespace(mean_over_ranks=lambda values: values)
    shares, own_steps_s, step_waits_s = measure_communication(lambda: None, alone, 3.3)

    assert (shares.total_pct, shares.exposed_pct, shares.profiled_steps) == (40, 25, 3)
    assert (own_steps_s, step_waits_s) == ((2.5, 3.0, 2.0), (1.5, 1.0, 0.0))
