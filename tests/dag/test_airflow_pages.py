"""Our pages inside Airflow's real API server: who may see them, what they show, and that they cannot break its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders import campaigns
from tests.dag.pages.site import login
from trainbench.planning.plan import campaign_id

RUN = "manual__2026-11-21T02:00:00+00:00"
PAGE = f"/trainbench/dags/node_consistency/runs/{RUN}"


@pytest.fixture(scope="module")
def client(airflow_db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    with TestClient(create_app()) as started:
        yield started


def test_anonymous_users_see_nothing(client: Any, store: Any) -> None:
    assert client.get(PAGE).status_code == 401


def test_a_run_without_a_report_says_when_it_comes(client: Any, store: Any) -> None:
    reply = client.get(PAGE, headers=login(client, "vera"))

    assert reply.status_code == 404
    assert "No report yet" in reply.text


def test_a_viewer_reads_the_report_and_nothing_in_it_can_run(client: Any, store: Any) -> None:
    campaign = campaigns.cpu_drill().model_copy(update={"campaign_id": campaign_id("node_consistency", RUN)})
    store.write_campaign(campaign)
    store.write_summary(campaign.campaign_id, {"report.html": "<script>alert(1)</script>"})
    reply = client.get(PAGE, headers=login(client, "vera"))

    assert reply.status_code == 200
    assert "<h1>Drill detected: node-3" in reply.text
    assert "alert(1)" not in reply.text
    assert reply.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")


@pytest.mark.parametrize("dag_id", ["..%2f..%2fetc", "%2e%2e", "x" * 500])
def test_hostile_names_open_no_path(client: Any, store: Any, dag_id: str) -> None:
    reply = client.get(f"/trainbench/dags/{dag_id}/runs/passwd", headers=login(client, "ada"))

    assert reply.status_code in (404, 405)
