"""Files that a released version has stored open in this one; `scripts/keep_store.py` wrote tests/kept/VERSION with it.

From 0.1.0 on these folders are never rewritten, only joined by new ones. Once `finished_at` of 0.1.0's made-up results
was moved to 02:03: their windows took longer than the run, which no program has written, and which is refused now.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.builders.commands import document, trainbench
from trainbench import __version__
from trainbench.cli.base import ExitCode
from trainbench.core.states import FRESH
from trainbench.history.history import open_history
from trainbench.results.artefacts import open_store

KEPT = Path(__file__).resolve().parents[1] / "kept"
NIGHT = "night-1"
NOTICES = [("node-3", "red: slow"), ("node-4", "red: failed")]
WHYS = {"node-1": "well", "node-2": "well", "node-3": "slow", "node-4": "failed"}


@pytest.fixture(params=sorted(path.name for path in KEPT.iterdir()))
def kept(request: pytest.FixtureRequest, own_folder: Path) -> Path:
    """The store and the history of a released version, where this version expects its own."""
    folder = KEPT / request.param
    shutil.copytree(folder / "store", own_folder / "store")
    with closing(sqlite3.connect(own_folder / "store" / "history.sqlite")) as connection:
        connection.executescript((folder / "history.sql").read_text())
    return folder


def test_this_version_has_kept_a_store() -> None:
    assert (KEPT / __version__ / "history.sql").is_file(), "run scripts/keep_store.py"


def test_a_stored_night_is_judged_as_it_was(kept: Path) -> None:
    """10.0, 10.1 and 8.0 samples/s: node-3 lies 20 % below the median of 10.0, and its re-run as well."""
    checked = trainbench("check", NIGHT, "--json")
    (group,) = document(checked)["groups"]

    assert checked.exit_code == ExitCode.RED, checked.stderr
    assert {node["node"]: node["why"] for node in group["nodes"]} == WHYS


def test_a_stored_verdict_is_read_and_reported_anew(kept: Path) -> None:
    campaign = open_store().read_campaign(NIGHT)
    assert {node.node: node.why.value for group in campaign.groups for node in group.nodes} == WHYS
    assert trainbench("report", NIGHT).exit_code == ExitCode.OK
    assert {path.name for path in Path("store/campaigns/night-1/summary").iterdir()} > {"report.html", "metrics.csv"}


def test_a_stored_history_is_opened_with_its_nights_and_baselines(kept: Path) -> None:
    """Its nodes stand on the Fleet page as they were."""
    history = open_history()
    with history.engine.connect() as connection:
        counts = {
            table: connection.exec_driver_sql(f"SELECT COUNT(*) FROM {table}").scalar()
            for table in ("runs", "campaigns", "node_verdicts")
        }
        decided = connection.exec_driver_sql("SELECT COUNT(*) FROM node_verdicts WHERE deviation IS NOT deviation_pct")
        assert decided.scalar() == 0  # by its peers, which the map showed
        of_runs = connection.exec_driver_sql("SELECT node, state, why FROM runs").all()
    (campaign,) = map(open_store().read_campaign, [NIGHT])
    state = history.fleet_state(campaign.finished_at, FRESH)

    assert counts == {"runs": 5, "campaigns": 1, "node_verdicts": 4}
    assert {node.node: node.state.why.value for node in state.nodes} == WHYS
    assert {node: why for node, _, why in of_runs} == WHYS
    assert {why: state for _, state, why in of_runs} == {"well": "well", "slow": "red", "failed": "red"}
    assert "node-3" in trainbench("baseline", "list").stdout
    was_first = kept.name == "0.1.0"  # it had no notices: the night that is recorded again opens them
    accepted = NOTICES[1:]  # the accepted level ended node-3's
    assert [(notice.node, notice.word) for notice in history.open_notices()] == ([] if was_first else accepted)
    assert document(trainbench("reindex", "--json"))["recorded"] == [NIGHT]
    assert [(notice.node, notice.word) for notice in history.open_notices()] == (NOTICES if was_first else accepted)


def test_a_history_is_made_anew_from_a_stored_night(kept: Path) -> None:
    Path("store/history.sqlite").unlink()
    assert document(trainbench("reindex", "--json"))["recorded"] == [NIGHT]
    assert [(notice.node, notice.word) for notice in open_history().open_notices()] == NOTICES


def test_an_export_is_read_back(kept: Path) -> None:
    (export,) = (kept / "export").glob("*.json")
    imported = trainbench("import", str(export), "--json")

    assert imported.exit_code == ExitCode.OK, imported.stderr
    assert json.loads(imported.stdout)
