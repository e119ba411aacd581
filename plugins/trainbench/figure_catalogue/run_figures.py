"""The figures of one run: columns of metrics.csv, of the reports' tables of runs, of a run's page and of the history.

A new figure is an entry here, and its field in the contract. With `stored` it also needs a column of the history.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import share_field
from trainbench.core.formats import NA, degrees, duration, figure, share, usd
from trainbench.core.known_values import known_max, known_min, sum_of_all
from trainbench.figure_catalogue.figure import Figure
from trainbench.prices import run_cost
from trainbench.results import readings

# The tables of a run's figures, by their titles
PERFORMANCE, PROBES = "Throughput, step time, utilisation", "Probes of the GPU before the loop"
TELEMETRY, STARTUP = "Telemetry of GPU and host", "Where the seconds go"
SECTIONS = (PERFORMANCE, PROBES, TELEMETRY, STARTUP)


def milliseconds(value_s: float | None) -> str:
    return NA if value_s is None else figure(value_s * 1000)


def whole(value: float | None) -> str:
    return NA if value is None else f"{value:,.0f}"


share_2, figure_3 = partial(share, decimals=2), partial(figure, digits=3)

# fmt: off

# Throughput and steps
_performance = partial(Figure, section=PERFORMANCE)
SAMPLES_PER_SECOND = _performance("samples_per_second", "samples/s", "1/s", "performance.samples_per_second",
    "steps x samples of a step over all ranks / seconds of all measured windows by performance.clock (wall time; on "
    "the CPU the process' CPU time); of several runs the median; of independent GPUs the sum of their own rates",
    "bench_image.process.merge.performance_of", "test_merge.py::test_figures_by_hand", stored="median",
    read=(
        "Samples of all ranks / seconds of the measured windows (wall time; on the CPU the process' own CPU time); "
        "warm-up and start-up are outside."
    ))
TOKENS_PER_SECOND = _performance("tokens_per_second", "tokens/s", "1/s", "performance.tokens_per_second",
    "samples/s x tokens of a sample; of an encoder-decoder those of source and target",
    "bench_image.process.merge.performance_of",
    "test_merge.py::test_tokens_of_an_encoder_decoder_are_source_and_target", csv="tokens_per_sec", stored="median",
    read="Non-padding tokens of all ranks / the same seconds.")
MEDIAN_STEP_TIME_S = _performance("median_step_time_s", "median step ms", "ms", "performance.step_time.median_s",
    "median of all measured steps, each as long as its slowest rank", "bench_image.contract.step_stats.step_time",
    "test_step_stats.py::test_the_summary_of_step_times", write=milliseconds)
P95_STEP_TIME_S = _performance("p95_step_time_s", "p95 step ms", "ms", "performance.step_time.p95_s",
    "95 % quantile of the same steps, interpolated between order statistics",
    "bench_image.contract.step_stats.quantile",
    "test_step_stats.py::test_quantiles_interpolate_between_order_statistics", write=milliseconds)
STEP_CV_PCT = _performance("step_cv_pct", "step CV", "%", "performance.step_time.cv_pct",
    "100 x sample standard deviation of the steps / their mean", "bench_image.contract.step_stats.step_time",
    "test_step_stats.py::test_the_summary_of_step_times", write=share,
    read="Standard deviation of the step times / their mean; a step takes as long as its slowest rank.")
HALF_WIDTH_PCT = _performance("half_width_pct", "mean step ± (95 %)", "%", "performance.step_time.half_width_pct",
    "100 x Student's t (97.5 %) x standard deviation / sqrt(steps) / mean",
    "bench_image.contract.step_stats.half_width_pct", "test_step_stats.py::test_half_width_in_percent_of_the_mean",
    write=share_2, read="Half of the 95 % interval of the mean step time, in percent of it.")
PEAK_MEMORY_GB = _performance("peak_memory_gb", "memory GB", "1e9 bytes", "memory.peak_during_training",
    "torch's most allocated bytes since the first window, largest rank / 1e9; on the CPU resident memory",
    "bench_image.process.merge.largest_memory",
    "test_merge.py::test_two_ranks_share_the_peak_and_count_the_larger_memory", also=("measured GB",), stored="median",
    read="Peak allocated by torch in training, largest rank, 1e9 bytes. On a CPU: resident memory.")
MFU_PCT = _performance("mfu_pct", "MFU", "%", "performance.mfu_pct",
    "100 x tokens/s per GPU x model FLOPs per token / the GPU's peak FLOP/s; causality is not halved",
    "bench_image.process.merge._share_pct", "test_merge.py::test_utilisation_by_hand", write=share, stored="median",
    read="Model FLOPs per second by formula / the GPU's peak; HFU counts recomputed FLOPs too.")
MFU_BF16_PCT = Figure("mfu_bf16_pct", "MFU by bf16's peak", "%", "performance.mfu_pct, context.gpus, spec.work",
    "MFU x the GPU's peak in the run's precision / its bf16 peak: beside fp8's MFU, which is by the 8-bit peak",
    "trainbench.results.readings.mfu_bf16_pct", "test_readings.py::test_mfu_by_the_bf16_peak_compares_precisions",
    write=share, of=readings.mfu_bf16_pct)
HFU_PCT = _performance("hfu_pct", "HFU", "%", "performance.hfu_pct",
    "as MFU, with the FLOPs that checkpointing computes again", "bench_image.contract.flops.flops_per_token",
    "test_flops.py::test_flops_by_hand", write=share)
MATMUL_SHARE_PCT = _performance("matmul_share_pct", "of matmul rate", "%", "performance.matmul_share_pct",
    "100 x tokens/s per GPU x model FLOPs per token / probes.matmul_tflops", "bench_image.process.merge._share_pct",
    "test_merge.py::test_utilisation_by_hand", write=share,
    read="The same FLOP rate over the rate of a large matmul measured on the same GPU.")
EXPOSED_COMMUNICATION_PCT = _performance("exposed_communication_pct", "exposed comm.", "%", "communication.exposed_pct",
    "100 x time of communication that no computation covers / time of the profiled steps, mean over ranks",
    "bench_image.training.comm_profile.exposed", "test_comm_profile.py::test_exposed_is_what_no_computation_covers",
    write=share,
    read="Share of a step in which the GPU waited for communication; all comm.: also what computation hid.")
COMMUNICATION_PCT = _performance("communication_pct", "all comm.", "%", "communication.total_pct",
    "100 x time of all communication, overlaps once / time of the profiled steps",
    "bench_image.training.comm_profile.union", "test_comm_profile.py::test_union_is_sorted_and_disjoint", write=share)
LOADER_WAIT_PCT = _performance("loader_wait_pct", "loader wait", "%", "performance.loader_wait_pct",
    "100 x seconds in which the training loop waited for data / wall seconds of the windows; slowest rank",
    "bench_image.process.merge.performance_of", "test_merge.py::test_waiting_for_data_by_hand", write=share,
    read="Share of the windows in which the training loop waited for its data, slowest rank.")
INPUT_MB_PER_S = _performance("input_mb_per_s", "input MB/s", "1e6 bytes/s", "performance.input_mb_per_s",
    "tokens/s x 8 bytes / 1e6", "bench_image.process.merge.performance_of",
    "test_merge.py::test_waiting_for_data_by_hand")
MEAN_LOSS = _performance("mean_loss", "mean loss", "1", "performance.mean_loss",
    "mean over the measured steps of the mean over ranks", "bench_image.process.merge.performance_of",
    "test_merge.py::test_figures_by_hand")
MEAN_STEP_TIME_S = Figure("mean_step_time_s", "mean step ms", "ms", "performance.step_time.mean_s",
    "mean of all measured steps, each as long as its slowest rank", "bench_image.contract.step_stats.step_time",
    "test_step_stats.py::test_the_summary_of_step_times", write=milliseconds, csv="mean_step_time_sec")
PEAK_RESERVED_GB = Figure("peak_reserved_gb", "reserved GB", "1e9 bytes", "memory.peak_reserved_bytes",
    "most bytes that torch's allocator held, largest rank / 1e9", "bench_image.process.merge.largest_memory",
    "test_merge.py::test_two_ranks_share_the_peak_and_count_the_larger_memory", of=readings.peak_reserved_gb)
# Probes before the loop, of the slowest GPU
H2D_GB_PER_S = Figure("h2d_gb_per_s", "H2D GB/s", "1e9 bytes/s", "probes.h2d_gb_per_s",
    "bytes of a pinned host-to-device copy / its median seconds, slowest GPU",
    "bench_image.telemetry.probes.host_copy_gb_per_s", "test_probes.py::test_copies_by_hand", section=PROBES,
    csv="h2d_gbps_per_gpu", stored="median",
    read="Rate of pinned host-to-device copies, measured before the training loop; D2H: device to host.")
MATMUL_TFLOPS = Figure("matmul_tflops", "matmul TFLOP/s", "1e12/s", "probes.matmul_tflops",
    "2 x n^3 of a large matmul in the run's precision (fp8: of 8-bit numbers) / its median seconds before the loop, "
    "slowest GPU", "bench_image.telemetry.probes.matmul_tflops", "test_probes.py::test_the_rate_of_a_matmul_by_hand",
    section=PROBES, stored="median",
    read="Rate of a large matmul in the run's precision, measured before the loop on the slowest GPU.")
ALLREDUCE_BUS_GB_PER_S = Figure("allreduce_bus_gb_per_s", "all-reduce GB/s", "1e9 bytes/s",
    "probes.allreduce_bus_gb_per_s", "2 (ranks - 1) / ranks x bytes / median seconds of an all-reduce before the loop",
    "bench_image.telemetry.probes.allreduce_bus_gb_per_s", "test_probes.py::test_the_bus_rate_of_an_all_reduce_by_hand",
    section=PROBES)
_BY_HAND = "test_probes.py::test_copies_by_hand"
_MATMUL = "2 x n^3 of a large matmul of such numbers / its median seconds before the loop, slowest GPU"
_MATMUL_BY_HAND = "test_probes.py::test_the_rate_of_a_matmul_by_hand"
_PROBES = {
    "d2h_gb_per_s": ("D2H GB/s", "bytes of a device-to-host copy into pinned memory / its median seconds, slowest "
        "GPU", "host_copy_gb_per_s", _BY_HAND),
    "memory_gb_per_s": ("GPU memory GB/s", "bytes read and bytes written of a copy within the GPU's memory / its "
        "median seconds, slowest GPU", "memory_gb_per_s", _BY_HAND),
    "peer_gb_per_s": ("GPU to GPU GB/s", "bytes of a copy to the next GPU that the rank sees / its median seconds, "
        "slowest GPU", "peer_gb_per_s", "test_probes.py::test_a_copy_goes_to_the_next_gpu"),
    "matmul_bf16_tflops": ("bf16 TFLOP/s", _MATMUL, "matmul_tflops", _MATMUL_BY_HAND),
    "matmul_fp8_tflops": ("8-bit TFLOP/s", _MATMUL, "matmul_tflops", _MATMUL_BY_HAND),
}
_UNITS = {True: "1e9 bytes/s", False: "1e12/s"}
RATE_FIGURES = (H2D_GB_PER_S, *(
    Figure(name, label, _UNITS[name.endswith("_gb_per_s")], f"probes.{name}", formula,
        f"bench_image.telemetry.probes.{source}", test, section=PROBES, stored="median")
    for name, (label, formula, source, test) in _PROBES.items()
))
SHARE_FIGURES = tuple(
    Figure(share_field(rate.name), f"{rate.label.rpartition(' ')[0]} share", "%", f"probes.{share_field(rate.name)}",
        "100 x the rate / that of the GPU's data sheet",
        "bench_image.telemetry.probes.shares_pct", "test_probes.py::test_shares_of_the_data_sheet_by_hand",
        write=share, section=PROBES)
    for rate in RATE_FIGURES
)

# Telemetry
_telemetry = partial(Figure, section=TELEMETRY)
_gpu = partial(
    _telemetry, source="trainbench.figure_catalogue.figure.value",
    test="test_figure.py::test_several_gpus_become_one_number")
GPU_UTILISATION_MEAN_PCT = _gpu("gpu_utilisation_mean_pct", "GPU use", "%", "telemetry.gpus.*.utilisation_mean_pct",
    "mean share of time in which any kernel ran, least used GPU", write=share, over=known_min)
TEMPERATURE_MEAN_C = _gpu("temperature_mean_c", "temperature mean", "degrees C", "telemetry.gpus.*.temperature_mean_c",
    "mean of NVML's readings within the windows, hottest GPU", write=degrees, also=("temperature",), over=known_max,
    stored="median", read="Mean within the measured windows, hottest GPU of the run.")
TEMPERATURE_MAX_C = _gpu("temperature_max_c", "temperature max", "degrees C", "telemetry.gpus.*.temperature_max_c",
    "largest reading, hottest GPU", write=degrees, over=known_max)
POWER_MEAN_W = _gpu("power_mean_w", "power W", "W", "telemetry.gpus.*.power_mean_w", "mean power, all GPUs together",
    over=sum_of_all)
SM_CLOCK_MEAN_MHZ = _gpu("sm_clock_mean_mhz", "SM clock MHz", "MHz", "telemetry.gpus.*.sm_clock_mean_mhz",
    "mean clock, slowest GPU", over=known_min, stored="median")
SM_CLOCK_MIN_MHZ = _gpu("sm_clock_min_mhz", "lowest SM clock MHz", "MHz", "telemetry.gpus.*.sm_clock_min_mhz",
    "lowest single reading within the windows, of all GPUs", over=known_min)
THROTTLE_THERMAL_PCT = _telemetry("throttle_thermal_pct", "thermal throttling", "%",
    "telemetry.gpus.*.throttle_share_pct", "100 x readings with this clocks-event reason / all readings, worst GPU",
    "bench_image.telemetry.sampler.throttle_shares",
    "test_sampler.py::test_throttle_classes_as_shares_of_the_samples", write=share,
    of=lambda r: readings.throttle_pct(r, "thermal"))
THROTTLE_POWER_CAP_PCT = _telemetry("throttle_power_cap_pct", "power cap", "%", "telemetry.gpus.*.throttle_share_pct",
    "100 x readings with this clocks-event reason / all readings, worst GPU",
    "bench_image.telemetry.sampler.throttle_shares",
    "test_sampler.py::test_throttle_classes_as_shares_of_the_samples", write=share,
    of=lambda r: readings.throttle_pct(r, "power_cap"))
THROTTLE_POWER_BRAKE_PCT = _telemetry("throttle_power_brake_pct", "power brake", "%",
    "telemetry.gpus.*.throttle_share_pct", "100 x readings with this clocks-event reason / all readings, worst GPU",
    "bench_image.telemetry.sampler.throttle_shares",
    "test_sampler.py::test_throttle_classes_as_shares_of_the_samples", write=share,
    of=lambda r: readings.throttle_pct(r, "power_brake"))
XIDS = _telemetry("num_xids", "Xids", "1", "telemetry.gpus.*.xids",
    "events that the driver reported over the run, start-up included, all GPUs together",
    "trainbench.results.readings.num_xids", "test_readings.py::test_xids_of_all_gpus_add_up", write=whole,
    of=readings.num_xids)
OTHER_PROCESSES = _gpu("num_other_processes", "other processes", "1", "telemetry.gpus.*.num_other_processes",
    "most processes of others on a GPU at the end of a window", write=whole, over=known_max)
OTHER_MEMORY_GB = _telemetry("other_memory_gb", "others' memory GB", "1e9 bytes",
    "telemetry.gpus.*.other_memory_at_start_gb",
    "memory in use before the run's first process or after its last one, the larger, most used GPU",
    "trainbench.results.readings.other_memory_gb", "test_readings.py::test_memory_of_others_by_hand",
    of=readings.other_memory_gb)
ENERGY_PER_SAMPLE_J = _telemetry("energy_per_sample_j", "J per sample", "J", "telemetry.energy_per_sample_j",
    "joules of the GPUs' energy counters within the windows / samples, or tokens, of the windows",
    "bench_image.process.merge._telemetry", "test_merge.py::test_figures_by_hand", stored="median")
ENERGY_PER_TOKEN_J = _telemetry("energy_per_token_j", "J per token", "J", "telemetry.energy_per_token_j",
    "joules of the GPUs' energy counters within the windows / samples, or tokens, of the windows",
    "bench_image.process.merge._telemetry", "test_merge.py::test_figures_by_hand")
CPU_UTILISATION_MEAN_PCT = _telemetry("cpu_utilisation_mean_pct", "CPU use", "%",
    "telemetry.host.cpu_utilisation_mean_pct",
    "share of the CPUs' time within the windows; steal: given to other machines",
    "bench_image.telemetry.sampler.cpu_times", "test_sampler.py::test_cpu_times_of_linux", write=share)
CPU_STEAL_PCT = _telemetry("cpu_steal_pct", "CPU steal", "%", "telemetry.host.cpu_steal_pct",
    "share of the CPUs' time within the windows; steal: given to other machines",
    "bench_image.telemetry.sampler.cpu_times", "test_sampler.py::test_cpu_times_of_linux", write=share)

# Start-up
_PHASES = {
    "launch_s": "launch", "import_s": "import", "build_s": "build", "probe_s": "probe", "autotune_s": "autotune",
    "warmup_s": "warm-up", "compile_s": "(of it compile)", "measure_s": "measure", "profile_s": "profile",
    "total_s": "total",
}
STARTUP_FIGURES = tuple(
    Figure(
        name, label, "s", f"startup.{name}",
        "first warm-up step - last warm-up step" if name == "compile_s" else
        "seconds between two phases by the wall clock; total: process start to result",
        "bench_image.process.phases._warm_up" if name == "compile_s" else "bench_image.process.rank_report.enter",
        "test_runs.py::test_a_run_ends_ok_and_knows_what_it_did",
        write=duration, section=STARTUP,
    )
    for name, label in _PHASES.items()
)
FIRST_STEP_S = Figure("first_step_s", "first measured step", "s", "performance.windows.*.started_s",
    "process start to the start of the first measured window; the pull of the pod's image is before it",
    "bench_image.training.loop.measure_window", "test_figure.py::test_the_first_measured_step_begins_the_first_window",
    write=duration, section=STARTUP, over=known_min)
STARTUP_S = Figure("startup_s", "start-up", "s", "startup.total_s, startup.measure_s",
    "process start to the end of the run, without the measured windows", "trainbench.results.readings.startup_s",
    "test_readings.py::test_start_up_is_what_was_not_measured", write=duration, of=readings.startup_s)

# Money
USD_PER_GPU_HOUR = Figure("usd_per_gpu_hour", "per GPU-hour", "USD", "cost.usd_per_gpu_hour; price table",
    "price of the instance / its GPUs", "trainbench.prices.price_tables.usd_per_gpu_hour",
    "test_price_tables.py::test_an_instance_price_is_shared_by_its_gpus", of=attrgetter("cost.usd_per_gpu_hour"),
    write=usd, also=("rent per GPU-hour",), stored="median")
GPU_HOURS = Figure("gpu_hours", "GPU-hours", "h", "startup.total_s, spec", "process start to result x GPUs / 3600",
    "trainbench.prices.run_cost.gpu_hours", "test_run_cost.py::test_by_hand", of=run_cost.gpu_hours,
    write=figure_3, stored="sum")
RUN_USD = Figure("run_usd", "cost", "USD", "startup.total_s, cost.usd_per_gpu_hour",
    "GPU-hours x price per GPU-hour; of an example samples / 1000 x cost per 1K samples",
    "trainbench.prices.run_cost.run_usd", "test_cost_report.py::test_a_node_check_costs_all_its_runs",
    of=run_cost.run_usd, write=usd, also=("* samples cost",), stored="sum")
USD_PER_1000_SAMPLES = Figure("usd_per_1000_samples", "per 1K samples", "USD", "cost.cost_per_1000_samples_usd",
    "price per GPU-hour x GPUs / (samples/s x 3600) x 1000, or x 1e6; start-up left out",
    "trainbench.prices.quote.usd_per_1000_samples", "test_run_cost.py::test_the_reference_configurations",
    write=usd, also=("per 1M samples",), stored="median",
    read="Price per GPU-hour x GPUs / (samples/s x 3600) x 1000; start-up is left out. Per 1M tokens likewise.")
USD_PER_1M_TOKENS = Figure("usd_per_1m_tokens", "per 1M tokens", "USD",
    "performance.tokens_per_second, cost.usd_per_gpu_hour", "price per GPU-hour x GPUs / (tokens/s x 3600) x 1e6",
    "trainbench.prices.quote.usd_per_1m_tokens", "test_run_cost.py::test_usd_per_million_tokens",
    of=run_cost.run_usd_per_1m_tokens, write=usd, stored="median")

# Of an Efficiency
SCALING_EFFICIENCY_PCT = Figure("scaling_efficiency_pct", "scaling", "%", "performance.samples_per_second, spec",
    "100 x (samples/s / GPUs) / (samples/s / GPUs at the smallest size measured for the same work and strategy)",
    "trainbench.comparison.scaling.efficiencies",
    "test_scaling.py::test_throughput_per_gpu_against_the_smallest_measured_size",
    also=("efficiency", "scaling efficiency"), of=attrgetter("pct"), write=share, stored="median",
    read="Throughput per GPU over that at the smallest number of GPUs measured for the same work.")

COST_FIGURES = (USD_PER_GPU_HOUR, GPU_HOURS, RUN_USD, USD_PER_1000_SAMPLES, USD_PER_1M_TOKENS)
_OF_RESULTS = tuple(
    each
    for each in list(globals().values())
    if isinstance(each, Figure) and each not in (*COST_FIGURES, SCALING_EFFICIENCY_PCT)
)
RUN_FIGURES = (*_OF_RESULTS, *RATE_FIGURES[1:], *SHARE_FIGURES, *STARTUP_FIGURES, *COST_FIGURES)
STORED = tuple(each for each in (*RUN_FIGURES, SCALING_EFFICIENCY_PCT) if each.stored)
# fmt: on


def of_section(section: str) -> tuple[Figure, ...]:
    """The figures of one table of runs, in its order."""
    return tuple(each for each in RUN_FIGURES if each.section == section)


def run_values(result: RunResult, scaling: object | None) -> dict[Figure, float | None]:
    """All figures of one run, in the catalogue's order. `scaling`: its Efficiency; None without a base."""
    efficiency_pct = SCALING_EFFICIENCY_PCT.value(scaling) if scaling else None
    return {each: each.value(result) for each in RUN_FIGURES} | {SCALING_EFFICIENCY_PCT: efficiency_pct}
