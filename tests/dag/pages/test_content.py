"""The content of each page: fleet, node, tables, runs, reports."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.builders.nights import night
from tests.dag.pages.site import HOSTILE, LAST_NIGHT, TABLES, WELL, a_run, get
from trainbench.pages.render.page import asset_name
from trainbench.results.artefacts import open_store


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
    assert ">Each GPU</h2>" in text
    assert "GPU,UUID," in get(client, "nodes/node-3?format=csv&table=gpus").text


def test_the_glossary_explains_conditions_and_each_page_links_to_it(client: Any, pages: Path) -> None:
    text = get(client, "glossary").text

    assert "Its measurements scatter far more than those of its peers." in text
    assert get(client, "glossary?format=csv&table=states").text.startswith("name,meaning\nok,Within all limits.")
    assert 'href="./glossary"' in get(client, "").text


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
    monkeypatch.setattr(run_routes, "task_result", lambda *_: parse_payload(file.read_text()))
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
