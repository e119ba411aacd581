"""Our pages as an application of their own that Airflow's API server mounts at `/trainbench`.

Imported in the API server only; FastAPI and Airflow's security live inside the functions for that reason.
"""

from __future__ import annotations

from typing import Any

from bench_control.artefacts import StoreError, open_store
from bench_control.plan import campaign_id
from bench_control.settings import read_settings

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
