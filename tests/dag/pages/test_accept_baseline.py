"""Accepting a baseline and taking it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dag.pages.site import FORGED, OWN, get, login


def accept(client: Any, user: str | None, path: str = "nodes/node-3/baseline", **more: str) -> Any:
    headers = {**(login(client, user) if user else {}), **OWN, **{k.replace("_", "-"): v for k, v in more.items()}}
    return client.post(f"/trainbench/{path}", content='{"reason": "new power limit"}', headers=headers)


@pytest.mark.parametrize(("user", "status"), [(None, 401), ("vera", 403), ("uma", 200), ("ada", 200)])
def test_who_may_edit_the_dag_s_runs_may_accept_a_baseline(
    client: Any, own_pages: Path, user: Any, status: int
) -> None:
    assert accept(client, user).status_code == status
    assert ("accepted by" in get(client, "nodes/node-3").text) == (status == 200)


def test_an_accepted_baseline_is_shown_on_its_node_and_can_be_taken_back(client: Any, own_pages: Path) -> None:
    accepted = accept(client, "uma").json()
    assert (accepted["node"], accepted["who"], accepted["why"]) == ("node-3", "uma", "new power limit")
    assert "accepted by uma" in get(client, "nodes/node-3").text
    assert "accepted by uma" not in get(client, "nodes/node-1").text

    assert accept(client, "vera", f"baselines/{accepted['id']}/revoke").status_code == 403
    assert accept(client, "ada", f"baselines/{accepted['id']}/revoke").json()["revoked_by"] == "ada"
    page = get(client, "nodes/node-3", "uma").text
    assert "No baseline was accepted" in page
    assert "Taken back by ada" in page
    assert accept(client, "ada", f"baselines/{accepted['id']}/revoke").status_code == 422


def test_a_viewer_sees_no_button_to_accept(client: Any, own_pages: Path) -> None:
    assert "Accept as new baseline" in get(client, "nodes/node-3", "uma").text
    assert "Accept as new baseline" not in get(client, "nodes/node-3", "vera").text


def test_a_baseline_of_all_nodes_needs_every_dag_that_judges_them(client: Any, own_pages: Path, only: Any) -> None:
    only("page_nodes")
    assert accept(client, "ada", "baselines").status_code == 403
    assert accept(client, "ada").status_code == 200
    only("page_gangs", "page_nodes")
    assert accept(client, "ada", "baselines").status_code == 200
    assert "Baseline of all nodes" in get(client, "nodes/node-1").text


def test_a_node_that_one_may_not_see_has_no_baseline_to_accept(client: Any, own_pages: Path, only: Any) -> None:
    only("page_gangs")
    assert accept(client, "ada").status_code == 404
    assert accept(client, "ada", "nodes/nobody/baseline").status_code == 404
    assert accept(client, "ada", "baselines/7/revoke").status_code == 404


def test_calls_from_another_site_accept_nothing(client: Any, own_pages: Path) -> None:
    """The same guard as an acknowledgement's."""
    assert accept(client, "ada", **FORGED[0]).status_code == 403
    assert accept(client, "ada", "baselines", **FORGED[0]).status_code == 403
    assert "No baseline was accepted" in get(client, "nodes/node-3", "uma").text
