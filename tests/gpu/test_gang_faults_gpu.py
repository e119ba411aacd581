"""Two GPUs that train together, as CUDA graphs too: which rank is slow, and which one hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.preset_switches import uses_cuda_graph
from bench_image.contract.result import HANG, Phase
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Preset
from tests.builders.image_processes import ENDLESS, finish, rank_process, start_anew, wait_for
from tests.gpu.test_gang_graphs_gpu import gang_spec
from trainbench.judging.gangs import slow_ranks

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")]
LIMIT_PCT = 5.0
OTHER_WORK = """
import torch
a = torch.randn(8192, 8192, device="cuda:1", dtype=torch.bfloat16)
print("works", flush=True)
while True:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize(1)
"""


def spec_of(strategy: Strategy, **changes: object) -> RunSpec:
    """Long enough for a graph, where there are no more than these steps of warm-up."""
    return gang_spec(strategy, model="tier-a", recipe=Recipe.FULL, seq_length=1024, warmup_steps=20, **changes)


@contextmanager
def other_work_on_gpu_1() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", OTHER_WORK], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        yield
        process.kill()


@pytest.mark.parametrize("strategy", [Strategy.DDP, Strategy.FSDP])
def test_the_rank_whose_gpu_does_other_work_too_is_slow_and_else_nobody(tmp_path: Path, strategy: Strategy) -> None:
    spec = spec_of(strategy)
    healthy = finish(start_anew(spec, tmp_path / "healthy"), tmp_path / "healthy")
    with other_work_on_gpu_1():
        disturbed = finish(start_anew(spec, tmp_path / "disturbed"), tmp_path / "disturbed")
    for name, result in (("healthy", healthy), ("disturbed", disturbed)):
        for rank in result.ranks:
            print(strategy, name, rank.rank, rank.own_steps_s, rank.step_waits_s)

    assert list(slow_ranks(healthy.ranks, LIMIT_PCT)) == []
    (slow,) = slow_ranks(disturbed.ranks, LIMIT_PCT)
    assert slow.rank.rank == 1
    assert slow.wait_pct > LIMIT_PCT


@pytest.mark.parametrize("preset", [Preset.TUNED, Preset.AS_USERS_RUN])
def test_a_rank_that_is_stopped_is_named(tmp_path: Path, preset: Preset) -> None:
    spec = spec_of(Strategy.DDP, preset=preset, **ENDLESS | {"timeout_s": 100})
    assert uses_cuda_graph(spec) is (preset is Preset.TUNED)
    process = start_anew(spec, tmp_path)
    wait_for(Phase.MEASURE, process, spec, tmp_path)
    rank_process(process, 1).send_signal(signal.SIGSTOP)
    result = finish(process, tmp_path)

    assert result.error is not None
    print(result.error.message)
    assert (result.error.kind, result.error.rank) == (HANG, 1)
