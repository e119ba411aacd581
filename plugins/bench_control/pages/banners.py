"""A banner on Airflow's home page for each open breach. Runs in the API server only."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from bench_control.artefacts import StoreError, open_store
from bench_control.history import Breach, open_history
from bench_control.history_database import HistoryError
from bench_control.limits import NAMES, UNITS
from bench_control.settings import read_settings

log = logging.getLogger(__name__)
MAX_BANNERS = 3
Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Any, Any], Awaitable[None]]


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
