"""Helpers of the routes: a person's reads, a page with its filters, a table as CSV."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import Any, Literal

from fastapi import Depends, HTTPException, Request
from fastapi.responses import Response, StreamingResponse

from bench_image.contract.frozen import ContractError
from bench_image.contract.result import RunResult
from trainbench.core.tables import Table, csv_text
from trainbench.pages.reads.access import Reader, reader
from trainbench.pages.reads.queries import Pages, open_engine
from trainbench.pages.reads.thread_pool import in_our_threads
from trainbench.pages.render.form import DAYS, FilterForm
from trainbench.pages.render.page import HEADERS, respond
from trainbench.results.artefacts import Store, open_store
from trainbench.results.campaign import IMPORTED_SUITE
from trainbench.results.collect import parse_payload
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import read_settings

Format = Literal["html", "csv"]
MAX_PAGE = 1_000_000
CSV_IN_MEMORY = 4_000_000  # bytes of a table; a larger one is put on disk
CSV_PIECE = 100_000
NO_DAG = (
    "You may read none of the benchmarks' DAGs. Ask an administrator of Airflow for read access to the DAGs with the "
    "tag trainbench, such as node_consistency."
)


def the_store() -> Store:
    return open_store(read_settings().store)


def stored_result(campaign: str, run_id: str) -> RunResult | None:
    """The run's stored result; None where its file has expired or cannot be read."""
    try:
        return parse_payload(the_store().read_result_file(campaign, run_id))
    except (StoreError, ContractError):
        return None


def kept_logs(campaign: str, run_id: str) -> tuple[str, ...]:
    """File names of the kept logs of the run's pods; empty where they have expired or cannot be read."""
    try:
        return the_store().log_names(campaign, run_id)
    except StoreError:
        return ()


def pages_of(who: Reader) -> Pages:
    """The reads that this person may make. Raises HistoryError where the database cannot be opened."""
    return Pages(open_engine(read_settings().history_url, the_store()), who.dag_ids)


@in_our_threads
def visible(who: Reader = Depends(reader)) -> Pages:
    """The reads of a person who may see at least one of our DAGs; others get 403, not an empty page."""
    pages = pages_of(who)
    if not who.sees_ours and not pages.choices().dag_ids:
        raise HTTPException(403, NO_DAG)
    return pages


def filtered_page(request: Request, template: str, form: FilterForm, pages: Pages, **values: Any) -> Response:
    """Render a page that has the form of filters at its top."""
    choices = pages.choices()
    return respond(
        request,
        template,
        form.query,
        form=form,
        choices=choices,
        days=DAYS,
        is_empty=not set(choices.dag_ids) - {IMPORTED_SUITE},
        **values,
    )


def csv_of(table: str, tables: Iterable[Table]) -> Response:
    """The table of this name as CSV. Raises HTTPException 404 with the known names."""
    by_name = {each.name: each for each in tables}
    if table not in by_name:
        raise HTTPException(404, f"There is no such table here: choose {', '.join(by_name) or 'another page'}.")
    return csv_pieces(table, [csv_text(by_name[table])])


def csv_pieces(name: str, pieces: Iterable[str]) -> Response:
    """The table is read to its end before its first byte is sent: a damaged history is 503, never an empty file."""
    whole = SpooledTemporaryFile(CSV_IN_MEMORY)  # noqa: SIM115 - read after this function, closed with the response
    whole.writelines(piece.encode(errors="replace") for piece in pieces)
    whole.seek(0)
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="trainbench-{name}.csv"'}
    return StreamingResponse(
        iter(partial(whole.read, CSV_PIECE), b""), media_type="text/csv; charset=utf-8", headers=headers
    )
