"""The encoder-decoder program: flags, the run they ask for, the file it writes; started plainly and by torchrun."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bench_image.contract import frozen
from bench_image.contract.flops import num_parameters
from bench_image.contract.options import Precision, Strategy
from bench_image.contract.parse import parse_result
from bench_image.contract.result import Chosen, RunResult
from bench_image.contract.result_sections import Clock, ParameterCount, Performance
from bench_image.contract.spec import Placement
from bench_image.contract.work import DiskData, Preset
from bench_image.parallel.visible_gpus import count_visible_gpus
from bench_image.process.merge import performance_of
from bench_image.process.rank_report import WindowRecord
from bench_image.seq2seq import bench_file
from bench_image.seq2seq.flags import FlagError, Launch, Plan, parser, plan
from bench_image.training.loop import steps_to_do
from tests.builders import error_of, fields_of, make_cpu_result, make_result
from tests.builders.image_processes import environment
from tests.builders.warm_processes import run_warm
from tests.conftest import Golden
from tests.unit.image.fake_nvml import nvml_of

SMALL = (
    "--device", "cpu", "--d-model", "16", "--nhead", "2", "--dim-feedforward", "32", "--vocab-size", "50",
    "--seq-len", "8", "--batch-size", "4", "--num-samples", "25",
)  # fmt: skip


def planned(*arguments: str, gpus: int = 1, launch: Launch | None = None) -> Plan:
    return plan(parser().parse_args(arguments), launch, "run-1", (gpus, None if gpus else "no driver"))


# --- flags ------------------------------------------------------------------------------------------------------------


def test_the_default_is_the_documented_model_in_fp16_on_all_gpus() -> None:
    """32,768 samples / (8 x 32) = 128 steps per epoch; one epoch of warm-up, three measured."""
    plan = planned(gpus=8)
    spec = plan.spec

    assert num_parameters(spec.work.shape) == 3_445_056
    measurement = spec.measurement
    assert spec.placement == Placement(strategy=Strategy.DDP, gpus_per_node=8)
    assert spec.work.precision is Precision.FP16
    assert (measurement.warmup_steps, measurement.measured_steps, measurement.max_measured_steps) == (128, 128, 128)
    assert measurement.repeats == 3
    assert (spec.work.data, plan.notes) == ("memory", ())


def test_every_flag_has_its_place_in_the_run() -> None:
    spec = planned(
        "--d-model", "64", "--nhead", "8", "--num-encoder-layers", "1", "--num-decoder-layers", "2",
        "--dim-feedforward", "96", "--vocab-size", "70000", "--seq-len", "5000", "--batch-size", "3", "--epochs", "5",
        "--warmup-epochs", "2", "--amp", "bf16", "--single", "--num-samples", "30", "--data-dir", "/mnt/x",
        "--num-shards", "7", "--seed", "9", gpus=8,
    ).spec  # fmt: skip

    assert spec.work.shape.model_dump() == {
        "family": "encoder-decoder", "vocab_size": 70_000, "hidden_size": 64, "intermediate_size": 96,
        "num_encoder_layers": 1, "num_decoder_layers": 2, "num_heads": 8, "max_positions": 5000,
    }  # fmt: skip
    assert spec.work.data == DiskData(folder="/mnt/x", num_samples=30, num_shards=7)
    assert spec.placement.strategy is Strategy.SINGLE
    assert (spec.work.micro_batch_size, spec.work.seq_length, spec.work.seed) == (3, 5000, 9)
    assert (spec.measurement.warmup_steps, spec.measurement.measured_steps, spec.measurement.repeats) == (20, 10, 5)
    assert spec.work.precision is Precision.BF16


def test_preset_and_precision_are_chosen() -> None:
    assert [planned("--preset", preset).spec.work.preset for preset in Preset] == list(Preset)
    assert planned().spec.work.preset is Preset.AS_USERS_RUN
    assert {planned(*flags).spec.work.precision for flags in (("--no-amp",), ("--amp", "off"))} == {Precision.FP32}


def test_without_a_gpu_it_runs_on_the_cpu_in_fp32_and_says_so() -> None:
    plan = planned(gpus=0)

    work = plan.spec.work
    assert (work.device, plan.spec.placement.world_size, work.precision) == ("cpu", 1, Precision.FP32)
    assert plan.notes == ("no NVIDIA GPU is visible: this is a run on the CPU",)
    assert planned("--device", "cpu", "--gpus", "2", "--amp", "fp16").spec.placement.world_size == 2


@pytest.mark.parametrize(("vocab", "token_bytes"), [("65536", 2), ("65537", 4)])
def test_full_fills_30_gb(vocab: str, token_bytes: int) -> None:
    """A sample is a source and a target of 128 tokens."""
    plan = planned("--full", "--disk", "--vocab-size", vocab)

    assert isinstance(plan.spec.work.data, DiskData)
    assert plan.spec.work.data.num_samples == 30_000_000_000 // (256 * token_bytes)
    assert Path(plan.spec.work.data.folder) == Path("data").absolute()
    assert plan.spec.work.micro_batch_size == 1024


def test_a_deviation_from_the_requested_settings_is_reported() -> None:
    """58,593,750 samples in steps of 1024: 57,220 of them, and 470 samples over. 25 samples in steps of 8: 3, and 1."""
    full = planned("--full")
    assert full.spec.measurement.warmup_steps == 10_000
    assert full.notes == (
        "warm-up ends after 10,000 steps, before 1 epochs are over",
        "an epoch is 57,220 whole steps: 470 of 58,593,750 samples are left to the next one",
    )
    cold = planned("--num-samples", "25", "--batch-size", "8", "--warmup-epochs", "0")
    assert cold.spec.measurement.warmup_steps == 1
    assert [note.partition(":")[0] for note in cold.notes] == [
        "one warm-up step runs before the first epoch", "an epoch is 3 whole steps",
    ]  # fmt: skip


WRONG = [
    (("--nhead", "3"), "--nhead 3 does not divide --d-model 128"),
    (("--epochs", "0"), "argument --epochs: '0' is not a whole number from 1 to 100"),
    (("--batch-size", "many"), "argument --batch-size: 'many' is not a whole number"),
    (("--amp", "int8"), "argument --amp: invalid choice"),
    (("--full", "--num-samples", "4"), "--num-samples: not allowed with argument --full"),
    (("--single", "--gpus", "2"), "not allowed with argument"),
    (("--num-shards", "3"), "--num-shards goes with --disk or --data-dir"),
    (("--num-samples", "40"), "1 steps per epoch, and 2 are the least: --num-samples 64"),
    (("--full", "--batch-size", "8"), "100,000 are the most with --epochs 3: --batch-size 586 or more"),
    (("--full", "--epochs", "100"), "3,500 are the most with --epochs 100: --batch-size 16742 or more"),
    (("--gpus", "2"), "--gpus 2, but 1 are visible: --gpus 1 to 1"),
    (("--bogus",), "unrecognized arguments: --bogus"),
    (("--d-mod", "8"), "unrecognized arguments: --d-mod"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_a_wrong_flag_is_refused_with_what_is_allowed(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(FlagError, match=re.escape(message)):
        planned(*arguments)


def test_the_advice_of_a_refusal_works() -> None:
    assert planned("--num-samples", "64").spec.measurement.measured_steps == 2
    assert planned("--full", "--batch-size", "586").spec.measurement.measured_steps <= 100_000
    assert planned("--full", "--epochs", "100", "--batch-size", "16742").spec.measurement.measured_steps <= 3_500


def test_an_epoch_is_never_cut_short_by_its_time() -> None:
    """A window of it holds exactly the steps of the data, also when they take hours."""
    spec = planned("--full").spec

    assert spec.measurement.max_window_s == spec.timeout_s == 86_400
    assert steps_to_do(spec.measurement.measured_steps - 1, [0.5] * 100, 50.0, 0.5, spec) == 1


def test_cuda_without_a_gpu_is_refused_with_the_reason() -> None:
    with pytest.raises(FlagError, match=r"there is no NVIDIA GPU \(no driver\): --device cpu"):
        planned("--device", "cuda", gpus=0)


def test_torchrun_decides_how_many_ranks_there_are() -> None:
    assert planned(gpus=8, launch=Launch(0, 2, 2)).spec.placement.gpus_per_node == 2
    assert planned("--single", launch=Launch(0, 1, 1)).spec.placement.strategy is Strategy.SINGLE
    with pytest.raises(FlagError, match="torchrun started 2 processes, but the flags say 1"):
        planned("--single", gpus=8, launch=Launch(0, 2, 2))
    with pytest.raises(FlagError, match="on several hosts"):
        planned(gpus=8, launch=Launch(0, 16, 8))


def test_torchrun_is_known_by_its_environment() -> None:
    assert Launch.of({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}) == Launch(3, 8, 4)
    assert Launch.of({"RANK": "0"}) is None


@pytest.mark.parametrize(
    ("count", "variable", "expected"),
    [
        (8, None, 8), (8, "0,3", 2), (8, "GPU-a, GPU-b,GPU-c", 3), (8, "", 0), (8, "0,-1,2", 1), (2, "0,1,2", 2),
        (0, None, 0),
    ],
)  # fmt: skip
def test_visible_gpus_are_counted(count: int, variable: str | None, expected: int) -> None:
    environ = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    actual, why_none = count_visible_gpus(environ, nvml=nvml_of(count))

    assert actual == expected
    assert (why_none is None) == (expected > 0)


# --- the file ---------------------------------------------------------------------------------------------------------


def window(wall_s: float, losses: tuple[float, ...]) -> WindowRecord:
    steps = len(losses)
    return WindowRecord(
        started_s=1.0, wall_s=wall_s, loader_wait_s=0.25, step_times_s=(wall_s / steps,) * steps, losses=losses
    )


def example() -> tuple[Plan, RunResult, list[WindowRecord]]:
    """Two epochs of two steps on two GPUs."""
    arguments = ("--epochs", "2", "--num-samples", "130", "--data-dir", "/data", "--warmup-epochs", "0")
    plan = planned(*arguments, gpus=2)
    execution = {"data": "disk: 1 shard"}
    chosen = Chosen(micro_batch_size=32, gradient_checkpointing=False, why="as the spec sets it", execution=execution)
    spec = fields_of(plan.spec)
    count = num_parameters(plan.spec.work.shape)
    result = make_result(
        gpu_name="NVIDIA A100-SXM4-80GB", chosen=chosen, parameters=ParameterCount(total=count, trainable=count),
        samples_per_s=85.3, **spec,
    )  # fmt: skip
    windows = [window(2.0, (9.0, 8.0)), window(1.0, (8.0, 7.5))]
    measured = performance_of(plan.spec, None, windows, {})
    known = {name: value for name in frozen.fields_of(Performance) if (value := getattr(measured, name)) is not None}
    return plan, result.model_copy(update={"performance": result.performance.model_copy(update=known)}), windows


def test_the_table_is_as_documented(golden: Golden) -> None:
    """Two steps of 2 x 32 samples in 2 s and in 1 s: 64 and 128 samples/s, 1.5 s in the mean."""
    golden("bench-encoder-decoder.txt", bench_file.table(*example()))


def test_on_a_cpu_the_table_says_that_its_rate_is_by_cpu_time() -> None:
    plan, result, windows = example()
    by_cpu_time = replace(result.performance, clock=Clock.PROCESS_CPU)
    assert "per CPU s" in bench_file.table(plan, result.model_copy(update={"performance": by_cpu_time}), windows)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("NVIDIA GeForce RTX 4090", "GeForce-RTX-4090"),
        ("../../etc/x_y", "etc-x-y"),
        ("///", "unknown"),
    ],
)
def test_the_file_is_named_by_the_gpu(name: str, expected: str, tmp_path: Path) -> None:
    result = make_result(gpu_name=name)
    path = bench_file.free_path(tmp_path, result)

    assert path == tmp_path / f"bench_{expected}_1gpu_20261121T020000Z.json"
    path.touch()
    assert bench_file.free_path(tmp_path, result).name == f"bench_{expected}_1gpu_20261121T020000Z-2.json"


def test_a_cpu_run_claims_no_gpu(tmp_path: Path) -> None:
    assert bench_file.free_path(tmp_path, make_cpu_result()).name == "bench_CPU_0gpu_20261121T020000Z.json"


# --- whole runs -------------------------------------------------------------------------------------------------------


def run(folder: Path, *arguments: str, ranks: int | None = None) -> subprocess.CompletedProcess[str]:
    """In `folder`, plainly or by torchrun."""
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"] if ranks else []
    return run_warm([*torchrun, "bench_image.seq2seq", *arguments], environment(OMP_NUM_THREADS="1"), folder)


def written(folder: Path, done: subprocess.CompletedProcess[str]) -> tuple[RunResult, list[float]]:
    """The one bench file, whose path is the last line on stdout; and the mean loss of each epoch by the table."""
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "results").glob("bench_*.json")
    assert list((folder / "results").rglob("result.json")) == []
    *table, last = done.stdout.splitlines()
    assert last == str(path.relative_to(folder))
    begin = next(number for number, line in enumerate(table) if "mean loss" in line) + 1
    losses = [float(line.split()[3]) for line in table[begin:] if line.split()[:1] and line.split()[0].isdigit()]
    return parse_result(path.read_text()), losses


def test_torchrun_starts_as_many_ranks_as_it_is_told(tmp_path: Path) -> None:
    """25 samples: 3 steps of 2 x 4."""
    result, losses = written(tmp_path, run(tmp_path, *SMALL, "--epochs", "2", ranks=2))

    assert [window.num_steps for window in result.performance.windows] == [3, 3]
    assert (result.spec.placement.world_size, result.spec.samples_per_step) == (2, 8)
    assert result.spec.work.precision is Precision.FP32
    assert result.performance.measured_steps == 6
    assert losses[1] < losses[0]


def test_a_run_reads_the_shards_that_it_wrote(tmp_path: Path) -> None:
    """25 samples in two processes: 3 steps of 2 x 4."""
    arguments = (
        *SMALL,
        "--gpus",
        "2",
        "--epochs",
        "1",
        "--warmup-epochs",
        "0",
        "--amp",
        "fp16",
        "--disk",
        "--num-shards",
        "3",
    )
    first, losses = written(tmp_path, run(tmp_path, *arguments))
    (folder,) = (tmp_path / "data").iterdir()
    files = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    (tmp_path / "results").rename(tmp_path / "first")
    second, again = written(tmp_path, run(tmp_path, *arguments))

    assert set(files) == {"manifest.json", "shard_0000.bin", "shard_0001.bin", "shard_0002.bin"}
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == files
    assert [window.num_steps for window in first.performance.windows] == [3]
    assert first.performance.loader_wait_pct is not None
    assert first.chosen is not None
    assert second.chosen is not None
    assert "written in this run" in first.chosen.execution["data"]
    assert "already on disk, checksums verified" in second.chosen.execution["data"]
    assert again == pytest.approx(losses, rel=1e-3)


def test_a_run_that_fails_says_why_and_writes_no_bench_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(tmp_path, *SMALL, "--data-dir", "file", ranks=2)

    assert done.returncode == 1
    assert "DataError: the data in" in done.stderr
    assert list((tmp_path / "results").glob("bench_*")) == []
    (path,) = (tmp_path / "results").glob("runs/*/result.json")
    assert error_of(parse_result(path.read_text())).kind == "DataError"


def test_a_wrong_flag_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "--nhead", "3")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "seq2seq: --nhead 3 does not divide --d-model 128\n"
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_flag_of_the_reference(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")

    assert done.returncode == 0
    for flag in (
        "--d-model", "--nhead", "--num-encoder-layers", "--num-decoder-layers", "--dim-feedforward", "--vocab-size",
        "--seq-len", "--batch-size", "--epochs", "--warmup-epochs", "--amp", "--no-amp", "--single", "--full",
        "--num-samples", "--disk", "--data-dir", "--num-shards", "--device", "--gpus", "--seed", "--results-dir",
    ):  # fmt: skip
        assert f"  {flag} " in done.stdout, flag
    assert "torchrun --nproc-per-node=8" in done.stdout
