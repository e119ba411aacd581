"""Which runs used the same machine, found by an index."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bench_image.contract.result import RunResult
from tests.builders import make_result, on_gpus
from trainbench.results import setups
from trainbench.results.setups import Machines


def with_gpu(node: str, uuid: str | None) -> RunResult:
    """A run on one GPU; None: the GPU did not report its UUID."""
    return on_gpus(make_result(node), uuid)


def test_gpus_decide_and_names_only_where_the_gpus_are_unknown() -> None:
    known, renamed, other, unknown = (
        with_gpu("node-1", "GPU-a"),
        with_gpu("node-9", "GPU-a"),
        with_gpu("node-1", "GPU-b"),
        with_gpu("node-1", None),
    )
    beside = Machines([known, renamed, other, unknown]).beside([known, other])

    assert beside(renamed) == [known]
    assert beside(unknown) == [known, other]
    assert beside(with_gpu("node-2", None)) == []


def test_a_fleet_is_not_compared_each_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run's GPUs are read three times, however large the fleet is: to join machines, to index and to look up."""
    reads: Counter[int] = Counter()
    read = setups.gpu_uuids

    def counted(result: RunResult) -> Any:
        reads[id(result)] += 1
        return read(result)

    monkeypatch.setattr(setups, "gpu_uuids", counted)
    fleet = [with_gpu(f"node-{number}", f"GPU-{number}") for number in range(30)]
    beside = Machines(fleet).beside(fleet)

    assert [beside(run) for run in fleet] == [[run] for run in fleet]
    assert max(reads.values()) == 3
