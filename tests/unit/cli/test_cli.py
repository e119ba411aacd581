"""The commands as a script sees them: output, files, exit codes. The pods are real processes of a stand-in program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from bench_image.contract.result import RunResult, Status
from tests.builders import STARTED_AT, campaigns, make_failed, make_result, make_spec
from tests.conftest import GOLDEN_DIR
from trainbench.cli.app import ExitCode, app, exit_code
from trainbench.history.history import open_history
from trainbench.params.campaign_kind import Question
from trainbench.params.campaign_params import parse_params
from trainbench.planning.plan import Plan
from trainbench.results.arrivals import PlannedCampaign
from trainbench.results.artefacts import open_store

# Stands for the image: answers every spec with a rate that depends on the node and on the drill only.
FAKE_IMAGE = """
import os, sys, time
from pathlib import Path
from bench_image.contract.parse import parse_spec
from bench_image.contract.pod_io import SPEC_ENV, XCOM_DIR_ENV, XCOM_FILE
from tests.builders import make_cpu_result
spec = parse_spec(os.environ[SPEC_ENV])
print("warm-up 1/5", flush=True)
if spec.identity.node == "node-hangs":
    Path(os.environ["HANGS"]).write_text(str(os.getpid()))
    time.sleep(60)
if spec.identity.node == "node-silent":
    sys.exit(3)
rate = 40.0 + int(spec.identity.node[-1]) / 10
rate *= 1 - spec.drill.slowdown_pct / 100 if spec.drill else 1
result = make_cpu_result(samples_per_s=rate, windows=[rate * 0.999, rate, rate * 1.001], step_cv_pct=0.3)
text = result.model_copy(update={"spec": spec}).model_dump_json()
Path(os.environ[XCOM_DIR_ENV], XCOM_FILE).write_text(text)
print(text)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, four nodes, and the stand-in program as the image's interpreter."""
    for name in [name for name in os.environ if name.startswith("TRAINBENCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "image" / "program.py"
    program.parent.mkdir()
    program.write_text(FAKE_IMAGE)
    python = program.with_name("python")
    hangs = f"HANGS={tmp_path}/hangs.pid"
    python.write_text(f"#!/bin/sh\n{hangs} PYTHONPATH={os.pathsep.join(sys.path)} exec {sys.executable} {program}\n")
    python.chmod(0o755)
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHON", str(python))
    return tmp_path


def trainbench(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def write(folder: Path, *results: RunResult) -> None:
    for number, result in enumerate(results):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "result.json").write_text(result.model_dump_json())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def document(result: Result) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(result.stdout)
    return data


# --- plan -------------------------------------------------------------------------------------------------------------


def test_plan_lists_the_runs_and_starts_nothing(home: Path) -> None:
    result = trainbench("plan", "--nodes", "node-a,node-b", "--set", "rounds=1", "--set", "strategies=single,ddp")
    assert result.exit_code == ExitCode.OK
    assert "node-a" in result.stdout
    assert "node-b" in result.stdout
    assert "skipped strategy ddp: needs at least 2 GPUs per node" in result.stdout
    assert not (home / ".trainbench").exists()


def test_plan_as_json_is_the_plan() -> None:
    data = document(trainbench("plan", "--json"))
    assert [(spec["identity"]["node"], spec["identity"]["round"]) for spec in data["specs"]] == [
        (f"node-{node}", 1) for node in (1, 2, 3, 4)
    ]


def test_cuda_starts_from_the_nightly_configuration() -> None:
    planned = document(
        trainbench("plan", "--json", "--device", "cuda", "--nodes", "node-1", "--set", "gpus_per_node=1")
    )
    (spec,) = planned["specs"]
    assert tuple(spec["work"][name] for name in ("model", "micro_batch_size", "seq_length")) == ("mistral-7b", 8, 512)
    assert (spec["placement"]["strategy"], spec["work"]["preset"]) == ("independent", "tuned")


def test_a_plan_says_how_many_gpus_each_run_takes() -> None:
    sets = ["--set", "strategies=independent,ddp", "--set", "gpus_per_node=4", "--set", "rounds=1"]
    printed = trainbench("plan", "--device", "cuda", "--nodes", "node-1,node-2", *sets).stdout
    rows = [re.split(r"\s*[│┃]\s*", line)[1:5] for line in printed.splitlines() if re.match(r"[│┃]\s*(#|\d)", line)]

    assert rows[0] == ["#", "node", "strategy", "GPUs"]
    assert rows[1:3] == [["1", "node-1", "independent", "4"], ["2", "node-2", "independent", "4"]]
    assert rows[3] == ["3", "node-1", "ddp", "4"]


def test_every_new_parameter_can_be_set_on_the_command_line() -> None:
    shape = {"family": "gpt2", "hidden_size": 64, "num_layers": 2, "num_heads": 4}
    asked = {
        "model": "mine",
        "dimensions": json.dumps(shape),
        "weights": "/models/mine",
        "recipe": "lora",
        "micro_batch_size": "auto",
        "gradient_checkpointing": "off",
        "lora_targets": "all",
        "lora_dropout": "0.05",
        "data_folder": "/scratch/data",
        "data_num_shards": "4",
        "strategies": "fsdp,zero3",
        "gpus_per_node": "2",
        "force": "true",
        "rounds": "1",
        "optimizer": "",
    }
    sets = [argument for name, value in asked.items() for argument in ("--set", f"{name}={value}")]
    data = document(trainbench("plan", "--json", "--nodes", "node-1", *sets))
    first, second = data["specs"]

    assert [first["placement"]["strategy"], second["placement"]["strategy"]] == ["fsdp", "zero3"]
    assert (first["work"]["dimensions"]["hidden_size"], first["work"]["weights"]) == (64, "/models/mine")
    assert (first["work"]["micro_batch_size"], first["work"]["gradient_checkpointing"]) == ("auto", False)
    assert (first["work"]["lora"]["dropout"], len(first["work"]["lora"]["targets"])) == (0.05, 4)
    assert first["work"]["data"] == {"folder": "/scratch/data", "num_samples": 65536, "num_shards": 4}
    assert first["work"]["optimizer"] == "paged_adamw_8bit"


def test_plan_prints_manifests_that_kubectl_takes() -> None:
    pods = list(yaml.safe_load_all(trainbench("plan", "--manifests", "--set", "rounds=1").stdout))
    assert [pod["kind"] for pod in pods] == ["Pod"] * 4


def test_plan_s_manifests_have_the_template_and_one_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template.yaml"
    monkeypatch.setenv("TRAINBENCH_POD_TEMPLATE", str(template))
    template.write_text("apiVersion: v1\nkind: Pod\nspec: {schedulerName: mine}")
    pods = list(yaml.safe_load_all(trainbench("plan", "--manifests", "--set", "rounds=1").stdout))
    assert [pod["spec"]["schedulerName"] for pod in pods] == ["mine"] * 4

    template.write_text("apiVersion: v1\nkind: Pod\nspec: {scheduler: mine}")
    refused = trainbench("plan", "--manifests")
    assert refused.exit_code != 0
    assert "spec.scheduler: unknown field, did you mean schedulerName?" in refused.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "model=gpt9"], "model is 'gpt9': not a known model: choose one of tiny"),
        (["--set", "micro_batch_size=most"], "micro_batch_size is 'most': Input should be a valid integer"),
        (["--set", "model=mine", "--set", "dimensions={"], "dimensions is '{': not a JSON object"),
        (
            ["--set", "precision=fp16", "--set", "strategies=zero3", "--set", "gpus_per_node=2"],
            "nothing can run: strategy zero3: precision 'fp16' with strategy 'zero3'",
        ),
        (["--nodes", ""], "zero nodes: name at least one"),
        (["--nodes", "../../x"], "nodes is '../../x'"),
        (["--set", "micro_batch_size=0"], "micro_batch_size is '0'"),
        (["--set", "rounds"], "--set 'rounds' has no '='"),
        (["--set", "colour=red"], "colour is not a parameter: choose from"),
        (["--set", "usd_per_gpu_hour=nan"], "usd_per_gpu_hour is 'nan'"),
        (["--set", "drill_node=node-9"], "drill_node 'node-9' is not among the nodes"),
        (["--set", "strategies=ddp"], "nothing can run: strategy ddp"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: list[str], said: str) -> None:
    for command in ("plan", "run"):
        result = trainbench(command, *arguments)
        assert result.exit_code == ExitCode.USAGE
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert result.stdout == ""


# --- run --------------------------------------------------------------------------------------------------------------


def test_run_goes_from_plan_to_report(home: Path) -> None:
    """Rates of 40.1 to 40.4 samples/s lie within 1 % of each other: nobody is in breach."""
    result = trainbench("run", "--json")
    assert result.exit_code == ExitCode.OK, result.stderr
    data = document(result)
    assert [node["state"] for group in data["groups"] for node in group["nodes"]] == ["ok"] * 4
    assert {"metrics.csv", "BENCHMARK_REPORT.md", "report.html", "COST_REPORT.md"} <= set(data["files"])
    assert all(Path(address).is_file() for address in data["files"].values())
    assert "4/4 node-4 / independent · round 1: 40.4 samples/s" in result.stderr
    assert (home / ".trainbench" / "history.sqlite").is_file()
    assert open_store().campaign_ids() == (data["campaign_id"],)


def test_two_runs_within_a_second_are_two_campaigns(home: Path) -> None:
    """The second one replaced the first in store and history: both had the id of that second."""
    ids = [document(trainbench("run", "--json", "--nodes", "node-1"))["campaign_id"] for _ in range(2)]
    assert sorted(open_store().campaign_ids()) == sorted(ids)
    assert all(re.fullmatch(r"node_consistency-\d{8}-\d{6}-\d{3}", name) for name in ids), ids


def test_a_drill_is_found_confirmed_and_red() -> None:
    """75 % slower than 40 samples/s is 10: far outside of ±5 %."""
    result = trainbench("run", "--set", "drill_node=node-3")
    assert result.exit_code == ExitCode.RED, result.stderr
    assert "once more, to confirm: node-3" in result.stderr
    (campaign_id,) = open_store().campaign_ids()
    campaign = open_store().read_campaign(campaign_id)
    assert [(node.node, node.is_drill) for node in campaign.red_nodes] == [("node-3", True)]
    assert "BENCHMARK_REPORT.md" in result.stdout


def test_a_node_that_three_runs_could_not_judge_is_named_by_the_command_line_as_by_the_dag() -> None:
    """One node has nobody to be compared with. The first run stands for two days. `check` says what the run said."""
    undecided = ("undecided", "no verdict on 3 nights in a row")
    assert undecided not in _findings(trainbench("run", "--json", "--nodes", "node-1"))
    first = open_store().read_campaign(*open_store().campaign_ids())
    day_before = {"campaign_id": "the-day-before", "finished_at": first.finished_at - timedelta(days=1)}
    open_history(store=open_store()).record(first.model_copy(update=day_before))
    again = trainbench("run", "--json", "--nodes", "node-1")

    assert undecided in _findings(again)
    assert undecided in _findings(trainbench("check", document(again)["campaign_id"], "--json"))


def _findings(run: Result) -> list[tuple[str, str]]:
    return [(finding["category"], finding["measured"]) for finding in document(run)["findings"]]


def test_a_pod_without_a_result_is_a_failed_sample_and_the_rest_goes_on() -> None:
    result = trainbench("run", "--json", "--nodes", "node-1,node-2,node-3,node-silent", "--set", "rounds=1")
    assert result.exit_code == ExitCode.RED
    (campaign_id,) = open_store().campaign_ids()
    stored = open_store().read_campaign(campaign_id).results
    assert [r.status for r in stored[:4]] == [Status.OK, Status.OK, Status.OK, Status.INCOMPLETE]
    assert stored[3].error is not None
    assert "exit code 3" in stored[3].error.message


def test_a_missing_interpreter_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHON", "/no/python")
    result = trainbench("run")
    assert result.exit_code == ExitCode.USAGE
    assert "no interpreter at /no/python" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_leaves_no_process_and_keeps_its_results(home: Path, signum: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from trainbench.cli.app import app; app()", "run", "--nodes", "node-1,node-hangs"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        # A shell starts background jobs with SIGINT ignored, and a child inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    pid_file = home / "hangs.pid"
    while not (pid_file.exists() and pid_file.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signum)
    process.communicate(timeout=30)
    assert process.returncode == code
    while is_running(int(pid_file.read_text())):  # killed, it stays in the table until init has seen it
        time.sleep(0.05)
    (campaign_id,) = open_store().campaign_ids()
    assert [result.spec.identity.node for result in open_store().read_results(campaign_id).results] == ["node-1"]


# --- check ------------------------------------------------------------------------------------------------------------


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
    assert data["exit_code"] == ExitCode.RED
    red = [node["node"] for group in data["groups"] for node in group["nodes"] if node["state"] == "breach"]
    assert red == ["node-4"]
    (breach,) = [node for group in data["groups"] for node in group["nodes"] if node["state"] == "breach"]
    assert breach["confirmation"] == "not_planned"
    assert "did not come back" not in stricter.stdout
    assert not (home / ".trainbench").exists()


def test_check_judges_a_stored_campaign_again() -> None:
    trainbench("run")
    (campaign_id,) = open_store().campaign_ids()
    result = trainbench("check", campaign_id, "--json", "--set", "usd_per_gpu_hour=6")
    assert result.exit_code == ExitCode.OK, result.stderr
    assert {cost["usd_per_gpu_hour"] for cost in document(result)["costs"]} == {6.0}


def test_check_works_on_a_campaign_that_was_never_published() -> None:
    for result in four_nodes():
        open_store().write_result(result)
    assert trainbench("check", "campaign-1").exit_code == ExitCode.OK


def test_one_node_alone_is_not_judged(home: Path) -> None:
    write(home / "results", make_result())
    assert trainbench("check", "results").exit_code == ExitCode.NOT_JUDGED


def test_a_failed_run_is_red(home: Path) -> None:
    write(home / "results", *four_nodes()[:3], make_failed("node-4"))
    assert trainbench("check", "results").exit_code == ExitCode.RED


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
    ("arguments", "said"),
    [
        (["nowhere"], "'nowhere' is neither a folder nor a campaign of the store: there are none"),
        (["../../etc"], "'../../etc' is neither a folder nor a campaign"),
        (["empty"], "'empty' holds no readable result.json"),
        (
            ["empty", "--set", "model=tiny"],
            "model cannot be changed after the runs: choose from samples_per_s",
        ),
        (["empty", "--store", "nonsense://x"], "store 'nonsense://x' cannot be opened"),
    ],
)
def test_check_of_nothing_is_wrong_usage(home: Path, arguments: list[str], said: str) -> None:
    (home / "empty").mkdir()
    result = trainbench("check", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert said in result.stderr


# --- report -----------------------------------------------------------------------------------------------------------


def test_report_writes_the_summary_of_a_folder_elsewhere(home: Path) -> None:
    write(home / "results", *four_nodes())
    result = trainbench("report", "results", "--output", "published", "--json")
    assert result.exit_code == ExitCode.OK, result.stderr
    summary = home / "published" / "campaigns" / "campaign-1" / "summary"
    assert document(result)["files"]["metrics.csv"] == str(summary / "metrics.csv")
    assert (summary / "BENCHMARK_REPORT.md").is_file()


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
    assert len(re.findall(r"^\| \[8\]\(\S+/result\.json\) \| zero2 \| 1 of 4 \|", report, re.MULTILINE)) == 3
    assert len(Path(files["metrics.csv"]).read_text().splitlines()) == 1 + 40


@pytest.mark.parametrize("has_verdict", [True, False])
def test_report_of_what_schema_1_left_behind(home: Path, has_verdict: bool) -> None:
    """The published campaigns, with the verdict of the time and from their result files alone."""
    published = sorted(GOLDEN_DIR.parents[1].glob("docs/results/campaigns/*"))
    assert published
    for folder in published:
        source = folder if has_verdict else folder / "runs"
        result = trainbench("report", str(source), "--output", str(home / "again"), "--json")
        assert result.exit_code == ExitCode.OK, result.stderr


def test_report_says_of_a_stored_campaign_what_was_said_at_the_time() -> None:
    trainbench("run", "--set", "drill_node=node-2")
    (campaign_id,) = open_store().campaign_ids()
    before = open_store().read_campaign(campaign_id)
    result = trainbench("report", campaign_id)
    assert result.exit_code == ExitCode.OK, result.stderr
    assert open_store().read_campaign(campaign_id) == before


def test_help_states_the_exit_codes_and_loads_nothing_heavy() -> None:
    heavy = {"airflow", "matplotlib", "sqlalchemy", "numpy", "pandas", "scipy", "pydantic_settings", "kubernetes"}
    code = f"import sys, trainbench.cli.app; print(sorted({heavy} & set(sys.modules)))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
    said = " ".join(trainbench("--help").stdout.split())
    for words in ("0: no node is red", "1: a node is in breach", "2: wrong usage", "3: no node could be judged"):
        assert words in said


def test_a_scaling_study_is_red_by_its_failed_runs_and_judges_no_node() -> None:
    well = campaigns.make_campaign([make_result()], question=Question.STRATEGIES)
    broken = campaigns.make_campaign(
        [make_failed(status=Status.ERROR, kind="RuntimeError", message="NCCL error")], question=Question.STRATEGIES
    )

    assert (exit_code(well), exit_code(broken)) == (ExitCode.OK, ExitCode.RED)


# --- a DAG run that never came to its judgement -----------------------------------------------------------------------


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
    (group,) = document(result)["groups"]

    assert result.exit_code == ExitCode.RED, result.stderr
    assert {node["node"]: node["state"] for node in group["nodes"]} == {
        "node-1": "ok", "node-2": "ok", "node-3": "ok", "node-4": "failed",
    }  # fmt: skip
    assert document(result)["dag_run_id"] == "scheduled__1"


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
