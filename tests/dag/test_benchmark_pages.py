"""The Benchmarks pages in Airflow's real API server: who sees what, what is refused, and that nothing gets in.

Two DAGs of ours and one of somebody else's:
    page_nodes   last night node-3 breached, ten percent slow; the night before all were well
    page_gangs   last night gang-1 was missing
    page_sales   no DAG of ours
"""

from __future__ import annotations

import csv
import html
import io
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.dag.conftest import ROOT
from tests.nights import ENDED_AT, night
from trainbench.core.verdicts import State
from trainbench.history.history import open_history
from trainbench.pages.render.page import asset_name
from trainbench.results.artefacts import open_store

ROLES = {"vera": "viewer", "uma": "user", "olaf": "op", "ada": "admin"}
LAST_NIGHT = (datetime.now(UTC) - ENDED_AT).days + 1
HOSTILE = "<script>alert(1)</script>"
WELL = {"node-1": 10.1, "node-2": 10.0, "node-3": 10.0}
PAGES = ("", "nodes/node-3", "strategies", "costs", "runs", "breaches/1", "dags/page_nodes", "runs/last/{run}",
         "results/last/{run}")  # fmt: skip
TABLES = {
    "?table=heat": "node,gpu_name,day,condition",
    "?table=open": "node,state,deviation,since",
    "?table=closed": "node,state,deviation,since",
    "nodes/node-3?table=events": "when,kind,what",
    "nodes/node-3?table=points-1": "when,state,samples/s",
    "strategies?": "gpu_name,model,recipe",
    "costs?table=months": "month,cost,GPU-hours",
    "costs?table=dags": "DAG,cost,GPU-hours",
    "costs?table=works": "work,cost,GPU-hours",
    "runs?": "campaign_id,run_id,dag_id",
}


@pytest.fixture(scope="module")
def client(airflow_db: None) -> Iterator[Any]:
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    _add_dags()
    with TestClient(create_app()) as started:
        yield started


def _add_dags() -> None:
    from airflow.models.dag import DagModel, DagTag
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.merge(DagBundleModel(name="dags-folder"))
        session.flush()
        for dag_id in ("page_nodes", "page_gangs", "page_sales"):
            session.merge(DagModel(dag_id=dag_id, bundle_name="dags-folder", fileloc=f"/{dag_id}.py"))
        session.flush()
        for dag_id in ("page_nodes", "page_gangs"):
            session.merge(DagTag(name="trainbench", dag_id=dag_id))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a history to be read only."""
    return _record(tmp_path_factory.mktemp("pages"))


def _record(folder: Path) -> Path:
    store, history = open_store(str(folder / "store")), open_history(f"sqlite:///{folder / 'history.db'}")
    for campaign in (
        night(LAST_NIGHT - 1, WELL, suite="page_nodes", campaign_id="before"),
        night(LAST_NIGHT, WELL | {"node-3": 9.0}, {"node-3": State.BREACH}, suite="page_nodes", campaign_id="last"),
        night(LAST_NIGHT, {"gang-2": 4.0}, {"gang-1": State.MISSING}, suite="page_gangs", campaign_id="gangs"),
    ):
        history.record(campaign)
        store.write_results(campaign.results)
    return folder


@pytest.fixture
def pages(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return _use(recorded, monkeypatch)


@pytest.fixture
def own_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """To be written to."""
    return _use(_record(tmp_path), monkeypatch)


def _use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINBENCH_STORE", str(folder / "store"))
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", f"sqlite:///{folder / 'history.db'}")
    return folder


_tokens: dict[str, dict[str, str]] = {}


def login(client: Any, user: str) -> dict[str, str]:
    from airflow.api_fastapi.app import get_auth_manager

    if user not in _tokens:
        passwords = json.loads(Path(get_auth_manager().get_generated_password_file()).read_text())
        reply = client.post("/auth/token", json={"username": user, "password": passwords[user]})
        _tokens[user] = {"Authorization": f"Bearer {reply.json()['access_token']}"}
    return _tokens[user]


def get(client: Any, path: str, user: str = "vera") -> Any:
    return client.get(f"/trainbench/{path}", headers=login(client, user))


def a_run(folder: Path) -> str:
    """The id of a run of node-3 last night."""
    return next(path.name for path in (folder / "store/campaigns/last/runs").iterdir() if "node-3" in path.name)


# ---------------------------------------------------------------- who sees what


@pytest.mark.parametrize(
    "path", [*PAGES, "static/icon.svg", "dags/page_nodes/runs/r", "dags/page_nodes/runs/r/tasks/t"]
)
def test_anonymous_users_see_nothing(client: Any, pages: Path, path: str) -> None:
    reply = client.get(f"/trainbench/{path.format(run=a_run(pages))}")

    assert reply.status_code == 401
    assert "You are not logged in" in reply.text
    told = re.sub(r"\?next=[^\"]*", "", reply.text)  # the address that was asked for
    assert "node-3" not in told


def test_the_page_for_the_login_needs_no_file_of_ours_and_leads_back(client: Any, pages: Path) -> None:
    reply = client.get("/trainbench/nodes/node-3?days=7")
    (nonce,) = re.findall(r'<style nonce="([^"]+)">', reply.text)

    assert f"style-src 'nonce-{nonce}';" in reply.headers["Content-Security-Policy"]
    assert "static/" not in reply.text
    assert 'href="../../api/v2/auth/login?next=%2Ftrainbench%2Fnodes%2Fnode-3%3Fdays%3D7"' in reply.text


@pytest.mark.parametrize("user", ROLES)
def test_every_role_of_airflow_reads_every_page(client: Any, pages: Path, user: str) -> None:
    for path in PAGES:
        reply = get(client, path.format(run=a_run(pages)), user)
        assert reply.status_code == 200, path
        assert "node-3" in reply.text or path in ("strategies", "costs"), path


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes Airflow let everybody see these DAGs only."""
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    asked = SimpleAuthManager.is_authorized_dag

    def narrow(*dag_ids: str) -> None:
        def is_authorized_dag(self: Any, *, details: Any = None, **more: Any) -> bool:
            return getattr(details, "id", None) in dag_ids and asked(self, details=details, **more)

        monkeypatch.setattr(SimpleAuthManager, "get_authorized_dag_ids", lambda self, **_: set(dag_ids))
        monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", is_authorized_dag)

    return narrow


def test_what_belongs_to_a_hidden_dag_is_not_there(client: Any, pages: Path, only: Any) -> None:
    only("page_gangs", "page_sales")

    fleet = get(client, "").text
    assert "gang-1" in fleet
    assert "node-3" not in fleet
    assert "is missing: gang-1" in fleet
    for path in ("nodes/node-3", "breaches/1", f"runs/last/{a_run(pages)}", f"results/last/{a_run(pages)}"):
        assert get(client, path).status_code == 404, path
    for path in ("dags/page_nodes", "dags/page_nodes/runs/r", "dags/page_nodes/runs/r/tasks/benchmark"):
        assert get(client, path).status_code == 403, path
    for path in TABLES:
        if not path.startswith("nodes"):
            assert "node-3" not in get(client, f"{path}&format=csv").text, path


def test_who_may_see_no_benchmark_is_told_what_to_ask_for(client: Any, pages: Path, only: Any) -> None:
    only("page_sales")
    for path in PAGES:
        reply = get(client, path.format(run=a_run(pages)))
        assert reply.status_code == 403, path
        assert "node-3" not in reply.text.replace("nodes/node-3", ""), path
    assert "Ask whoever administers Airflow for read access to the DAGs with the tag trainbench" in get(client, "").text


def test_campaigns_of_the_command_line_are_seen_by_those_who_see_a_dag_of_ours(
    client: Any, own_pages: Path, only: Any
) -> None:
    campaign = night(LAST_NIGHT, {"laptop": 1.0}, {"laptop": State.FAILED}, suite="local", campaign_id="mine")
    open_history(f"sqlite:///{own_pages / 'history.db'}").record(campaign)

    only("page_gangs")
    assert "laptop" in get(client, "").text
    only("page_sales", "page_nodes_2")
    assert get(client, "").status_code == 403


def test_the_command_line_names_its_suites_as_the_pages_do() -> None:
    from trainbench.cli.run import SUITE
    from trainbench.pages.reads.access import COMMAND_LINE_SUITES

    assert SUITE in COMMAND_LINE_SUITES


def test_every_dag_of_ours_has_the_tag_that_the_pages_go_by(dagbag: Any) -> None:
    assert [dag.dag_id for dag in dagbag.dags.values() if "trainbench" not in dag.tags] == []


# ---------------------------------------------------------------- acknowledging


OWN = {"X-Trainbench": "1", "Content-Type": "application/json"}


def acknowledge(client: Any, user: str | None, content: str | bytes = '{"reason": "seen"}', **more: str) -> Any:
    headers = {**(login(client, user) if user else {}), **OWN, **{k.replace("_", "-"): v for k, v in more.items()}}
    return client.post("/trainbench/breaches/1/acknowledge", content=content, headers=headers)


@pytest.mark.parametrize(("user", "status"), [(None, 401), ("vera", 403), ("uma", 200), ("olaf", 200), ("ada", 200)])
def test_who_may_edit_the_dag_s_runs_may_acknowledge(client: Any, own_pages: Path, user: Any, status: int) -> None:
    assert acknowledge(client, user).status_code == status
    page = get(client, "breaches/1").text
    assert ("by nobody" in page) == (status != 200)


def test_an_acknowledgement_keeps_who_when_and_why_and_counts(client: Any, own_pages: Path) -> None:
    assert "is in breach: node-3" in get(client, "").text
    told = acknowledge(client, "uma", json.dumps({"reason": f" the fan is ordered {HOSTILE} "})).json()

    assert (told["who"], told["reason"]) == ("uma", f"the fan is ordered {HOSTILE}")
    page = get(client, "breaches/1").text
    assert f"by uma, {datetime.fromisoformat(told['at']):<time datetime=}"[:8] in page
    assert html.escape(HOSTILE) in page
    assert HOSTILE not in page
    assert "is acknowledged: node-3" in get(client, "").text
    assert acknowledge(client, "ada").status_code == 409
    assert "was acknowledged by uma" in acknowledge(client, "ada").json()["detail"]


def test_a_viewer_is_told_why_there_is_no_button(client: Any, pages: Path) -> None:
    assert "Acknowledge…" in get(client, "breaches/1", "uma").text
    page = get(client, "breaches/1", "vera").text
    assert "Acknowledge…" not in page
    assert "Acknowledging needs the permission to edit runs of page_nodes" in page


FORGED = [
    {"X_Trainbench": ""},
    {"X_Trainbench": "0"},
    {"Content_Type": "application/x-www-form-urlencoded"},
    {"Content_Type": "text/plain"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Sec_Fetch_Site": "none"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "https://testserver.evil.example"},
]


@pytest.mark.parametrize("headers", FORGED, ids=str)
def test_calls_from_another_site_change_nothing(client: Any, own_pages: Path, headers: dict[str, str]) -> None:
    reply = acknowledge(client, "ada", **headers)

    assert reply.status_code == 403
    assert reply.json()["detail"].endswith("use the page's button")
    assert "by nobody" in get(client, "breaches/1").text


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
    assert "by nobody" in get(client, "breaches/1").text


def test_a_breach_of_a_hidden_dag_looks_as_if_it_were_not_there(client: Any, own_pages: Path, only: Any) -> None:
    only("page_gangs")
    assert acknowledge(client, "ada").status_code == 404
    only("page_gangs", "page_nodes")
    assert acknowledge(client, "ada").status_code == 200


def test_reading_never_changes_anything(client: Any, pages: Path) -> None:
    assert get(client, "breaches/1/acknowledge", "ada").status_code == 405


# ---------------------------------------------------------------- accepting a baseline


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
    told = accept(client, "uma").json()
    assert (told["node"], told["who"], told["why"]) == ("node-3", "uma", "new power limit")
    assert "accepted by uma" in get(client, "nodes/node-3").text
    assert "accepted by uma" not in get(client, "nodes/node-1").text

    assert accept(client, "vera", f"baselines/{told['id']}/revoke").status_code == 403
    assert accept(client, "ada", f"baselines/{told['id']}/revoke").json()["revoked_by"] == "ada"
    page = get(client, "nodes/node-3", "uma").text
    assert "None was accepted" in page
    assert "Taken back by ada" in page
    assert accept(client, "ada", f"baselines/{told['id']}/revoke").status_code == 422


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


@pytest.mark.parametrize("headers", FORGED, ids=str)
def test_calls_from_another_site_accept_nothing(client: Any, own_pages: Path, headers: dict[str, str]) -> None:
    assert accept(client, "ada", **headers).status_code == 403
    assert "None was accepted" in get(client, "nodes/node-3", "uma").text


# ---------------------------------------------------------------- what comes from outside


BAD_QUERIES = [
    "?days=31", "?days=-1", "?days=x", "?page=0", "?page=-1", "?page=x", f"?page={10**30}", "?format=exe",
    "?table=users", f"?gpu={'x' * 301}", "?model=%00", "runs?sort=name", "runs?page=-7", "breaches/x",
    "dags/page_nodes/runs/r/tasks/t?map_index=-2", f"dags/page_nodes/runs/r/tasks/t?map_index={10**20}",
]  # fmt: skip
NOT_THERE = [
    "breaches/0", "breaches/-1", f"breaches/{10**30}", "breaches/999", "nodes/nobody", "nodes/%00",
    "nodes/..%2f..%2fetc",
    "nodes/a%2Fb", "results/..%2f..%2fetc/passwd", "results/%2e%2e/%2e%2e", "results/last/..%2f..%2fsummary",
    "results/last/nobody", "runs/last/%00", "static/..%2frender.py", "static/render.py", "static/%2e%2e%2frender.py",
    "static/pages.css", "static/%2fetc%2fpasswd", "nodes/node-3?format=csv&table=..%2f", "dags/page_nodes/runs/nobody",
    "dags/page_nodes/runs/r/tasks/publish?map_index=3",
    "dags/page_nodes/runs/r/tasks/plan?map_index={MAP_INDEX}", "nowhere", f"nodes/{'x' * 3000}",
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_QUERIES)
def test_impossible_questions_are_answered_with_a_sentence(client: Any, pages: Path, path: str) -> None:
    reply = get(client, path, "ada")

    assert reply.status_code == 422
    assert "This address asks for something that cannot be" in reply.text


@pytest.mark.parametrize("path", NOT_THERE, ids=lambda path: path[:40])
def test_unknown_and_hostile_names_open_nothing(client: Any, pages: Path, path: str) -> None:
    reply = get(client, path, "ada")

    assert reply.status_code == 404
    if "text/html" in reply.headers["content-type"]:
        assert "root:" not in reply.text
        assert re.search(r"<h1>[^<]{8,}</h1>\s*<p>[^<]{15,}</p>", reply.text)


@pytest.mark.parametrize(
    "path",
    [
        f"?gpu={HOSTILE}",
        f"runs?model={HOSTILE}&sort=slowest",
        f"nodes/{HOSTILE.replace('/', '%2F')}",
        f"nodes/node-3?strategy={HOSTILE}",
        f"?days={HOSTILE}",
        f"?format={HOSTILE}",
        f"breaches/{HOSTILE}",
        f"dags/page_nodes/runs/{HOSTILE}",
        "?gpu=%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E",
    ],
)
def test_what_is_asked_is_never_a_tag_of_the_answer(client: Any, pages: Path, path: str) -> None:
    text = get(client, path, "ada").text

    assert HOSTILE not in text
    assert "<img" not in text
    assert 'href="javascript' not in text


def test_hostile_content_of_the_history_stays_text(client: Any, own_pages: Path) -> None:
    import sqlite3

    marked = f"\"><img src=x onerror=alert(1)>{HOSTILE}'="
    with sqlite3.connect(own_pages / "history.db") as database:
        for table, names in {
            "breaches": ("reason", "cause", "resolution", "gpu_name", "dag_run_id", "model"),
            "works": ("label", "gpu_name", "model", "recipe", "strategy", "preset"),
            "node_verdicts": ("reason",),
            "runs": ("gpu_name", "driver", "image", "model"),
            "campaigns": ("title", "dag_run_id"),
        }.items():
            database.execute(f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in names)}", [marked] * len(names))
        database.execute("UPDATE breaches SET node = node || ?", [marked])
        database.execute("UPDATE node_verdicts SET node = node || ?", [marked])
    for path in PAGES:
        text = get(client, path.format(run=a_run(own_pages)), "ada").text
        if not path.startswith("results"):
            assert HOSTILE not in text, path
            assert "<img" not in text, path
    assert html.escape(HOSTILE) in get(client, "").text


def test_a_name_in_a_csv_is_no_formula(client: Any, own_pages: Path) -> None:
    import sqlite3

    with sqlite3.connect(own_pages / "history.db") as database:
        database.execute("UPDATE breaches SET cause = '=HYPERLINK(\"http://evil\")'")
    (row, *_) = csv.DictReader(io.StringIO(get(client, "?table=open&format=csv").text))

    assert row["likely_cause"].startswith("'=")


# ---------------------------------------------------------------- what is shown


def test_the_fleet_tells_what_is_wrong_why_and_since_when(client: Any, pages: Path) -> None:
    text = get(client, "").text

    assert "is missing: gang-1; 1 is in breach: node-3" in text
    assert "samples/s −10.0 %" in text
    assert "node-3 is hot: its fans stand still." in html.unescape(text)
    assert "look at the fans of node-3." in text
    assert f'href="./../dags/page_nodes/runs/scheduled__{LAST_NIGHT}" target="_top">DAG run</a>' in text
    assert re.search(r'title="node-3, [\d-]+: breach, samples/s −10.0 % against its peers"[^>]*>−10</a>', text)


def test_filters_narrow_every_page_and_go_along(client: Any, pages: Path) -> None:
    text = get(client, "?strategy=zero3&days=90").text

    assert "None with these filters" in text
    assert 'href="./runs?strategy=zero3&amp;days=90"' in text
    assert '<option value="90" selected>' in text


def test_a_node_s_page_draws_its_figures_and_has_them_as_a_table(client: Any, pages: Path) -> None:
    text = get(client, "nodes/node-3").text
    figure = json.loads(html.unescape(re.search(r'data-figure="([^"]*)"', text)[1]))  # type: ignore[index]

    assert figure["data"][-2]["y"] == [10.0, 9.0] or [10.0, 9.0] in [trace["y"] for trace in figure["data"]]
    assert ">9.000</td>" in text
    assert "breach opened" in text
    assert f'href="../runs/last/{a_run(pages)}"' in text


@pytest.mark.parametrize(("path", "header"), TABLES.items())
def test_every_table_is_there_as_csv(client: Any, pages: Path, path: str, header: str) -> None:
    reply = get(client, f"{path}&format=csv")

    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    assert reply.headers["content-disposition"].startswith('attachment; filename="trainbench-')
    assert reply.text.startswith(header)


def test_a_run_s_page_has_its_figures_and_its_raw_result(client: Any, pages: Path) -> None:
    run = a_run(pages)
    text = get(client, f"runs/last/{run}").text

    assert f'href="../../results/last/{run}"' in text
    assert ">9.000<" in text
    raw = get(client, f"results/last/{run}")
    assert raw.headers["content-type"] == "application/json"
    assert raw.content == (pages / f"store/campaigns/last/runs/{run}/result.json").read_bytes()


def test_a_run_whose_file_has_expired_says_so(client: Any, own_pages: Path) -> None:
    run = a_run(own_pages)
    (own_pages / f"store/campaigns/last/runs/{run}/result.json").unlink()

    assert "file has expired" in get(client, f"runs/last/{run}").text
    assert get(client, f"results/last/{run}").status_code == 404


def test_a_task_shows_the_result_that_it_handed_back(client: Any, pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainbench.pages.web import run_routes
    from trainbench.results.collect import parse_payload

    file = pages / f"store/campaigns/last/runs/{a_run(pages)}/result.json"
    monkeypatch.setattr(run_routes, "task_result", lambda *asked: parse_payload(file.read_text()))
    text = get(client, "dags/page_nodes/runs/r/tasks/benchmark?map_index=2").text

    assert ">9.000<" in text
    assert "Verdict" in text


def test_the_report_s_links_lead_to_the_raw_results(client: Any, own_pages: Path) -> None:
    from trainbench.planning.plan import campaign_id

    name = campaign_id("page_nodes", "r/1")
    store = open_store(str(own_pages / "store"))
    store.write_campaign(night(LAST_NIGHT, WELL, suite="page_nodes", campaign_id=name))
    own = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'">"""
    store.write_summary(name, {"report.html": f'<head>{own}</head><a href="../runs/x-1/result.json">x</a>'})
    reply = get(client, "dags/page_nodes/runs/r-1")

    assert f'</script></head><a href="../../../results/{name}/x-1/result.json">x</a>' in reply.text
    assert own not in reply.text  # the header is stricter than it, but for one script


def test_only_our_script_runs_in_a_report(client: Any, own_pages: Path) -> None:
    from trainbench.planning.plan import campaign_id

    name = campaign_id("page_nodes", "r")
    store = open_store(str(own_pages / "store"))
    store.write_campaign(night(LAST_NIGHT, WELL, suite="page_nodes", campaign_id=name))
    store.write_summary(name, {"report.html": f"<head></head>{HOSTILE}"})
    replies = [get(client, "dags/page_nodes/runs/r") for _ in range(2)]
    nonces = [re.search(r"script-src 'nonce-([\w-]{22})'", r.headers["content-security-policy"]) for r in replies]

    assert nonces[0]
    assert nonces[1]
    assert nonces[0][1] != nonces[1][1]
    assert re.findall(r'nonce="([\w-]+)" src="([^"]+)"', replies[0].text) == [
        (nonces[0][1], f"../../../static/{asset_name('pages.js')}")
    ]


def test_a_report_is_shown_to_readers_of_its_own_dag_only(client: Any, own_pages: Path) -> None:
    """ "page" + "nodes-r" and "page_nodes" + "r" could make one folder's name; the campaign says whose it is."""
    store = open_store(str(own_pages / "store"))
    store.write_campaign(night(LAST_NIGHT, WELL, suite="page_gangs", campaign_id="page_nodes-r"))
    store.write_summary("page_nodes-r", {"report.html": "<h1>of another DAG</h1>"})

    assert get(client, "dags/page_nodes/runs/r").status_code == 404


# ---------------------------------------------------------------- states and headers


def test_before_the_first_run_the_page_says_what_to_do(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(tmp_path, monkeypatch)

    assert "No benchmark has run yet" in get(client, "").text
    assert "No benchmark of this DAG yet" in get(client, "dags/page_nodes").text
    for path in ("strategies", "costs", "runs"):
        assert get(client, path).status_code == 200


@pytest.mark.parametrize("path", ["", "runs", "nodes/node-1", "breaches/1", "dags/page_nodes"])
def test_without_the_database_a_page_says_so_and_airflow_goes_on(
    client: Any, pages: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", "sqlite:////dev/null/history.db")
    reply = get(client, path)

    assert reply.status_code == 503
    assert "Airflow itself is not affected" in reply.text
    assert client.get("/api/v2/version").status_code == 200


def test_nothing_but_our_own_files_may_run_or_be_loaded(client: Any, pages: Path) -> None:
    for path in (*PAGES, "nowhere", "?days=7", "?days=8"):
        reply = get(client, path.format(run=a_run(pages)))
        if path.startswith("results"):
            continue
        policy = dict(part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == policy["frame-ancestors"] == "'self'"
        assert policy["base-uri"] == "'none'"
        assert "'unsafe-inline'" not in policy["script-src"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert not re.search(r'(?:src|href)="(?:https?:)?//', reply.text)
        assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=", reply.text), path


def test_files_of_a_page_are_there_and_may_be_kept(client: Any, pages: Path) -> None:
    text = get(client, "nodes/node-3").text
    files = re.findall(r'(?:src|href)="\.\./(static/[^"]+)"', text)

    assert [re.sub(r"-[\w.]+?(?=\.(min\.)?\w+$)", "", name) for name in files] == [
        "static/pages.css", "static/pages.js", "static/plotly.min.js"
    ]  # fmt: skip
    for name in files:
        reply = get(client, name)
        assert reply.status_code == 200
        assert reply.headers["cache-control"] == "private, max-age=31536000, immutable"


def test_the_plugin_loads_nothing_heavy_in_scheduler_and_workers() -> None:
    """Every process of Airflow loads the plugin's module; what it adds to Airflow's own modules is itself."""
    program = (
        "import sys, airflow.plugins_manager; before = set(sys.modules); import trainbench.pages.web.plugin as plugin;"
        "view = plugin.TrainbenchPlugin.external_views;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT / "plugins"
    )

    assert done.stdout.split() == [
        "trainbench",
        "trainbench.pages",
        "trainbench.pages.web",
        "trainbench.pages.web.plugin",
    ]


@pytest.mark.parametrize("folder", ["plugins", "none"])
def test_airflow_has_the_plugin_once_from_a_folder_and_from_an_installed_package(folder: str, tmp_path: Path) -> None:
    """Twice would be an import error on Airflow's pages. Airflow is started in the checkout: what lies there counts."""
    program = (
        "from airflow import plugins_manager;"
        "plugins, errors = plugins_manager._get_plugins();"
        "print([plugin.name for plugin in plugins].count('trainbench'), errors)"
    )
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / folder)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )

    assert done.stdout.splitlines()[-1] == "1 {}"


def test_a_folder_brings_the_plugin_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    assert "TrainbenchPlugin" in runpy.run_path(str(ROOT / "plugins" / "trainbench_plugin.py"))
