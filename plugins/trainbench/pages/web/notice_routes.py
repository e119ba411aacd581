"""The pages of notices and of accepted baselines, and what changes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import JSONResponse, Response

from trainbench.core.baselines import Baseline
from trainbench.core.states import FRESH
from trainbench.core.user_error import MAX_REASON, EntryError, UnknownEntryError
from trainbench.history.history import History
from trainbench.history.notices import Acknowledgement, Notice
from trainbench.pages.reads.access import Reader, own_page
from trainbench.pages.reads.filters import Filters
from trainbench.pages.reads.node_trends import node_page
from trainbench.pages.reads.notices import notice_by_id
from trainbench.pages.reads.queries import EVERYTHING, Pages, sees, suites_of
from trainbench.pages.reads.thread_pool import OwnRoute
from trainbench.pages.render import charts
from trainbench.pages.render.page import HEADERS, respond
from trainbench.pages.web.asked import Asked
from trainbench.pages.web.banners import CACHE

router = APIRouter(route_class=OwnRoute)
RIGHT_DAYS = 90  # DAGs that judged the node within this time decide the right to change
TREND_DAYS = 90
Change = Callable[[History, str, datetime], Baseline | Acknowledgement]


async def body(request: Request, _: None = Depends(own_page)) -> Any:
    """The request's body, read only after the headers were checked."""
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError):
        raise HTTPException(422, 'the body is not JSON: send {"reason": "..."}') from None


@router.post("/baselines")
def accept_for_all(sent: Any = Depends(body), asked: Asked = Depends()) -> Response:
    return _accepted(asked, None, sent)


@router.post("/nodes/{node}/baseline")
def accept_for_node(node: str, sent: Any = Depends(body), asked: Asked = Depends()) -> Response:
    return _accepted(asked, node, sent)


@router.post("/baselines/{baseline_id}/revoke")
def revoke(baseline_id: int, _: Any = Depends(body), asked: Asked = Depends()) -> Response:
    known = {each.id: each for each in History(asked.pages.engine).baselines()}
    if baseline_id not in known:
        raise HTTPException(404, "There is no such baseline: open the node's page again.")
    return _changed(asked, known[baseline_id].node, lambda history, *by: history.revoke_baseline(baseline_id, *by))


def may_change(pages: Pages, who: Reader, node: str | None) -> bool:
    """Whether the reader may edit the runs of every DAG that recently judged the node, since each uses its past."""
    suites = pages.read(suites_of, EVERYTHING, node, datetime.now(UTC) - timedelta(days=RIGHT_DAYS))
    return bool(suites) and all(who.may_acknowledge(suite) for suite in suites)


def _accepted(asked: Asked, node: str | None, sent: Any) -> Response:
    return _changed(asked, node, lambda history, who, at: history.accept_baseline(node, who, reason_in(sent), at))


def _changed(asked: Asked, node: str | None, change: Change) -> Response:
    """The baseline of the node, or of all, as this person has changed it."""
    if not asked.pages.read(sees, EVERYTHING, node):
        raise HTTPException(404, "Nothing is known of this node: open the Benchmarks page again.")
    if not may_change(asked.pages, asked.who, node):
        right = "it needs the right to edit runs of every DAG that judges it"
        raise HTTPException(403, f"You may not change the baseline of {node or 'the fleet'}: {right}.")
    return _done(asked, change)


def _done(asked: Asked, change: Change) -> Response:
    """What the change made, by this person and now."""
    try:
        made = change(History(asked.pages.engine), asked.who.user.get_name(), asked.now)
    except EntryError as error:
        raise HTTPException(404 if isinstance(error, UnknownEntryError) else 422, str(error)) from None
    CACHE.forget()
    return JSONResponse(made.model_dump(mode="json"), headers=HEADERS)


@router.get("/notices/{notice_id}")
def notice(notice_id: int, asked: Asked = Depends()) -> Response:
    stored = _notice(asked, notice_id)
    filters = Filters(since=asked.now.date() - timedelta(days=TREND_DAYS))
    node = asked.pages.read(node_page, filters, stored.node, asked.now, FRESH) if stored.node else None
    series = [each for each in node.series if each[-1].group_id == stored.group_id] if node else []
    return respond(
        asked.request,
        "notice.html.j2",
        notice=stored,
        may_acknowledge=asked.who.may_acknowledge(stored.dag_id),
        max_reason=MAX_REASON,
        figure=charts.node_chart(series[0], node.events) if node and series else None,
        limits=charts.limits_of_last(series),
    )


@router.post("/notices/{notice_id}/acknowledge")
def acknowledge(notice_id: int, sent: Any = Depends(body), asked: Asked = Depends()) -> Response:
    stored = _notice(asked, notice_id)
    if not asked.who.may_acknowledge(stored.dag_id):
        raise HTTPException(
            403,
            f"You may read this notice, but not acknowledge it: {stored.dag_id} is a DAG whose runs you may not edit.",
        )
    return _done(asked, lambda history, who, at: history.acknowledge(notice_id, who, reason_in(sent), at))


def reason_in(sent: Any) -> str:
    """The reason in the JSON that was sent. Raises HTTPException."""
    reason = sent.get("reason") if isinstance(sent, dict) else None
    if not isinstance(reason, str):
        raise HTTPException(422, 'the reason is missing: send {"reason": "..."}')
    return reason


def _notice(asked: Asked, notice_id: int) -> Notice:
    stored = asked.pages.read(notice_by_id, EVERYTHING, notice_id)
    if stored is None:
        raise HTTPException(404, "There is no such notice: open the Benchmarks page again.")
    return stored
