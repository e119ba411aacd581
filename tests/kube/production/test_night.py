"""One night on CeleryExecutor: two workers that share no disk, PostgreSQL for Airflow and for the history, S3 for the
store, a webhook for the notices.
"""

from __future__ import annotations

import json

import pytest

from tests.kube.production.conftest import DAG_ID, HEALTHY, SLOW, Installation, Night
from trainbench.core.verdicts import MARKED, Why
from trainbench.history.database import connect
from trainbench.history.tables import notices, runs

pytestmark = pytest.mark.slow


def test_the_verdicts_are_stated_by_report_notice_gauges_and_one_taint(
    installation: Installation, night: Night
) -> None:
    """Nodes whose pods failed, vanished or never ran are not confirmed to be slow. Of the gauges that a worker sends by
    StatsD 20 is a slow node, 1 one that is well.
    """
    reasons = {node.node: node.why for node in night.campaign.nodes}
    (path, notice), *_ = installation.posted
    (marked,) = (finding for finding in night.campaign.findings if finding.category == MARKED)
    expected = {SLOW: "20|g"} | dict.fromkeys(HEALTHY, "1|g")

    assert {name: reasons[name] for name in (*HEALTHY, SLOW)} == {**dict.fromkeys(HEALTHY, Why.WELL), SLOW: Why.SLOW}
    assert night.state == "failed"
    assert path == "/hooks"
    assert SLOW in json.dumps(notice)
    assert {node: night.conditions.get(node) for node in expected} == expected
    assert night.conditions.keys() == {node.node for node in night.campaign.node_states}
    assert list(night.marks) == [SLOW]
    assert marked.nodes == (SLOW,)


def test_store_and_history_hold_every_result_once_and_no_worker_any(installation: Installation, night: Night) -> None:
    with connect(installation.services.environment["TRAINBENCH_HISTORY_URL"]).connect() as connection:
        of_tonight = runs.select().where(runs.c.campaign_id == night.campaign.campaign_id)
        recorded = [row.run_id for row in connection.execute(of_tonight)]
        opened = {row.node for row in connection.execute(notices.select())}
    made = sorted(result.spec.identity.run_id for result in night.campaign.results)

    assert night.stored.broken == ()
    assert sorted(result.spec.identity.run_id for result in night.stored.results) == sorted(recorded) == made
    assert SLOW in opened
    for home in installation.workers:
        assert list(home.glob(f"logs/dag_id={DAG_ID}/**/*.log")), f"{home.name} ran no task"
        assert [path for path in home.rglob("*.json") if "runs" in path.parts] == []


@pytest.mark.parametrize("page", ["", "nodes/gpu-slow", "runs", "costs", "strategies", "notices/1"])
def test_the_pages_read_the_history_on_postgresql(installation: Installation, night: Night, page: str) -> None:
    reply = installation.runs.page(page)

    assert reply.status_code == 200, reply.text[:2000]
    assert "gpu-" in reply.text or page in ("costs", "strategies")


def test_the_report_and_a_result_are_read_from_the_bucket(installation: Installation, night: Night) -> None:
    report = installation.runs.page(f"dags/{DAG_ID}/runs/{night.run_id}")
    run = next(r.spec.identity for r in night.campaign.results if r.spec.identity.node == HEALTHY[0])
    result = installation.runs.page(f"results/{run.campaign_id}/{run.run_id}")

    assert (report.status_code, result.status_code) == (200, 200)
    assert SLOW in report.text
    assert HEALTHY[0] in result.text


def test_a_banner_names_a_red_node(installation: Installation, night: Night) -> None:
    alerts = installation.runs.page("/ui/config").json()["dashboard_alert"]

    assert any("gpu-" in alert["text"] for alert in alerts)
