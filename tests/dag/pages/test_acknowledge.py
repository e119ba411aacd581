"""Acknowledging a notice: who may, what is kept, what is refused."""

from __future__ import annotations

import html
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.dag.pages.site import FORGED, HOSTILE, OWN, get, login


def acknowledge(client: Any, user: str | None, content: str | bytes = '{"reason": "seen"}', **more: str) -> Any:
    headers = {**(login(client, user) if user else {}), **OWN, **{k.replace("_", "-"): v for k, v in more.items()}}
    return client.post("/trainbench/notices/1/acknowledge", content=content, headers=headers)


@pytest.mark.parametrize(("user", "status"), [(None, 401), ("vera", 403), ("uma", 200), ("olaf", 200), ("ada", 200)])
def test_who_may_edit_the_dag_s_runs_may_acknowledge(client: Any, own_pages: Path, user: Any, status: int) -> None:
    assert acknowledge(client, user).status_code == status
    page = get(client, "notices/1").text
    assert ("by nobody" in page) == (status != 200)


def test_an_acknowledgement_keeps_who_when_and_why_and_counts(client: Any, own_pages: Path) -> None:
    assert "is slow: node-3" in get(client, "").text
    stored = acknowledge(client, "uma", json.dumps({"reason": f" the fan is ordered {HOSTILE} "})).json()

    assert (stored["who"], stored["reason"]) == ("uma", f"the fan is ordered {HOSTILE}")
    page = get(client, "notices/1").text
    assert f"by uma, {datetime.fromisoformat(stored['at']):<time datetime=}"[:8] in page
    assert html.escape(HOSTILE) in page
    assert HOSTILE not in page
    assert "is red and acknowledged: node-3" in get(client, "").text
    assert acknowledge(client, "ada").status_code == 422
    assert "was acknowledged by uma" in acknowledge(client, "ada").json()["detail"]


def test_a_viewer_reads_why_there_is_no_button(client: Any, pages: Path) -> None:
    assert "Acknowledge…" in get(client, "notices/1", "uma").text
    page = get(client, "notices/1", "vera").text
    assert "Acknowledge…" not in page
    assert "Acknowledging needs the permission to edit runs of page_nodes" in page


@pytest.mark.parametrize("headers", FORGED, ids=str)
def test_calls_from_another_site_change_nothing(client: Any, own_pages: Path, headers: dict[str, str]) -> None:
    reply = acknowledge(client, "ada", **headers)

    assert reply.status_code == 403
    assert reply.json()["detail"].endswith("use the page's button")
    assert "by nobody" in get(client, "notices/1").text


@pytest.mark.parametrize("headers", [{"Origin": "http://testserver"}, {"Sec_Fetch_Site": "same-origin"}], ids=str)
def test_calls_of_our_own_page_are_carried_out(client: Any, own_pages: Path, headers: dict[str, str]) -> None:
    assert acknowledge(client, "ada", **headers).status_code == 200


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ("", 422),
        ("{", 422),
        ("[" * 10_000, 422),
        ("[]", 422),
        ('{"reason": 7}', 422),
        ('{"reason": "  "}', 422),
        (json.dumps({"reason": "x" * 501}), 422),
        (json.dumps({"reason": "nul \0"}), 422),
        (json.dumps({"reason": "x" * 20_000}), 413),
        (b"\xff\xfe", 422),
    ],
    ids=range(10),
)
def test_bad_reasons_are_refused_with_a_sentence(client: Any, own_pages: Path, content: Any, status: int) -> None:
    reply = acknowledge(client, "ada", content)

    assert reply.status_code == status
    assert len(reply.json()["detail"]) > 20
    assert "by nobody" in get(client, "notices/1").text


def test_a_notice_of_a_hidden_dag_looks_as_if_it_were_not_there(client: Any, own_pages: Path, only: Any) -> None:
    only("page_gangs")
    assert acknowledge(client, "ada").status_code == 404
    only("page_gangs", "page_nodes")
    assert acknowledge(client, "ada").status_code == 200


def test_reading_never_changes_anything(client: Any, pages: Path) -> None:
    assert get(client, "notices/1/acknowledge", "ada").status_code == 405
