"""One result as a JSON document for publication, and the import of such a document.

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
from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, Field, ValidationError

from bench_image.contract.frozen import ContractError, Frozen, fields_of
from bench_image.contract.parse import explain, strict_json
from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result import RunResult, Status
from bench_image.contract.result_sections import Cost
from bench_image.contract.work import Device
from trainbench.core.user_error import UserError
from trainbench.exchange.anonymise import anonymised
from trainbench.figure_catalogue.run_figures import PERFORMANCE, PROBES, TELEMETRY, of_section
from trainbench.planning.work import identifier
from trainbench.results.campaign import IMPORTED
from trainbench.results.collect import parse_payload
from trainbench.results.readings import gpu_name

FORMAT, FORMAT_VERSION = "trainbench-submission", 1
PUBLISHED = (*of_section(PERFORMANCE), *of_section(PROBES), *of_section(TELEMETRY))
NOTHING = "nothing"
MAX_SUBMISSION_BYTES = MAX_RESULT_BYTES + 1_000_000
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
    if difference := _first_difference(submission):
        raise SubmissionError(f"its summary is not that of its result: {difference}")
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


def _first_difference(submission: Submission) -> str | None:
    """A figure that the summary states otherwise than its result. An earlier version stated fewer."""
    stated, computed = submission.summary, summarise(submission.result)
    for name in ("gpu", *stated):
        if stated.get(name, NOTHING) != computed.get(name, NOTHING):
            return f"{name} is {stated.get(name, NOTHING)!r:.60}, its result says {computed.get(name, NOTHING)!r:.60}"
    return None
