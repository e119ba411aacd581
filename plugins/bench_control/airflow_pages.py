"""What Airflow's own pages show of us: the report of a run in a tab, and a banner for each open breach.

Imported in the API server only; FastAPI and Airflow's security live inside the functions for that reason.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from bench_control.artefacts import StoreError, open_store
from bench_control.history import Breach, open_history
from bench_control.history_database import HistoryError
from bench_control.limits import NAMES, UNITS
from bench_control.plan import campaign_id
from bench_control.settings import read_settings

log = logging.getLogger(__name__)
MAX_BANNERS = 3
Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Any, Any], Awaitable[None]]

NO_REPORT = """<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<body style="font: 15px/1.5 system-ui; margin: 3rem; max-width: 40rem">
<h1 style="font-size: 1.2rem">No report yet</h1>
<p>This run has not published its report. It appears here when the task <code>publish</code> has ended; until then, the
tasks' logs show the progress.</p>"""


def build_app() -> Any:
    """The report of each DAG run, for users who may read that run. Plugin apps are open unless every route asks."""
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag, requires_access_view
    from fastapi import Depends, FastAPI
    from fastapi.responses import HTMLResponse

    app = FastAPI(
        title="trainbench",
        dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )

    @app.get(
        "/dags/{dag_id}/runs/{run_id}",
        response_class=HTMLResponse,
        dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))],
    )
    def report(dag_id: str, run_id: str) -> HTMLResponse:
        store = open_store(read_settings().store_url)
        try:
            page = store.read_summary(campaign_id(dag_id, run_id), "report.html").decode()
        except StoreError:
            return HTMLResponse(NO_REPORT, status_code=404)
        # The report holds no script; the header keeps it so, whatever a result may have brought.
        policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    return app


class BreachBanners:
    """ASGI middleware: before Airflow answers what its home page should show, our banners are brought up to date."""

    def __init__(self, app: Asgi) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/ui/config"):
            from starlette.concurrency import run_in_threadpool

            await run_in_threadpool(refresh_banners)
        await self.app(scope, receive, send)


def refresh_banners() -> None:
    """Replaces our entries in Airflow's list of alerts and leaves those of others. Never raises."""
    from airflow import settings
    from airflow.api_fastapi.common.types import UIAlert

    class BreachAlert(UIAlert):
        """Marks an entry as ours."""

    try:
        chosen = read_settings()
        breaches = open_history(chosen.history_url, open_store(chosen.store_url)).open_breaches()
    except (HistoryError, StoreError):
        # Airflow's home page must load without our database; the log says why the banners are not there.
        log.exception("trainbench: the open breaches cannot be read")
        breaches = ()
    others = [alert for alert in settings.DASHBOARD_UIALERTS if type(alert).__name__ != BreachAlert.__name__]
    ours = [BreachAlert(category="error", text=banner(breach)) for breach in breaches[:MAX_BANNERS]]
    settings.DASHBOARD_UIALERTS[:] = [*others, *ours]


def banner(breach: Breach) -> str:
    """Markdown, one sentence: which node, how far, since when."""
    drill = "**DRILL** " if breach.is_drill else ""
    what = f"{breach.state.value}"
    if breach.metric is not None and breach.deviation is not None:
        what += f", {NAMES[breach.metric]} {breach.deviation:+.1f}{UNITS[breach.metric]} against its peers"
    return f"{drill}Node `{breach.node}`: {what}, since {breach.opened_at:%d %b %H:%M} UTC (`{breach.campaign_id}`)"
