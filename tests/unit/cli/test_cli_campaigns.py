"""`trainbench list` and `show`, and what the shell offers while a command is typed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from tests.builders import campaigns, make_failed, make_result
from tests.builders.commands import document, trainbench
from trainbench.cli.app import ExitCode, app
from trainbench.history.history import open_history
from trainbench.results.artefacts import open_store

pytestmark = pytest.mark.usefixtures("home")
SLOW, FAILED = make_result("node-1", 8.5), make_failed("node-2")
RUN = SLOW.spec.identity.run_id


@pytest.fixture
def night() -> str:
    """A recorded campaign with a run that failed, and a second one without a verdict."""
    store, night = open_store(), campaigns.make_campaign([SLOW, FAILED])
    store.write_campaign(night)
    open_history(store=store).record(night)
    store.write_results([make_result("node-3", 9.0, campaign_id="stopped")])
    return night.campaign_id


def test_campaigns_are_listed_with_those_that_have_no_verdict(night: str) -> None:
    listed = document(trainbench("list", "--json"))
    (row,) = listed["campaigns"]
    assert (row["campaign_id"], row["num_runs"], row["num_failed"]) == (night, 2, 1)
    assert listed["without_verdict"] == ["stopped"]
    shown = trainbench("list").stdout
    assert night in shown
    assert "Without a verdict in the history: stopped" in shown


def test_a_campaign_is_shown_with_its_verdict_and_runs(night: str) -> None:
    whole, brief = document(trainbench("show", night, "--json")), trainbench("show", night)
    assert [(run["run_id"], run["status"]) for run in whole["runs"]] == [
        (RUN, "ok"), (FAILED.spec.identity.run_id, "oom"),
    ]  # fmt: skip
    assert whole["verdict"]["campaign_id"] == night
    assert (brief.exit_code, "samples/s" in brief.stdout) == (ExitCode.OK, True)
    assert "has no verdict yet" in trainbench("show", "stopped").stdout


def complete(line: str) -> list[str]:
    """As the shell fish asks for it."""
    asked = {"_TRAINBENCH_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    environ = asked | {"_TYPER_COMPLETE_ARGS": f"trainbench {line}"}
    return CliRunner().invoke(app, prog_name="trainbench", env=environ).stdout.splitlines()


def test_the_shell_completes_names_and_values(night: str) -> None:
    assert complete(f"check {night[:4]}") == [night]
    assert complete("plan --suite h") == ["hardware_survey"]
    assert complete("plan --set rou") == ["rounds=", "rounds=1"]
    assert complete("plan --set se") == ["seq_length=", "seed="]
    assert complete("plan --set precision=b") == ["precision=bf16"]
    assert complete("plan --set strategies=single,d") == ["strategies=single,ddp"]
    assert complete("plan --set quick=") == ["quick=true", "quick=false"]
    assert complete("run --model gpt2-") == ["gpt2-medium", "gpt2-large"]
    assert complete("gpus A100") == ["A100 40GB", "A100 80GB"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("check", "manu"), ["manual-2026-11-21"]),
        (("plan", "--set", "precision", "=", "b"), ["bf16"]),
        (("plan", "--set", "quick", "="), ["true", "false"]),
        (("plan", "--set", "strategies", "=", "single,d"), ["single,ddp"]),
        (("gpus", "A100\\ 8"), ["A100\\ 80GB"]),
    ],
)
def test_bash_completes_though_it_cuts_words_at_signs(night: str, words: Sequence[str], offered: Sequence[str]) -> None:
    asked = {"_TRAINBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(["trainbench", *words])}
    environ = asked | {"COMP_CWORD": str(len(words))}
    assert CliRunner().invoke(app, prog_name="trainbench", env=environ).stdout.splitlines() == offered
