"""Banners in the answer of Airflow's real API server: who sees which, when they come and go, and that nothing of ours
can spoil Airflow's own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.builders import campaigns, make_failed, make_result
from tests.builders.nights import ENDED_AT, night
from tests.dag.pages.site import login
from trainbench.alerting.notice_text import Message
from trainbench.alerting.outbox import Outbox, send_due
from trainbench.core.verdicts import Why
from trainbench.history.history import open_history
from trainbench.pages.web import banners
from trainbench.pages.web.banners import BannerCache
from trainbench.settings.channels import Mail

DAG = "node_consistency"
TODAY = (datetime.now(UTC) - ENDED_AT).days + 1  # nights are numbered by day; warnings are shown while they are new
RATES = {"node-1": 10.0, "node-2": 9.0, "node-3": 10.1}
RED = {"node-2": Why.SLOW}


@pytest.fixture
def history(store: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fresh, and read to the end by whoever asks: a test must not depend on how fast this machine is."""
    monkeypatch.setattr(banners, "CACHE", BannerCache(banners.read, wait_s=1200))
    return open_history(store=store)


def shown(client: Any, user: str = "vera") -> list[Mapping[str, str]]:
    banners.CACHE.forget()
    reply = client.get("/ui/config", headers=login(client, user) | {"Accept-Encoding": "identity"})
    assert reply.status_code == 200
    assert int(reply.headers["content-length"]) == len(reply.content)
    alerts: list[Mapping[str, str]] = reply.json()["dashboard_alert"]
    return alerts


def test_a_drill_is_shown_once_and_needs_no_action_once_its_run_is_over(client: Any, history: Any) -> None:
    history.record(night(1, RATES, RED, drilled=["node-2"]))

    assert shown(client) == []
    assert history.open_notices() == ()


def test_a_slow_node_from_its_night_to_recovery(client: Any, history: Any) -> None:
    """It appears with one message, is acknowledged and goes, and ends with one; nothing is left."""
    subjects: list[str] = []

    def post(_channel: Any, content: Message) -> None:
        subjects.append(content.subject)

    def tell(day: int) -> None:
        mail = Mail(kind="mail", to=("oncall@example.org",))
        send_due(Outbox(history.engine), DAG, [mail], None, ENDED_AT + timedelta(days=day - 1), post)

    history.record(night(1, RATES, RED))
    tell(1)
    (banner,) = shown(client)
    number = history_id(history)

    assert banner["category"] == "error"
    assert banner["text"] == (
        "**node-2 is slow: samples/s −10.0 % against its peers**, since 01 Nov 03:00 UTC. "
        "node-2 is hot: its fans stand still. "
        f"[Notice](plugin/trainbench/trainbench/notices/{number}) · "
        "[Report](dags/node_consistency/runs/scheduled__1/plugin/trainbench-run)"
    )
    assert client.get(f"/trainbench/notices/{number}", headers=login(client, "vera")).status_code == 200

    history.record(night(2, RATES, RED))
    tell(2)
    assert [text["text"] for text in shown(client)] == [banner["text"]]

    reply = client.post(
        f"/trainbench/notices/{number}/acknowledge",
        headers=login(client, "ada") | {"X-Trainbench": "1"},
        json={"reason": "the fan is ordered"},
    )
    assert (reply.status_code, reply.json()["reason"]) == (200, "the fan is ordered")
    assert shown(client) == []
    assert len(history.open_notices()) == 1

    well = RATES | {"node-2": 10.0}
    history.record(night(3, well))
    assert len(history.open_notices()) == 1
    history.record(night(4, well))
    tell(4)
    tell(4)
    assert shown(client) == []
    assert history.open_notices() == ()
    assert subjects == [
        "[trainbench] node-2 is slow: samples/s −10.0 % against its peers (node_consistency)",
        "[trainbench] node-2: well again (node_consistency)",
    ]


def test_red_first_warnings_while_they_are_new_and_never_more_than_a_few(client: Any, history: Any) -> None:
    """A look is shown from its second night on, for three days: that of node-3 is older."""
    rates = RATES | {f"node-{i}": 9.0 for i in range(10, 14)}
    red = dict.fromkeys(list(rates)[3:], Why.SLOW)
    for day in (TODAY - 10, TODAY - 9):
        history.record(night(day, RATES, {"node-3": Why.HOT}))
    history.record(night(TODAY - 1, rates, {"node-1": Why.HOT, "node-3": Why.HOT}))
    history.record(night(TODAY, rates, red | {"node-1": Why.HOT, "node-3": Why.HOT}))
    actual = shown(client)

    assert [alert["category"] for alert in actual] == ["error"] * 4
    assert actual[-1]["text"] == "and 2 more: [Benchmarks](plugin/trainbench/trainbench/)"
    for day in (TODAY + 1, TODAY + 2):
        history.record(night(day, dict.fromkeys(rates, 10.0), {"node-1": Why.HOT, "node-3": Why.HOT}))
    assert [alert["category"] for alert in shown(client)] == ["warning"]


def test_a_node_that_is_well_again_has_no_banner(client: Any, history: Any) -> None:
    history.record(night(1, [make_result("node-1", 10.0), make_failed("node-2")], {"node-2": Why.FAILED}))
    assert len(shown(client)) == 1
    history.record(night(2, RATES))

    assert shown(client) == []


def test_banners_about_dags_that_one_may_not_see_are_not_there(
    client: Any, history: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    history.record(night(1, RATES, RED))
    assert len(shown(client)) == 1
    monkeypatch.setattr(get_auth_manager(), "get_authorized_dag_ids", lambda **_: {"somebody_else_s"})
    assert shown(client) == []


def test_anonymous_users_get_airflow_s_refusal(client: Any, history: Any) -> None:
    history.record(night(1, RATES, RED))
    reply = client.get("/ui/config")

    assert reply.status_code == 401
    assert "node-2" not in reply.text


def test_other_people_s_alerts_stay(client: Any, history: Any) -> None:
    from airflow import settings
    from airflow.api_fastapi.common.types import UIAlert

    settings.DASHBOARD_UIALERTS.append(UIAlert(text="maintenance on Sunday", category="info"))
    try:
        history.record(night(1, RATES, RED))
        assert [alert["category"] for alert in shown(client)] == ["error", "info"]
    finally:
        settings.DASHBOARD_UIALERTS.clear()


def test_hostile_names_make_no_markup(client: Any, history: Any) -> None:
    history.record(campaigns.all_failed())
    texts = " ".join(alert["text"] for alert in shown(client))

    assert "<b>" not in texts
    assert "node-&lt;b&gt;9\\|" in texts


@pytest.mark.parametrize("url", ["sqlite:////nowhere/history.db", "mysql://x/y", "postgresql://127.0.0.1:1/none"])
def test_airflow_s_pages_load_without_our_database(
    client: Any, history: Any, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", url)

    assert shown(client) == []


def test_airflow_s_pages_load_with_settings_that_are_wrong(
    client: Any, history: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINBENCH_NOTIFY", "[")

    assert shown(client) == []


def test_airflow_s_pages_do_not_wait_for_our_database(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def hang() -> tuple[()]:
        answer.wait()
        return ()

    monkeypatch.setattr(banners, "CACHE", BannerCache(hang, wait_s=0.001))
    try:
        assert shown(client) == []  # the database answers only after this
    finally:
        answer.set()


def history_id(history: Any) -> int:
    from sqlalchemy import select

    from trainbench.history.tables import notices

    with history.engine.connect() as connection:
        return int(connection.execute(select(notices.c.id)).scalar_one())
