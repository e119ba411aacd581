"""`trainbench check` and `report`: stored and loose results, judged and written again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench_image.contract.result import RunResult
from committed import committed
from tests.builders import STARTED_AT, campaigns, make_failed, make_result, make_spec
from tests.builders.commands import document, trainbench, write
from trainbench.cli.app import ExitCode
from trainbench.params.campaign_params import parse_params
from trainbench.planning.plan import Plan
from trainbench.results.arrivals import PlannedCampaign
from trainbench.results.artefacts import open_store

pytestmark = pytest.mark.usefixtures("home")


def four_nodes(fourth: float = 9.5) -> list[RunResult]:
    rates = {"node-1": 9.5, "node-2": 9.51, "node-3": 9.49, "node-4": fourth}
    return [make_result(node, rate) for node, rate in rates.items()]


def test_check_judges_a_folder_of_results(home: Path) -> None:
    """9.2 against a median of 9.5 is -3.2 %: inside of ±5 %, outside of ±2 %."""
    write(home / "results", *four_nodes(9.2))
    assert trainbench("check", "results").exit_code == ExitCode.OK
    stricter = trainbench("check", "results", "--json", "--set", "samples_per_second_tolerance_pct=2")
    assert stricter.exit_code == ExitCode.RED
    data = document(stricter)
    assert [(node["node"], node["why"]) for node in data["nodes"] if node["state"] == "red"] == [("node-4", "slow")]
    (slow,) = [node for group in data["groups"] for node in group["nodes"] if node["state"] == "red"]
    assert slow["reason"].endswith("; no re-run was planned")
    assert "gave no result" not in stricter.stdout
    assert not (home / "trainbench").exists()


def test_check_judges_a_stored_campaign_again() -> None:
    trainbench("run")
    (campaign_id,) = open_store().campaign_ids()
    result = trainbench("check", campaign_id, "--json", "--set", "usd_per_gpu_hour=6")
    assert result.exit_code == ExitCode.OK, result.stderr
    assert {cost["usd_per_gpu_hour"] for cost in document(result)["costs"]} == {6.0}


def test_a_broken_file_is_named_and_red_and_the_rest_is_judged(home: Path) -> None:
    write(home / "results", *four_nodes())
    (home / "results" / "broken").mkdir()
    (home / "results" / "broken" / "result.json").write_text('{"schema_version": 1, "spec"')
    result = trainbench("check", "results")
    assert result.exit_code == ExitCode.RED
    assert "broken/result.json is left out: result is not JSON (truncated?)" in result.stderr
    assert "node-4" in result.stdout


def test_more_rounds_than_the_form_allows_are_judged_alike_when_they_were_published(home: Path) -> None:
    """The 23 files of each node lie in one folder; published, none of them may turn into a re-run."""
    results = [result for i in range(23) for result in four_nodes(8.5 + i / 1000)]
    write(home / "many", *results)
    loose = document(trainbench("check", "many", "--json"))
    trainbench("report", "many")
    (campaign_id,) = open_store().campaign_ids()
    again = document(trainbench("check", campaign_id, "--json"))

    assert [group["nodes"] for group in again["groups"]] == [group["nodes"] for group in loose["groups"]]


def test_one_spec_run_five_times_becomes_five_rounds(home: Path) -> None:
    """An A/A measurement: equal run ids, nothing is dropped as a duplicate."""
    write(home / "a-a", *(make_result(samples_per_s=9.5 + i / 100) for i in range(5)))
    data = document(trainbench("check", "a-a", "--json"))
    assert [node["num_runs"] for group in data["groups"] for node in group["nodes"]] == [5]
    assert len({cost["run_id"] for cost in data["costs"]}) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "'' is neither a folder nor a campaign of the store: there are none"),
        (["nowhere"], "'nowhere' is neither a folder nor a campaign of the store: there are none"),
        (["../../etc"], "'../../etc' is neither a folder nor a campaign"),
        (["empty"], "'empty' holds no readable result.json"),
        (
            ["empty", "--set", "model=tiny"],
            "model cannot be changed after the runs: choose from samples_per_s",
        ),
        (["empty", "--store", "ftp://127.0.0.1:1"], "store 'ftp://127.0.0.1:1' cannot be opened"),
        (["empty", "--store", "nonsense://x"], "store 'nonsense://x' cannot be opened"),
    ],
)
def test_check_of_nothing_is_wrong_usage(home: Path, arguments: list[str], message: str) -> None:
    (home / "empty").mkdir()
    result = trainbench("check", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert message in result.stderr


@pytest.mark.parametrize("has_peer", [False, True])
def test_report_of_machines_of_several_gpus_compares_them_side_by_side(home: Path, has_peer: bool) -> None:
    """12 samples/s are 1.00x, 5.4 / 12 = 0.45x, also with another batch. Where a node has a peer, nodes are judged."""
    lora = {"model": "llama2-7b", "recipe": "lora"}
    write(
        home / "places",
        make_result("cloud", 12.0, gpu_name="NVIDIA H100 80GB HBM3", **lora),
        make_result("home", 5.4, gpu_name="NVIDIA GeForce RTX 4090", micro_batch_size=4, **lora),
        *([make_result("office", 5.4, gpu_name="NVIDIA GeForce RTX 4090", **lora)] if has_peer else []),
    )
    files = document(trainbench("report", "places", "--output", "published", "--json"))["files"]
    report = Path(files["BENCHMARK_REPORT.md"]).read_text()
    assert ("## Hardware, side by side" in report) is not has_peer
    if not has_peer:
        assert re.search(r"\| NVIDIA GeForce RTX 4090 \| 4 \| 2,765 \| 5\.400 \| 0\.45x ± ", report)


@pytest.mark.usefixtures("with_plots")
def test_report_of_a_folder_with_forty_runs_of_all_strategies(home: Path) -> None:
    """Five strategies x 1, 2, 4 and 8 GPUs x three recipes are 39 runs; one more is an OOM."""
    results = campaigns.strategy_results(("full", "lora", "qlora"), (1, 2, 4, 8))
    write(home / "results", *results, make_failed("node-1", model="tier-a", strategy="ddp", gpus_per_node=16))
    result = trainbench("report", "results", "--output", "published", "--json")
    assert result.exit_code == ExitCode.OK, result.stderr
    files = document(result)["files"]
    names = ("tokens_per_sec_vs_gpu", "step_time_vs_gpu", "scaling_efficiency", "gbps_vs_gpu")
    assert {f"plots/{name}.png" for name in names} <= files.keys()
    report = Path(files["BENCHMARK_REPORT.md"]).read_text()
    of_eight = r"^\| \[8\]\(\S+/result\.json\) \| zero2 \| 1 of 4 \|"
    assert len(re.findall(of_eight, report, re.MULTILINE)) == 3
    assert len(Path(files["metrics.csv"]).read_text().splitlines()) == 1 + 40


@pytest.mark.parametrize("has_verdict", [True, False])
def test_report_of_what_schema_1_left_behind(home: Path, has_verdict: bool) -> None:
    """The published campaigns, with the verdict of the time and from their result files alone."""
    for path, text in committed("campaigns/*.json").items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    published = sorted((home / "campaigns").iterdir())
    assert len(published) == 4
    for folder in published:
        source = folder if has_verdict else folder / "runs"
        result = trainbench("report", str(source), "--output", str(home / "again"), "--json")
        assert result.exit_code == ExitCode.OK, result.stderr


def test_report_of_a_stored_campaign_repeats_the_verdict_of_its_night() -> None:
    trainbench("run", "--set", "drill_node=node-2")
    (campaign_id,) = open_store().campaign_ids()
    before = open_store().read_campaign(campaign_id)
    result = trainbench("report", campaign_id)
    assert result.exit_code == ExitCode.OK, result.stderr
    assert open_store().read_campaign(campaign_id) == before


def test_a_report_leaves_the_raw_results_as_they_are(home: Path) -> None:
    """The pods' results have no price; the report's do, from the price table of the day."""
    write(home / "store" / "campaigns" / "campaign-1" / "runs", *four_nodes())
    raw = {path: path.read_bytes() for path in (home / "store").rglob("result.json")}
    for source in ("campaign-1", "campaign-1", "store/campaigns/campaign-1"):
        result = trainbench("report", source, "--store", "store", "--json")
        assert result.exit_code == ExitCode.OK, result.stderr
    assert len(raw) == 4
    assert {path: path.read_bytes() for path in raw} == raw
    campaign = open_store("store").read_campaign("campaign-1")
    assert campaign.results[0].cost.usd_per_gpu_hour is not None


@pytest.fixture
def killed_night() -> str:
    """Four nodes were planned; three results arrived before the run was killed."""
    planned = _planned_night()
    store = open_store()
    store.write_plan(planned.plan.campaign_id, planned.model_dump_json())
    for spec in planned.plan.specs[:3]:
        store.write_result(make_result(spec.identity.node, 10.0).model_copy(update={"spec": spec}))
    return str(planned.plan.campaign_id)


def _planned_night() -> PlannedCampaign:
    names = tuple(f"node-{number}" for number in (1, 2, 3, 4))
    specs = tuple(make_spec(node=name, campaign_id="night-1", run_id=f"night-{name}-r1") for name in names)
    plan = Plan(
        campaign_id="night-1", params=parse_params({"nodes": list(names)}), nodes=names, specs=specs, skipped=()
    )
    return PlannedCampaign(plan=plan, suite="node_consistency", dag_run_id="scheduled__1", planned_at=STARTED_AT)


def test_a_night_that_was_killed_is_judged_from_what_arrived_and_its_silent_node_is_red(killed_night: str) -> None:
    result = trainbench("check", killed_night, "--json")
    assert result.exit_code == ExitCode.RED, result.stderr
    assert {node["node"]: node["why"] for node in document(result)["nodes"]} == {
        "node-1": "well", "node-2": "well", "node-3": "well", "node-4": "failed",
    }  # fmt: skip
    assert document(result)["dag_run_id"] == "scheduled__1"
    assert "its DAG run is at work or ended early; here a run without result failed" in result.stderr


def test_a_night_that_was_killed_is_published_and_recorded_by_the_command_line(killed_night: str) -> None:
    assert trainbench("report", killed_night).exit_code == ExitCode.OK
    recorded = document(trainbench("reindex", "--json"))

    assert recorded["recorded"] == [killed_night]
    assert open_store().read_campaign(killed_night).suite == "node_consistency"
    assert len(open_store().read_results(killed_night).results) == 4


def test_a_plan_of_which_nothing_arrived_judges_nobody() -> None:
    """Its task may have failed after it had stored the plan."""
    planned = _planned_night()
    open_store().write_plan("night-1", planned.model_dump_json())
    result = trainbench("check", "night-1")

    assert result.exit_code == ExitCode.USAGE
    assert "'night-1' holds no readable result.json" in result.stderr
