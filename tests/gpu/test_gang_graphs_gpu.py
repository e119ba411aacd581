"""Steps of several GPUs as CUDA graphs with their communication: losses, exposed communication, a peer that dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bench_image.contract.options import Optimizer, Precision, Recipe, Strategy
from bench_image.contract.preset_switches import steps_before_capture, uses_cuda_graph
from bench_image.contract.result import Phase, RunResult, Status
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device, Preset
from bench_image.process.rank_report import read_reports
from tests.builders.image_processes import ENDLESS, finish, make_spec, rank_process, start_anew
from tests.builders.image_processes import wait_for as wait_for_phase
from tests.builders.ports import free_port

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")]
STEPS = 24
CASES: dict[str, dict[str, Any]] = {
    "full": {"recipe": Recipe.FULL},
    "full, accumulating": {"recipe": Recipe.FULL, "gradient_accumulation_steps": 3},
    "full, fp8": {"recipe": Recipe.FULL, "precision": Precision.FP8},
    "full, checkpointing": {"recipe": Recipe.FULL, "gradient_checkpointing": True},
    "lora": {"recipe": Recipe.LORA},
    "qlora": {"recipe": Recipe.QLORA},
}


def gang_spec(strategy: Strategy, **changes: Any) -> RunSpec:
    fields = {
        "device": Device.CUDA, "preset": Preset.TUNED, "optimizer": Optimizer.ADAMW_TORCH, "seq_length": 256,
        "gradient_checkpointing": False, "strategy": strategy, "gpus_per_node": 2, "repeats": 1, "timeout_s": 240,
        "measured_steps": STEPS, "max_measured_steps": STEPS,
    }  # fmt: skip
    return make_spec(**fields | changes)


def losses(spec: RunSpec, folder: Path) -> tuple[tuple[float | None, ...], RunResult]:
    """Of the measured steps, as means over ranks."""
    folder.mkdir()
    result = finish(start_anew(spec, folder), folder)
    assert (result.status, result.error) == (Status.OK, None)
    return read_reports(folder)[0].windows[0].losses, result


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("strategy", [Strategy.DDP, Strategy.FSDP])
def test_losses_are_those_of_steps_launched_kernel_by_kernel(tmp_path: Path, strategy: Strategy, case: str) -> None:
    """One warm-up step less leaves no room for the capture. The steps that both measure have the same losses."""
    first = steps_before_capture(gang_spec(strategy))
    launched, replayed = (gang_spec(strategy, warmup_steps=first + more, **CASES[case]) for more in (0, 1))
    assert (uses_cuda_graph(launched), uses_cuda_graph(replayed)) == (False, True)
    (theirs, _), (ours, result) = losses(launched, tmp_path / "launched"), losses(replayed, tmp_path / "replayed")

    # Only where the embedding is frozen do two runs agree to the bit: its gradient is added up in no fixed order.
    assert ours[:-1] == pytest.approx(theirs[1:], abs=2e-3 if replayed.work.recipe is Recipe.FULL else 0.0)
    assert result.chosen is not None
    assert result.chosen.execution["CUDA graph"] == "the whole step, with its communication"
    assert result.communication.total_pct is not None
    assert result.communication.exposed_pct is not None
    assert result.communication.total_pct > 0
    assert 0 <= result.communication.exposed_pct <= result.communication.total_pct


@pytest.mark.parametrize("strategy", [Strategy.DDP, Strategy.FSDP])
def test_a_killed_rank_ends_the_run(tmp_path: Path, strategy: Strategy) -> None:
    """The other rank waits on its GPU for an exchange that never comes."""
    spec = gang_spec(strategy, recipe=Recipe.FULL, warmup_steps=20, **ENDLESS)
    process = start_anew(spec, tmp_path)
    wait_for_phase(Phase.MEASURE, process, spec, tmp_path)
    rank_process(process, 1).kill()
    result = finish(process, tmp_path)

    assert result.status is Status.ERROR
    assert result.error is not None
    assert (result.error.kind, result.error.rank) == ("SIGKILL", 1)


def test_a_lost_host_ends_the_run_on_the_others(tmp_path: Path) -> None:
    """Two pods of one GPU: no torchrun tells the first that the second has gone."""
    spec = gang_spec(
        Strategy.DDP, recipe=Recipe.FULL, warmup_steps=20, nodes=2, gpus_per_node=1, timeout_s=120, repeats=100,
        **ENDLESS | {"max_window_s": 3.0},
    )  # fmt: skip
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    pods = []
    for number in ("0", "1"):
        (tmp_path / number).mkdir()
        own = {"NODE_RANK": number, "CUDA_VISIBLE_DEVICES": number, "LOCAL_RANK": "0"}
        pods.append(start_anew(spec, tmp_path / number, **meeting, **own))
    wait_for_phase_of_one(pods[0], spec, tmp_path / "0")
    pods[1].kill()  # its ranks die with it
    result = finish(pods[0], tmp_path / "0")
    pods[1].wait()

    assert result.status is Status.ERROR  # not TIMEOUT: the supervisor did not have to end it


def wait_for_phase_of_one(process: Any, spec: RunSpec, folder: Path) -> None:
    alone = spec.model_copy(update={"placement": spec.placement.model_copy(update={"nodes": 1})})
    wait_for_phase(Phase.MEASURE, process, alone, folder)
