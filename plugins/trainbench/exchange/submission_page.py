"""A submission as Markdown: the summary with units, the setup, and the commands that repeat it."""

from __future__ import annotations

from collections.abc import Iterable

from trainbench.core.formats import NA, figure, moment
from trainbench.core.markdown import bullets, escape, table
from trainbench.core.tables import Table, make_table, text_columns
from trainbench.exchange.submission import PUBLISHED, Submission


def markdown(content: Submission, json_name: str) -> str:
    """The Markdown text. `json_name`: the document's file, beside this one."""
    summary = content.summary
    hardware = f"{summary['num_gpus']} x {summary['gpu'] or 'GPU unknown'}" if summary["num_gpus"] else "the CPU"
    title = f"{summary['model']} {summary['recipe']} on {hardware}"
    commands = "\n".join(content.repeat_with)
    unknown = [f"{path}: {why}" for path, why in content.result.missing.items()]
    parts = [
        f"# {escape(title)}",
        f"**{figure(summary['samples_per_second'])} samples/s, {figure(summary['tokens_per_second'])} tokens/s**, "
        f"measured {moment(content.result.started_at)}.",
        table(_settings(content)),
        f"## Figures\n\n{table(_figures(content))}",
        f"## Software\n\n{table(_software(content))}",
        f"## Measure it again\n\n```console\n{commands}\n```\n\n"
        f"SUBMISSION.json is [{escape(json_name)}]({json_name}): it holds the whole result, with each step's time.",
        f"## Missing figures\n\n{bullets(unknown or ['Nothing.'])}",
        escape(_anonymity(content)),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _settings(content: Submission) -> Table:
    summary = content.summary
    rows = (
        ("GPU", summary["gpu"] or NA),
        ("memory of a GPU", f"{figure(summary['gpu_memory_gb'])} GB"),
        ("GPUs, nodes", f"{summary['num_gpus']}, {summary['num_nodes']}"),
        ("model", summary["model"]),
        (
            "parameters, of them trained",
            f"{_whole(summary['total_parameters'])}, {_whole(summary['trainable_parameters'])}",
        ),
        ("recipe, strategy, preset", f"{summary['recipe']}, {summary['strategy']}, {summary['preset']}"),
        ("precision, optimizer", f"{summary['precision']}, {summary['optimizer']}"),
        ("gradient checkpointing", "on" if summary["gradient_checkpointing"] else "off"),
        (
            "batch",
            f"{summary['micro_batch_size']} per GPU x {summary['gradient_accumulation_steps']} accumulated "
            f"= {summary['global_batch_size']} samples per step",
        ),
        ("sequence length", f"{summary['seq_length']:,} tokens"),
        ("memory is", "resident memory" if summary["memory_kind"] == "process_rss" else "of the GPU, largest rank"),
    )
    return _pairs(rows, "setting")


def _figures(content: Submission) -> Table:
    """The table of known figures; the others follow it with the reason."""
    known = ((each, each.value(content.result)) for each in PUBLISHED)
    return _pairs(((each.label, each.write(value)) for each, value in known if value is not None), "figure")


def _software(content: Submission) -> Table:
    summary = content.summary
    known = {"driver": summary["driver"], "CUDA": summary["cuda"], "Python": summary["python"], **summary["libraries"]}
    return _pairs(((name, version or NA) for name, version in known.items()), "version")


def _pairs(rows: Iterable[tuple[str, str]], heading: str) -> Table:
    return make_table(rows, text_columns("what", heading))


def _anonymity(content: Submission) -> str:
    if content.is_anonymised:
        return (
            "Names of nodes, pods, hosts and GPUs, addresses and folders were removed. Model, versions, kernel and "
            "CPU are unchanged: read the file before you publish it."
        )
    return "Names of nodes, pods and GPUs are unchanged."


def _whole(value: int | None) -> str:
    return NA if value is None else f"{value:,}"
