"""Banners on Airflow's home page: open notices of the DAGs that the reader may see.

A middleware adds them to Airflow's own answer on its home page's alerts. If anything fails here, Airflow's answer goes
out unchanged. Imported in the API server only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from anyio import CapacityLimiter, to_thread
from sqlalchemy import Connection

from trainbench.alerting.links import benchmarks_page, notice_page, report_tab
from trainbench.alerting.notice_text import entries, what
from trainbench.core.formats import one_line, sentence
from trainbench.core.markdown import escape
from trainbench.core.verdicts import Level, State
from trainbench.history.notices import Notice, notice_of, select_notices
from trainbench.history.tables import acknowledgements, notices
from trainbench.pages.reads.queries import open_engine
from trainbench.results.artefacts import open_store
from trainbench.settings.environment import read_settings

MAX_ROWS = 500
LOOK_DAYS = 3  # a weekend; older ones that are not red stay on the pages only


def open_banners(connection: Connection, now: datetime) -> tuple[Notice, ...]:
    """Open notices of all DAGs that nobody acknowledged: red ones, then new others, one for each finding; the newest
    first.
    """
    is_red = notices.c.state == State.RED.value
    is_shown = is_red | (notices.c.opened_at >= now - timedelta(days=LOOK_DAYS))
    nobody_saw = notices.c.closed_at.is_(None) & acknowledgements.c.notice_id.is_(None)
    order = (is_red.desc(), notices.c.opened_at.desc(), notices.c.id.desc())
    query = select_notices().where(nobody_saw, is_shown).order_by(*order).limit(MAX_ROWS)
    return tuple(alike[0] for alike in entries([notice_of(row) for row in connection.execute(query)]))


log = logging.getLogger(__name__)
KEEP_S = 3.0  # seconds until the next read
KEEP_FAILURE_S = 15.0
STALE_S = 120.0  # older banners are not shown while the database does not answer
WAIT_S = 0.25  # longest wait for a read


class BannerCache:
    """One read at a time, in a thread that Airflow's pages do not share. Used from the event loop alone."""

    def __init__(
        self,
        read: Callable[[], tuple[Notice, ...]],
        wait_s: float = WAIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._wait_s, self._clock = read, wait_s, clock
        self._known: tuple[Notice, ...] = ()
        self._read_at = self._until = -STALE_S
        self._reading: asyncio.Future[None] | None = None

    async def get(self) -> tuple[Notice, ...]:
        """The banners. Never raises. Waits at most WAIT_S for a read that it began itself, and not for an older one."""
        if self._clock() >= self._until and (self._reading is None or self._reading.done()):
            refreshed = to_thread.run_sync(self._refresh, abandon_on_cancel=True, limiter=CapacityLimiter(1))
            self._reading = asyncio.ensure_future(refreshed)
            await asyncio.wait([self._reading], timeout=self._wait_s)
        return self._known if self._clock() - self._read_at < STALE_S else ()

    def forget(self) -> None:
        """Drop the cached read after a change."""
        self._until = -STALE_S

    def _refresh(self) -> None:
        began_at, keep_s = self._clock(), KEEP_S
        try:
            self._known, self._read_at = self._read(), began_at
        except Exception:
            # Airflow's home page must load without our database; the log has the reason for missing banners.
            log.exception("trainbench: the open notices cannot be read")
            keep_s = KEEP_FAILURE_S
        self._until = self._clock() + keep_s


MAX_BANNERS = 3
MAX_CAUSE = 160  # characters
PATH, FIELD = "/ui/config", "dashboard_alert"
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Asgi = Callable[[Scope, Any, Any], Awaitable[None]]
Banner = dict[str, str]


def read() -> tuple[Notice, ...]:
    settings = read_settings()
    engine = open_engine(settings.history_url, open_store(settings.store))
    with engine.begin() as connection:
        return open_banners(connection, datetime.now(UTC))


CACHE = BannerCache(read)


class BreachBanners:
    def __init__(self, app: Asgi) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].endswith(PATH):
            await self.app(scope, receive, send)
            return
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        await self.app(scope, receive, keep)
        for message in await _with_banners(scope, answer):
            await send(message)


def banners(rows: Sequence[Notice], prefix: str) -> list[Banner]:
    """The banners in Airflow's order: at most MAX_BANNERS, then one that counts the rest. A rest of a single banner is
    shown itself.
    """
    num_shown = MAX_BANNERS if len(rows) > MAX_BANNERS + 1 else len(rows)
    shown = [{"category": row.level.value, "text": text(row, prefix)} for row in rows[:num_shown]]
    rest = rows[num_shown:]
    if rest:
        level = Level.ERROR if any(row.level is Level.ERROR for row in rest) else Level.WARNING
        shown.append(
            {"category": level.value, "text": f"and {len(rest):,} more: [Benchmarks]({benchmarks_page(prefix)})"}
        )
    return shown


def text(notice: Notice, prefix: str) -> str:
    """The banner's Markdown: what is wrong, begin, likely cause, links. Relative links work behind a prefix."""
    links = [
        f"[Notice]({notice_page(notice.id, prefix)})" if notice.node else "",
        f"[Report]({report_tab(notice.dag_id, notice.dag_run_id)})" if notice.dag_run_id else "",
    ]
    cause = notice.finding.cause
    parts = [
        f"**{escape(what(notice))}**, since {notice.opened_at:%d %b %H:%M} UTC.",
        escape(sentence(one_line(cause, MAX_CAUSE))) if cause and notice.is_red else "",
        " · ".join(filter(None, links)),
    ]
    return " ".join(filter(None, parts))


async def _with_banners(scope: Scope, answer: Sequence[Message]) -> Sequence[Message]:
    """Airflow's answer with our banners; unchanged without banners or where its form is unexpected."""
    try:
        start, body = answer[0], b"".join(message.get("body", b"") for message in answer[1:])
        if start["status"] != 200:
            return answer
        config = json.loads(body)
        if not isinstance(config.get(FIELD), list) or not (rows := await _visible(scope)):
            return answer
        ours = banners(rows, scope.get("root_path", ""))
        # The page unfolds the first banner only, so red ones come before banners of others.
        first = [banner for banner in ours if banner["category"] == Level.ERROR.value]
        config[FIELD] = [*first, *config[FIELD], *(banner for banner in ours if banner not in first)]
        new = json.dumps(config, separators=(",", ":"), ensure_ascii=False).encode()
        headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        length = (b"content-length", str(len(new)).encode())
        return [{**start, "headers": [*headers, length]}, {"type": "http.response.body", "body": new}]
    except Exception:
        log.exception("trainbench: the banners cannot be shown")
        return answer


async def _visible(scope: Scope) -> tuple[Notice, ...]:
    """The banners of the DAGs that the reader may see."""
    from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request

    rows = await CACHE.get()
    if not rows:
        return ()
    from trainbench.pages.reads.access import reader

    request = Request(scope)
    user = await get_user(request, None, await bearer_scheme(request))
    who = await run_in_threadpool(reader, user)
    return tuple(row for row in rows if row.dag_id in who.dag_ids)
