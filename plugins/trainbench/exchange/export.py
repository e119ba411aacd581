"""One result as files for publication, and the import of such a document.

    format, format_version    "trainbench-submission", 1
    exported_at               UTC
    is_anonymised             whether names of nodes, pods, hosts and GPUs, addresses and folders were removed
    summary                   GPU and its memory, model and size, recipe, batch, sequence, versions; the figures under
                              their names in docs/figures.md; null: `result.missing` says why
    repeat_with               the commands that measure the same again; the spec is `result.spec`
    result                    the whole RunResult (bench_image/contract/schemas), the source of the summary

A document from outside is data: its size is bounded, each field is checked, and no path or command in it is used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import AwareDatetime, Field, ValidationError

from bench_image.contract.frozen import ContractError, Frozen, fields_of
from bench_image.contract.model_shapes import EncoderDecoderShape
from bench_image.contract.parse import explain, strict_json
from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import Cost
from bench_image.contract.seq2seq_file import BeyondResult, bench_document, bench_name
from bench_image.contract.work import Device, DiskData
from trainbench.core.formats import NA, figure, listing, moment
from trainbench.core.markdown import bullets, escape, table
from trainbench.core.tables import Table, make_table, text_columns
from trainbench.core.user_error import UserError
from trainbench.exchange.result_files import BenchFileError
from trainbench.figure_catalogue.run_figures import PERFORMANCE, PROBES, TELEMETRY, of_section
from trainbench.planning.work import identifier
from trainbench.results.artefacts import Store
from trainbench.results.campaign import IMPORTED
from trainbench.results.collect import parse_payload
from trainbench.results.readings import gpu_name
from trainbench.results.store_files import StoreError, is_file, is_folder, read_bounded, read_results

CAMPAIGN, HOST = "published", "left-out"
LEFT_OUT = "left out when the result was exported"
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b", re.IGNORECASE)
_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-f-]{8,}\b", re.IGNORECASE)


def anonymised(result: RunResult) -> RunResult:
    """The result with numbered nodes, without pod, host, UUIDs, registry and folders, in fields and in texts."""
    spec, own, context = result.spec, result.spec.identity, result.context
    names = {name: f"node-{number}" for number, name in enumerate((own.node, *own.peers), 1)}
    node, missing = names[own.node], dict(result.missing)
    identity = {
        "campaign_id": CAMPAIGN,
        "node": node,
        "peers": tuple(names[peer] for peer in own.peers),
        "run_id": f"{own.group_id}-{node}-r{own.round}"[:200],
    }
    others: list[str | None] = [own.campaign_id]  # names that texts may contain, beside those of the nodes
    work: dict[str, Any] = {}
    if isinstance(spec.work.data, DiskData):
        others.append(spec.work.data.folder)
        work["data"] = spec.work.data.model_copy(update={"folder": _folder(spec.work.data.folder)})
    if spec.work.weights.startswith("/"):
        others.append(spec.work.weights)
        work["weights"] = _folder(spec.work.weights)
    if context:
        others += [context.pod, context.hostname, context.node, *(gpu.uuid for gpu in context.gpus)]
        missing |= dict.fromkeys(("context.pod", "context.gpus.*.uuid"), LEFT_OUT)
        plain = {
            "node": node,
            "pod": None,
            "hostname": HOST,
            "image": context.image and context.image.rpartition("/")[2],  # the registry's address identifies its owner
            "gpus": tuple(gpu.model_copy(update={"uuid": None}) for gpu in context.gpus),
        }
        context = context.model_copy(update=plain)
    missing |= dict.fromkeys(("telemetry.gpus.*.uuid", "ranks.*.gpu_uuid"), LEFT_OUT)
    gpus = tuple(gpu.model_copy(update={"uuid": None}) for gpu in result.telemetry.gpus)
    secrets = {**dict.fromkeys(filter(None, others), HOST), **names}
    # The texts that a program or a library wrote: error, reasons, execution.
    error, chosen = result.error, result.chosen
    if error:
        error = error.model_copy(update={"message": _plain(error.message, secrets)[:4000]})
    if chosen:
        execution = {name: _plain(value, secrets) for name, value in chosen.execution.items()}
        chosen = chosen.model_copy(update={"why": _plain(chosen.why, secrets), "execution": execution})
    return result.model_copy(
        update={
            "spec": spec.changed(identity=identity, work=work),
            "chosen": chosen,
            "error": error,
            "context": context,
            "telemetry": result.telemetry.model_copy(update={"gpus": gpus}),
            "ranks": tuple(rank.model_copy(update={"gpu_uuid": None}) for rank in result.ranks),
            "missing": {path: _plain(why, secrets) for path, why in missing.items()},
        }
    )


def _folder(path: str) -> str:
    """The last part of a path, so that results of different weights stay different."""
    return f"/{HOST}/{PurePosixPath(path).name}"


def _plain(text: str, secrets: Mapping[str, str]) -> str:
    """`text` with each secret word replaced, the longest first, since a pod's name contains its node's."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", secrets[secret], text)
    return _UUID.sub(HOST, _ADDRESS.sub("x.x.x.x", text))


FORMAT, FORMAT_VERSION = "trainbench-submission", 1
PUBLISHED = (*of_section(PERFORMANCE), *of_section(PROBES), *of_section(TELEMETRY))
NOTHING = "nothing"
MAX_SUBMISSION_BYTES = MAX_RESULT_BYTES + 1_000_000
ANONYMOUS = (
    "Names of nodes, pods, hosts and GPUs, addresses and folders were removed. Model, versions, kernel and CPU are "
    "unchanged: read the file before you publish it."
)
REPEAT = (
    "python -c \"import json; print(json.dumps(json.load(open('SUBMISSION.json'))['result']['spec']))\" > spec.json",
    "python -m bench_image --spec spec.json --output out",
)


class SubmissionError(UserError, ValueError):
    """The document cannot be made or read; the message has the cause and the remedy."""


class Submission(Frozen):
    format: Literal["trainbench-submission"] = "trainbench-submission"
    format_version: Literal[1] = 1
    exported_at: AwareDatetime
    is_anonymised: bool
    summary: dict[str, Any]
    repeat_with: tuple[str, ...] = Field(REPEAT, max_length=10)
    result: RunResult


def submission(result: RunResult, exported_at: datetime, with_names: bool = False) -> Submission:
    """The document of a result. Raises SubmissionError for a run without figures and for a drill."""
    run_id = result.spec.identity.run_id
    if result.status is not Status.OK:
        raise SubmissionError(f"run {run_id} ended as {result.status.value}: there is nothing to publish")
    if result.spec.drill:
        raise SubmissionError(f"run {run_id} is a drill: it was slowed on purpose, choose another run")
    priced = without_price(result)
    shown = priced if with_names else anonymised(priced)
    return Submission(exported_at=exported_at, is_anonymised=not with_names, summary=summarise(shown), result=shown)


def without_price(result: RunResult) -> RunResult:
    """The result without its price, which is confidential and applies to its owner only."""
    cost = Cost(**dict.fromkeys(fields_of(Cost)))
    missing = {path: why for path, why in result.missing.items() if path.split(".")[0] != "cost"}
    return result.model_copy(update={"cost": cost, "missing": missing | {"cost": "a price is the reader's own"}})


def parse_submission(content: bytes) -> Submission:
    """Parse a submission. Raises only SubmissionError, for any content."""
    if len(content) > MAX_SUBMISSION_BYTES:
        raise SubmissionError(f"larger than the {MAX_SUBMISSION_BYTES:,} bytes allowed")
    try:
        document = strict_json(content)
    except (ValueError, RecursionError) as error:
        raise SubmissionError(f"no JSON (truncated?): {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise SubmissionError(f"no submission: its 'format' is not {FORMAT}; trainbench export writes one")
    if document.get("format_version") != FORMAT_VERSION:
        version = f"{document.get('format_version')!r:.40}"
        raise SubmissionError(f"format_version is {version}; this version reads {FORMAT_VERSION}")
    try:
        result = parse_payload(document.get("result"))
        submission = Submission.model_validate_json(json.dumps(document | {"result": result.model_dump(mode="json")}))
    except ContractError as error:
        raise SubmissionError(str(error)) from None
    except (ValidationError, RecursionError) as error:
        reason = explain(error) if isinstance(error, ValidationError) else "nested too deeply"
        raise SubmissionError(f"breaks the format: {reason}") from None
    if submission.result.status is not Status.OK:
        raise SubmissionError(f"its run ended as {submission.result.status.value}: there is nothing to compare")
    stated, computed = submission.summary, summarise(submission.result)
    for name in ("gpu", *stated):  # an earlier version stated fewer
        says, result_says = stated.get(name, NOTHING), computed.get(name, NOTHING)
        if says != result_says:
            raise SubmissionError(
                f"its summary is not that of its result: {name} is {says!r:.60}, its result says {result_says!r:.60}"
            )
    return submission


def imported_result(content: Submission) -> RunResult:
    """The result in a campaign of its own, whose id depends on the document alone."""
    result = content.result
    text = result.model_dump_json(exclude={"spec": {"identity": {"campaign_id"}}})
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    work = result.spec.work
    name = f"{IMPORTED}{gpu_name(result) or work.device.value}-{work.model}-{work.recipe}"
    campaign_id = f"{identifier(name, 100)}-{digest}"
    return result.model_copy(update={"spec": result.spec.changed(identity={"campaign_id": campaign_id})})


def file_name(content: Submission) -> str:
    """File name without extension: "nvidia-h200-x1-mistral-7b-qlora-8x512-2026-11-21"."""
    summary = content.summary
    work = f"{summary['model']}-{summary['recipe']}-{summary['micro_batch_size']}x{summary['seq_length']}"
    where = f"{summary['gpu'] or 'cpu'}-x{summary['num_gpus']}"
    return identifier(f"{where}-{work}-{content.result.started_at:%Y-%m-%d}", 120)


def summarise(result: RunResult) -> dict[str, Any]:
    """The run's setup, then each of its figures under its name in docs/figures.md, without start-up and prices."""
    spec, context = result.effective_spec, result.context
    sizes = [gpu.memory_total_bytes for gpu in context.gpus if gpu.memory_total_bytes] if context else []
    return {
        "gpu": gpu_name(result),
        "gpu_memory_gb": min(sizes) / 1e9 if sizes else None,
        "num_gpus": 0 if spec.work.device is Device.CPU else spec.placement.world_size,
        "num_nodes": spec.placement.nodes,
        "model": spec.work.model,
        "total_parameters": result.parameters.total,
        "trainable_parameters": result.parameters.trainable,
        "recipe": spec.work.recipe.value,
        "strategy": spec.placement.strategy.value,
        "preset": spec.work.preset.value,
        "precision": spec.work.precision.value,
        "optimizer": spec.work.optimizer.value,
        "micro_batch_size": spec.work.samples_per_micro_step,
        "gradient_accumulation_steps": spec.work.gradient_accumulation_steps,
        "global_batch_size": spec.samples_per_step,
        "seq_length": spec.work.seq_length,
        "gradient_checkpointing": spec.work.gradient_checkpointing is True,
        **{each.name: each.value(result) for each in PUBLISHED},
        "memory_kind": result.memory.kind,
        "driver": context.driver if context else None,
        "cuda": context.cuda if context else None,
        "python": context.python if context else None,
        "libraries": dict(context.libraries) if context else {},
        "measured_at": result.started_at.isoformat(),
    }


def markdown(content: Submission, json_name: str) -> str:
    """The Markdown text. `json_name`: the document's file, beside this one."""
    summary = content.summary
    hardware = f"{summary['num_gpus']} x {summary['gpu'] or 'GPU unknown'}" if summary["num_gpus"] else "the CPU"
    title = f"{summary['model']} {summary['recipe']} on {hardware}"
    commands = "\n".join(content.repeat_with)
    unknown = [f"{path}: {why}" for path, why in content.result.missing.items()]
    known = ((each, each.value(content.result)) for each in PUBLISHED)
    figures = ((each.label, each.write(value)) for each, value in known if value is not None)  # others follow, with why
    versions = {
        "driver": summary["driver"],
        "CUDA": summary["cuda"],
        "Python": summary["python"],
        **summary["libraries"],
    }
    software = {name: version or NA for name, version in versions.items()}
    parts = [
        f"# {escape(title)}",
        f"**{figure(summary['samples_per_second'])} samples/s, {figure(summary['tokens_per_second'])} tokens/s**, "
        f"measured {moment(content.result.started_at)}.",
        table(_settings(content)),
        f"## Figures\n\n{table(_pairs(figures, 'figure'))}",
        f"## Software\n\n{table(_pairs(software.items(), 'version'))}",
        f"## Measure it again\n\n```console\n{commands}\n```\n\n"
        f"SUBMISSION.json is [{escape(json_name)}]({json_name}): it holds the whole result, with each step's time.",
        f"## Missing figures\n\n{bullets(unknown or ['Nothing.'])}",
        escape(ANONYMOUS if content.is_anonymised else "Names of nodes, pods and GPUs are unchanged."),
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


def _pairs(rows: Iterable[tuple[str, str]], heading: str) -> Table:
    return make_table(rows, text_columns("what", heading))


def _whole(value: int | None) -> str:
    return NA if value is None else f"{value:,}"


MAX_NAMED = 8
NOT_IN_A_RESULT = "a result sums the losses and the loader's waits of all epochs up"


def choose_result(source: str, run_id: str | None, store: Store) -> RunResult:
    """The one result of `source`, or that of `run_id`. Raises StoreError and SubmissionError."""
    results = _results(source, store)
    wanted = [result for result in results if run_id in (None, result.spec.identity.run_id)]
    if len(wanted) == 1:
        return wanted[0]
    known = listing((result.spec.identity.run_id for result in results), most=MAX_NAMED)
    if not wanted:
        raise SubmissionError(f"'{source}' has no run '{run_id}': choose from {known}")
    if run_id:
        raise SubmissionError(f"'{source}' has {len(wanted)} results of run '{run_id}': name one result.json file")
    raise SubmissionError(f"'{source}' has {len(wanted)} results: choose one by --run, of {known}")


def export_files(result: RunResult, at: datetime, *, with_names: bool, as_bench_file: bool) -> dict[str, str]:
    """File name -> content. Raises SubmissionError and BenchFileError."""
    if as_bench_file:
        return {f"{bench_name(result)}.json": _json(bench_file_content(result if with_names else anonymised(result)))}
    content = submission(result, at, with_names)
    name = file_name(content)
    return {
        f"{name}.json": _json(content.model_dump(mode="json")),
        f"{name}.md": markdown(content, f"{name}.json"),
    }


def bench_file_content(result: RunResult) -> dict[str, Any]:
    """A run of the encoder-decoder model in the format of its own program, each window as an epoch. Figures that the
    result lacks are null, with the reason in `not_known`. Raises BenchFileError for another model's run.
    """
    spec, windows = result.effective_spec, result.performance.windows
    if not isinstance(spec.work.shape, EncoderDecoderShape):
        raise BenchFileError(
            f"run {spec.identity.run_id} is of {spec.work.model}: the bench_ format is the encoder-decoder's own"
        )
    if result.status is not Status.OK or result.context is None:
        raise BenchFileError(
            f"run {spec.identity.run_id} ended as {result.status.value}: only runs that ended ok have a file"
        )
    beyond = BeyondResult(
        num_samples=None if spec.work.data == "memory" else spec.work.data.num_samples,
        warmup_epochs=None,
        mean_losses=[None] * len(windows),
        loader_waits_s=[None] * len(windows),
        notes=("written from a result: an epoch is one of its measured windows",),
    )
    not_known = {"epochs.mean_loss": NOT_IN_A_RESULT, "epochs.loader_wait_s": NOT_IN_A_RESULT}
    return bench_document(result, beyond, f"runs/{spec.identity.run_id}/result.json") | {"not_known": not_known}


def _results(source: str, store: Store) -> tuple[RunResult, ...]:
    from upath import UPath

    path = UPath(Path(source).absolute())
    if is_file(source):
        try:
            return (parse_payload(read_bounded(path, MAX_RESULT_BYTES)),)
        except ContractError as error:
            raise StoreError(f"{source}: {error}") from None
    if is_folder(source):
        stored = read_results(path)
    elif source in store.campaign_ids():
        stored = store.read_results(source)
    else:
        raise StoreError(f"'{source}' is neither a file, nor a folder, nor a campaign of the store {store.root}")
    return stored.readable(source)


def _json(document: object) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
