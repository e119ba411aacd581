"""The contract of --json: one document on standard output, whatever happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from bench_image.contract.result_lines import result_lines
from tests.builders.commands import ROOT, trainbench, whole_document
from trainbench.cli.app import ExitCode, app
from trainbench.cli.base import DEFECT, print_error, print_json, write_document
from trainbench.judging.levels import SHIPPED_FILE
from trainbench.results.artefacts import open_store

ANSWERS = (ExitCode.OK, ExitCode.RED, ExitCode.NOT_JUDGED, ExitCode.CHANGED)
pytestmark = pytest.mark.usefixtures("home")


def command_names() -> set[str]:
    """Every command that takes --json, with its group."""

    def walk(command: Any, name: str) -> set[str]:
        inner = getattr(command, "commands", None) or {}
        own = {name} if any("--json" in option.opts for option in command.params) else set()
        return own.union(*(walk(each, f"{name} {key}".strip()) for key, each in inner.items()))

    return walk(typer.main.get_command(app), "")


@pytest.mark.parametrize(
    ("arguments", "command", "message"),
    [
        (["plan", "--nope", "--json"], "plan", "No such option: --nope"),
        (["plan", "--device", "tpu", "--json"], "plan", "'tpu' is not"),
        (["check", "--json"], "check", "Missing argument"),
        (["baseline", "accept", "--json"], "baseline accept", "Missing option '--why'"),
        (["--json"], None, "No such option: --json"),
        (["plann", "--json"], None, "No such command 'plann'"),
        (["check", "nothing-here", "--json"], "check", "neither a folder nor a campaign of the store"),
        (["plan", "--set", "rounds=0", "--json"], "plan", "rounds is"),
        (["export", "nothing-here", "--json"], "export", "nothing-here"),
    ],
)
def test_wrong_usage_is_a_document_with_an_error(arguments: list[str], command: str | None, message: str) -> None:
    result = trainbench(*arguments)
    document = whole_document(result)
    assert result.exit_code == document["exit_code"] == ExitCode.USAGE
    assert (document["schema_version"], document["command"], document["data"]) == (1, command, None)
    assert document["error"]["kind"] == "usage"
    assert message in document["error"]["message"]
    assert document["error"]["message"] in result.stderr


def written(run: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    write_document(run)
    captured = capsys.readouterr()
    document: dict[str, Any] = json.loads(captured.out)
    return document | {"stderr": captured.err}


def test_prints_and_logs_of_libraries_stay_off_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        print("INFO alembic: upgrade")
        print_json({"value": float("nan")})

    document = written(run, capsys)
    assert (document["data"], document["error"]) == ({"value": None}, None)
    assert "INFO alembic" in document["stderr"]


def test_a_defect_is_a_document_with_a_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    document = written(lambda: {}["missing"], capsys)
    assert (document["exit_code"], document["error"]["kind"]) == (DEFECT, "defect")
    assert "KeyError" in document["error"]["message"]
    assert "Traceback" in document["stderr"]


def test_a_defect_has_its_code_without_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own code is 1, which scripts would take for a red node."""
    monkeypatch.setattr("trainbench.settings.environment.read_settings", lambda: {}["missing"])
    done = trainbench("plan")

    assert done.exit_code == DEFECT
    assert "KeyError: 'missing'" in done.stderr


def test_ctrl_c_is_a_document_that_repeats_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        print_error("stopped after 2 of 4 runs")
        raise KeyboardInterrupt

    document = written(run, capsys)
    assert (document["exit_code"], document["error"]["kind"]) == (130, "interrupted")
    assert document["error"]["message"] == "stopped after 2 of 4 runs"


def assert_is_answer_or_error(document: dict[str, Any]) -> None:
    did_its_work = document["exit_code"] in ANSWERS
    assert (document["error"] is None) == did_its_work, document["error"]
    assert did_its_work <= (document["data"] is not None)


OF_THE_CLUSTER = ("watch", "doctor", "nodes list", "nodes free --all --dry-run", "collect", "housekeeping")


@pytest.mark.parametrize("command", OF_THE_CLUSTER)
def test_without_a_cluster_its_commands_write_a_document_with_the_error(
    home: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Their success is in tests/kube: test_doctor, test_watch, test_collect and test_mark_nodes."""
    monkeypatch.setenv("TRAINBENCH_LAUNCHER", "kubernetes")
    document = whole_document(trainbench(*command.split(), "--kubeconfig", str(home / "no-kubeconfig"), "--json"))
    assert command.startswith(document["command"])
    assert_is_answer_or_error(document)


@pytest.mark.slow
def test_every_command_writes_its_document_twice_with_a_history(home: Path) -> None:
    for _ in range(2):
        campaign_id = whole_document(trainbench("run", "--nodes", "node-1,node-2", "--json"))["data"]["campaign_id"]
    run_id = open_store().read_campaign(campaign_id).results[0].spec.identity.run_id
    exported = whole_document(trainbench("export", campaign_id, "--run", run_id, "--output", "out", "--json"))
    file = exported["data"]["file"]
    (home / "pod.log").write_text("\n".join(result_lines(Path(file).read_text())))
    (home / "vms.csv").write_text("provider,instance,gpu\n")
    arguments: dict[str, list[str]] = {
        "plan": [],
        "check": [campaign_id],
        "report": [campaign_id],
        "compare": [campaign_id],
        "estimate": [campaign_id, "--samples", "1000"],
        "prices": ["--gpu", "A100"],
        "prices import": ["vms.csv", "--provider", "P", "--as-of", "2026-11-20", "--source", "S"],
        "cost": [],
        "watch": [],
        "export": [campaign_id, "--run", run_id, "--output", "out"],
        "import": [file],
        "reindex": [],
        "baseline accept": ["--all", "--why", "new driver", "--who", "me"],
        "baseline list": [],
        "baseline revoke": ["1", "--who", "me"],
        "levels": [],
        "levels list": [],
        "levels make": [],
        "levels accept": ["--who", "me"],
        "levels export": ["levels.toml"],
        "levels import": [str(ROOT / "plugins/trainbench/judging" / SHIPPED_FILE)],
        "doctor": [],
        "nodes list": [],
        "nodes free": ["--all", "--dry-run"],
        "table": ["runs"],
        "list": [],
        "show": [campaign_id],
        "gpus": ["A100 80GB"],
        "params": [],
        "collect": [],
        "result": ["pod.log"],
        "housekeeping": [],
    }
    assert set(arguments) == command_names() - {"run"}
    for _ in range(2):
        for command, more in arguments.items():
            document = whole_document(trainbench(*command.split(), *more, "--json"))
            assert document["command"] == command
            assert_is_answer_or_error(document)
