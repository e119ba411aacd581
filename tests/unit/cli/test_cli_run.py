"""`trainbench run`: a whole campaign, whose pods are real processes of a stand-in program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from bench_image.contract.result import Status
from tests.builders.commands import document, trainbench, whole_document
from trainbench.cli.app import ExitCode
from trainbench.cli.planned import Kept
from trainbench.cli.run import brief
from trainbench.core.verdicts import State, Why
from trainbench.history.history import History
from trainbench.results.artefacts import Store, open_store
from trainbench.results.store_files import StoreError

pytestmark = pytest.mark.usefixtures("home")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("with_plots")
def test_run_goes_from_plan_to_report(home: Path) -> None:
    """Rates of 40.1 to 40.4 samples/s lie within 1 % of each other: nobody is slow."""
    result = trainbench("run", "--json")
    assert result.exit_code == ExitCode.OK, result.stderr
    data = document(result)
    assert [(node["state"], node["next_step"]) for node in data["nodes"]] == [("well", "nothing")] * 4
    assert {"metrics.csv", "BENCHMARK_REPORT.md", "report.html", "COST_REPORT.md"} <= set(data["files"])
    assert all(Path(address).is_file() for address in data["files"].values())
    assert "4/4 node-4 / independent · round 1: 40.4 samples/s" in result.stderr
    assert (home / "trainbench" / "store" / "history.sqlite").is_file()
    assert open_store().campaign_ids() == (data["campaign_id"],)
    assert data["suite"] == "command_line", "the pages show it to readers of any DAG of trainbench"
    planned = trainbench("plan")
    assert "By past runs: the median" in unwrapped(planned)
    assert re.search(r"4 runs: about [\d.]+ (ms|s|min)", unwrapped(planned))


def unwrapped(printed: Result) -> str:
    return " ".join(printed.stdout.split())


def test_two_runs_within_a_second_are_two_campaigns(home: Path) -> None:
    """The second one replaced the first in store and history: both had the id of that second."""
    ids = [document(trainbench("run", "--json", "--nodes", "node-1"))["campaign_id"] for _ in range(2)]
    assert sorted(open_store().campaign_ids()) == sorted(ids)
    assert all(re.fullmatch(r"node_consistency-\d{8}-\d{6}-\d{3}", name) for name in ids), ids


def test_a_drill_is_found_confirmed_and_red() -> None:
    """75 % slower than 40 samples/s is 10: far outside of ±5 %."""
    result = trainbench("run", "--set", "drill_node=node-3")
    assert result.exit_code == ExitCode.RED, result.stderr
    assert re.search(r"^once more, to confirm: .*node-3", result.stderr, re.MULTILINE)
    (campaign_id,) = open_store().campaign_ids()
    campaign = open_store().read_campaign(campaign_id)
    drilled = campaign.node_states[2]
    assert (drilled.node, drilled.state, drilled.why) == ("node-3", State.DRILL, Why.SLOW)
    assert "Drill detected: node-3" in result.stdout
    assert "BENCHMARK_REPORT.md" in result.stdout


def test_one_node_is_judged_by_its_own_past_from_the_second_run_on() -> None:
    """The first run has nothing to compare with. `check` says what the run said."""
    first = trainbench("run", "--json", "--nodes", "node-1")
    assert (first.exit_code, document(first)["nodes"][0]["why"]) == (ExitCode.NOT_JUDGED, "nothing_to_compare")
    second = trainbench("run", "--json", "--nodes", "node-1")
    assert second.exit_code == ExitCode.OK, second.stderr
    (node,) = document(second)["nodes"]
    assert (node["state"], [each["against"] for each in node["comparisons"]]) == ("well", ["past"])
    assert document(trainbench("check", document(second)["campaign_id"], "--json"))["nodes"] == [node]


def test_a_pod_without_a_result_is_a_failed_sample_and_the_rest_goes_on() -> None:
    result = trainbench("run", "--json", "--nodes", "node-1,node-2,node-3,node-silent", "--set", "rounds=1")
    assert result.exit_code == ExitCode.RED
    (campaign_id,) = open_store().campaign_ids()
    stored = open_store().read_campaign(campaign_id).results
    assert [r.status for r in stored[:4]] == [Status.OK, Status.OK, Status.OK, Status.INCOMPLETE]
    assert stored[3].error is not None
    assert "exit code 3" in stored[3].error.message


@pytest.mark.parametrize("what", ["history", "report", "result"])
def test_a_store_or_history_that_takes_nothing_costs_no_verdict(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was full after an hour of measuring, and nobody was told what was measured."""
    fault, writes = StoreError("the disk is full: free space"), []

    def fail(*arguments: Any) -> None:
        writes.append(arguments)
        if what != "result" or len(writes) > 1:
            raise fault

    names = {"history": (History, "record"), "report": (Store, "write_campaign"), "result": (Store, "write_result")}
    monkeypatch.setattr(*names[what], fail)
    result = trainbench("run", "--json", "--nodes", "node-1,node-2")
    told = whole_document(result)

    assert result.exit_code == ExitCode.USAGE
    assert told["messages"][-1] == "the disk is full: free space"
    if what == "result":
        assert "stopped after 1 of 2 runs: their results are kept" in told["messages"][0]
    else:
        assert [node["node"] for node in told["data"]["nodes"]] == ["node-1", "node-2"]


def test_a_missing_interpreter_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINBENCH_LOCAL_PYTHON", "/no/python")
    result = trainbench("run")
    assert result.exit_code == ExitCode.USAGE
    assert "no interpreter at /no/python" in result.stderr


def test_piped_the_first_line_comes_before_the_first_run_and_each_phase_is_named() -> None:
    result = trainbench("run", "--nodes", "node-1")
    first, second, third, *_ = result.stderr.splitlines()
    assert re.fullmatch(r"node_consistency-\S+: 1 run, at most 5 min 00 s; into \S+", first)
    assert second.startswith("1/1 ")
    assert second.endswith(": started")
    assert third.endswith(": warmup")


def test_piped_a_line_says_what_still_runs_where_nothing_ends_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainbench.cli.run.REMIND_S", 0.01)
    result = trainbench("run", "--nodes", "node-1")
    assert re.search(r"^1/1 node-1 .*: after [\d.]+ m?s still in warmup step=1/5$", result.stderr, re.MULTILINE), (
        result.stderr
    )


def test_a_pods_line_is_shown_without_what_stands_beside_it_already() -> None:
    assert brief("phase=measure window=2/3 steps=24") == "measure window=2/3 steps=24"
    assert brief("phase=warmup seconds_since_start=18.94") == "warmup"
    assert brief("Traceback (most recent call last):") == "Traceback (most recent call last):"
    assert len(brief("x" * 200)) == 100


LARGE = ("sqlalchemy", "alembic", "numpy", "pandas", "matplotlib", "airflow", "kubernetes", "trainbench.pipeline")
FIRST_LINE = f"""
import os, sys
class FirstLine:
    def write(self, text):
        if text + "" == "":  # click tries bytes, which raise an error here, then no text
            return
        imported = [name for name in {LARGE} if name in sys.modules]
        print(text, imported, flush=True)
        os._exit(0)
    def flush(self): pass
sys.stderr = FirstLine()
from trainbench.cli.app import app
app()
"""


def test_the_first_line_comes_before_the_large_imports(home: Path) -> None:
    """They take most of the seconds until the first run starts. What the line needs is imported before it."""
    printed = subprocess.run(
        [sys.executable, "-c", FIRST_LINE, "run"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.startswith("node_consistency-")
    assert printed.rstrip().endswith("[]"), printed


def test_a_stop_before_any_result_says_that_nothing_is_kept() -> None:
    kept = Kept("night-1", 4, running="1/4 tiny node-1")
    assert kept.sentence == (
        "stopped before a run had a result: no result is kept. 1/4 tiny node-1 ended without a result. The same "
        "command starts again from the first run."
    )


NODE = re.compile(r"node-(hangs|\d)")
PROGRAM = "from trainbench.cli.app import app; app()"


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_leaves_no_process_and_keeps_its_results(home: Path, signum: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "run", "--json", "--nodes", "node-1,node-hangs,node-2,node-3,node-4"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell starts background jobs with SIGINT ignored, and a child inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    pid_file = home / "hangs.pid"
    while not (pid_file.exists() and pid_file.read_text()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    (campaign_id,) = open_store().campaign_ids()
    while len(open_store().read_results(campaign_id).results) < 2:  # those beside the one that hangs
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    _is_judged_as_running(campaign_id)
    process.send_signal(signum)
    printed, logged = process.communicate(timeout=1200)
    assert process.returncode == code
    error = json.loads(printed)["error"]
    assert error["kind"] == "interrupted"
    assert "stopped after 2 of 5 runs: their results are kept, no report is written." in error["message"]
    assert "node-hangs" in error["message"]
    assert f"`trainbench check {campaign_id}` judges what is kept" in error["message"]
    assert error["message"] in logged.decode()
    while is_running(int(pid_file.read_text())):  # killed, it stays in the table until init has seen it
        time.sleep(0.05)
    kept = {result.spec.identity.node for result in open_store().read_results(campaign_id).results}
    assert kept == {"node-1", "node-2"}
    judged = document(trainbench("check", campaign_id, "--json"))
    assert (judged["suite"], judged["campaign_kind"]) == ("command_line", "nodes")
    assert [node["node"] for group in judged["groups"] for node in group["nodes"]] == ["node-1", "node-2"]
    assert _without_result(judged) == [(node, "no result yet") for node in ("node-hangs", "node-3", "node-4")]


def _is_judged_as_running(campaign_id: str) -> None:
    """Of the first three nodes, which take turns, two have a result; node-hangs never ends."""
    judged = trainbench("check", campaign_id, "--json")
    assert _without_result(document(judged)) == [(node, "no result yet") for node in ("node-hangs", "node-3", "node-4")]
    sentence = f"{campaign_id} has no verdict yet: 2 of 5 runs have a result, and this verdict is of these alone"
    assert sentence in whole_document(judged)["messages"]
    shown = trainbench("check", campaign_id).stdout
    assert re.search("^no result yet .*node-3", shown, re.MULTILINE), shown


def _without_result(judged: dict[str, Any]) -> list[tuple[str, str]]:
    return [(NODE.search(skipped["what"])[0], skipped["state"]) for skipped in judged["skipped"]]  # type: ignore[index]
