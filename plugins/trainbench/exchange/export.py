"""Exports one stored result as files for publication."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from bench_image.contract.frozen import ContractError
from bench_image.contract.model_shapes import EncoderDecoderShape
from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result import RunResult, Status
from bench_image.contract.seq2seq_file import BeyondResult, bench_document, bench_name
from trainbench.core.formats import listing
from trainbench.exchange.anonymise import anonymised
from trainbench.exchange.foreign_files import BenchFileError
from trainbench.exchange.submission import SubmissionError, file_name, submission
from trainbench.exchange.submission_page import markdown
from trainbench.results.artefacts import Store
from trainbench.results.collect import parse_payload
from trainbench.results.store_files import StoreError, is_file, is_folder, read_bounded
from trainbench.results.stored_results import read_results

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
