"""Routes that accept the present level of a node or the fleet as the new baseline, and revoke it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Depends, HTTPException
from fastapi.responses import JSONResponse, Response

from trainbench.core.baselines import Baseline, BaselineError, UnknownBaselineError
from trainbench.history.history import History
from trainbench.pages.banners.banners import CACHE
from trainbench.pages.reads.access import Reader, reader
from trainbench.pages.reads.queries import Pages
from trainbench.pages.reads.thread_pool import OwnRoute
from trainbench.pages.render.page import HEADERS
from trainbench.pages.web.notice_routes import body, reason_in
from trainbench.pages.web.responses import visible

router = APIRouter(route_class=OwnRoute)
RIGHT_DAYS = 90  # DAGs that judged the node within this time decide the right to change


@router.post("/baselines")
def accept_for_all(
    sent: Any = Depends(body), pages: Pages = Depends(visible), who: Reader = Depends(reader)
) -> Response:
    return _accepted(pages, who, None, sent)


@router.post("/nodes/{node}/baseline")
def accept_for_node(
    node: str, sent: Any = Depends(body), pages: Pages = Depends(visible), who: Reader = Depends(reader)
) -> Response:
    return _accepted(pages, who, node, sent)


@router.post("/baselines/{baseline_id}/revoke")
def revoke(
    baseline_id: int, _: Any = Depends(body), pages: Pages = Depends(visible), who: Reader = Depends(reader)
) -> Response:
    known = {each.id: each for each in pages.baselines()}
    if baseline_id not in known:
        raise HTTPException(404, "There is no such baseline: open the node's page again.")
    _refuse(pages, who, known[baseline_id].node)
    at, name = datetime.now(UTC), who.user.get_name()
    return _answer(lambda: History(pages.engine).revoke_baseline(baseline_id, name, at))


def may_change(pages: Pages, who: Reader, node: str | None) -> bool:
    """Whether the reader may edit the runs of every DAG that recently judged the node, since each uses its past."""
    suites = pages.suites_of(node, datetime.now(UTC) - timedelta(days=RIGHT_DAYS))
    return bool(suites) and all(who.may_acknowledge(suite) for suite in suites)


def _accepted(pages: Pages, who: Reader, node: str | None, sent: Any) -> Response:
    _refuse(pages, who, node)
    reason = reason_in(sent)
    at, name = datetime.now(UTC), who.user.get_name()
    return _answer(lambda: History(pages.engine).accept_baseline(node, name, reason, at))


def _refuse(pages: Pages, who: Reader, node: str | None) -> None:
    if not pages.sees(node):
        raise HTTPException(404, "Nothing is known of this node: open the Benchmarks page again.")
    if not may_change(pages, who, node):
        of = node or "the fleet"
        raise HTTPException(
            403,
            f"You may not change the baseline of {of}: it needs the right to edit runs of every DAG that judges it.",
        )


def _answer(change: Callable[[], Baseline]) -> Response:
    try:
        baseline = change()
    except UnknownBaselineError as error:
        raise HTTPException(404, str(error)) from None
    except BaselineError as error:
        raise HTTPException(422, str(error)) from None
    CACHE.forget()
    return JSONResponse(baseline.model_dump(mode="json"), headers=HEADERS)
