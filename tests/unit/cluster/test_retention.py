"""Artefacts expire by their last change; what cannot be dated or is not ours stays. In folders and object stores."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.builders import make_result
from tests.builders.paid_runs import spent
from trainbench.cluster.housekeeping import Action, folder_verdict, summary, sweep_artefacts, table
from trainbench.core.tables import Tone
from trainbench.cost.monthly_cost import run_table
from trainbench.cost.monthly_report import make_report, report_files
from trainbench.params.cost_params import SpendParams
from trainbench.results.artefacts import Shelf, Store, Usage, open_store
from trainbench.results.store_files import StoreError

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def usage(age_days: float | None, foreign: tuple[str, ...] = ()) -> Usage:
    changed_at = None if age_days is None else NOW - timedelta(days=age_days)
    return Usage(
        shelf=Shelf.CAMPAIGNS, name="c", num_files=2, num_bytes=3_000_000, changed_at=changed_at, foreign=foreign
    )


@pytest.fixture(params=["folder", "object store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store") if request.param == "folder" else f"memory://{tmp_path.name}/store")


@pytest.mark.parametrize(
    ("age_days", "retention_days", "is_expired", "reason"),
    [
        (180.1, 180, True, "last changed more than 180 days ago"),
        (179.9, 180, False, "kept until 180 days after its last change"),
        (5000, 0, False, "kept for ever"),
        (None, 1, False, "kept: it holds no file that can be dated"),
    ],
)
def test_age_decides(age_days: float | None, retention_days: int, is_expired: bool, reason: str) -> None:
    action = Action.DELETE if is_expired else Action.KEEP
    assert folder_verdict(usage(age_days), retention_days, NOW) == (action, reason)


def test_a_folder_that_holds_something_else_stays() -> None:
    why = "kept: thesis in it is not of a campaign; move it away"
    assert folder_verdict(usage(400, foreign=("thesis",)), 180, NOW) == (Action.KEEP, why)


def test_usage_counts_files_and_bytes(store: Store) -> None:
    store.write_result(make_result(campaign_id="night-1"))
    store.write_summary("night-1", {"metrics.csv": "12345"})
    used = store.usage(Shelf.CAMPAIGNS, "night-1")
    assert used.num_files == 2
    assert used.num_bytes == 5 + len(make_result(campaign_id="night-1").model_dump_json(indent=1).encode())
    assert used.foreign == ()
    assert used.changed_at is not None
    assert abs(used.changed_at - datetime.now(UTC)) < timedelta(hours=1)


def test_a_campaign_is_deleted_whole_and_alone(store: Store) -> None:
    for campaign_id in ("night-1", "night-2"):
        store.write_result(make_result(campaign_id=campaign_id))
    store.write_summary("night-1", {"plots/a.png": b"x"})
    assert store.delete(Shelf.CAMPAIGNS, "night-1").num_files == 2
    assert store.campaign_ids() == ("night-2",)
    assert len(store.read_results("night-2").results) == 1


@pytest.mark.parametrize("campaign_id", ["../x", "", ".", "a/b"])
def test_a_name_that_leaves_the_store_deletes_nothing(store: Store, campaign_id: str) -> None:
    store.write_result(make_result(campaign_id="night-1"))
    with pytest.raises(StoreError, match="cannot name a folder"):
        store.delete(Shelf.CAMPAIGNS, campaign_id)
    assert store.campaign_ids() == ("night-1",)


def test_foreign_files_stop_the_deletion(store: Store) -> None:
    store.write_result(make_result(campaign_id="night-1"))
    (store.root / "campaigns" / "night-1" / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match=r"thesis\.tex is not of a campaign; move it away"):
        store.delete(Shelf.CAMPAIGNS, "night-1")
    assert store.usage(Shelf.CAMPAIGNS, "night-1").num_files == 2


def test_a_link_to_somewhere_else_is_not_followed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    store.write_result(make_result(campaign_id="night-1"))
    elsewhere = tmp_path / "elsewhere" / "runs"
    elsewhere.mkdir(parents=True)
    (elsewhere / "precious").write_text("x")
    (tmp_path / "store" / "campaigns" / "night-2").symlink_to(elsewhere.parent)
    with pytest.raises(StoreError, match="not of a campaign"):
        store.delete(Shelf.CAMPAIGNS, "night-2")
    (tmp_path / "store" / "campaigns" / "night-1" / "runs" / "link").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="runs/link is not of a campaign; move it away"):
        store.delete(Shelf.CAMPAIGNS, "night-1")
    assert (elsewhere / "precious").exists()


def test_a_linked_shelf_is_not_emptied(tmp_path: Path) -> None:
    elsewhere = open_store(str(tmp_path / "elsewhere"))
    elsewhere.write_result(make_result(campaign_id="night-1"))
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "campaigns").symlink_to(tmp_path / "elsewhere" / "campaigns")
    with pytest.raises(StoreError, match="links in a store are not followed"):
        open_store(str(tmp_path / "store")).delete(Shelf.CAMPAIGNS, "night-1")
    assert elsewhere.campaign_ids() == ("night-1",)


def test_a_foreign_file_beside_a_result_stops_the_deletion_and_a_killed_writers_draft_does_not(store: Store) -> None:
    store.write_result(make_result(campaign_id="night-1"))
    (run,) = (store.root / "campaigns" / "night-1" / "runs").iterdir()
    (run / ".result.json.0a1b2c3d.tmp").write_text("{")
    assert store.usage(Shelf.CAMPAIGNS, "night-1").foreign == ()
    (run / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"notes\.txt is not of a campaign"):
        store.delete(Shelf.CAMPAIGNS, "night-1")
    (run / "notes.txt").unlink()
    store.delete(Shelf.CAMPAIGNS, "night-1")
    assert store.campaign_ids() == ()


def test_a_sweep_lists_by_default_and_deletes_with_the_flag(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    for campaign_id in ("old", "new"):
        store.write_summary(campaign_id, {"metrics.csv": "x" * 2_500_000})
    long_ago = (NOW - timedelta(days=200)).timestamp()
    os.utime(tmp_path / "campaigns" / "old" / "summary" / "metrics.csv", (long_ago, long_ago))

    swept = sweep_artefacts(store, 180, False, NOW)
    assert store.campaign_ids() == ("new", "old")
    assert [item.name for item in swept] == ["campaigns/old", "campaigns/new"]
    assert summary(swept, "folder") == "2 folders: 1 to be deleted"
    why = "last changed more than 180 days ago"
    assert [(row.tone, *row.texts) for row in table(swept).rows] == [
        (Tone.WARN, "campaigns/old", "1 file, 2.5 MB", "200 days", "to be deleted", why)
    ]

    swept = sweep_artefacts(store, 180, True, NOW)
    assert store.campaign_ids() == ("new",)
    assert [(row.tone, row.texts[0]) for row in table(swept).rows] == [(Tone.GOOD, "campaigns/old")]


def test_cost_reports_expire_like_campaigns(store: Store) -> None:
    """All files of a real report are known as ours; what somebody else put beside one keeps it."""
    months = spent([], ["2026-10", "2026-11"])
    report = make_report(run_table([]), months, SpendParams(), report_id="night", made_at=NOW, table=())
    for report_id in ("cost-1", "cost-2"):
        store.write_cost_report(report_id, report_files(report, ()))
    (store.root / "cost" / "cost-2" / "notes.txt").write_text("ours to keep")
    store.write_result(make_result(campaign_id="night-1"))
    later = datetime.now(UTC) + timedelta(days=200)

    swept = sweep_artefacts(store, 180, True, later)
    assert {item.name: item.outcome for item in swept} == {
        "campaigns/night-1": "deleted", "cost/cost-1": "deleted", "cost/cost-2": "kept",
    }  # fmt: skip
    assert store.names(Shelf.COST) == ("cost-2",)
    with pytest.raises(StoreError, match=r"notes\.txt is not of a cost report; move it away"):
        store.delete(Shelf.COST, "cost-2")


def test_the_probe_leaves_nothing_behind(store: Store) -> None:
    assert store.probe()
    assert [path for path in store.root.rglob("*") if path.is_file()] == []
