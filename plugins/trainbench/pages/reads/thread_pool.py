"""A thread pool of our own for every read of the history.

Airflow uses a common pool of threads, which a history that does not answer would block, and Airflow with it. With a
pool of our own only our pages wait.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi.routing import APIRoute

MAX_THREADS = 8
T = TypeVar("T")


def in_our_threads(call: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """The endpoint or dependency as a coroutine with its name and parameters, run in our threads."""

    async def waited(*args: Any, **kwargs: Any) -> T:
        return await to_thread.run_sync(partial(call, *args, **kwargs), limiter=_limiter())

    waited.__name__, waited.__doc__ = call.__name__, call.__doc__
    waited.__signature__ = inspect.signature(call, eval_str=True)  # type: ignore[attr-defined]
    return waited


class OwnRoute(APIRoute):
    """`APIRouter(route_class=OwnRoute)`: its endpoints run in our threads."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        is_ready = inspect.iscoroutinefunction(endpoint)  # FastAPI makes each route twice
        super().__init__(path, endpoint if is_ready else in_our_threads(endpoint), **more)


@cache
def _limiter() -> CapacityLimiter:
    return CapacityLimiter(MAX_THREADS)
