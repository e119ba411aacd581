"""Our pages as an application that Airflow's API server mounts at `/trainbench`.

Imported in the API server only. Airflow does not protect plugin applications, so the application checks the permission
to see plugins, and each route that for the DAGs that it shows.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import requires_access_view
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException as StarletteHTTPException

from trainbench.history.database import HistoryError
from trainbench.pages.render.page import HEADERS, STATIC, respond
from trainbench.pages.web import fleet_routes, notice_routes, run_routes
from trainbench.results.store_files import StoreError
from trainbench.settings.environment import SettingsError

log = logging.getLogger(__name__)
TITLES = {
    401: "You are not logged in",
    403: "You may not see this page",
    404: "Page not found",
    409: "No longer possible",
    413: "Too large",
    422: "Invalid address",
    503: "The benchmarks' history or results cannot be read",
}
SENTENCES = {
    401: "Log in to Airflow to see this page.",
    403: "Your Airflow account lacks the permission for it. Ask an administrator of Airflow.",
    404: "The address may be of an older run whose files have expired, or mistyped.",
}
PLAIN_DETAILS = {"Not Found", "Forbidden", "Not authenticated", "Unauthorized", "Invalid JWT token", ""}


def build_app() -> FastAPI:
    app = FastAPI(
        title="trainbench",
        dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    for routes in (fleet_routes, notice_routes, run_routes):
        app.include_router(routes.router)
    app.mount("/static", StaticFiles(directory=STATIC))  # for everybody: the page that asks for a login needs them too
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    for kind in (HistoryError, StoreError, SettingsError):
        app.add_exception_handler(kind, _away)
    return app


def _refused(request: Request, error: Any) -> Response:
    detail = error.detail if isinstance(error.detail, str) and error.detail not in PLAIN_DETAILS else None
    return _problem(request, error.status_code, detail or SENTENCES.get(error.status_code, "The request was refused."))


def _invalid(request: Request, error: Any) -> Response:
    problem = error.errors()[0]
    where, message = ".".join(str(part) for part in problem["loc"][1:]), problem["msg"]
    return _problem(request, 422, f"{where}: {message[:1].lower()}{message[1:]}.")


def _away(request: Request, error: Any) -> Response:
    log.error("trainbench: %s", error, exc_info=error.__cause__)
    return _problem(request, 503, f"{error}. Airflow itself is not affected.")


def _problem(request: Request, status: int, text: str) -> Response:
    """The error as a page; as JSON for requests of our own script, which shows the sentence."""
    if request.method != "GET":
        return JSONResponse({"detail": text}, status, headers=HEADERS)
    title = TITLES.get(status, "The request failed")
    return respond(request, "message.html.j2", None, status, title=title, texts=(text,), needs_login=status == 401)
