"""`trainbench baseline`: what it prints, as text and as JSON, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.builders.commands import document
from tests.builders.nights import night
from trainbench.cli.app import ExitCode, app
from trainbench.history.history import open_history


@pytest.fixture(autouse=True)
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/history.sqlite"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINBENCH_HISTORY_URL", url)
    monkeypatch.setenv("LOGNAME", "ada")
    open_history(url).record(night(1, {"node-1": 10.0, "node-2": 10.0}))


def baseline(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["baseline", *arguments])


def test_a_level_is_accepted_listed_and_taken_back() -> None:
    accepted = baseline("accept", "--node", "node-1", "--why", "new power limit", "--since", "2026-11-01")
    assert accepted.exit_code == ExitCode.OK
    assert accepted.stdout.startswith("1 Baseline of node-1 since 1 Nov 2026, accepted by ada on ")
    assert accepted.stdout.rstrip().endswith(": new power limit")

    assert baseline("revoke", "1", "--who", "bob").exit_code == ExitCode.OK
    (line,) = baseline("list").stdout.splitlines()
    assert "; revoked by bob on " in line


def test_as_json_it_holds_every_field() -> None:
    accepted = document(baseline("accept", "--all", "--why", "new driver", "--json"))
    assert (accepted["id"], accepted["node"], accepted["who"], accepted["why"]) == (1, None, "ada", "new driver")
    assert document(baseline("list", "--json")) == {"baselines": [accepted]}


def test_an_empty_list_of_accepted_baselines_is_printed() -> None:
    assert baseline("list").stdout == "no baseline was ever accepted\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["accept", "--why", "x"], "either --node NODE or --all"),
        (["accept", "--why", "x", "--all", "--node", "node-1"], "either --node NODE or --all"),
        (["accept", "--why", "x", "--node", "node-7"], "choose from node-1, node-2"),
        (["accept", "--why", "x", "--all", "--since", "monday"], "'monday' does not match the formats '%Y-%m-%d'"),
        (["revoke", "3"], "there is no baseline 3: choose from none"),
    ],
)
def test_what_cannot_be_is_one_line_on_standard_error(arguments: list[str], message: str) -> None:
    result = baseline(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
