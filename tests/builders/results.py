"""Realistic, contract-valid results for tests: give only what your test is about.

make_result("node-3", samples_per_s=8.5, temperature_c=81.0)
make_result("node-3", drill=Drill(slowdown_pct=20))       # any other field of the spec or of the result works too
make_cpu_result("node-3", windows=(41.0, 29.0, 38.0))
make_failed("node-3", status=Status.OOM)
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bench_image.contract.consistency import unexplained_nulls
from bench_image.contract.flops import tokens_per_sample
from bench_image.contract.gpu_specs import data_sheet
from bench_image.contract.links import Collective, LinkFigure, Links
from bench_image.contract.options import Strategy
from bench_image.contract.result import (
    SECTIONS,
    Chosen,
    Phase,
    RankSummary,
    RunError,
    RunResult,
    Status,
    failed_result,
    resolve_spec,
)
from bench_image.contract.result_sections import (
    Clock,
    Communication,
    Context,
    Gpu,
    GpuTelemetry,
    HostTelemetry,
    Memory,
    ParameterCount,
    Performance,
    Probes,
    Startup,
    StepTime,
    Telemetry,
    Window,
    share_field,
)
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import AUTO, Device, Preset
from tests.builders.specs import SPEC_FIELDS, make_spec

STARTED_AT = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
STEPS_PER_WINDOW = 10
LIBRARIES = {"torch": "2.13.0", "transformers": "5.23.0", "peft": "0.21.2", "bitsandbytes": "0.50.2"}
NO_THROTTLING = dict.fromkeys(
    ("thermal", "power_cap", "power_brake", "hw_slowdown", "sync_boost", "user_clocks"), 0.0
)  # fmt: skip

# Of a GPU that said nothing over the run and was nobody else's.
SILENT: dict[str, Any] = {
    "other_processes_at_start": 0, "other_memory_at_start_gb": 0.0, "other_memory_at_end_gb": 0.0, "xids": {},
    "ecc_corrected_in_run": 0, "ecc_uncorrected_in_run": 0, "rows_remapped_in_run": 0, "row_remap_pending": False,
    "row_remap_failed": False, "nvlink_crc_errors": 0, "nvlink_replays": 0, "pcie_replays": 0,
}  # fmt: skip
# Of an H200 alone.
HEALTHY_H200: dict[str, float] = {
    "d2h_gb_per_s": 55.2, "memory_gb_per_s": 4070.0, "peer_gb_per_s": 385.0, "matmul_bf16_tflops": 780.0,
    "matmul_fp8_tflops": 1490.0,
}  # fmt: skip


def make_links(bus_gb_per_s: float) -> Links:
    """Two sizes of each collective, of which the larger has this rate; calls of the smaller take 20 us."""
    return Links(
        backend="nccl",
        figures=tuple(
            LinkFigure(collective=collective, num_bytes=num_bytes, latency_s=latency_s, bus_gb_per_s=rate)
            for collective in Collective
            for num_bytes, latency_s, rate in ((8192, 2e-5, bus_gb_per_s / 50), (2**30, 2e-2, bus_gb_per_s))
        ),
    )


def make_probes(gpu_name: str, rates: Mapping[str, float | None]) -> Probes:
    """Of a healthy GPU: the shares of its data sheet are those of an H200. `rates`: other ones, by their field."""
    promised, of_h200 = data_sheet(gpu_name), data_sheet("NVIDIA H200")
    known = {name: rate / of_h200[name] * promised[name] for name, rate in HEALTHY_H200.items() if name in promised}
    known |= {name: rate for name, rate in rates.items() if rate is not None}
    shares = {share_field(name): 100 * rate / promised[name] for name, rate in known.items() if name in promised}
    return Probes(**known | shares)


def make_result(
    node: str = "node-1",
    samples_per_s: float = 9.5,
    *,
    round: int = 1,
    windows: Sequence[float] | None = None,
    step_cv_pct: float = 0.2,
    memory_gb: float | None = 7.1,
    temperature_c: float | None = 60.0,
    gpu_name: str = "NVIDIA H200",
    memory_total_gb: float = 150.0,
    sm_clock_mhz: float = 1920.0,
    power_w: float = 640.0,
    throttle_share_pct: dict[str, float] | None = None,
    h2d_gb_per_s: float | None = 55.4,
    pcie: tuple[int, int] = (5, 16),
    ecc_uncorrected: int = 0,
    remapped_rows: int = 0,
    num_other_processes: int = 0,
    events: dict[str, Any] | None = None,
    probes: dict[str, float | None] | None = None,
    alloc_retries: int = 0,
    driver: str = "580.65.06",
    vbios: str = "96.00.A9.00.01",
    libraries: dict[str, str] | None = None,
    pod_template: str = "none",
    cpu_steal_pct: float = 0.0,
    total_s: float = 55.0,
    exposed_communication_pct: float | None = None,
    chosen: Chosen | None = None,
    **overrides: Any,
) -> RunResult:
    """A run that went well on CUDA. `windows`: the rates of the measured windows, of which only the ratios count, for
    together they are `samples_per_s`; by default 0.1 % around it.

    `events`: what every GPU said over the run, instead of nothing. `probes`: rates by their field, instead of those of
    a healthy GPU; the shares follow. `overrides` are fields of the spec, or sections of the result. `pcie` is
    (generation, width) as found under load.
    `chosen`: by default what the spec says; in place of "auto" 8 samples without checkpointing.
    """
    of_spec, sections = _split(overrides)
    spec = make_spec(node=node, round=round, **of_spec)
    uuids = [f"GPU-{node}-{index}" for index in range(spec.placement.gpus_per_node)]
    chosen = chosen or _chosen(spec)
    fields: dict[str, Any] = {
        "chosen": chosen,
        "context": _context(
            spec,
            driver=driver,
            cuda="13.0",
            libraries=LIBRARIES | (libraries or {}),
            pod_template=pod_template,
            os="Ubuntu 24.04.3 LTS",
            gpus=tuple(_gpu(i, uuid, gpu_name, vbios, memory_total_gb) for i, uuid in enumerate(uuids)),
        ),
        "performance": _performance(resolve_spec(spec, chosen), samples_per_s, windows, step_cv_pct, mfu_pct=38.0),
        "memory": _memory("cuda_allocated" if memory_gb is not None else None, memory_gb, alloc_retries),
        "telemetry": Telemetry(
            gpus=tuple(
                GpuTelemetry(
                    index=index,
                    uuid=uuid,
                    num_samples=200,
                    utilisation_mean_pct=98.0,
                    temperature_mean_c=temperature_c,
                    temperature_max_c=None if temperature_c is None else temperature_c + 3,
                    power_mean_w=power_w,
                    sm_clock_mean_mhz=sm_clock_mhz,
                    sm_clock_min_mhz=sm_clock_mhz - 30,
                    throttle_share_pct=NO_THROTTLING | (throttle_share_pct or {}),
                    energy_j=27_000.0,
                    ecc_corrected=0,
                    ecc_uncorrected=ecc_uncorrected,
                    remapped_rows=remapped_rows,
                    pcie_generation=pcie[0],
                    pcie_width=pcie[1],
                    num_other_processes=num_other_processes,
                    **SILENT | (events or {}),
                )
                for index, uuid in enumerate(uuids)
            ),
            host=HostTelemetry(cpu_utilisation_mean_pct=12.0, cpu_steal_pct=cpu_steal_pct, memory_used_pct=9.0),
            energy_per_sample_j=67.0,
            energy_per_token_j=0.13,
        ),
        "probes": make_probes(gpu_name, {"matmul_tflops": 780.0, "h2d_gb_per_s": h2d_gb_per_s} | (probes or {})),
        "communication": _communication(spec, exposed_communication_pct),
    }
    return _result(spec, fields | sections, uuids, total_s)


def make_cpu_result(
    node: str = "node-1",
    samples_per_s: float = 40.0,
    *,
    round: int = 1,
    windows: Sequence[float] | None = None,
    step_cv_pct: float = 8.0,
    memory_gb: float = 0.6,
    cpu_steal_pct: float = 0.0,
    total_s: float = 12.0,
    **overrides: Any,
) -> RunResult:
    """A run of the tiny model on a CPU: no GPU, no temperature, memory is the process's resident set."""
    of_spec, sections = _split({"device": Device.CPU, "model": "tiny", "seq_length": 64} | overrides)
    spec = make_spec(node=node, round=round, **of_spec)
    host = HostTelemetry(cpu_utilisation_mean_pct=95.0, cpu_steal_pct=cpu_steal_pct, memory_used_pct=40.0)
    chosen = _chosen(spec)
    fields: dict[str, Any] = {
        "chosen": chosen,
        "context": _context(spec, driver=None, cuda=None, libraries=LIBRARIES, gpus=()),
        "performance": _performance(resolve_spec(spec, chosen), samples_per_s, windows, step_cv_pct, mfu_pct=None),
        "memory": _memory("process_rss", memory_gb, None),
        "telemetry": Telemetry(host=host),
        "probes": Probes(),
        "communication": _communication(spec, None),
    }
    return _result(spec, fields | sections, [None] * spec.placement.gpus_per_node, total_s)


def make_independent(
    node: str = "node-1",
    rates: Sequence[float] = (9.5, 9.5),
    *,
    windows: Mapping[int, Sequence[float]] | None = None,
    temperatures: Mapping[int, float] | None = None,
    throttled: Mapping[int, dict[str, float]] | None = None,
    failed: Mapping[int, str] | None = None,
    **fields: Any,
) -> RunResult:
    """A run of independent ranks, one for each of `rates`, on a GPU each; the mappings go by rank. `failed`: rank ->
    why it has no figures, which makes the run fail.
    """
    whole = make_result(node, sum(rates), strategy=Strategy.INDEPENDENT, gpus_per_node=len(rates), **fields)
    why = failed or {}
    ranks = tuple(
        rank.model_copy(
            update={"status": Status.ERROR}
            if rank.rank in why
            else {"performance": make_result(node, rate, windows=(windows or {}).get(rank.rank)).performance}
        )
        for rank, rate in zip(whole.ranks, rates, strict=True)
    )
    gpus = tuple(
        gpu.model_copy(
            update={
                "temperature_mean_c": (temperatures or {}).get(gpu.index, gpu.temperature_mean_c),
                "throttle_share_pct": NO_THROTTLING | (throttled or {}).get(gpu.index, {}),
            }
        )
        for gpu in whole.telemetry.gpus
    )
    update: dict[str, Any] = {"ranks": ranks, "telemetry": whole.telemetry.model_copy(update={"gpus": gpus})}
    if why:
        rank, message = next(iter(why.items()))
        error = RunError(kind="RuntimeError", message=message, phase=Phase.MEASURE, rank=rank)
        update |= {"status": Status.ERROR, "error": error}
    return whole.model_copy(update=update)


def on_gpus(result: RunResult, *uuids: str | None) -> RunResult:
    """The run on GPUs with these UUIDs, of which each rank names its own."""
    assert result.context
    gpus = tuple(gpu.model_copy(update={"uuid": uuid}) for gpu, uuid in zip(result.context.gpus, uuids, strict=True))
    ranks = tuple(rank.model_copy(update={"gpu_uuid": uuid}) for rank, uuid in zip(result.ranks, uuids, strict=True))
    return result.model_copy(update={"context": result.context.model_copy(update={"gpus": gpus}), "ranks": ranks})


def make_failed(
    node: str = "node-1",
    *,
    round: int = 1,
    status: Status = Status.OOM,
    kind: str = "OutOfMemoryError",
    message: str = "CUDA out of memory: tried to allocate 2.00 GiB",
    phase: Phase = Phase.WARMUP,
    **overrides: Any,
) -> RunResult:
    """A run that measured nothing; `overrides` are fields of the spec."""
    spec = make_spec(node=node, round=round, **overrides)
    return failed_result(spec, status=status, kind=kind, message=message, phase=phase, at=STARTED_AT)


def spoilt(result: RunResult) -> RunResult:
    """`result` with a loss that became NaN after a first window: it has a rate, of work that was not done."""
    error = RunError(kind="invalid_loss", message="loss of step 7 is NaN", phase=Phase.MEASURE)
    return result.model_copy(update={"status": Status.INVALID_LOSS, "error": error})


def error_of(result: RunResult) -> RunError:
    assert result.error is not None
    return result.error


def _split(overrides: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(fields of the spec, sections of the result)"""
    of_spec = {name: value for name, value in overrides.items() if name in SPEC_FIELDS}
    return of_spec, {name: value for name, value in overrides.items() if name not in of_spec}


def _result(spec: RunSpec, fields: dict[str, Any], uuids: Sequence[str | None], total_s: float) -> RunResult:
    started_at = STARTED_AT + timedelta(minutes=10 * (spec.identity.round - 1))
    performance, memory = fields["performance"], fields["memory"]
    end_s = max((window.started_s + window.wall_s for window in performance.windows), default=0.0)
    total_s = end_s if end_s > total_s + 1 else total_s  # a second more is within the reader's tolerance
    startup = Startup(
        launch_s=1.0,
        import_s=6.0,
        build_s=4.0,
        probe_s=1.0,
        autotune_s=3.0 if AUTO in (spec.work.micro_batch_size, spec.work.gradient_checkpointing) else 0.0,
        compile_s=0.5,
        warmup_s=17.0,
        measure_s=total_s - 30.0 if total_s > 40 else 1.0,
        profile_s=0.5,
        total_s=total_s,
    )
    everything: dict[str, Any] = {
        "spec": spec,
        "status": Status.OK,
        "started_at": started_at,
        "finished_at": started_at + timedelta(seconds=total_s),
        "startup": startup,
        "parameters": ParameterCount(total=7_261_655_040, trainable=13_631_488),
        "ranks": tuple(
            RankSummary(
                rank=rank,
                status=Status.OK,
                gpu_uuid=uuid,
                step_time_median_s=performance.step_time and performance.step_time.median_s,
                peak_allocated_bytes=memory.peak_allocated_bytes,
                mean_loss=performance.mean_loss,
                performance=None,
                probes=None,
            )
            for rank, uuid in enumerate(uuids)
        ),
    } | fields
    sections = {name: everything[name] for name in SECTIONS if name != "cost"}
    nulls = (re.sub(r"^ranks\.\d+", "ranks.*", path) for path in unexplained_nulls(sections, ()))
    reasons = dict.fromkeys(nulls, "not reported here")
    everything.setdefault("missing", reasons | {"cost": "prices are added when the result is collected"})
    return RunResult(**everything)


def _chosen(spec: RunSpec) -> Chosen:
    """8 samples and no checkpointing in place of "auto"."""
    execution = {"weights": "nf4" if spec.work.quantisation else spec.work.precision.value, "attention": "sdpa"}
    return Chosen(
        micro_batch_size=8 if spec.work.micro_batch_size == AUTO else spec.work.micro_batch_size,
        gradient_checkpointing=spec.work.gradient_checkpointing is True,
        why="nothing was left to choose",
        execution=execution | {"compiled": "per layer" if spec.work.preset is Preset.TUNED else "no"},
    )


def _communication(spec: RunSpec, exposed_pct: float | None) -> Communication:
    """Half of the communication is hidden behind computation."""
    if spec.placement.world_size > 1 and exposed_pct is None:
        exposed_pct = 6.0
    total_pct = None if exposed_pct is None else 2 * exposed_pct
    return Communication(total_pct=total_pct, exposed_pct=exposed_pct, profiled_steps=3)


def _context(spec: RunSpec, **fields: Any) -> Context:
    return Context(
        node=spec.identity.node,
        pod=f"trainbench-{spec.identity.node}-r{spec.identity.round}",
        hostname=spec.identity.node,
        image="registry.example/trainbench:0.1.0",
        python="3.11.7",
        kernel="5.15.0",
        cpu="Intel Xeon Platinum 8480+",
        num_cpus=16,
        **fields,
    )


def _gpu(index: int, uuid: str, name: str, vbios: str, memory_total_gb: float) -> Gpu:
    return Gpu(
        index=index,
        name=name,
        uuid=uuid,
        vbios=vbios,
        memory_total_bytes=int(memory_total_gb * 1e9),
        compute_capability="9.0",
        pcie_generation_max=5,
        pcie_width_max=16,
        sm_clock_max_mhz=1980.0,
        power_limit_w=700.0,
    )


def _memory(kind: Any, gb: float | None, alloc_retries: int | None) -> Memory:
    on_gpu = kind == "cuda_allocated" and gb is not None
    return Memory(
        kind=kind,
        peak_during_training=gb,
        peak_allocated_bytes=int(gb * 1e9) if on_gpu and gb is not None else None,
        peak_reserved_bytes=int(gb * 1.1e9) if on_gpu and gb is not None else None,
        alloc_retries=alloc_retries if on_gpu else None,
        num_ooms=0 if on_gpu else None,
    )


def _performance(
    spec: RunSpec, samples_per_s: float, windows: Sequence[float] | None, step_cv_pct: float, mfu_pct: float | None
) -> Performance:
    shares = windows or (0.999, 1.0, 1.001)
    rates = [share * samples_per_s / statistics.harmonic_mean(shares) for share in shares]
    half_width_pct = 1.96 * step_cv_pct / STEPS_PER_WINDOW**0.5
    started_s, measured = 29.0, []
    for rate in rates:
        wall_s = STEPS_PER_WINDOW * spec.samples_per_step / rate
        measured.append(
            Window(
                started_s=started_s,
                wall_s=wall_s,
                num_steps=STEPS_PER_WINDOW,
                samples_per_second=rate,
                half_width_pct=half_width_pct,
                steady=half_width_pct <= spec.measurement.target_half_width_pct,
            )
        )
        started_s += wall_s
    num_steps = STEPS_PER_WINDOW * len(measured)
    clock = Clock.of(spec.work.device)
    # by CPU time the steps of each window give its rate; by wall time the window's own seconds do
    step_rates = [
        rate if clock is Clock.PROCESS_CPU else samples_per_s for rate in rates for _ in range(STEPS_PER_WINDOW)
    ]
    # alternating mean +- cv: its sample standard deviation is cv * sqrt(n / (n - 1))
    steps = [spec.samples_per_step / rate * (1 + (-1) ** i * step_cv_pct / 100) for i, rate in enumerate(step_rates)]
    return Performance(
        clock=clock,
        samples_per_second=samples_per_s,
        tokens_per_second=samples_per_s * tokens_per_sample(spec.work.shape, spec.work.seq_length),
        measured_steps=num_steps,
        measured_wall_s=sum(window.wall_s for window in measured),
        step_time=StepTime(
            mean_s=statistics.fmean(steps),
            median_s=statistics.median(steps),
            p5_s=min(steps),
            p95_s=max(steps),
            min_s=min(steps),
            max_s=max(steps),
            cv_pct=100 * statistics.stdev(steps) / statistics.fmean(steps),
            half_width_pct=1.96 * step_cv_pct / num_steps**0.5,
        ),
        windows=tuple(measured),
        step_times_s=tuple(steps),
        mean_loss=10.2,
        first_loss=10.5,
        last_loss=9.9,
        flops_per_token=2.9e10,
        mfu_pct=mfu_pct,
        hfu_pct=mfu_pct and mfu_pct * 1.5,
        matmul_share_pct=mfu_pct and mfu_pct * 1.25,
        loader_wait_pct=0.1,
        input_mb_per_s=samples_per_s * spec.work.seq_length * 8 / 1e6,  # int64 token numbers
    )
