"""What a request asks of our pages, and the two kinds of answers: a page with its filters, or a table of it as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, HTTPException, Query, Request
from fastapi.responses import Response, StreamingResponse
from sqlalchemy import Connection

from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import parse_result
from bench_image.contract.result import RunResult
from trainbench.core.states import NodeState
from trainbench.core.tables import Table, csv_text
from trainbench.pages.reads.access import Reader, reader
from trainbench.pages.reads.filters import Filters, Name, Scope, StateOrFailed
from trainbench.pages.reads.queries import EVERYTHING, Pages, choices, open_engine
from trainbench.pages.reads.rows import Choices
from trainbench.pages.render.links import Links, links
from trainbench.pages.render.page import HEADERS, respond
from trainbench.results.artefacts import Store, open_store
from trainbench.results.campaign import IMPORTED_SUITE
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import read_settings

P = ParamSpec("P")
T = TypeVar("T")
Format = Literal["html", "csv"]
DAYS = (7, 30, 90, 180)
DEFAULT_DAYS = 30
MAX_PAGE = 1_000_000
CSV_IN_MEMORY = 4_000_000  # bytes of a table; a larger one is put on disk
CSV_PIECE = 100_000
NO_DAG = (
    "You may read none of the benchmarks' DAGs. Ask an administrator of Airflow for read access to the DAGs with the "
    "tag trainbench, such as node_consistency."
)


class Asked:
    """A request for a page, as a dependency of its route: who asks, and the filters, page number, table and format,
    which are the same in every address. `query`: the filters that differ from the defaults, for links to all pages;
    `search`: those of the list on this page only.
    """

    def __init__(
        self,
        request: Request,
        gpu: Name = None,
        model: Name = None,
        recipe: Name = None,
        strategy: Name = None,
        of_node: Annotated[Name, Query(alias="node")] = None,  # some paths have names of their own for these three
        of_campaign: Annotated[Name, Query(alias="campaign")] = None,
        of_state: Annotated[StateOrFailed, Query(alias="state")] = None,
        days: int = DEFAULT_DAYS,
        page: int = Query(1, ge=1, le=MAX_PAGE),
        output: Format = Query("html", alias="format"),
        table: str | None = None,
        who: Reader = Depends(reader),
    ) -> None:
        if days not in DAYS:
            raise HTTPException(422, f"days is {days}: choose {', '.join(map(str, DAYS[:-1]))} or {DAYS[-1]}")
        self.request, self.days, self.page, self.table, self.who = request, days, page, table, who
        self.is_csv = output == "csv"
        self.now = datetime.now(UTC)
        since = self.now.date() - timedelta(days=days - 1)
        names = {"gpu_name": gpu, "model": model, "recipe": recipe, "strategy": strategy}
        self.filters = Filters(**names, node=of_node, campaign=of_campaign, state=of_state, since=since)
        self.query = {name.removesuffix("_name"): value for name, value in names.items() if value}
        searched = {"node": of_node, "campaign": of_campaign, "state": of_state}
        self.search = {name: str(value) for name, value in searched.items() if value}
        self.is_narrowed = bool(self.query or self.search)
        if days != DEFAULT_DAYS:
            self.query["days"] = str(days)

    @cached_property
    def unchecked_pages(self) -> Pages:
        """The reads that this person may make. Raises HistoryError where the database cannot be opened."""
        return Pages(open_engine(read_settings().history_url, the_store()), self.who.dag_ids)

    @cached_property
    def pages(self) -> Pages:
        """The same for a person who may see at least one of our DAGs; others get 403, not an empty page."""
        if not self.who.sees_ours and not self.unchecked_pages.read(choices, EVERYTHING).dag_ids:
            raise HTTPException(403, NO_DAG)
        return self.unchecked_pages

    @property
    def links(self) -> Links:
        return links(self.request.scope, self.query)

    def shows(self, node: NodeState) -> bool:
        """Whether the filter of states takes the node as it is now."""
        return self.filters.state in (None, node.state, node.why.value)

    def to(self, **changes: object) -> str:
        """The address of the same page with other parameters; None removes one."""
        query = {**self.query, **self.search, **changes}
        return "?" + urlencode({name: str(value) for name, value in query.items() if value is not None})

    def read(self, read: Callable[Concatenate[Connection, Scope, P], T], *args: P.args, **more: P.kwargs) -> T:
        """With the filters of this page."""
        return self.pages.read(read, self.filters, *args, **more)

    def answer(self, template: str, known: Choices | None = None, **values: Any) -> Response:
        """The page with the form of filters at its top. `known`: its choices, where they were read."""
        known = known or self.read(choices)
        is_empty = not set(known.dag_ids) - {IMPORTED_SUITE}
        about: dict[str, Any] = {"form": self, "choices": known, "days": DAYS, "is_empty": is_empty}
        return respond(self.request, template, self.query, **about, **values)


def csv_of(name: str | None, tables: Sequence[Table]) -> Response:
    """The table of this name as CSV, by default the first. Raises HTTPException 404 with the known names."""
    by_name = {each.name: each for each in tables}
    name = name or next(iter(by_name))
    if name not in by_name:
        raise HTTPException(404, f"There is no such table here: choose {', '.join(by_name)}.")
    return csv_pieces(name, [csv_text(by_name[name])])


def csv_pieces(name: str, pieces: Iterable[str]) -> Response:
    """The table is read to its end before its first byte is sent: a damaged history is 503, never an empty file."""
    whole = SpooledTemporaryFile(CSV_IN_MEMORY)  # noqa: SIM115 - read after this function, closed with the response
    whole.writelines(piece.encode(errors="replace") for piece in pieces)
    whole.seek(0)
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="trainbench-{name}.csv"'}
    return StreamingResponse(
        iter(partial(whole.read, CSV_PIECE), b""), media_type="text/csv; charset=utf-8", headers=headers
    )


def the_store() -> Store:
    return open_store(read_settings().store)


def stored_result(campaign: str, run_id: str) -> RunResult | None:
    """The run's stored result; None where its file has expired or cannot be read."""
    try:
        return parse_result(the_store().read_result_file(campaign, run_id))
    except (StoreError, ContractError):
        return None
