"""What the runs measured and how they were set up, as tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from bench_image.contract.fingerprint import NOT_WORK
from bench_image.contract.result import RunResult
from bench_image.contract.result_sections import Context
from trainbench.comparison.scaling import efficiencies
from trainbench.core.formats import NA, count, degrees, duration, figure, listing, one_line, share
from trainbench.core.tables import Measure, Row, Table, Tone, runs_table, short_names
from trainbench.params.applies_to import is_asked
from trainbench.reporting.verdict_text import group_name, is_rerun
from trainbench.results.campaign import Campaign
from trainbench.results.readings import (
    exposed_communication_pct,
    power_mean_w,
    sm_clock_mean_mhz,
    temperature_max_c,
    temperature_mean_c,
    throttle_pct,
    utilisation_mean_pct,
)

PERFORMANCE = (
    Measure("samples/s", lambda r: r.performance.samples_per_second, figure, "performance.samples_per_second"),
    Measure("tokens/s", lambda r: r.performance.tokens_per_second, figure, "performance.tokens_per_second"),
    Measure(
        "median step ms",
        lambda r: r.performance.step_time.median_s * 1000 if r.performance.step_time else None,
        figure,
        "performance.step_time",
    ),
    Measure(
        "p95 step ms",
        lambda r: r.performance.step_time.p95_s * 1000 if r.performance.step_time else None,
        figure,
        "performance.step_time",
    ),
    Measure(
        "step CV",
        lambda r: r.performance.step_time.cv_pct if r.performance.step_time else None,
        share,
        "performance.step_time",
    ),
    Measure(
        "mean known to ±",
        lambda r: r.performance.step_time.half_width_pct if r.performance.step_time else None,
        lambda value: share(value, 2),
        "performance.step_time",
    ),
    Measure("memory GB", lambda r: r.memory.peak_during_training, figure, "memory.peak_during_training"),
    Measure("MFU", lambda r: r.performance.mfu_pct, share, "performance.mfu_pct"),
    Measure("HFU", lambda r: r.performance.hfu_pct, share, "performance.hfu_pct"),
    Measure("of matmul rate", lambda r: r.performance.matmul_share_pct, share, "performance.matmul_share_pct"),
    Measure("H2D GB/s", lambda r: r.probes.h2d_gb_per_s, figure, "probes.h2d_gb_per_s"),
    Measure("exposed comm.", exposed_communication_pct, share, "communication.exposed_pct"),
    Measure("all comm.", lambda r: r.communication.total_pct, share, "communication.total_pct"),
    Measure("loader wait", lambda r: r.performance.loader_wait_pct, share, "performance.loader_wait_pct"),
    Measure("input MB/s", lambda r: r.performance.input_mb_per_s, figure, "performance.input_mb_per_s"),
    Measure("mean loss", lambda r: r.performance.mean_loss, figure, "performance.mean_loss"),
)

STARTUP = (
    Measure("launch", lambda r: r.startup.launch_s, duration, "startup.launch_s"),
    Measure("import", lambda r: r.startup.import_s, duration, "startup.import_s"),
    Measure("build", lambda r: r.startup.build_s, duration, "startup.build_s"),
    Measure("probe", lambda r: r.startup.probe_s, duration, "startup.probe_s"),
    Measure("choose", lambda r: r.startup.choose_s, duration, "startup.choose_s"),
    Measure("warm-up", lambda r: r.startup.warmup_s, duration, "startup.warmup_s"),
    Measure("(of it compile)", lambda r: r.startup.compile_s, duration, "startup.compile_s"),
    Measure("measure", lambda r: r.startup.measure_s, duration, "startup.measure_s"),
    Measure("profile", lambda r: r.startup.profile_s, duration, "startup.profile_s"),
    Measure("total", lambda r: r.startup.total_s, duration, "startup.total_s"),
)

TELEMETRY = (
    Measure("GPU use", utilisation_mean_pct, share, "telemetry.gpus.*.utilisation_mean_pct"),
    Measure("temperature mean", temperature_mean_c, degrees, "telemetry.gpus.*.temperature_mean_c"),
    Measure("temperature max", temperature_max_c, degrees, "telemetry.gpus.*.temperature_max_c"),
    Measure("power W", power_mean_w, figure, "telemetry.gpus.*.power_mean_w"),
    Measure("SM clock MHz", sm_clock_mean_mhz, figure, "telemetry.gpus.*.sm_clock_mean_mhz"),
    Measure("thermal throttling", lambda r: throttle_pct(r, "thermal"), share, "telemetry.gpus.*.throttle_share_pct"),
    Measure("power cap", lambda r: throttle_pct(r, "power_cap"), share, "telemetry.gpus.*.throttle_share_pct"),
    Measure("J per sample", lambda r: r.telemetry.energy_per_sample_j, figure, "telemetry.energy_per_sample_j"),
    Measure("J per token", lambda r: r.telemetry.energy_per_token_j, figure, "telemetry.energy_per_token_j"),
    Measure(
        "CPU use",
        lambda r: r.telemetry.host.cpu_utilisation_mean_pct,
        share,
        "telemetry.host.cpu_utilisation_mean_pct",
    ),
    Measure("CPU steal", lambda r: r.telemetry.host.cpu_steal_pct, share, "telemetry.host.cpu_steal_pct"),
)


def measured(campaign: Campaign) -> tuple[RunResult, ...]:
    """The runs that ended well, drills too; the others are in `failures`."""
    return tuple(r for r in campaign.results if r.error is None)


def performance(campaign: Campaign) -> Table:
    return runs_table(measured(campaign), PERFORMANCE, labels=campaign.labels)


def startup(campaign: Campaign) -> Table:
    return runs_table(measured(campaign), STARTUP, labels=campaign.labels)


def telemetry(campaign: Campaign) -> Table:
    return runs_table(measured(campaign), TELEMETRY, labels=campaign.labels)


def scaling(campaign: Campaign) -> Table:
    """The runs for which a smaller world size of the same work was measured."""
    names = short_names(campaign.results, campaign.labels)
    columns = ("run", "GPUs", "compared with", "efficiency")
    return Table(
        columns=columns,
        numeric=frozenset(columns[1:]),
        rows=tuple(
            Row(
                cells=(
                    names[r.spec.run_id],
                    str(r.spec.world_size),
                    f"{count(efficiency.base_world_size, 'GPU')} ({efficiency.base_strategy})"
                    + (f", on {efficiency.elsewhere}" if efficiency.elsewhere else ""),
                    share(efficiency.pct),
                ),
                run_id=r.spec.run_id,
            )
            for r, efficiency in zip(campaign.results, efficiencies(campaign.results), strict=True)
            if efficiency
        ),
    )


def failures(campaign: Campaign) -> Table:
    """Each run whose status is not ok, with the error as it was reported."""
    names = short_names(campaign.results, campaign.labels)
    return Table(
        columns=("run", "status", "phase", "error"),
        rows=tuple(
            Row(
                cells=(
                    names[r.spec.run_id] + (" (re-run)" if is_rerun(campaign, r) else ""),
                    r.status,
                    r.error.phase,
                    one_line(f"{r.error.kind}: {r.error.message}"),
                ),
                tone=Tone.BAD,
                run_id=r.spec.run_id,
            )
            for r in campaign.results
            if r.error
        ),
    )


def skipped(campaign: Campaign) -> Table:
    return Table(columns=("skipped", "why"), rows=tuple(Row(cells=(s.what, s.reason)) for s in campaign.skipped))


def work(campaign: Campaign) -> tuple[Table, ...]:
    """The settings of a single group; of several: what all share, then for each group what differs."""
    groups = {result.spec.group_id: result.spec for result in campaign.results}
    settings = {group_id: spec.model_dump(mode="json", exclude=set(NOT_WORK)) for group_id, spec in groups.items()}
    if len(settings) < 2:
        return tuple(_settings(values, group_name(campaign, group_id)) for group_id, values in settings.items())
    first = next(iter(settings.values()))
    differing = tuple(name for name in first if any(values[name] != first[name] for values in settings.values()))
    rows = tuple(
        Row(cells=(group_id, *(_setting(values[name]) for name in differing))) for group_id, values in settings.items()
    )
    return (
        _settings({name: value for name, value in first.items() if name not in differing}, "What all groups share"),
        Table(columns=("group", *differing), rows=rows, title="What differs between the groups"),
    )


def _settings(values: Mapping[str, object], title: str) -> Table:
    rows = tuple(Row(cells=(name, _setting(value))) for name, value in values.items())
    return Table(columns=("setting", "value"), rows=rows, title=title)


def chosen(campaign: Campaign) -> Table:
    """What ran where the spec left a choice, why, and the means by which it ran; equal ones once, with their nodes."""
    names = {group_id: group_name(campaign, group_id) for group_id in {r.spec.group_id for r in campaign.results}}
    runs: dict[tuple[str, ...], dict[str, None]] = {}
    for result in campaign.results:
        if result.chosen:
            means = "; ".join(f"{name} {value}" for name, value in result.chosen.means.items())
            cells = (
                f"{names[result.spec.group_id]}, {result.spec.preset}",
                str(result.chosen.micro_batch_size),
                "on" if result.chosen.gradient_checkpointing else "off",
                result.chosen.why,
                means or NA,
            )
            runs.setdefault(cells, {})[result.spec.node] = None
    columns = ("work", "nodes", "micro-batch", "checkpointing", "how chosen", "means")
    rows = tuple(Row(cells=(cells[0], listing(nodes), *cells[1:])) for cells, nodes in runs.items())
    return Table(columns=columns, numeric=frozenset({"micro-batch"}), rows=rows)


def software(campaign: Campaign) -> Table:
    """Versions and hardware; where the nodes differ, each value with its nodes."""
    nodes_by_value: dict[str, dict[str, dict[str, None]]] = {}
    for result in campaign.results:
        for name, value in _facts(result.context):
            nodes_by_value.setdefault(name, {}).setdefault(value, {})[result.spec.node] = None
    return Table(
        columns=("what", "version"),
        rows=tuple(
            Row(cells=(name, _by_node(values)), tone=Tone.PLAIN if len(values) == 1 else Tone.WARN)
            for name, values in nodes_by_value.items()
        ),
    )


def parameters(campaign: Campaign) -> Table:
    """What was asked for, as it came in, without what only other questions ask."""
    return Table(
        columns=("parameter", "value"),
        rows=tuple(
            Row(cells=(name, _setting(value)))
            for name, value in campaign.params.items()
            if is_asked(name, campaign.question)
        ),
    )


def _facts(context: Context | None) -> Iterator[tuple[str, str]]:
    if context is None:
        return
    known = {
        "GPU": listing({f"{gpu.name}": None for gpu in context.gpus}) if context.gpus else None,
        "VBIOS": listing({gpu.vbios or NA: None for gpu in context.gpus}) if context.gpus else None,
        "driver": context.driver,
        "CUDA": context.cuda,
        "CPU": f"{context.cpu}, {context.num_cpus} cores",
        "kernel": context.kernel,
        "Python": context.python,
        **context.libraries,
        "image": context.image,
    }
    yield from ((name, value) for name, value in known.items() if value)


def _by_node(values: dict[str, dict[str, None]]) -> str:
    if len(values) == 1:
        return next(iter(values))
    return "differs: " + "; ".join(f"{value} on {listing(nodes)}" for value, nodes in values.items())


def _setting(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def phases(result: RunResult) -> Sequence[tuple[str, float]]:
    """Where the run's seconds went, in order; what no phase claims is "other"."""
    s = result.startup
    named = [
        ("launch", s.launch_s),
        ("import", s.import_s),
        ("build", s.build_s),
        ("probe", s.probe_s),
        ("choose", s.choose_s),
        ("warm-up", s.warmup_s),
        ("measure", s.measure_s),
        ("profile", s.profile_s),
    ]
    known = [(name, seconds) for name, seconds in named if seconds]
    rest = (s.total_s or 0.0) - sum(seconds for _, seconds in known)
    return [*known, ("other", rest)] if rest > 0 else known
