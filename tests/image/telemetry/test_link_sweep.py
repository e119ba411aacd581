"""A sweep of collectives between real processes, and the environment that takes the inner link from NCCL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_image.contract.frozen import ContractError
from bench_image.contract.links import Collective, LinkSweep, bus_gb_per_s
from bench_image.contract.parse import parse_result
from bench_image.process.supervisor import INNER_LINK_OFF, rank_environment
from tests.builders.image_processes import finish, make_spec, start

SWEEP = {"strategy": "ddp", "recipe": "full", "gpus_per_node": 3, "repeats": 1}


def test_three_ranks_measure_each_collective_at_each_size_and_then_train(tmp_path: Path) -> None:
    spec = make_spec(link_sweep=LinkSweep(top_bytes=16384), **SWEEP)
    result = finish(start(spec, tmp_path), tmp_path)

    assert result.links
    assert result.links.backend == "gloo"
    assert [(each.collective, each.num_bytes) for each in result.links.figures] == [
        (collective, size)
        for collective in Collective
        for size in (8184, 16380)  # 682 and 1365 floats x 4 B x 3
    ]
    for each in result.links.figures:
        assert each.bus_gb_per_s == pytest.approx(bus_gb_per_s(each.collective, each.num_bytes, each.latency_s, 3))
    assert result.performance.samples_per_second
    document = json.loads(result.model_dump_json()) | {"links": None}
    with pytest.raises(ContractError, match="needs links"):
        parse_result(json.dumps(document))


def test_without_the_inner_link_the_users_environment_does_not_bring_it_back(tmp_path: Path) -> None:
    given = {"NCCL_P2P_DISABLE": "0"}
    with_it, without = (
        rank_environment(make_spec(link_sweep=LinkSweep(inner_link=inner), **SWEEP), tmp_path, given, started=1.5)
        for inner in (True, False)
    )

    assert with_it["NCCL_P2P_DISABLE"] == "0"
    assert without.items() >= INNER_LINK_OFF.items()
