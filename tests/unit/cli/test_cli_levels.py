"""`trainbench levels`: made from the fleet's own results, accepted, listed, taken to another store, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.builders import make_result
from tests.builders.commands import document
from trainbench.cli.app import ExitCode, app
from trainbench.results.artefacts import open_store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = str(tmp_path / "store")
    monkeypatch.setenv("TRAINBENCH_STORE", url)
    monkeypatch.setenv("LOGNAME", "ada")
    open_store(url).write_results([make_result("node-1", 9.5), make_result("node-2", 20.0, gpu_name="NVIDIA A10")])
    return url


def levels(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["levels", *arguments])


def test_levels_are_shown_before_they_are_accepted_and_listed_before_the_shipped_ones(store: str) -> None:
    shipped = levels().stdout
    made = levels("make", "--gpu", "NVIDIA H200")
    assert ("9.500 samples/s per GPU" in made.stdout, levels().stdout) == (True, shipped)

    accepted = document(levels("accept", "--gpu", "NVIDIA H200", "--json"))["levels"]
    assert [(level["gpu_name"], level["accepted_by"], level["origin"]) for level in accepted] == [
        ("NVIDIA H200", "ada", "own")
    ]
    assert levels("list").stdout.endswith(shipped)
    assert document(levels("list", "--json"))["levels"][0] == accepted[0]


def test_imported_results_are_no_level_of_this_fleet_unless_they_are_named(store: str) -> None:
    imported = make_result("node-9", 99.0, gpu_name="NVIDIA L4", campaign_id="imported-nvidia-l4-1")
    open_store(store).write_results([imported])

    assert "NVIDIA L4" not in levels("make").stdout
    assert "99.00 samples/s per GPU" in levels("make", "--campaign", "imported-nvidia-l4-1").stdout


def test_accepted_levels_go_to_another_store(store: str, tmp_path: Path) -> None:
    levels("accept")
    file, other = tmp_path / "levels.toml", str(tmp_path / "other")
    assert levels("export", str(file)).exit_code == ExitCode.OK
    assert levels("import", str(file), "--store", other).exit_code == ExitCode.OK

    assert open_store(other).read_levels() == open_store(store).read_levels() == file.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "x.toml"], "no levels of its own: make them with `trainbench levels accept`"),
        (["import", "gone.toml"], "gone.toml cannot be read: No such file"),
        (["accept", "--gpu", "H100"], "no level of H100 at any work: the results are of NVIDIA"),
        (["make", "--campaign", "gone"], "no run on a GPU is stored: run a check first"),
    ],
)
def test_what_cannot_be_is_one_line_on_standard_error(store: str, arguments: list[str], message: str) -> None:
    refused = levels(*arguments)

    assert refused.exit_code == ExitCode.USAGE
    assert message in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_wrong_file_changes_nothing(store: str, tmp_path: Path) -> None:
    levels("accept")
    before, file = open_store(store).read_levels(), tmp_path / "levels.toml"
    assert before
    file.write_text(before.replace("samples_per_second = 9.5", "samples_per_second = -9.5"))
    refused = levels("import", str(file))

    assert "samples_per_second: Input should be greater than 0 (got -9.5)" in refused.stderr
    assert open_store(store).read_levels() == before
