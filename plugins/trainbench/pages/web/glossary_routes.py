"""The page that explains states and figures, without data of any run."""

from __future__ import annotations

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from trainbench.pages.render.explanations import glossary_tables
from trainbench.pages.render.page import respond
from trainbench.pages.web.responses import Format, csv_of

router = APIRouter()


@router.get("/glossary")
def glossary(request: Request, output: Format = Query("html", alias="format"), table: str = "states") -> Response:
    if output == "csv":
        return csv_of(table, glossary_tables())
    return respond(request, "glossary.html.j2", tables=glossary_tables())
