"""`trainbench run -- COMMAND` as a user types it: the pod, our program beside the command, and the command are real."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select

from bench_image.contract.options import Strategy
from bench_image.contract.result import Status
from tests.builders import make_cpu_result
from tests.builders.commands import ROOT, document, trainbench, whole_document
from trainbench.cli.app import ExitCode
from trainbench.comparison.scaling import efficiencies
from trainbench.history.history import open_history
from trainbench.history.tables import runs
from trainbench.reporting.data_files import metric_rows
from trainbench.results.artefacts import open_store

STEP = "trainbench: step=%d seconds=0.01 samples=8 loss=1.5"
TRAIN = f"for n in range(60): print('{STEP}' % n)"


@pytest.fixture(autouse=True)
def own_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's script; this Python has what our program needs beside a command on a CPU."""
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHON", sys.executable)
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (home / "train.py").write_text(TRAIN)
    return home


def test_a_command_goes_from_its_log_to_the_verdict_and_has_a_past_of_its_own(own_folder: Path) -> None:
    """8 samples in 0.01 s are 800 samples/s. The same files are judged by their past, changed ones have none."""
    command = ("--env", "A=1", "--", sys.executable, "train.py", "--gpus={gpus}")
    first, second = (trainbench("run", "--json", *command) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (ExitCode.NOT_JUDGED, ExitCode.OK), second.stderr
    (node,) = document(second)["nodes"]
    assert (node["state"], [each["against"] for each in node["comparisons"]]) == ("well", ["past"])
    (result,) = open_store().read_campaign(document(second)["campaign_id"]).results
    assert result.performance.samples_per_second == pytest.approx(800)
    job = result.spec.work.own_job
    assert job is not None
    assert (job.environment, str(job.version)[12:], job.folder) == (("A=1",), " of train.py", str(own_folder))
    assert "800 samples/s" in second.stderr
    assert "log profile: trainbench" in second.stderr
    (row,) = metric_rows(open_store().read_campaign(document(second)["campaign_id"]))
    assert {row[name] for name in ("seq_len", "recipe", "precision", "optimizer", "weights", "data")} == {None}
    with open_history(store=open_store()).engine.connect() as connection:
        assert set(connection.execute(select(runs.c.seq_length)).scalars()) == {None}
    again = trainbench("check", document(second)["campaign_id"], "--json")
    assert document(again)["nodes"] == [node]
    (own_folder / "train.py").write_text(f"{TRAIN}  # changed")
    changed = trainbench("run", "--json", *command)
    assert document(changed)["nodes"][0]["why"] == "nothing_to_compare"


def test_a_command_runs_at_each_number_of_processes_of_this_machine(own_folder: Path) -> None:
    """8 samples in 0.01 s, and 16 in 0.0125 s: 800 and 1,280 samples/s, 80 % of it for each process."""
    (own_folder / "train.py").write_text(
        "import sys; n = int(sys.argv[1])\n"
        "for i in range(60): print(f'trainbench: step={i} seconds={0.0075 + n * 0.0025} samples={8 * n}')"
    )
    result = trainbench("run", "--json", "--suite", "strategy_scaling", "--", sys.executable, "train.py", "{gpus}")
    assert result.exit_code == ExitCode.OK, result.stderr
    campaign = open_store().read_campaign(document(result)["campaign_id"])
    one, two = efficiencies(campaign.results)
    assert one is None
    assert two is not None
    assert (two.base_strategy, two.base_world_size, round(two.pct, 6)) == (Strategy.OWN, 1, 80.0)
    rows = document(trainbench("compare", campaign.campaign_id, "--json"))["rows"]
    assert [(row["label"], row["num_ranks"], row["batch_per_rank"], row["relative_rate"]) for row in rows] == [
        ("train.py", 1, 8, 1.0), ("train.py", 2, 8, 1.6),
    ]  # fmt: skip


def test_what_a_command_reached_is_estimated_priced_published_and_reported_beside_our_own_work(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """80,000 samples at 800 samples/s take 100 s."""
    monkeypatch.setenv("TRAINBENCH_STORE", str(own_folder / "store"))
    run = document(trainbench("run", "--json", "--", sys.executable, "train.py"))["campaign_id"]
    assert (
        "80,000 samples of train.py, batch 8, own, on 1 process (CPU)"
        in (estimated := trainbench("estimate", "--samples", "80000", run)).stdout
    )
    assert "take 1 min 40 s at 800.0 samples/s" in estimated.stdout
    assert "in the largest process" in estimated.stdout
    (row,) = document(trainbench("cost", "--all", "--json"))["works"]
    assert row["work"] == "train.py, 8 samples a step, on 1 process"
    assert "is a command of your own" in trainbench("export", run).stderr
    exported = trainbench("export", run, "--with-names")
    assert trainbench("import", exported.stdout.strip()).exit_code == ExitCode.OK
    ours = make_cpu_result("node-1", 40.0)
    open_store().write_results([ours])
    joined = trainbench("report", "store/campaigns", "--output", "joined")
    assert joined.exit_code == ExitCode.OK, joined.stderr
    (report,) = (path.read_text() for path in own_folder.glob("joined/**/BENCHMARK_REPORT.md"))
    assert report.startswith("# tiny and train.py ")


def test_a_failed_command_shows_its_last_lines_and_the_campaign_its_id() -> None:
    result = trainbench("run", "--", "sh", "-c", "echo one; echo two; exit 3")
    assert result.exit_code == ExitCode.RED
    assert "error: the command ended with exit code 3; last lines:\n| one\n| two\n" in result.stderr
    (log,) = re.findall(r": its log is (\S+/pod\.log)$", result.stderr, re.MULTILINE)
    assert Path(log.removeprefix("file://")).read_text().splitlines()[-2:] == ["one", "two"]
    (campaign_id,) = open_store().campaign_ids()
    assert f"campaign: {campaign_id}\n" in result.stdout
    (failed,) = open_store().read_campaign(campaign_id).results
    assert failed.status is Status.ERROR


@pytest.mark.parametrize(
    "program",
    ["echo hello", "yes | head -n 1000000", "head -c 10000000 /dev/zero | tr '\\0' x"],
    ids=["no step", "a million lines", "a line of 10 MB"],
)
def test_a_hostile_command_on_one_node_takes_nothing_from_another(program: str, own_folder: Path) -> None:
    """An image that is not there: tests/kube/faults.toml; files with an alias bomb: test_campaign_file."""
    script = f"if [ $1 = bad ]; then {program}; else exec {sys.executable} train.py; fi"
    result = trainbench("run", "--json", "--nodes", "bad,good", "--", "sh", "-c", script, "sh", "{node}")
    campaign = open_store().read_campaign(document(result)["campaign_id"])
    assert {run.spec.identity.node: run.status for run in campaign.results} == {
        "bad": Status.ERROR, "good": Status.OK,
    }  # fmt: skip
    (error,) = (run.error for run in campaign.results if run.error)
    assert (error.kind, "no line of a step" in error.message, len(error.message) <= 4000) == ("no_step", True, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--", "train", "{gpu}"), "{gpu} is not a placeholder: choose {gpus}, {node}, {nodes}, {node_rank}"),
        (("--profile", "nemo2", "--", "train"), "log profile 'nemo2' is not known: choose auto, trainbench, "),
        (("--profile", "nemo"), "--profile belongs to a command of yours: write it after '--'"),
        (("--env", "A", "--", "train"), "--env 'A' has no '=': write --env NAME=VALUE"),
        (("--set", "strategies=own"), "'own' is the strategy of a command of yours"),
        (("--set", "drill_node=node-1", "--", "train"), "drill_node with a command of yours"),
        (
            ("--suite", "config_diagnosis", "--", "train"),
            "command, job_environment, job_version, job_folder and log_profile are not",
        ),
        (("node_consistency",), "node_consistency is a suite, not a command of yours: write --suite node_consistency"),
        (("--model", "tiny", "--set", "model=gpt2"), "--model and --set model=... give two values"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(arguments: tuple[str, ...], sentence: str) -> None:
    result = trainbench("run", "--json", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert sentence in whole_document(result)["error"]["message"]


def test_a_wrong_file_of_log_profiles_is_named(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINBENCH_LOG_PROFILES", str(own_folder / "mine.toml"))
    assert "mine.toml cannot be read" in trainbench("run", "--", "true").stderr
    (own_folder / "mine.toml").write_text("[[profile]]\nname = 'mine'")
    assert "mine.toml: profile 'mine': source: Field required" in trainbench("run", "--", "true").stderr


def test_ctrl_c_ends_the_command_with_all_that_it_started(own_folder: Path) -> None:
    """What it started is in a session of its own, as torchrun's processes are."""
    pid_file = own_folder / "pid"
    command = ["sh", "-c", f"setsid sleep 3600 & echo $! > {pid_file}; wait"]
    terminal = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # ignored in a background job
    program = [sys.executable, "-c", f"{terminal}\nfrom trainbench.cli.app import app\napp()", "run", "--", *command]
    with subprocess.Popen(program, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as process:
        deadline = time.monotonic() + 120
        while not (pid_file.exists() and pid_file.read_text().strip()) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    pid = int(pid_file.read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_params_lists_what_a_suite_can_be_told() -> None:
    listed = trainbench("params", "config_diagnosis")
    assert listed.exit_code == ExitCode.OK
    assert "variants" in listed.stdout
    assert "drill_node" not in listed.stdout
    fields = document(trainbench("params", "--json", "--cpu"))["parameters"]
    assert (fields["model"]["default"], fields["rounds"]["maximum"]) == ("tiny", 20)
    assert "'node_consistenc' is not one of 'node_consistency'" in trainbench("params", "node_consistenc").stderr
    assert "--quick" in trainbench("run", "-h").stdout
