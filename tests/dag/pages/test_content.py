"""The content of each page: fleet, node, tables, runs, reports."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_result
from tests.builders.nights import night
from tests.dag.pages.site import HOSTILE, LAST_NIGHT, TABLES, WELL, a_run, get
from trainbench import __version__
from trainbench.exchange.reindex import imported_campaign
from trainbench.history.history import open_history
from trainbench.results.artefacts import open_store


def test_the_fleet_shows_each_state_with_cause_start_and_next_step(client: Any, pages: Path) -> None:
    text = html.unescape(get(client, "").text)
    cards = re.findall(r"<article.*?</article>", text, re.DOTALL)
    (missing,), (slow,) = ([card for card in cards if name in card] for name in (">gang-1<", ">node-3<"))

    assert "is missing: gang-1; 1 is slow: node-3" in text
    assert "red: missing" in missing
    assert "red: slow" in slow
    assert "samples/s −10.0 %" in slow
    assert "node-3 is hot: its fans stand still." in slow
    assert "<b>Next:</b> look at the fans of node-3." in slow
    assert f'href="./../dags/page_nodes/runs/scheduled__{LAST_NIGHT}" target="_top">DAG run</a>' in slow
    assert re.search(r'class="c red"[^>]*title="node-3, [\d-]+: red: slow, samples/s −10.0 % [^>]*>−10</a>', text)
    assert re.search(r'>node-1</a> <span class="now plain">well</span>', text)


def test_a_notice_has_its_figures(client: Any, pages: Path) -> None:
    page = get(client, "notices/1").text

    assert re.search(r"<h1[^>]*>node-3 is slow: samples/s −10.0 % against its peers</h1>", page)


def test_nodes_and_runs_are_found_by_name_campaign_and_state(client: Any, pages: Path) -> None:
    """The choice stands in address and form, and goes along to the CSV and to the other pages of the list."""
    red = html.unescape(get(client, "?state=red").text)
    assert re.findall(r'class="what">(.*?)<', red) == ["red: missing", "red: slow"]
    assert re.findall(r'<th scope="row"><a href="./nodes/([^?"]*)', red) == ["node-3", "gang-1"]
    assert 'href="?state=red&format=csv&table=heat"' in red
    csv = get(client, "?state=red&format=csv&table=heat").text.splitlines()
    assert {line.split(",")[0] for line in csv[1:]} == {"gang-1", "node-3"}
    assert "node-3 is slow" not in get(client, "?state=well").text
    runs = html.unescape(get(client, "runs?node=node-3&campaign=las&state=red").text)
    assert "<h1>1 run in 30 days</h1>" in runs
    assert 'name="campaign" value="las"' in runs
    assert '<option value="red" selected>red</option>' in runs
    assert 'href="?node=node-3&campaign=las&state=red&format=csv"' in runs
    assert 'href="./costs"' in runs
    assert get(client, "runs?state=ill").status_code == 422
    assert len(get(client, "runs?node=node-3&state=red&format=csv").text.splitlines()) == 2


def test_filters_narrow_every_page_and_go_along(client: Any, pages: Path) -> None:
    text = get(client, "?strategy=zero3&days=90").text

    assert "Nothing with these filters" in text
    assert "No node that was judged recently fits these filters" in get(client, "?node=nowhere").text
    assert 'href="./runs?strategy=zero3&amp;days=90"' in text
    assert '<option value="90" selected>' in text


def test_a_node_s_page_draws_its_figures_and_has_them_as_a_table(client: Any, pages: Path) -> None:
    text = get(client, "nodes/node-3").text
    assert "<svg" in text
    assert ">9.000</td>" in text
    assert "red: slow" in text
    assert "−10.0 % of 10.00" in text
    assert f'href="../runs/last/{a_run(pages)}"' in text
    assert ">Each GPU</h2>" in text
    assert "GPU,UUID," in get(client, "nodes/node-3?format=csv&table=gpus").text


def test_the_glossary_explains_states_and_each_page_links_to_it(client: Any, pages: Path) -> None:
    assert "Its figures scatter far more than those of its peers." in get(client, "glossary").text
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


def test_an_imported_run_is_listed_as_imported_and_leads_to_no_node(client: Any, own_pages: Path) -> None:
    now = datetime.now(UTC)
    result = make_result("node-3", 20.0, campaign_id="imported-h200-12345678")
    open_store(str(own_pages / "store")).write_result(result)
    dated = imported_campaign([result]).model_copy(update={"started_at": now - timedelta(hours=1), "finished_at": now})
    open_history(f"sqlite:///{own_pages / 'history.db'}").record(dated)
    runs = get(client, "runs").text

    assert ">imported-12345678/node-3<" in runs
    assert "nodes/imported" not in runs
    assert ">single, imported<" in get(client, "strategies").text
    assert "Not in these sums: 1 imported run, " in get(client, "costs").text
    page = get(client, f"runs/{dated.campaign_id}/{result.spec.identity.run_id}").text
    assert "Imported: others measured it on a machine of theirs." in page
    assert "nodes/imported" not in page
    assert "imported-12345678" not in get(client, "").text


def test_a_run_s_page_leads_to_the_kept_end_of_its_pod_s_log(client: Any, own_pages: Path) -> None:
    """It is served as plain text; no other file of the run's folder is served as a log."""
    run = a_run(own_pages)
    folder = own_pages / f"store/campaigns/last/runs/{run}"
    (folder / "pod.log").write_text("<script>alert(1)</script>\n")
    address = f"results/last/{run}/logs/pod.log"

    assert f'href="../../{address}"' in get(client, f"runs/last/{run}").text
    served = get(client, address)
    assert (served.text, served.status_code) == ("<script>alert(1)</script>\n", 200)
    assert served.headers["content-type"] == "text/plain; charset=utf-8"
    assert served.headers["x-content-type-options"] == "nosniff"
    assert get(client, f"results/last/{run}/logs/result.json").status_code == 404
    assert get(client, f"results/last/{run}/logs/rank-0.log").status_code == 404
    assert get(client, "results/last/unknown/logs/pod.log").status_code == 404


def test_a_run_whose_file_has_expired_says_so(client: Any, own_pages: Path) -> None:
    run = a_run(own_pages)
    (own_pages / f"store/campaigns/last/runs/{run}/result.json").unlink()

    assert "file has expired" in get(client, f"runs/last/{run}").text
    assert get(client, f"results/last/{run}").status_code == 404


def test_a_file_that_is_no_result_is_not_served(client: Any, own_pages: Path, tmp_path: Path) -> None:
    """Pods write into the store: a file in a result's place may be a link, or a second name, of any other."""
    run = a_run(own_pages)
    secret = tmp_path / "secret"
    secret.write_text("only for the API server")
    file = own_pages / f"store/campaigns/last/runs/{run}/result.json"
    for put in (file.symlink_to, file.hardlink_to):
        file.unlink()
        put(secret)
        reply = get(client, f"results/last/{run}")
        assert (reply.status_code, "only for" in reply.text) == (404, False)


def test_a_task_shows_the_result_that_it_handed_back(client: Any, pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench_image.contract.parse import parse_result
    from trainbench.pages.web import run_routes

    file = pages / f"store/campaigns/last/runs/{a_run(pages)}/result.json"
    monkeypatch.setattr(run_routes, "task_result", lambda *_: parse_result(file.read_text()))
    text = get(client, "dags/page_nodes/runs/r/tasks/benchmark?map_index=2").text

    assert ">9.000<" in text
    assert "<dd>samples/s −10.0 % against the median of 3 peers.</dd>" in text


def stored_night(place: Path, dag_run_id: str) -> str:
    """A campaign of `page_nodes` in the store; returns its id."""
    from trainbench.planning.plan import campaign_id

    name = campaign_id("page_nodes", dag_run_id)
    store = open_store(str(place / "store"))
    store.write_campaign(night(LAST_NIGHT, WELL, suite="page_nodes", campaign_id=name))
    return name


def test_the_report_s_links_lead_to_the_raw_results(client: Any, own_pages: Path) -> None:
    name = stored_night(own_pages, "r/1")
    text = get(client, "dags/page_nodes/runs/r-1").text

    assert re.search(rf'href="\.\./\.\./\.\./results/{name}/[^/"]+/result\.json"', text)
    assert 'href="../runs/' not in text
    assert 'http-equiv="Content-Security-Policy"' not in text  # the header says the same and allows our script


def test_a_report_is_rendered_from_the_verdict_and_no_stored_html_reaches_a_browser(
    client: Any, own_pages: Path
) -> None:
    name = stored_night(own_pages, "r")
    hostile = (
        f'<meta http-equiv="refresh" content="0;url=//evil.example">{HOSTILE}<a target="_top" href="javascript:0">'
    )
    open_store(str(own_pages / "store")).write_summary(name, {"report.html": hostile})
    reply = get(client, "dags/page_nodes/runs/r")

    assert reply.status_code == 200
    assert "<h1>" in reply.text
    assert not re.search(r"refresh|evil|javascript:|alert", reply.text)
    assert re.findall(r"<script[^>]*>", reply.text) == [f'<script src="../../../static/pages.js?v={__version__}">']
    assert "script-src 'self'" in reply.headers["content-security-policy"]


def test_a_rewritten_verdict_is_shown_at_once(client: Any, own_pages: Path) -> None:
    name = stored_night(own_pages, "r")
    before = get(client, "dags/page_nodes/runs/r").text
    store = open_store(str(own_pages / "store"))
    slow = {**WELL, "node-3": 7.0}
    store.write_campaign(night(LAST_NIGHT, slow, suite="page_nodes", campaign_id=name))

    assert get(client, "dags/page_nodes/runs/r").text != before


def test_a_verdict_that_cannot_be_read_is_reported_and_not_shown(client: Any, own_pages: Path) -> None:
    name = stored_night(own_pages, "r")
    file = own_pages / f"store/campaigns/{name}/summary/verdict.json"
    file.write_text("{")
    reply = get(client, "dags/page_nodes/runs/r")

    assert reply.status_code == 503
    assert "is not a campaign of this version" in reply.text


def test_a_report_is_shown_to_readers_of_its_own_dag_only(client: Any, own_pages: Path) -> None:
    """ "page" + "nodes-r" and "page_nodes" + "r" could make one folder's name; the campaign says whose it is."""
    store = open_store(str(own_pages / "store"))
    store.write_campaign(night(LAST_NIGHT, WELL, suite="page_gangs", campaign_id="page_nodes-r"))

    assert get(client, "dags/page_nodes/runs/r").status_code == 404
