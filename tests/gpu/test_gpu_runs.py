"""The same program on a GPU: every recipe and preset, alone and with a peer. Skipped without CUDA."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from bench_image.contract.options import SINGLE_GPU, Attention, Optimizer, Precision, Recipe, Strategy
from bench_image.contract.result import Phase, RunResult, Status
from bench_image.contract.spec import Drill
from bench_image.contract.work import Device, Preset
from tests.builders.image_processes import finish, make_spec, start_anew, wait_for

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
needs_float8 = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 9), reason="needs units for float8"
)
OPTIMIZERS = {
    Recipe.FULL: Optimizer.ADAMW_8BIT,
    Recipe.LORA: Optimizer.ADAMW_TORCH,
    Recipe.QLORA: Optimizer.PAGED_ADAMW_8BIT,
}


def run(folder: Path, **changes: object) -> RunResult:
    folder.mkdir(exist_ok=True)
    changes = {"seq_length": 256, "warmup_steps": 5, "measured_steps": 20, "max_measured_steps": 40} | changes
    spec = make_spec(device=Device.CUDA, timeout_s=240, **changes)
    return finish(start_anew(spec, folder), folder)


@pytest.mark.parametrize("preset", list(Preset))
@pytest.mark.parametrize("recipe", list(Recipe))
def test_a_run_measures_everything_a_gpu_offers(tmp_path: Path, recipe: Recipe, preset: Preset) -> None:
    result = run(tmp_path, recipe=recipe, preset=preset, optimizer=OPTIMIZERS[recipe])

    assert (result.status, result.error) == (Status.OK, None)
    assert result.memory.kind == "cuda_allocated"
    assert result.memory.peak_reserved_bytes is not None
    assert result.memory.peak_allocated_bytes is not None
    assert 0 < result.memory.peak_allocated_bytes <= result.memory.peak_reserved_bytes
    assert result.probes.h2d_gb_per_s is not None
    assert result.probes.matmul_tflops is not None
    assert result.probes.d2h_gb_per_s is not None
    assert result.probes.memory_gb_per_s is not None
    assert (result.probes.peer_gb_per_s is not None) == (torch.cuda.device_count() > 1)
    assert result.context is not None
    assert [gpu.uuid for gpu in result.context.gpus] == [result.ranks[0].gpu_uuid]
    (telemetry,) = result.telemetry.gpus
    assert telemetry.num_samples > 0
    assert telemetry.other_memory_at_start_gb is not None
    assert telemetry.xids == {} or "telemetry.gpus.0.xids" in result.missing


@pytest.mark.parametrize("recipe", list(Recipe))
@pytest.mark.parametrize(
    ("preset", "on", "executed"),
    [(Preset.AS_USERS_RUN, True, "each layer, and the loss"), (Preset.TUNED, False, "off")],
)
def test_compile_is_switched_against_the_preset(
    tmp_path: Path, recipe: Recipe, preset: Preset, on: bool, executed: str
) -> None:
    result = run(tmp_path, recipe=recipe, preset=preset, optimizer=OPTIMIZERS[recipe], compile=on)

    assert (result.status, result.error) == (Status.OK, None)
    assert result.chosen is not None
    assert (result.chosen.execution["compile"], result.chosen.execution["CUDA graph"]) == (executed, "off")


def test_step_times_add_up_to_the_wall_time(tmp_path: Path) -> None:
    """The events' borders are contiguous from one synchronisation to the next: an identity of two clocks."""
    performance = run(tmp_path, recipe=Recipe.FULL, optimizer=Optimizer.ADAMW_TORCH).performance

    assert performance.measured_wall_s == pytest.approx(sum(performance.step_times_s), rel=0.05)


def test_fp16_trains_with_a_scaler(tmp_path: Path) -> None:
    assert run(tmp_path, recipe=Recipe.LORA, precision=Precision.FP16).status is Status.OK


@pytest.mark.parametrize("preset", list(Preset))
def test_tf32_multiplies_faster_than_fp32(tmp_path: Path, preset: Preset) -> None:
    """The probe multiplies as the run does. On the tensor cores that is several times as fast."""
    fields = {"recipe": Recipe.LORA, "optimizer": Optimizer.ADAMW_TORCH, "preset": preset}
    fp32, tf32 = (
        run(tmp_path / precision, precision=precision, **fields) for precision in (Precision.FP32, Precision.TF32)
    )

    assert (fp32.status, tf32.status) == (Status.OK, Status.OK)
    assert fp32.probes.matmul_tflops is not None
    assert tf32.probes.matmul_tflops is not None
    assert tf32.probes.matmul_tflops > 2 * fp32.probes.matmul_tflops
    assert tf32.performance.first_loss == pytest.approx(fp32.performance.first_loss, rel=1e-3)


@pytest.mark.parametrize("preset", list(Preset))
def test_attention_by_each_kernel_has_one_loss(tmp_path: Path, preset: Preset) -> None:
    fields = {"recipe": Recipe.FULL, "optimizer": Optimizer.ADAMW_TORCH, "preset": preset}
    fused, *others = (
        run(tmp_path / (attention or "chosen"), attention=attention, **fields)
        for attention in (None, Attention.FLASH, Attention.EAGER)
    )

    for other in others:
        assert (other.status, other.error) == (Status.OK, None)
        assert other.performance.first_loss == pytest.approx(fused.performance.first_loss, rel=2e-3)


@needs_float8
@pytest.mark.parametrize("recipe", [Recipe.FULL, Recipe.LORA])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_float8_trains(tmp_path: Path, recipe: Recipe, checkpointing: bool) -> None:
    result = run(
        tmp_path, recipe=recipe, precision=Precision.FP8, preset=Preset.TUNED, gradient_checkpointing=checkpointing
    )

    assert (result.status, result.error) == (Status.OK, None)
    assert result.chosen is not None
    assert result.chosen.execution["products"].startswith("layers: fp8")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@needs_float8
@pytest.mark.parametrize(
    ("recipe", "strategy"), [(Recipe.FULL, Strategy.DDP), (Recipe.FULL, Strategy.FSDP), (Recipe.LORA, Strategy.DDP)]
)
def test_two_gpus_train_together_in_float8(tmp_path: Path, recipe: Recipe, strategy: Strategy) -> None:
    """bf16 on the same batches has nearly the same losses."""
    fields = {"recipe": recipe, "preset": Preset.TUNED, "strategy": strategy, "gradient_accumulation_steps": 2}
    ours, theirs = (
        run(tmp_path / precision, precision=precision, gpus_per_node=2, **fields)
        for precision in (Precision.FP8, Precision.BF16)
    )

    assert (ours.status, ours.error) == (Status.OK, None)
    assert ours.performance.first_loss == pytest.approx(theirs.performance.first_loss, rel=0.01)


def test_a_drill_sleeps_within_the_step(tmp_path: Path) -> None:
    assert run(tmp_path, recipe=Recipe.LORA, drill=Drill(slowdown_pct=50)).status is Status.OK


def test_too_large_a_batch_is_out_of_memory_with_its_phase(tmp_path: Path) -> None:
    result = run(tmp_path, recipe=Recipe.FULL, micro_batch_size=8192, seq_length=4096, gradient_checkpointing=False)

    assert result.status is Status.OOM
    assert result.error is not None
    assert result.memory.num_ooms is not None


@pytest.mark.parametrize("preset", list(Preset))
def test_the_program_chooses_what_is_left_to_it(tmp_path: Path, preset: Preset) -> None:
    result = run(
        tmp_path, recipe=Recipe.FULL, preset=preset, micro_batch_size="auto", gradient_checkpointing="auto",
        model="gpt2", seq_length=1024, measured_steps=5, max_measured_steps=5, repeats=1,
    )  # fmt: skip

    assert (result.status, result.error) == (Status.OK, None)
    assert result.chosen is not None
    assert result.chosen.gradient_checkpointing is False  # a small model fits without
    assert "the fastest of those tried that fit" in result.chosen.why


@pytest.mark.parametrize("model", ["gpt2", "tier-a", "encoder-decoder"])
def test_other_families_train(tmp_path: Path, model: str) -> None:
    precision = Precision.FP16 if model == "encoder-decoder" else Precision.BF16
    result = run(tmp_path, recipe=Recipe.FULL, model=model, precision=precision)

    assert (result.status, result.error) == (Status.OK, None)


def test_sigterm_while_compiling_gives_an_incomplete_result(tmp_path: Path) -> None:
    spec = make_spec(
        device=Device.CUDA, recipe=Recipe.LORA, preset=Preset.TUNED, model="mistral-7b", warmup_steps=20, timeout_s=240
    )
    process = start_anew(spec, tmp_path)
    wait_for(Phase.WARMUP, process, spec, tmp_path)
    process.send_signal(signal.SIGTERM)
    result = finish(process, tmp_path)

    assert result.status is Status.INCOMPLETE
    assert result.error is not None
    assert result.error.kind == "SIGTERM"


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("strategy", [strategy for strategy in Strategy if strategy not in SINGLE_GPU])
@pytest.mark.parametrize("recipe", list(Recipe))
def test_two_gpus_train_together(tmp_path: Path, recipe: Recipe, strategy: Strategy) -> None:
    result = run(
        tmp_path, recipe=recipe, strategy=strategy, preset=Preset.TUNED, gradient_accumulation_steps=2, gpus_per_node=2
    )

    assert (result.status, result.error) == (Status.OK, None)
    assert len({rank.gpu_uuid for rank in result.ranks}) == 2
    assert len(result.telemetry.gpus) == 2
    assert result.probes.allreduce_bus_gb_per_s is not None
    assert result.communication.total_pct is not None
    assert result.communication.exposed_pct is not None
    assert result.communication.total_pct > 0
    assert 0 <= result.communication.exposed_pct <= result.communication.total_pct


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("recipe", list(Recipe))
def test_zero3_by_compiled_layers_has_the_losses_of_ddp(tmp_path: Path, recipe: Recipe) -> None:
    ours, theirs = (
        run(tmp_path / strategy, recipe=recipe, strategy=strategy, preset=Preset.TUNED, gpus_per_node=2)
        for strategy in (Strategy.ZERO3, Strategy.DDP)
    )

    assert (ours.status, ours.error) == (Status.OK, None)
    assert ours.chosen is not None
    assert ours.chosen.execution["weights gathered"] == "by layer"
    assert ours.performance.first_loss == pytest.approx(theirs.performance.first_loss, rel=2e-3)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_train_together_as_users_do(tmp_path: Path) -> None:
    result = run(tmp_path, recipe=Recipe.QLORA, strategy=Strategy.DDP, gpus_per_node=2)

    assert (result.status, result.error) == (Status.OK, None)


def test_long_steps_end_their_window_in_time(tmp_path: Path) -> None:
    """Far more steps asked for than fit into windows of a second."""
    result = run(tmp_path, recipe=Recipe.FULL, measured_steps=5000, max_measured_steps=10_000, max_window_s=1.0)

    assert result.status is Status.OK
    assert all(2 <= window.num_steps < 5000 for window in result.performance.windows)
