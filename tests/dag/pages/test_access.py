"""Who sees which page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.builders.nights import night
from tests.dag.pages.site import LAST_NIGHT, PAGES, ROLES, TABLES, a_run, get
from trainbench.core.verdicts import Why
from trainbench.history.history import open_history
from trainbench.results.campaign import COMMAND_LINE


@pytest.mark.parametrize("path", [*PAGES, "dags/page_nodes/runs/r", "dags/page_nodes/runs/r/tasks/t"])
def test_anonymous_users_see_nothing(client: Any, pages: Path, path: str) -> None:
    reply = client.get(f"/trainbench/{path.format(run=a_run(pages))}")

    assert reply.status_code == 401
    assert "You are not logged in" in reply.text
    text = re.sub(r"\?next=[^\"]*", "", reply.text)  # the address that was asked for
    assert "node-3" not in text


def test_the_page_for_the_login_has_its_style_and_leads_back(client: Any, pages: Path) -> None:
    reply = client.get("/trainbench/nodes/node-3?days=7")
    (style,) = re.findall(r'<link rel="stylesheet" href="../([^"]+)">', reply.text)

    assert client.get(f"/trainbench/{style}").status_code == 200
    assert 'href="../../api/v2/auth/login?next=%2Ftrainbench%2Fnodes%2Fnode-3%3Fdays%3D7"' in reply.text


@pytest.mark.parametrize("user", ROLES)
def test_every_role_of_airflow_reads_every_page(client: Any, pages: Path, user: str) -> None:
    for path in PAGES:
        reply = get(client, path.format(run=a_run(pages)), user)
        assert reply.status_code == 200, path
        assert "node-3" in reply.text or path in ("strategies", "costs"), path


def test_what_belongs_to_a_hidden_dag_is_not_there(client: Any, pages: Path, only: Any) -> None:
    only("page_gangs", "page_sales")

    fleet = get(client, "").text
    assert "gang-1" in fleet
    assert "node-3" not in fleet
    assert "is missing: gang-1" in fleet
    for path in ("nodes/node-3", "notices/1", f"runs/last/{a_run(pages)}", f"results/last/{a_run(pages)}"):
        assert get(client, path).status_code == 404, path
    for path in ("dags/page_nodes", "dags/page_nodes/runs/r", "dags/page_nodes/runs/r/tasks/benchmark"):
        assert get(client, path).status_code == 403, path
    for path in TABLES:
        if not path.startswith("nodes"):
            assert "node-3" not in get(client, f"{path}&format=csv").text, path


def test_a_user_who_may_see_no_benchmark_reads_which_right_is_missing(client: Any, pages: Path, only: Any) -> None:
    only("page_sales")
    for path in PAGES:
        reply = get(client, path.format(run=a_run(pages)))
        assert reply.status_code == 403, path
        assert "node-3" not in reply.text.replace("nodes/node-3", ""), path
    assert "Ask an administrator of Airflow for read access to the DAGs with the tag trainbench" in get(client, "").text


def test_campaigns_of_the_command_line_are_seen_by_those_who_see_a_dag_of_ours(
    client: Any, own_pages: Path, only: Any
) -> None:
    campaign = night(LAST_NIGHT, {"laptop": 1.0}, {"laptop": Why.FAILED}, suite=COMMAND_LINE, campaign_id="mine")
    open_history(f"sqlite:///{own_pages / 'history.db'}").record(campaign)

    only("page_gangs")
    assert "laptop" in get(client, "").text
    assert "laptop" in get(client, "runs").text
    for path in ("strategies", "costs"):
        assert get(client, path).status_code == 200, path
    assert COMMAND_LINE in get(client, "costs").text
    only("page_sales", "page_nodes_2")
    assert get(client, "").status_code == 403


def test_every_dag_of_ours_has_the_tag_that_the_pages_go_by(dagbag: Any) -> None:
    assert [dag.dag_id for dag in dagbag.dags.values() if "trainbench" not in dag.tags] == []
