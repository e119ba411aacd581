"""Wrong input, help and exit codes of all commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest
from typer.core import TyperOption

from bench_image.contract.result import Status
from tests.builders import campaigns, make_failed, make_result
from tests.builders.commands import trainbench
from trainbench import __version__
from trainbench.cli import main
from trainbench.cli.app import ExitCode, exit_code
from trainbench.params.campaign_kind import CampaignKind

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "model=gpt9"], "model is 'gpt9': not a known model (did you mean 'gpt2'?): choose one of tiny"),
        (
            ["--set", "precision=fp16", "--set", "strategies=zero3", "--set", "gpus_per_node=2"],
            "nothing can run: strategy zero3: precision 'fp16' with strategy 'zero3'",
        ),
        (
            ["--set", "modle=tiny", "--set", "variants=fp16"],
            "modle (did you mean 'model'?) and variants are not parameters of node_consistency: choose from nodes, ",
        ),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    for command in ("plan", "run"):
        result = trainbench(command, *arguments)
        assert result.exit_code == ExitCode.USAGE
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert result.stdout == ""


@pytest.mark.parametrize(
    "name", ["n" * 5_000, "/tmp/" + "n" * 300, "x\x1b[31m\u202egone\x07"], ids=["long", "path", "escapes"]
)
@pytest.mark.parametrize("command", ["check", "report", "compare"])
def test_a_name_that_no_file_system_takes_is_one_line_without_control_characters(command: str, name: str) -> None:
    result = trainbench(command, name)

    assert result.exit_code == ExitCode.USAGE
    assert len(result.stderr.splitlines()) == 1
    assert not set("\x1b\u202e\x07") & set(result.output)


@pytest.mark.parametrize("arguments", [["check", "--a\u202eb\x1b[31m"], ["che\u202eck\x07"], ["--a\u202eb\x1b[31m"]])
def test_an_unknown_option_or_command_is_repeated_without_control_characters(arguments: list[str]) -> None:
    text, document = trainbench(*arguments), trainbench(*arguments, "--json")

    assert (text.exit_code, document.exit_code) == (ExitCode.USAGE, ExitCode.USAGE)
    assert "No such" in text.stderr
    assert not set("\x1b\u202e\x07") & set(text.output)
    assert json.loads(document.stdout)["error"]["message"].isprintable()


def test_help_states_the_exit_codes_and_loads_nothing_heavy() -> None:
    heavy = {"airflow", "matplotlib", "sqlalchemy", "numpy", "pandas", "scipy", "pydantic_settings", "kubernetes"}
    code = f"import sys, trainbench.cli.app; print(sorted({heavy} & set(sys.modules)))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
    help_text = " ".join(trainbench("--help").stdout.split())
    for words in ("0: no node is red", "1: a node is red", "2: wrong usage", "3: no node could be checked"):
        assert words in help_text


def test_ctrl_c_while_it_is_imported_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == "trainbench.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "trainbench.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 130


@pytest.mark.parametrize("command", [["run"], ["estimate"], ["baseline", "accept"], ["prices", "import"], []])
def test_help_names_what_an_option_takes_without_pythons_types(command: list[str]) -> None:
    assert not re.search(r"<\w|list\[|\{[a-z]|%Y", trainbench(*command, "--help").stdout.replace("{gpus}, {node}", ""))


@pytest.mark.parametrize("command", [["gpus"], ["gpus", "--json"], ["prices", "import", "vms.csv"]])
def test_a_reader_that_ends_first_is_no_red_node(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "vms.csv").write_text(
        "InstanceType,AcceleratorName,AcceleratorCount,Price,Region\np4d,A100,8,32.77,us\n"
    )
    given = (
        [*command, "--provider", "AWS", "--as-of", "2026-11-20", "--source", "v8"] if "import" in command else command
    )
    program = [sys.executable, "-c", "from trainbench.cli.app import app; app()", *given]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(program, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)

    assert (ended.returncode, "Traceback" in ended.stderr) == (141, False)


def test_the_version_is_that_of_the_project() -> None:
    assert trainbench("--version").stdout == f"trainbench {__version__}\n"


def test_a_scaling_study_is_red_by_its_failed_runs_and_judges_no_node() -> None:
    well = campaigns.make_campaign([make_result()], campaign_kind=CampaignKind.STRATEGIES)
    broken = campaigns.make_campaign(
        [make_failed(status=Status.ERROR, kind="RuntimeError", message="NCCL error")],
        campaign_kind=CampaignKind.STRATEGIES,
    )

    assert (exit_code(well), exit_code(broken)) == (ExitCode.OK, ExitCode.RED)


def test_commands_run_with_the_oldest_typer_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """typer before 0.29 gives an option no `display_type`: each command ended in a traceback."""
    (owner,) = (kind for kind in TyperOption.__mro__ if "display_type" in vars(kind))
    monkeypatch.delattr(owner, "display_type")
    assert trainbench("list").exit_code == ExitCode.OK
