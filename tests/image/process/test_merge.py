"""Rank reports become one result: figures by hand, and the first cause among many consequences."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bench_image.contract.options import Recipe
from bench_image.contract.result import Chosen, Phase, RunError, RunResult, Status
from bench_image.contract.result_sections import (
    Communication,
    Context,
    GpuTelemetry,
    HostTelemetry,
    Memory,
    ParameterCount,
    Probes,
    Startup,
)
from bench_image.process.exit_codes import ProcessExits
from bench_image.process.merge import merge, status_and_cause
from bench_image.process.rank_report import RankReport, WindowRecord
from tests.builders import make_result
from tests.builders.image_processes import make_spec

BEGIN = datetime(2026, 11, 21, tzinfo=UTC)
END = BEGIN + timedelta(seconds=60)
WINDOW = WindowRecord(
    started_s=20.0, wall_s=10.0, loader_wait_s=0.5, step_times_s=(2.0, 2.0, 3.0, 3.0), losses=(7.0, 6.5, 6.0, 5.5)
)
CHOSEN = Chosen(micro_batch_size=2, gradient_checkpointing=True, why="as the spec sets it", execution={})


def make_memory(allocated: int) -> Memory:
    return Memory(
        kind="cuda_allocated", peak_during_training=allocated / 1e9, peak_allocated_bytes=allocated,
        peak_reserved_bytes=allocated + 1, alloc_retries=1, num_ooms=0,
    )  # fmt: skip


def make_context(gpu: str) -> Context:
    context = make_result(gpu_name=gpu).context
    assert context
    return context


def make_sample(energy_j: float | None) -> GpuTelemetry:
    (gpu,) = make_result().telemetry.gpus
    return gpu.model_copy(update={"uuid": "GPU-1", "energy_j": energy_j})


def make_report(rank: int = 0, **changes: Any) -> RankReport:
    """A rank of a GPU run that went well."""
    fields: dict[str, Any] = {
        "rank": rank, "status": Status.OK, "error": None, "phase": Phase.REPORT, "written_at": 100.0 + rank,
        "startup": dict.fromkeys(set(Startup.model_fields) - {"total_s"}, 1.0),
        "chosen": CHOSEN, "communication": Communication(total_pct=30.0, exposed_pct=10.0, profiled_steps=3),
        "links": None, "windows": (WINDOW,), "own_step_time_median_s": 2.5, "own_mean_loss": 6.25, "gpu_uuid": "GPU-1",
        "own_steps_s": (2.25,), "step_waits_s": (0.25,),
        "context": make_context("NVIDIA H200"), "parameters": ParameterCount(total=10, trainable=1),
        "probes": Probes(h2d_gb_per_s=55.0, matmul_tflops=494.5, allreduce_bus_gb_per_s=300.0),
        "memory": make_memory(1000 + rank), "gpus": (make_sample(3600.0),),
        "host": HostTelemetry(cpu_utilisation_mean_pct=1, cpu_steal_pct=0, memory_used_pct=1), "missing": {},
    }  # fmt: skip
    return RankReport(**fields | changes)


def failed(rank: int, status: Status, kind: str, at: float = 100.0) -> RankReport:
    error = RunError(kind=kind, message=kind, phase=Phase.MEASURE, rank=rank)
    return make_report(rank, status=status, error=error, phase=Phase.MEASURE, written_at=at)


def unfinished(rank: int) -> RankReport:
    return make_report(rank, status=None, phase=Phase.WARMUP)


def merged(*reports: RankReport, **changes: Any) -> RunResult:
    """Of one rank that went well, or of these; `changes` of a full fine-tuning."""
    reports = reports or (make_report(),)
    return merge(make_spec(recipe=Recipe.FULL, **changes), reports, ProcessExits({0: 0}), BEGIN, END)


def test_figures_by_hand() -> None:
    """4 steps of 2 samples of 32 tokens in 10 s: 0.8 samples/s, 25.6 tokens/s; 3600 J / 8 samples = 450 J."""
    result = merged(max_measured_steps=4)
    figures = result.performance

    assert figures.samples_per_second == pytest.approx(0.8)
    assert figures.tokens_per_second == pytest.approx(25.6)
    assert (figures.mean_loss, figures.first_loss, figures.last_loss) == (6.25, 7.0, 5.5)
    assert figures.step_time is not None
    assert figures.step_time.mean_s == pytest.approx(2.5)
    assert figures.windows[0].samples_per_second == pytest.approx(0.8)
    assert not figures.windows[0].steady
    assert result.telemetry.energy_per_sample_j == pytest.approx(450)
    assert result.telemetry.energy_per_token_j == pytest.approx(450 / 32)
    assert result.startup.total_s == 60


def test_the_rate_of_a_cpu_counts_cpu_time_and_that_of_a_gpu_wall_time() -> None:
    """Steps of 2, 2, 3 and 3 s of CPU time in 15 s, because other processes took turns: 8 samples in 10 s of CPU time
    are 0.8 samples/s. On a GPU they would be 8 samples in 15 s. It waited 0.5 s of them for data.
    """
    report = make_report(windows=[WINDOW.model_copy(update={"wall_s": 15.0})] * 2)
    for device, clock, rate in (("cpu", "process_cpu", 0.8), ("cuda", "wall", 8 / 15)):
        actual = merged(report, device=device, max_measured_steps=4).performance
        assert (actual.clock, actual.measured_wall_s) == (clock, 30)
        rates = (actual.samples_per_second, actual.windows[1].samples_per_second)
        assert (*rates, actual.loader_wait_pct) == pytest.approx((rate, rate, 10 / 3))


def test_waiting_for_data_by_hand() -> None:
    """0.5 s of 10 s; 25.6 tokens/s of 8 bytes each are 204.8 bytes/s."""
    figures = merged().performance

    assert figures.loader_wait_pct == pytest.approx(5)
    assert figures.input_mb_per_s == pytest.approx(204.8e-6)


def test_figures_count_what_the_program_chose() -> None:
    """Four samples per step in place of two, and no recomputation: twice the rate of test_figures_by_hand."""
    chosen = CHOSEN.model_copy(update={"micro_batch_size": 4, "gradient_checkpointing": False})
    result = merged(make_report(chosen=chosen), micro_batch_size="auto", gradient_checkpointing="auto")

    assert result.performance.samples_per_second == pytest.approx(1.6)
    assert result.performance.hfu_pct == result.performance.mfu_pct
    assert (result.spec.work.micro_batch_size, result.effective_spec.work.micro_batch_size) == ("auto", 4)


def test_a_run_that_ended_before_it_chose_has_no_figures() -> None:
    ended = failed(0, Status.OOM, "OOM").model_copy(update={"chosen": None, "windows": ()})
    result = merged(ended, micro_batch_size="auto")

    assert (result.status, result.chosen, result.performance.samples_per_second) == (Status.OOM, None, None)


def test_tokens_of_an_encoder_decoder_are_source_and_target() -> None:
    """4 steps of 2 samples of 2 x 32 tokens in 10 s."""
    assert merged(model="encoder-decoder").performance.tokens_per_second == pytest.approx(51.2)


def test_utilisation_by_hand() -> None:
    """Tokens/s x FLOPs/token over 989 TFLOP/s; the measured matmul rate, 494.5, is half of that."""
    figures = merged().performance

    assert figures.flops_per_token is not None
    assert figures.mfu_pct is not None
    assert figures.mfu_pct == pytest.approx(25.6 * figures.flops_per_token / 989e12 * 100)
    assert figures.matmul_share_pct == pytest.approx(2 * figures.mfu_pct)
    assert figures.hfu_pct is not None
    assert figures.hfu_pct > figures.mfu_pct  # checkpointing computes layers twice

    half = merged(make_report(chosen=CHOSEN.model_copy(update={"checkpointed_layers": 1}))).performance.hfu_pct
    assert half == pytest.approx((figures.mfu_pct + figures.hfu_pct) / 2)  # one of two layers


def test_two_ranks_share_the_peak_and_count_the_larger_memory() -> None:
    """Twice the samples in the same time, on twice the GPUs. Peaks of 3,000 and 1,000 bytes, and one byte more
    reserved; retries and out-of-memory are counted together.
    """
    reports = make_report(0, memory=make_memory(3000)), make_report(1, memory=make_memory(1000))
    pair = merged(*reports, strategy="ddp")

    assert pair.performance.samples_per_second == pytest.approx(1.6)
    assert pair.performance.mfu_pct == pytest.approx(merged().performance.mfu_pct)
    assert [(rank.rank, rank.peak_allocated_bytes) for rank in pair.ranks] == [(0, 3000), (1, 1000)]
    assert (pair.memory.peak_allocated_bytes, pair.memory.peak_reserved_bytes) == (3000, 3001)
    assert pair.memory.peak_during_training == 3000 / 1e9
    assert (pair.memory.alloc_retries, pair.memory.num_ooms) == (2, 0)


def test_energy_is_of_all_gpus_of_the_pod_and_of_its_share_of_the_samples() -> None:
    """2 nodes x 2 GPUs x 2 samples x 4 steps = 32 samples, 16 of this pod; 3,600 + 1,200 J: 300 J each, 32 tokens."""
    report = make_report(gpus=(make_sample(3600.0), make_sample(1200.0)))
    of_two_nodes = {"strategy": "ddp", "nodes": 2, "gpus_per_node": 2, "peers": ("node-2",)}
    telemetry = merged(report, make_report(1), **of_two_nodes).telemetry

    assert telemetry.energy_per_sample_j == pytest.approx(300)
    assert telemetry.energy_per_token_j == pytest.approx(300 / 32)


def test_without_the_energy_of_one_gpu_there_is_none() -> None:
    missing = {"telemetry.gpus.1.energy_j": "this GPU has no counter"}
    report = make_report(gpus=(make_sample(3600.0), make_sample(None)), missing=missing)
    result = merged(report, make_report(1), strategy="ddp")

    assert result.telemetry.energy_per_sample_j is None
    assert result.missing["telemetry.energy_per_sample_j"] == "a GPU has no energy counter"


@pytest.mark.parametrize(
    ("device", "gpu", "why"),
    [
        ("cuda", "Mystery 9000", "the bf16 peak of 'Mystery 9000' is not in the GPU table"),
        ("cuda", None, "the GPU's name is unknown"),
        ("cpu", None, "the run uses no GPU"),
    ],
)
def test_without_a_known_gpu_there_is_no_utilisation_and_the_reason_is_stated(
    device: str, gpu: str | None, why: str
) -> None:
    context = make_context(gpu) if gpu else make_context("NVIDIA H200").model_copy(update={"gpus": ()})
    result = merged(make_report(context=context), device=device)

    assert (result.performance.mfu_pct, result.performance.hfu_pct) == (None, None)
    assert (result.missing["performance.mfu_pct"], result.missing["performance.hfu_pct"]) == (why, why)


OOM = failed(1, Status.OOM, "OutOfMemoryError", at=110)
STOPPED = failed(0, Status.INCOMPLETE, "SIGTERM", at=105)
LOST_PEER = failed(0, Status.ERROR, "DistBackendError", at=105)


@pytest.mark.parametrize(
    ("reports", "ending", "status", "kind"),
    [
        ([make_report(0), make_report(1)], ProcessExits({0: 0}, stopped_by="SIGTERM"), Status.OK, None),
        ([LOST_PEER, OOM], ProcessExits({1: 1}), Status.OOM, "OutOfMemoryError"),
        ([unfinished(0), OOM], ProcessExits({0: -9}, timed_out=True), Status.OOM, "OutOfMemoryError"),
        ([STOPPED, STOPPED], ProcessExits({0: 1}, stopped_by="SIGTERM"), Status.INCOMPLETE, "SIGTERM"),
        ([LOST_PEER, unfinished(1)], ProcessExits({1: -9}), Status.ERROR, "SIGKILL"),
        ([STOPPED, failed(1, Status.ERROR, "ValueError")], ProcessExits({1: 1}), Status.ERROR, "ValueError"),
        ([LOST_PEER, failed(1, Status.ERROR, "ValueError", at=104)], ProcessExits({1: 1}), Status.ERROR, "ValueError"),
        ([unfinished(0), unfinished(1)], ProcessExits({0: -9}, timed_out=True), Status.TIMEOUT, "timeout"),
        ([STOPPED, STOPPED], ProcessExits({0: -15}), Status.INCOMPLETE, "SIGTERM"),
        ([], ProcessExits({0: 1}), Status.ERROR, "no_result"),
        ([make_report(0)], ProcessExits({0: 1}), Status.ERROR, "no_result"),
        ([make_report(0), failed(1, Status.ERROR, "ValueError")], ProcessExits({1: 1}), Status.ERROR, "ValueError"),
        ([unfinished(0), unfinished(1)], ProcessExits({0: 0, 1: 0}), Status.ERROR, "no_result"),
        ([unfinished(0), unfinished(1)], ProcessExits({0: -1}), Status.ERROR, "SIGHUP"),
        ([], ProcessExits({0: -11}), Status.ERROR, "SIGSEGV"),
    ],
)
def test_the_first_cause_wins(
    reports: list[RankReport], ending: ProcessExits, status: Status, kind: str | None
) -> None:
    spec = make_spec(recipe=Recipe.FULL, strategy="ddp")
    actual, error = status_and_cause(spec, reports, ending)

    assert (actual, error.kind if error else None) == (status, kind)
    merge(spec, reports, ending, BEGIN, END)  # and there is a valid result for it


@pytest.mark.parametrize(
    ("nodes", "reports", "message"),
    [
        (1, [], "not done after timeout_s "),
        (2, [], "not all of the 2 nodes met within timeout_s "),
        (2, [unfinished(0)], "not done after timeout_s "),
    ],
)
def test_a_gang_that_never_met_differs_from_one_that_was_slow(
    nodes: int, reports: list[RankReport], message: str
) -> None:
    spec = make_spec(recipe=Recipe.FULL, strategy="ddp", nodes=nodes, peers=("node-2",) * (nodes - 1))
    _, error = status_and_cause(spec, reports, ProcessExits({}, timed_out=True))
    assert error is not None
    assert error.message.startswith(message)


def test_a_loss_that_is_not_finite_is_none_with_the_reason() -> None:
    losses = ("mean_loss", "first_loss", "last_loss")
    wild = WINDOW.model_copy(update={"losses": (7.0, None, 6.0, 5.5)})
    result = merged(failed(0, Status.INVALID_LOSS, "invalid_loss").model_copy(update={"windows": (wild,)}))

    assert result.performance.mean_loss is None
    assert {result.missing[f"performance.{name}"] for name in losses} == {"the loss is not finite"}
    assert not {f"performance.{name}" for name in losses} & merged().missing.keys()


def test_a_window_of_two_steps_has_a_step_time_and_is_steady_at_its_very_target() -> None:
    report = make_report(windows=(WINDOW.model_copy(update={"step_times_s": (2.0, 3.0), "losses": (7.0, 6.5)}),))
    first = merged(report).performance
    assert first.step_time is not None
    assert first.step_time.mean_s == pytest.approx(2.5)

    reached = {"target_half_width_pct": first.windows[0].half_width_pct}  # beyond what a spec may ask for
    spec = make_spec(recipe=Recipe.FULL).changed(measurement=reached)
    (exactly,) = merge(spec, [report], ProcessExits({0: 0}), BEGIN, END).performance.windows
    assert (first.windows[0].steady, exactly.steady) == (False, True)


def test_of_two_that_were_not_done_the_one_furthest_behind_says_the_phase() -> None:
    spec = make_spec(recipe=Recipe.FULL, strategy="ddp")
    ranks = [unfinished(0).model_copy(update={"phase": Phase.MEASURE}), unfinished(1)]
    for order in (ranks, ranks[::-1]):
        _, error = status_and_cause(spec, order, ProcessExits({}, stopped_by="SIGTERM"))
        assert error is not None
        assert error.phase is Phase.WARMUP


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_only_on_the_cpu_a_rank_has_no_gpu_by_nature(device: str) -> None:
    missing = merged(device=device).missing
    reasons = {missing.get(f"ranks.*.{name}") for name in ("gpu_uuid", "peak_allocated_bytes")}
    assert reasons == ({"the run uses no GPU"} if device == "cpu" else {None})
