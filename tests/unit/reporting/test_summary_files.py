"""The log of a failed run is one click from the report; a name in a stored file is no address."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_image.contract.result import RunResult
from tests.builders import campaigns, make_failed, make_result
from trainbench.exchange.result_files import find_result_files, read_result_files
from trainbench.reporting.run_tables import failures
from trainbench.reporting.summary_files import write_summary
from trainbench.results.artefacts import Store

GANG = {"node": "node-1", "peers": ("node-2",), "nodes": 2, "gpus_per_node": 1, "strategy": "ddp"}


def of_gang(message: str) -> RunResult:
    failed = make_failed(**GANG)
    assert failed.error is not None
    return failed.model_copy(update={"error": failed.error.model_copy(update={"message": message})})


@pytest.mark.usefixtures("no_plots")
def test_the_failed_runs_of_a_report_lead_to_their_logs(store: Store, tmp_path: Path) -> None:
    campaign = campaigns.all_failed()
    first, second = (result.spec.identity.run_id for result in campaign.results)
    store.write_log(campaign.campaign_id, first, "pod.log", "CUDA error\n")
    write_summary(campaign, store)

    summary = tmp_path / "store" / "campaigns" / campaign.campaign_id / "summary"
    assert f"[pod.log](../runs/{first}/pod.log)" in (summary / "BENCHMARK_REPORT.md").read_text()
    assert f'<a href="../runs/{first}/pod.log">pod.log</a>' in (summary / "report.html").read_text()
    assert store.read_campaign(campaign.campaign_id).logs == {first: "pod.log"}
    assert [row.texts[-1] for row in failures(store.read_campaign(campaign.campaign_id)).rows] == [
        "pod.log",
        "not kept",
    ]
    assert second not in campaign.logs


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize(
    ("message", "linked"), [("node-2: CUDA error", "rank-1.log"), ("no pod gave a result", "rank-0.log")]
)
def test_of_a_gang_the_log_of_the_node_that_failed_is_linked(store: Store, message: str, linked: str) -> None:
    campaign = campaigns.make_campaign([of_gang(message)])
    run_id = campaign.results[0].spec.identity.run_id
    for name in ("rank-0.log", "rank-1.log"):
        store.write_log(campaign.campaign_id, run_id, name, "...\n")
    write_summary(campaign, store)

    assert store.read_campaign(campaign.campaign_id).logs == {run_id: linked}


@pytest.mark.usefixtures("no_plots")
def test_a_stored_result_stays_as_its_pod_printed_it_and_the_verdict_has_its_cost(store: Store) -> None:
    campaign = campaigns.make_campaign(
        [make_result(each, campaign_id="manual-2026-11-21") for each in ("node-1", "node-2")]
    )
    priced = tuple(with_price(run, 9.0) for run in campaign.results)
    name, run_id = campaign.campaign_id, campaign.results[0].spec.identity.run_id
    store.write_result(with_price(campaign.results[0], None))
    before = store.read_result_file(name, run_id)
    write_summary(campaign.model_copy(update={"results": priced}), store)

    assert store.read_result_file(name, run_id) == before
    assert store.read_results(name).results == priced
    (row,) = read_result_files(find_result_files([name], store)).rows
    assert (row.num_runs, row.usd_per_gpu_hour) == (2, 9.0)


def with_price(run: RunResult, usd: float | None) -> RunResult:
    return run.model_copy(update={"cost": run.cost.model_copy(update={"usd_per_gpu_hour": usd})})


@pytest.mark.parametrize("name", ["../../../secrets", "javascript:alert(1)", "pod.log/../../x", ""])
def test_only_the_name_of_a_log_is_linked(name: str) -> None:
    campaign = campaigns.all_failed()
    run_id = campaign.results[0].spec.identity.run_id
    (cell, *_) = (row.cells[-1] for row in failures(campaign.model_copy(update={"logs": {run_id: name}})).rows)
    assert (cell.text, cell.href) == ("not kept", None)
