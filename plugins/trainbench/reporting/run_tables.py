"""Tables of the runs: figures, failures, settings, versions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from bench_image.contract.model_shapes import EncoderDecoderShape
from bench_image.contract.options import DEEPSPEED, Precision, Strategy
from bench_image.contract.result import RunError, RunResult
from bench_image.contract.result_sections import Context
from bench_image.contract.spec import RunSpec
from bench_image.contract.work import Device
from trainbench.core.formats import NA, listing, one_line
from trainbench.core.grouping import grouped
from trainbench.core.tables import (
    LOG_LINK,
    MAX_ROWS,
    Content,
    Table,
    Tone,
    make_table,
    short_names,
    text,
    text_cell,
    text_columns,
)
from trainbench.figure_catalogue import run_figures
from trainbench.figure_catalogue.figure import reason
from trainbench.params.campaign_params import applies_to
from trainbench.planning.plan import SKIPPED
from trainbench.pods.pod_log import LOG_FILE
from trainbench.reporting.verdict_text import is_rerun
from trainbench.reporting.work_names import group_name
from trainbench.results.campaign import Campaign
from trainbench.results.setups import setup_of, versions


def ended_well(campaign: Campaign) -> tuple[RunResult, ...]:
    """The runs that ended well, drills included; `failures` has the others."""
    return tuple(r for r in campaign.results if r.error is None)


def runs_table(campaign: Campaign, section: str) -> Table:
    """One row for each run that ended well. Columns that no run filled are left out; the notes name them with the
    reason. Where no run filled any, there are no rows.
    """
    results, figures = ended_well(campaign), run_figures.of_section(section)
    names = short_names(results, campaign.labels)
    filled = [figure for figure in figures if any(figure.value(result) is not None for result in results)]
    absent = grouped(
        (reason(result, figure.field), figure.label)
        for figure in figures
        for result in results
        if figure.value(result) is None
    )
    more = len(results) - MAX_ROWS
    return make_table(
        results[:MAX_ROWS] if filled else (),
        (text("run", lambda r: names[r.spec.identity.run_id]), *(figure.column(figure.value) for figure in filled)),
        run_id=lambda r: r.spec.identity.run_id,
        title=section,
        notes=(
            *((f"And {more:,} more runs: metrics.csv has all of them.",) if more > 0 else ()),
            *(f"{NA} – {', '.join(dict.fromkeys(labels))}: {why}." for why, labels in absent.items()),
        ),
    )


def failures(campaign: Campaign, log_link: str = LOG_LINK) -> Table:
    """The table of runs whose status is not ok, with the reported error. `log_link`: address of a kept log."""
    names = short_names(campaign.results, campaign.labels)

    def run(pair: tuple[RunResult, RunError]) -> str:
        return names[pair[0].spec.identity.run_id] + (" (re-run)" if is_rerun(campaign, pair[0]) else "")

    def log(pair: tuple[RunResult, RunError]) -> Content:
        run_id = pair[0].spec.identity.run_id
        name = campaign.logs.get(run_id, "")
        is_log = LOG_FILE.fullmatch(name)  # the name is of a file that others may have written
        return text_cell(name, href=log_link.format(run_id=run_id, name=name)) if is_log else text_cell("not kept")

    return make_table(
        [(result, result.error) for result in campaign.results if result.error],
        (
            text("run", run),
            text("status", lambda pair: pair[0].status.value),
            text("phase", lambda pair: pair[1].phase.value),
            text("error", lambda pair: one_line(f"{pair[1].kind}: {pair[1].message}")),
            text("log", log),
        ),
        tone=lambda _: Tone.BAD,
        title="Failed runs",
        run_id=lambda pair: pair[0].spec.identity.run_id,
    )


def skipped(campaign: Campaign) -> Table:
    """The table of planned runs without a result, titled by why they have none."""
    states = listing(dict.fromkeys(skip.state for skip in campaign.skipped)) or SKIPPED
    rows = [(skip.what, skip.reason) for skip in campaign.skipped]
    return make_table(rows, text_columns(states, "why"), title=states.capitalize())


def work(campaign: Campaign) -> Table:
    """The table of every setting that changes a measurement, with every value of it."""
    specs = {result.spec.identity.group_id: result.spec for result in campaign.results}
    values = grouped(pair for spec in specs.values() for pair in settings(spec))
    rows = [(name, "; ".join(dict.fromkeys(of))) for name, of in values.items()]
    if len(scripts := {tuple(in_your_script(result)) for result in campaign.results}) == 1:
        rows += scripts.pop()
    return make_table(rows, text_columns("setting", "value"), title="Settings of the work")


def in_your_script(result: RunResult) -> Iterator[tuple[str, str]]:
    """The run's settings as arguments of TRL, PEFT and bitsandbytes, to be pasted; none of work that they cannot do."""
    work, strategy = result.effective_spec.work, result.spec.placement.strategy
    if work.own_job or isinstance(work.shape, EncoderDecoderShape):
        return

    def arguments(name: str, **values: object) -> tuple[str, str]:
        return f"{name} of your script", ", ".join(f"{key}={value!r}" for key, value in values.items())

    parts: dict[str, object] = (
        {work.precision.value: True} if work.precision in (Precision.BF16, Precision.FP16) else {}
    )
    parts |= {"torch_compile": True} if work.is_compiled and work.device is Device.CUDA else {}
    parts |= {"fsdp": True} if strategy is Strategy.FSDP else {}
    parts |= {"deepspeed": f"{strategy}.json"} if strategy in DEEPSPEED else {}
    yield arguments(
        "SFTConfig",
        per_device_train_batch_size=work.micro_batch_size,
        gradient_accumulation_steps=work.gradient_accumulation_steps,
        max_length=work.seq_length,
        optim=work.optimizer.value,
        gradient_checkpointing=work.gradient_checkpointing,
        **parts,
    )
    if lora := work.lora:
        targets = list(lora.targets)
        yield arguments(
            "LoraConfig", r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets
        )
    if work.quantisation:
        double = work.quantisation.double
        yield arguments(
            "BitsAndBytesConfig", load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double
        )


def settings(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Each setting of a run that changes a measurement, without those that are not set."""
    for part in (spec.work, spec.placement, spec.measurement):
        for name, value in part.model_dump(mode="json", exclude_none=True).items():
            yield name, _setting(value)


def parameters(campaign: Campaign) -> Table:
    """The table of given parameters, without those of other kinds of campaign."""
    params = {name: value for name, value in campaign.params.items() if applies_to(name, campaign.campaign_kind)}
    rows = [(name, _setting(value)) for name, value in params.items()]
    return make_table(rows, text_columns("parameter", "value"), title="Parameters of the campaign")


def _setting(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def chosen(campaign: Campaign) -> Table:
    """The table of chosen settings, the reasons, and the execution; equal rows once, with their nodes."""
    names = {
        group_id: group_name(campaign, group_id) for group_id in {r.spec.identity.group_id for r in campaign.results}
    }
    nodes = grouped(
        (
            (
                names[run.spec.identity.group_id] + ("" if run.spec.work.own_job else f", {run.spec.work.preset}"),
                str(run.chosen.micro_batch_size),
                run.chosen.checkpointing,
                run.chosen.why,
                "; ".join(f"{name} {value}" for name, value in run.chosen.execution.items()) or NA,
            ),
            run.spec.identity.node,
        )
        for run in campaign.results
        if run.chosen
    )
    columns = text_columns(
        "work", "nodes", "micro-batch", "checkpointing", "how chosen", "execution", numbers=("micro-batch",)
    )
    rows = [(cells[0], listing(dict.fromkeys(on)), *cells[1:]) for cells, on in nodes.items()]
    return make_table(rows, columns, title="Automatic choices and execution")


def software(campaign: Campaign) -> Table:
    """The table of versions and hardware; where nodes differ, each value with its nodes."""
    of_runs = ((run.spec.identity.node, facts(run.context)) for run in campaign.results)
    by_name = grouped((name, (value, node)) for node, known in of_runs for name, value in known.items())
    rows = [(name, grouped(of_nodes)) for name, of_nodes in by_name.items()]

    def version(row: tuple[str, Mapping[str, Sequence[str]]]) -> str:
        told = (f"{value} on {listing(dict.fromkeys(nodes))}" for value, nodes in row[1].items())
        return next(iter(row[1])) if len(row[1]) == 1 else f"differs: {'; '.join(told)}"

    return make_table(
        rows,
        (text("what", lambda row: row[0]), text("version", version)),
        tone=lambda row: Tone.PLAIN if len(row[1]) == 1 else Tone.WARN,
        title="Software and hardware",
    )


def facts(context: Context | None) -> Mapping[str, str]:
    """Name -> value of what is known of the machine and of the software of a run."""
    if context is None:
        return {}
    capabilities = {gpu.compute_capability: None for gpu in context.gpus if gpu.compute_capability}
    clocks = {f"{gpu.sm_clock_max_mhz:.0f} MHz": None for gpu in context.gpus if gpu.sm_clock_max_mhz}
    known = {
        "GPU": listing({gpu.name: None for gpu in context.gpus}) if context.gpus else None,
        "compute capability": listing(capabilities) if capabilities else None,
        "highest SM clock": listing(clocks) if clocks else None,
        "CPU": f"{context.cpu}, {context.num_cpus} cores",
        "operating system": context.os,
        "CUDA": context.cuda,
        "Python": context.python,
        **versions(setup_of(context)),
    }
    return {name: value for name, value in known.items() if value}
