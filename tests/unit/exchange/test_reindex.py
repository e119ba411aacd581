"""The history rebuilt from the artefacts: its order, the campaigns left out with their reason, and a second time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.builders import STARTED_AT, make_result
from tests.builders.campaigns import make_campaign
from tests.builders.commands import document as document_of
from tests.builders.commands import trainbench
from trainbench.exchange.reindex import reindex
from trainbench.history.history import open_history
from trainbench.results.artefacts import Store, open_store
from trainbench.results.campaign import Campaign


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TRAINBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("TRAINBENCH_HISTORY_URL", raising=False)
    return open_store()


def night(number: int, **changes: object) -> Campaign:
    at = STARTED_AT + timedelta(days=number)
    campaign = make_campaign([make_result(campaign_id=f"night-{number}")])
    dates = {"campaign_id": f"night-{number}", "started_at": at, "finished_at": at + timedelta(hours=1)}
    return campaign.model_copy(update=dates | changes)


def test_each_verdict_is_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    for number in (2, 1):
        store.write_campaign(night(number))
    whole = Store.read_campaign
    monkeypatch.setattr(Store, "read_campaign", lambda self, name: read.append(name) or whole(self, name))
    reindex(store, Notebook())
    assert read == ["night-1", "night-2"]


class Notebook:
    def __init__(self) -> None:
        self.ids: list[str] = []

    def record(self, campaign: Campaign) -> None:
        self.ids.append(campaign.campaign_id)


def test_campaigns_are_recorded_by_when_they_ended(store: Store) -> None:
    """By name "night-10" would come before "night-2". A title that looks like a date does not deceive."""
    for number in (10, 2, 1):
        store.write_campaign(night(number, title='x\n "finished_at": "1999-01-01T00:00:00Z"'))
    notebook = Notebook()
    done = reindex(store, notebook)
    assert notebook.ids == ["night-1", "night-2", "night-10"]
    assert done.recorded == ("night-1", "night-2", "night-10")


def test_an_artefact_without_a_record_is_reported(store: Store) -> None:
    store.write_campaign(night(1))
    store.write_result(make_result(campaign_id="stopped"))
    store.write_result(make_result(campaign_id="imported-nvidia-h200-x-12345678"))
    store.write_campaign(night(2, campaign_id="imported-with-a-report"))
    Path(store.write_campaign(night(3))).write_text('{"campaign_id": "night-3"')
    done = trainbench("reindex", "--json")
    assert done.exit_code == 1
    assert document_of(done) == {
        "recorded": ["night-1"],
        "unpublished": ["stopped"],
        "imported": ["imported-nvidia-h200-x-12345678", "imported-with-a-report"],
        "left_out": [{"address": "night-3", "reason": document_of(done)["left_out"][0]["reason"]}],
    }
    assert "night-3 is left out" in done.stderr
    assert trainbench("reindex").stdout == "1 campaign recorded, 1 without a verdict, 2 imported, 1 unreadable\n"


def test_other_peoples_node_has_no_past_here(store: Store) -> None:
    """The same work on a node of the same name: our own night has a past run, the imported one has none."""
    open_history(store=store).record(night(1))
    points = []
    for campaign_id in ("night-2", "imported-with-a-report"):
        store.write_campaign(night(2, campaign_id=campaign_id))
        document = document_of(trainbench("check", campaign_id, "--json"))
        points.append({each["against"] for node in document["nodes"] for each in node["comparisons"]})
    assert points == [{"past"}, set()]


def test_an_empty_store_is_no_error(store: Store) -> None:
    done = trainbench("reindex")
    assert (done.exit_code, done.stdout) == (0, "0 campaigns recorded\n")


def test_a_store_elsewhere_without_a_history_is_one_sentence(store: Store) -> None:
    done = trainbench("reindex", "--store", "memory://x")
    assert done.exit_code == 2
    assert "set TRAINBENCH_HISTORY_URL" in done.stderr
