"""Every GPU of a node by itself, at the same time: own figures, own name, own faults. Skipped without CUDA."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench_image.contract.options import Optimizer, Recipe, Strategy
from bench_image.contract.result import Phase, RunResult, Status
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device, Preset
from bench_image.parallel.visible_gpus import VISIBLE
from bench_image.telemetry.nvml import connect
from tests.builders.image_processes import finish, make_spec, start_anew
from tests.image.process.test_merge_independent import run_node

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
OUT_OF_MEMORY = """
import os
import bench_image.training.train_step as train_step
honest_step = train_step.TrainStep.__call__
def step(self):
    import torch
    if os.environ["RANK"] == "1":
        torch.empty(2**50, dtype=torch.uint8, device="cuda")
    return honest_step(self)
train_step.TrainStep.__call__ = step
"""


def spec_of(num_gpus: int) -> RunSpec:
    return make_spec(
        device=Device.CUDA, recipe=Recipe.QLORA, preset=Preset.TUNED, optimizer=Optimizer.ADAMW_TORCH,
        strategy=Strategy.INDEPENDENT, gpus_per_node=num_gpus, gradient_checkpointing="auto", seq_length=256,
        warmup_steps=5, measured_steps=200, max_measured_steps=400, max_window_s=3.0, timeout_s=240,
    )  # fmt: skip


def uuids() -> list[str]:
    nvml = connect()
    return [nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(2)]


def first_losses(result: RunResult) -> list[float | None]:
    return [rank.performance.first_loss for rank in result.ranks if rank.performance]


@pytest.mark.parametrize("num_gpus", [1, pytest.param(2, marks=two_gpus)])
def test_every_gpu_of_a_node_is_measured_by_itself(tmp_path: Path, num_gpus: int) -> None:
    """Equal work: equal losses, whatever GPU did it; and each GPU has its own rate, telemetry and probes."""
    result = finish(start_anew(spec_of(num_gpus), tmp_path), tmp_path)

    assert (result.status, result.error) == (Status.OK, None)
    own = [rank.performance for rank in result.ranks if rank.performance]
    assert len(own) == len({rank.gpu_uuid for rank in result.ranks}) == len(result.telemetry.gpus) == num_gpus
    assert sum(one.samples_per_second or 0 for one in own) == pytest.approx(result.performance.samples_per_second)
    assert first_losses(result) == pytest.approx([own[0].first_loss] * num_gpus, rel=1e-3)
    assert all(rank.probes and rank.probes.h2d_gb_per_s for rank in result.ranks)
    assert [gpu.uuid for gpu in result.telemetry.gpus] == [rank.gpu_uuid for rank in result.ranks]
    assert [gpu.index for gpu in result.telemetry.gpus] == list(range(num_gpus))
    assert all(gpu.num_samples > 0 and gpu.energy_j for gpu in result.telemetry.gpus)
    assert result.telemetry.energy_per_sample_j is not None
    assert result.chosen is not None
    assert result.chosen.execution["CUDA graph"] == "the whole step"
    assert result.chosen.why.endswith("not tried")


@two_gpus
def test_no_fault_of_one_gpu_reaches_its_neighbour(tmp_path: Path) -> None:
    """The pod's order of GPUs is not that of NVML. Rank 1 is out of memory, for rank 2 there is no GPU."""
    first, second = uuids()
    spec = spec_of(3)
    result = run_node(spec, tmp_path, OUT_OF_MEMORY, later_s=30.0, **{VISIBLE: f"{second},{first}"})

    assert [rank.status for rank in result.ranks] == [Status.OK, Status.OOM, Status.ERROR]
    assert [rank.gpu_uuid for rank in result.ranks] == [second, first, None]
    sound = result.ranks[0].performance
    assert sound is not None
    assert len(sound.windows) == spec.measurement.repeats
    assert result.performance.samples_per_second is None  # of one GPU it would pass for that of three
    assert (result.status, result.error and result.error.rank) == (Status.OOM, 1)
    assert result.error is not None
    assert result.error.message.startswith(f"GPU 1 ({first}): ")
    assert result.error.message.endswith("also GPU 2: error")
    assert result.error.phase is Phase.WARMUP
