"""Our pages wait in threads of their own."""

from __future__ import annotations

import threading

from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from trainbench.pages.reads.thread_pool import MAX_THREADS, OwnRoute


def test_readers_of_ours_hold_no_thread_that_airflow_answers_in() -> None:
    """More of them than threads: all wait for a history that does not answer. Somebody else's page is there at once."""
    app, router = FastAPI(), APIRouter(route_class=OwnRoute)
    answered, arrived = threading.Event(), threading.Semaphore(0)
    num_readers = 60  # the common pool has 40 threads

    @router.get("/ours/{node}")
    def ours(node: str, days: int = 30) -> str:
        arrived.release()
        answered.wait(1200)
        return f"{node} {days}"

    @app.get("/airflow")
    def airflow() -> str:
        return "home"

    app.include_router(router)
    answers: list[str] = []
    with TestClient(app) as client:
        readers = [
            threading.Thread(target=lambda: answers.append(client.get("/ours/gpu-1?days=7").json()), daemon=True)
            for _ in range(num_readers)
        ]
        for reader in readers:
            reader.start()
        for _ in range(MAX_THREADS):
            assert arrived.acquire(timeout=1200)
        home = client.get("/airflow").json()
        is_beside = not answers and not arrived.acquire(blocking=False)
        answered.set()
        for reader in readers:
            reader.join(1200)

    assert (home, is_beside) == ("home", True)
    assert answers == ["gpu-1 7"] * num_readers
