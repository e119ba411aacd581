"""Independent ranks: equal work beside each other, sums by hand, and faults that stay with the GPU that has them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.parse import parse_result
from bench_image.contract.result import Phase, RunResult, Status
from bench_image.contract.result_sections import Probes
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from bench_image.parallel.file_barrier import arrive, wait_for_all
from bench_image.process.children import run_all
from bench_image.process.exit_codes import ProcessExits
from bench_image.process.merge import _each_alone, _reasons, merge
from bench_image.process.rank_report import RankReport, WindowRecord, read_reports
from bench_image.process.supervisor import children_of
from tests.builders import error_of
from tests.builders.image_processes import environment, finish, make_spec, start
from tests.image.process.test_merge import BEGIN, CHOSEN, END, failed, make_context, make_report, make_sample

SPEC = make_spec(recipe=Recipe.FULL, strategy=Strategy.INDEPENDENT, max_measured_steps=4)


def window(num_steps: int, wall_s: float, started_s: float = 20.0) -> WindowRecord:
    return WindowRecord(
        started_s=started_s, wall_s=wall_s, loader_wait_s=0.1 * num_steps, losses=(7.0,) * num_steps,
        step_times_s=(wall_s / num_steps,) * num_steps,
    )  # fmt: skip


def report(rank: int, *windows: WindowRecord, energy_j: float = 3600.0, **changes: Any) -> RankReport:
    uuid = f"GPU-{rank}"
    gpu = make_sample(energy_j).model_copy(update={"index": 0, "uuid": uuid})
    alone = dict.fromkeys(
        ("communication", "startup.profile_s", "probes.allreduce_bus_gb_per_s"), "one rank has no peer"
    )
    fields = {"windows": windows, "gpus": (gpu,), "gpu_uuid": uuid, "communication": None, "missing": alone}
    return make_report(rank, **fields | changes)


def merged(*reports: RankReport, **ending: Any) -> RunResult:
    """All ended by themselves unless `ending` says else; read again, as whoever gets it would."""
    spec = SPEC.changed(placement={"gpus_per_node": max(2, len(reports))})
    exits = {one.rank: 0 for one in reports}
    result = merge(spec, reports, ProcessExits(**{"codes": exits} | ending), BEGIN, END)
    return parse_result(result.model_dump_json())


def test_rates_add_up_by_hand() -> None:
    """2 samples a step. Rank 0: 10 steps in 10 s, twice: 2 samples/s. Rank 1: 8 in 10 s, then 6 in 10 s: 1.6 and 1.2,
    in all 1.4. Windows 3.6 and 3.2, the run 3.4 samples/s of 32 tokens; rank 1 is the slowest.
    """
    result = merged(report(0, window(10, 10.0), window(10, 10.0)), report(1, window(8, 10.0), window(6, 10.0)))
    figures = result.performance

    assert [one.samples_per_second for one in figures.windows] == pytest.approx([3.6, 3.2])
    assert figures.samples_per_second == pytest.approx(3.4)
    assert figures.tokens_per_second == pytest.approx(3.4 * 32)
    assert figures.input_mb_per_s == pytest.approx(3.4 * 32 * 8 / 1e6)
    assert (figures.measured_steps, figures.measured_wall_s) == (14, 20.0)
    assert [rank.performance.samples_per_second for rank in result.ranks if rank.performance] == pytest.approx([2, 1.4])
    assert figures.step_time is not None
    assert figures.step_time.max_s == pytest.approx(10 / 6)


def test_energy_is_that_of_all_gpus_for_all_samples() -> None:
    """3,600 and 2,400 J; 10 and 5 steps of 2 samples: 200 J for each of 30."""
    result = merged(report(0, window(10, 10.0)), report(1, window(5, 10.0), energy_j=2400.0))

    assert result.telemetry.energy_per_sample_j == pytest.approx(6000 / 30)
    assert result.telemetry.energy_per_token_j == pytest.approx(6000 / 30 / 32)


def test_every_gpu_has_its_place_by_rank_in_context_and_telemetry() -> None:
    result = merged(report(0, window(4, 4.0)), report(1, window(4, 4.0)))

    assert [(gpu.index, gpu.uuid) for gpu in result.telemetry.gpus] == [(0, "GPU-0"), (1, "GPU-1")]
    assert result.context is not None
    assert [gpu.index for gpu in result.context.gpus] == [0, 1]
    assert [rank.gpu_uuid for rank in result.ranks] == ["GPU-0", "GPU-1"]


def test_utilisation_is_the_mean_and_probes_and_memory_are_of_the_worst_gpu() -> None:
    """Rank 1 at half the rate has half the MFU; its matmul probe is the slower one, its memory the larger."""
    slow = Probes(h2d_gb_per_s=60.0, matmul_tflops=400.0, allreduce_bus_gb_per_s=None)
    result = merged(report(0, window(8, 8.0)), report(1, window(4, 8.0), probes=slow))
    own = [rank.performance.mfu_pct for rank in result.ranks if rank.performance and rank.performance.mfu_pct]

    assert own[1] == pytest.approx(own[0] / 2)
    assert result.performance.mfu_pct == pytest.approx(own[0] * 0.75)
    assert (result.probes.matmul_tflops, result.probes.h2d_gb_per_s) == (400.0, 55.0)
    assert result.ranks[1].probes == slow
    assert result.memory.peak_allocated_bytes == 1001


def test_a_gpu_out_of_memory_is_named_and_its_neighbours_keep_their_figures() -> None:
    lost = failed(1, Status.OOM, "OutOfMemoryError").model_copy(update={"windows": (), "gpu_uuid": "GPU-x"})
    result = merged(report(0, window(4, 4.0)), lost, report(2, window(4, 4.0)), codes={0: 0, 1: 1, 2: 0})

    assert result.status is Status.OOM
    assert (error_of(result).rank, error_of(result).message) == (1, "GPU 1 (GPU-x): OutOfMemoryError")
    assert [rank.status for rank in result.ranks] == [Status.OK, Status.OOM, Status.OK]
    assert [rank.performance is not None for rank in result.ranks] == [True, False, True]
    assert result.performance.samples_per_second is None  # of two GPUs it would pass for that of three
    assert (result.performance.measured_steps, result.performance.windows) == (0, ())
    assert result.missing["performance"].startswith("no measured window of GPU 1 (GPU-x)")


def test_the_error_of_all_is_that_of_the_rank_out_of_memory_and_not_of_the_first_that_failed() -> None:
    crashed = failed(0, Status.ERROR, "RuntimeError").model_copy(update={"gpu_uuid": "GPU-x"})
    lost = failed(1, Status.OOM, "OutOfMemoryError").model_copy(update={"gpu_uuid": "GPU-y"})
    result = merged(crashed, lost, codes={0: 1, 1: 1})

    assert (result.status, error_of(result).rank) == (Status.OOM, 1)


def test_loss_and_utilisation_are_means_of_all_ranks_and_not_medians() -> None:
    """Losses of 6, 7 and 11: 8. With 8, 8 and 2 steps in 8 s the last one has a quarter of the others' MFU: 3 / 4."""
    reports = [
        report(rank, window(steps, 8.0).model_copy(update={"losses": (loss,) * steps}))
        for rank, (steps, loss) in enumerate(((8, 6.0), (8, 7.0), (2, 11.0)))
    ]
    result = merged(*reports)
    first = result.ranks[0].performance
    assert first is not None
    assert first.mfu_pct is not None
    assert result.performance.mean_loss == pytest.approx(8)
    assert result.performance.mfu_pct == pytest.approx(first.mfu_pct * 0.75)


def test_what_is_equal_on_all_ranks_is_that_of_the_first_that_reported() -> None:
    """Rank 0 was killed before it wrote anything; rank 1 knows the work, the host and the parameters."""
    second = report(1, window(4, 4.0))
    result = merged(second, codes={0: -9, 1: 0})
    assert (result.chosen, result.parameters, result.telemetry.host) == (CHOSEN, second.parameters, second.host)

    other = second.model_copy(update={"context": make_context("NVIDIA H200").model_copy(update={"image": "other"})})
    both = merged(report(0, window(4, 4.0)), other)
    assert both.context is not None
    assert both.context.image != "other"


def test_start_up_takes_as_long_as_on_the_slowest_rank() -> None:
    slow = {**report(1).startup, "import_s": 5.0}
    result = merged(report(0, window(4, 4.0)), report(1, window(4, 4.0), startup=slow), report(2, window(4, 4.0)))

    assert (result.startup.import_s, result.startup.total_s) == (5.0, 60.0)


def test_the_reason_of_an_unknown_telemetry_figure_stands_at_its_gpu_among_all() -> None:
    """Each rank says it of its first GPU: that of rank 1 is the second one of all."""
    silent = make_sample(3600.0).model_copy(update={"uuid": "GPU-1", "power_mean_w": None})
    lacking = {**report(1).missing, "telemetry.gpus.0.power_mean_w": "no power counter"}
    result = merged(report(0, window(4, 4.0)), report(1, window(4, 4.0), gpus=(silent,), missing=lacking))

    assert result.missing["telemetry.gpus.1.power_mean_w"] == "no power counter"
    assert not [path for path in result.missing if path.startswith("telemetry.gpus.0")]


def test_a_rank_that_left_nothing_is_an_error_of_its_own() -> None:
    """Killed before its first line: there is no report, and so no name but its number."""
    result = merged(report(0, window(4, 4.0)), codes={0: 0, 1: -9})

    assert [rank.status for rank in result.ranks] == [Status.OK, Status.ERROR]
    assert (error_of(result).kind, error_of(result).rank) == ("SIGKILL", 1)
    assert error_of(result).message.startswith("process 1: rank 1 was killed by SIGKILL")


def test_only_those_that_still_ran_are_late() -> None:
    """Rank 2 had crashed before the time was up: its crash stands, not a timeout."""
    late = make_report(1, status=None, phase=Phase.MEASURE, windows=(window(4, 4.0),))
    crashed = failed(2, Status.ERROR, "RuntimeError")
    result = merged(
        report(0, window(4, 4.0)), late, crashed,
        codes={0: 0, 1: -15, 2: 1}, timed_out=True, cut_off=frozenset({1}), patience_s=60.0,
    )  # fmt: skip

    assert [rank.status for rank in result.ranks] == [Status.OK, Status.TIMEOUT, Status.ERROR]
    assert "not done 60 s after a neighbour had done the same work" in error_of(result).message
    assert error_of(result).message.endswith("also GPU 2 (GPU-1): error")


def test_windows_that_not_every_rank_has_do_not_count_in_the_sum() -> None:
    """Rank 1 was stopped after one window of 1 sample/s; rank 0 has two, of 2 and 4 samples/s: 3, not 4."""
    stopped = failed(1, Status.INCOMPLETE, "SIGTERM").model_copy(update={"windows": (window(5, 10.0),)})
    result = merged(report(0, window(10, 10.0), window(20, 10.0)), stopped, codes={0: 0, 1: 1})

    assert result.performance.samples_per_second == pytest.approx(3.0)
    assert len(result.performance.windows) == 1
    assert result.ranks[0].performance is not None
    assert result.ranks[0].performance.samples_per_second == pytest.approx(3.0)


def test_a_rank_that_chose_other_work_than_its_neighbours_is_not_compared_with_them() -> None:
    other = CHOSEN.model_copy(update={"gradient_checkpointing": False})
    ranks = [report(n, window(4, 4.0), chosen=other if n == 2 else CHOSEN) for n in range(3)]
    result = merged(*ranks)

    assert [rank.status for rank in result.ranks] == [Status.OK, Status.OK, Status.ERROR]
    assert (error_of(result).kind, error_of(result).rank) == ("unequal_work", 2)


def test_the_reason_of_an_unknown_figure_stands_at_its_gpu() -> None:
    mystery = report(1, window(4, 4.0), context=make_context("Mystery 9000"))
    result = merged(report(0, window(4, 4.0)), mystery)

    assert "Mystery 9000" in result.missing["ranks.1.performance.mfu_pct"]
    assert "Mystery 9000" in result.missing["performance.mfu_pct"]
    assert "ranks.0.performance.mfu_pct" not in result.missing
    assert result.performance.mfu_pct is None


def test_the_reason_of_a_gap_in_a_summary_stands_at_its_rank() -> None:
    """On the CPU no rank has a GPU's UUID; that independent ranks have figures of their own is no gap."""
    spec = SPEC.changed(work={"device": Device.CPU}, placement={"gpus_per_node": 2})
    reports = [report(rank, window(4, 4.0)).model_copy(update={"gpu_uuid": None}) for rank in (0, 1)]
    ending = ProcessExits({0: 0, 1: 0})
    missing = dict(_reasons(_each_alone(spec, reports, ending, BEGIN, END)))

    assert missing["ranks.0.gpu_uuid"] == missing["ranks.1.gpu_uuid"] == "the run uses no GPU"
    assert not [path for path in missing if path.startswith("ranks.") and path.endswith((".performance", ".probes"))]


def test_the_dead_are_not_waited_for_and_the_late_not_long(tmp_path: Path) -> None:
    arrive(tmp_path, 0)
    assert not wait_for_all(tmp_path, 2, timeout_s=0.05)

    arrive(tmp_path, 1)  # by the supervisor, in its place
    assert wait_for_all(tmp_path, 2, timeout_s=0.0)


# --- real processes


def test_independent_ranks_do_the_same_work_at_the_same_time(tmp_path: Path) -> None:
    process = start(SPEC, tmp_path)
    result = finish(process, tmp_path)

    assert (result.status, result.error, process.returncode) == (Status.OK, None, 0)
    own = [rank.performance for rank in result.ranks if rank.performance]
    assert len(own) == 2
    assert len({(one.first_loss, one.step_times_s == own[0].step_times_s) for one in own}) == 2
    assert {one.first_loss for one in own} == {own[0].first_loss}
    assert sum(one.samples_per_second or 0 for one in own) == pytest.approx(result.performance.samples_per_second)
    assert result.chosen is not None
    assert result.chosen.execution["attention"] == "sdpa"
    assert result.telemetry.host.memory_used_pct is not None


FAULTS = """
import os, signal, time
rank = int(os.environ["RANK"])
import torch
import bench_image.model.build as build_module, bench_image.training.train_step as train_step
honest_build, honest_step, calls = build_module.build, train_step.TrainStep.__call__, 0
def build(*arguments):
    built = honest_build(*arguments)
    if rank == 2:
        built.trainable[0].data.fill_(float("nan"))
    return built
def step(self):
    global calls
    calls += 1
    if rank == 1:
        torch.empty(2**60, dtype=torch.uint8)
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 4 and calls > 4:
        time.sleep(3600)
    return honest_step(self)
build_module.build, train_step.TrainStep.__call__ = build, step
"""


def run_node(spec: RunSpec, folder: Path, prelude: str, later_s: float, **env: str) -> RunResult:
    """A node whose ranks run a few lines of Python before they begin; `env`: the pod's own environment."""
    program = folder / "broken_rank.py"
    program.write_text(f"{prelude}\nfrom bench_image.process.worker import main\nos._exit(main())")
    children = [
        child._replace(arguments=[sys.executable, str(program)])
        for child in children_of(spec, folder, environment(**env), time.time())
    ]
    ending = run_all(children, spec.timeout_s, ended=lambda rank: arrive(folder, rank), later_s=later_s)
    return merge(spec, read_reports(folder, skip_broken=True), ending, BEGIN, BEGIN + 60 * (END - BEGIN))


def test_no_fault_of_one_gpu_reaches_its_neighbours(tmp_path: Path) -> None:
    """Out of memory, NaN, killed and hanging, all for real; rank 0 is sound and was first to end well."""
    spec = SPEC.changed(placement={"gpus_per_node": 5}).model_copy(update={"timeout_s": 1500.0})
    result = parse_result(run_node(spec, tmp_path, FAULTS, later_s=1.0).model_dump_json())

    assert [rank.status for rank in result.ranks] == [
        Status.OK, Status.OOM, Status.INVALID_LOSS, Status.ERROR, Status.TIMEOUT,
    ]  # fmt: skip
    invalid = read_reports(tmp_path)[2].error
    assert invalid is not None
    assert invalid.message == "loss of step 1 in window 1 is NaN or infinite"
    sound = result.ranks[0].performance
    assert sound is not None
    assert len(sound.windows) == spec.measurement.repeats
    assert result.status is Status.OOM
    assert error_of(result).message.startswith("process 1: ")
    assert error_of(result).message.endswith("also process 2: invalid_loss, process 3: error, process 4: timeout")
