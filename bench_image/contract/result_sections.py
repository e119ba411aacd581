"""The sections of a result: context, start-up, performance, memory, telemetry, probes, communication, cost.

What was not measured is null, which is the default; `RunResult.missing` has the reason of each null.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import FailFast, Field

from bench_image.contract.frozen import Frozen, Slotted, fields_of, slotted
from bench_image.contract.pod_io import NO_TEMPLATE
from bench_image.contract.result_bounds import (
    MAX_COUNT,
    MAX_RANKS,
    Bytes,
    Celsius,
    Count,
    Flops,
    Gigabytes,
    GigabytesPerSecond,
    Joules,
    Loss,
    MegabytesPerSecond,
    Megahertz,
    PeakShare,
    Percent,
    PositiveSeconds,
    SamplesPerSecond,
    Seconds,
    Share,
    Text,
    Tflops,
    TokensPerSecond,
    Usd,
    Watts,
)
from bench_image.contract.work import Device

# From this on, memory in use beside a run is somebody else's work: a process that only opened a GPU holds about 0.5 GB
# there, and older drivers count their own reserve as in use (about 0.6 GB of an H200).
OTHERS_MEMORY_GB = 1.0


class Clock(StrEnum):
    """The time that rates and step times count. On the CPU wall time would include the turns of other processes."""

    WALL = "wall"
    PROCESS_CPU = "process_cpu"

    @classmethod
    def of(cls, device: Device) -> Clock:
        return cls.PROCESS_CPU if device is Device.CPU else cls.WALL


@slotted
class Gpu(Slotted):
    index: Count
    name: Text
    uuid: Text | None
    vbios: Text | None
    memory_total_bytes: Bytes | None
    compute_capability: Text | None
    pcie_generation_max: Count | None
    pcie_width_max: Count | None
    sm_clock_max_mhz: Megahertz | None
    power_limit_w: Watts | None


@slotted
class Context(Slotted):
    """The run's node, hardware, driver and libraries. Results are comparable when these match."""

    node: Text
    pod: Text | None
    hostname: Text
    image: Text | None
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=MAX_RANKS), FailFast()]
    driver: Text | None
    cuda: Text | None
    python: Text
    libraries: Annotated[
        dict[Text, Text],
        Field(max_length=1000, description="name -> version, e.g. torch, transformers, peft, bitsandbytes"),
    ]
    kernel: Text
    cpu: Text
    num_cpus: Count
    os: Annotated[Text | None, Field(description="name of the system, in a container the image's")] = None
    pod_template: Annotated[
        Text,
        Field(description="digest of the installation's Pod template, without where a pod may run; none: without one"),
    ] = NO_TEMPLATE


class Startup(Frozen):
    """Seconds before and around the measured windows; reported beside throughput, never inside it."""

    launch_s: Seconds | None = Field(
        None, description="process start to the rank's first line of Python; own job: first step"
    )
    import_s: Seconds | None = None
    build_s: Seconds | None = None
    probe_s: Seconds | None = None
    autotune_s: Seconds | None = Field(None, description="trials for what the spec leaves to the program")
    compile_s: Seconds | None = Field(
        None, description="first warm-up step minus the last one: compilation and lazy set-up"
    )
    warmup_s: Seconds | None = Field(None, description="all warm-up steps, compilation included")
    measure_s: Seconds | None = Field(None, description="all measured windows")
    profile_s: Seconds | None = Field(None, description="the profiled steps after the windows")
    turns_s: Seconds | None = Field(
        0.0,
        description="turns of other pods on this machine, which the run waited for; in no other figure but the total",
    )
    total_s: Seconds | None = Field(None, description="process start to result written")


@slotted
class StepTime(Slotted):
    """Over all measured steps of all windows, by the run's clock; each step's time is the maximum over ranks."""

    mean_s: PositiveSeconds
    median_s: PositiveSeconds
    p5_s: PositiveSeconds
    p95_s: PositiveSeconds
    min_s: PositiveSeconds
    max_s: PositiveSeconds
    cv_pct: Annotated[Percent, Field(description="sample standard deviation / mean")]
    half_width_pct: Annotated[Percent, Field(description="95 % confidence half-width of the mean / mean")]


@slotted
class Window(Slotted):
    """One measured window: contiguous steps between two synchronisations."""

    started_s: Annotated[Seconds, Field(description="since process start")]
    wall_s: PositiveSeconds
    num_steps: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    samples_per_second: SamplesPerSecond
    half_width_pct: Percent
    steady: Annotated[bool, Field(description="target_half_width_pct was reached before max_measured_steps")]


@slotted
class Performance(Slotted):
    """The speed of a run. Independent ranks have windows of their own, which `process.merge` adds up."""

    clock: Annotated[
        Clock,
        Field(
            description="what rates and step times count: wall time, or on the CPU the CPU time that the rank's "
            "process used, with all of its threads; waiting and other processes' turns do not count there"
        ),
    ] = Clock.WALL
    samples_per_second: Annotated[
        SamplesPerSecond | None, Field(description="samples of all ranks / seconds of all windows by `clock`")
    ] = None
    tokens_per_second: Annotated[
        TokensPerSecond | None, Field(description="non-padding tokens of all ranks / seconds of all windows by `clock`")
    ] = None
    measured_steps: Count = 0
    measured_wall_s: PositiveSeconds | None = None
    step_time: StepTime | None = None
    windows: Annotated[tuple[Window, ...], FailFast()] = ()
    step_times_s: Annotated[tuple[PositiveSeconds, ...], Field(description="by `clock`"), FailFast()] = ()
    mean_loss: Loss | None = None
    first_loss: Loss | None = None
    last_loss: Loss | None = None
    flops_per_token: Annotated[
        Flops | None, Field(description="model FLOPs per token, recipe-aware, causality not halved")
    ] = None
    mfu_pct: PeakShare | None = None
    hfu_pct: PeakShare | None = None
    matmul_share_pct: Annotated[
        Percent | None, Field(description="model FLOP rate / matmul rate measured on the same GPU")
    ] = None
    loader_wait_pct: Annotated[
        Share | None,
        Field(description="share of the windows in which the training loop waited for its data, slowest rank"),
    ] = None
    input_mb_per_s: Annotated[
        MegabytesPerSecond | None, Field(description="token bytes that all ranks consume per second, MB = 1e6 bytes")
    ] = None


class Memory(Frozen):
    """`peak_during_training` is GB (1e9 bytes), maximum over ranks. `kind` says what was measured; gpu_used: all memory
    in use on a GPU by NVML, of a job of the user's own.
    """

    kind: Literal["cuda_allocated", "process_rss", "gpu_used"] | None = None
    peak_during_training: Gigabytes | None = None
    peak_allocated_bytes: Bytes | None = None
    peak_reserved_bytes: Bytes | None = None
    alloc_retries: Count | None = None
    num_ooms: Count | None = None


@slotted
class GpuTelemetry(Slotted):
    """One GPU within the measured windows only."""

    index: Count
    uuid: Text | None
    num_samples: Count
    utilisation_mean_pct: Share | None
    temperature_mean_c: Celsius | None
    temperature_max_c: Celsius | None
    power_mean_w: Watts | None
    sm_clock_mean_mhz: Megahertz | None
    sm_clock_min_mhz: Megahertz | None
    throttle_share_pct: Annotated[
        dict[Text, Share] | None,
        Field(
            description="class -> share of samples: thermal, power_cap, power_brake, hw_slowdown, sync_boost, "
            "user_clocks"
        ),
    ]
    energy_j: Joules | None
    ecc_corrected: Count | None
    ecc_uncorrected: Count | None
    remapped_rows: Count | None
    pcie_generation: Count | None
    pcie_width: Count | None
    num_other_processes: Count | None
    # From here on fields since 0.2: what the GPU said over the whole run, its start and its end included.
    other_processes_at_start: Annotated[
        Count | None, Field(description="processes on the GPU before the first of this run began")
    ] = None
    other_memory_at_start_gb: Annotated[
        Gigabytes | None, Field(description="memory in use before this run's first process, without the driver's own")
    ] = None
    other_memory_at_end_gb: Annotated[
        Gigabytes | None, Field(description="memory in use after this run's last process, without the driver's own")
    ] = None
    xids: Annotated[
        dict[Text, Count] | None, Field(max_length=1000, description="code of an Xid -> how often it came in the run")
    ] = None
    ecc_corrected_in_run: Count | None = None
    ecc_uncorrected_in_run: Count | None = None
    rows_remapped_in_run: Count | None = None
    row_remap_pending: Annotated[
        bool | None, Field(description="at the end: a remapping waits for a reset of the GPU")
    ] = None
    row_remap_failed: Annotated[bool | None, Field(description="at the end: a row could not be remapped")] = None
    nvlink_crc_errors: Annotated[
        Count | None, Field(description="CRC errors of all links in the run; the link repeats what was lost")
    ] = None
    nvlink_replays: Annotated[Count | None, Field(description="replays and recoveries of all links in the run")] = None
    pcie_replays: Annotated[Count | None, Field(description="in the run")] = None


@slotted
class HostTelemetry(Slotted):
    cpu_utilisation_mean_pct: Share | None = None
    cpu_steal_pct: Annotated[Share | None, Field(description="time this machine's CPUs were given to others")] = None
    memory_used_pct: Share | None = None


@slotted
class Telemetry(Slotted):
    gpus: Annotated[tuple[GpuTelemetry, ...], Field(max_length=MAX_RANKS), FailFast()] = ()
    host: HostTelemetry = HostTelemetry()
    energy_per_sample_j: Joules | None = None
    energy_per_token_j: Joules | None = None


class Probes(Frozen):
    """What the GPU can do, measured before the loop; of several GPUs the slowest. `*_share_pct`: of the data sheet."""

    h2d_gb_per_s: GigabytesPerSecond | None = Field(
        None, description="pinned host-to-device copy, slowest GPU of the run"
    )
    matmul_tflops: Tflops | None = Field(
        None, description="large matmul in the run's precision (fp8: of 8-bit numbers), slowest GPU of the run"
    )
    allreduce_bus_gb_per_s: GigabytesPerSecond | None = None
    h2d_share_pct: Percent | None = None
    d2h_gb_per_s: GigabytesPerSecond | None = Field(None, description="device-to-host copy into pinned memory")
    d2h_share_pct: Percent | None = None
    memory_gb_per_s: GigabytesPerSecond | None = Field(
        None, description="copy within the GPU's memory, bytes read and bytes written"
    )
    memory_share_pct: Percent | None = None
    peer_gb_per_s: GigabytesPerSecond | None = Field(None, description="copy to the next GPU that the rank sees")
    peer_share_pct: Percent | None = None
    matmul_bf16_tflops: Tflops | None = None
    matmul_bf16_share_pct: Percent | None = None
    matmul_fp8_tflops: Tflops | None = Field(None, description="of 8-bit numbers, with a scale for each row")
    matmul_fp8_share_pct: Percent | None = None


def share_field(rate: str) -> str:
    """The field of `Probes` with the share of the data sheet: "h2d_share_pct" for "h2d_gb_per_s"."""
    return rate.removesuffix("_gb_per_s").removesuffix("_tflops") + "_share_pct"


# What results of 0.1 lack. Reading one explains the nulls.
SINCE_0_2 = (
    {"os", *(name for name, field in fields_of(GpuTelemetry).items() if not field.is_required())}
    | Probes.model_fields.keys()
) - {"h2d_gb_per_s", "matmul_tflops", "allreduce_bus_gb_per_s"}
NOT_IN_0_1 = "not measured by the version that wrote this result"


class Communication(Frozen):
    """Communication as shares of the time of a few profiled steps after the windows, mean over ranks.

    Exposed: no computation ran at the same time, so the step waited. A rank that waits for its peers communicates.
    """

    total_pct: Share | None = None
    exposed_pct: Share | None = None
    profiled_steps: Count | None = None


class ParameterCount(Frozen):
    total: Count | None = None
    trainable: Count | None = None


@slotted
class Cost(Slotted):
    """Filled by the control plane when it collects the result: the image knows no prices."""

    cost_per_1000_samples_usd: Usd | None = None
    usd_per_gpu_hour: Usd | None = None
    price_source: Text | None = None
    price_as_of: Text | None = None
