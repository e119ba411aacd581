"""Airflow's home page does not wait for our database: one reading at a time, the rest is served from what is known."""

from __future__ import annotations

import threading

import anyio

from tests.builders.notices import make_notice
from trainbench.history.notices import Notice
from trainbench.pages.web.banners import KEEP_FAILURE_S, KEEP_S, STALE_S, BannerCache

ROWS = (make_notice("node-3"),)
ENOUGH_S = 1200.0


class Database:
    """Answers when `open` is set; counts how often it was asked."""

    def __init__(self) -> None:
        self.open, self.num_asked = threading.Event(), 0
        self.rows: tuple[Notice, ...] = ROWS
        self.error: Exception | None = None
        self.open.set()

    def __call__(self) -> tuple[Notice, ...]:
        self.num_asked += 1
        self.open.wait()
        if self.error:
            raise self.error
        return self.rows


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def get(cache: BannerCache) -> tuple[Notice, ...]:
    return anyio.run(cache.get)


def test_one_reading_serves_everybody_for_some_seconds() -> None:
    database, clock = Database(), Clock()
    cache = BannerCache(database, ENOUGH_S, clock)

    assert [get(cache) for _ in range(5)] == [ROWS] * 5
    assert database.num_asked == 1
    clock.now += KEEP_S
    assert get(cache) == ROWS
    assert database.num_asked == 2


def test_a_database_that_hangs_delays_nobody_and_is_queried_by_one_thread_only() -> None:
    database = Database()
    database.open.clear()
    cache = BannerCache(database, wait_s=0.001)  # returns at all: the database never answers before `open` is set

    async def ask() -> None:
        assert [await cache.get() for _ in range(50)] == [()] * 50
        database.open.set()
        while await cache.get() != ROWS:
            await anyio.sleep(0)

    anyio.run(ask)
    assert database.num_asked == 1


def test_what_is_known_is_shown_while_the_database_is_away_but_not_for_ever() -> None:
    database, clock = Database(), Clock()
    cache = BannerCache(database, ENOUGH_S, clock)
    get(cache)
    database.error = OSError("connection refused")
    clock.now += KEEP_S

    assert get(cache) == ROWS
    assert get(cache) == ROWS
    assert database.num_asked == 2
    clock.now += STALE_S
    assert get(cache) == ()


def test_a_failure_is_tried_again_later() -> None:
    database, clock = Database(), Clock()
    database.error = OSError("connection refused")
    cache = BannerCache(database, ENOUGH_S, clock)
    assert (get(cache), get(cache), database.num_asked) == ((), (), 1)
    database.error = None
    clock.now += KEEP_FAILURE_S

    assert get(cache) == ROWS


def test_an_acknowledgement_is_seen_at_once() -> None:
    database = Database()
    cache = BannerCache(database, ENOUGH_S)
    get(cache)
    database.rows = ()
    cache.forget()

    assert get(cache) == ()
