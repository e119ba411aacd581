"""The store: what is written is read again, writing replaces, nothing outside its root is touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from bench_image.contract.options import Strategy
from bench_image.contract.parse import parse_result
from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result import RunResult
from tests.builders import STARTED_AT, make_failed, make_result
from tests.kube.after_fault import after_fault
from trainbench.results import artefacts
from trainbench.results.artefacts import Store, open_store
from trainbench.results.campaign import Campaign
from trainbench.results.store_files import StoreError

BAD_NAMES = ["../x", "a/b", "", ".", "..", "A", "x\n", "x" * 201, "-x", "a\x00b"]


def make_campaign(*results: RunResult, campaign_id: str = "campaign-1") -> Campaign:
    return Campaign(
        campaign_id=campaign_id,
        suite="node_consistency",
        title="a test",
        started_at=STARTED_AT,
        finished_at=STARTED_AT,
        params={},
        skipped=(),
        results=results,
        groups=(),
        findings=(),
    )


@pytest.fixture(params=["folder", "object store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The same behaviour is asked of a local folder and of an object store (fsspec's in memory)."""
    return open_store(str(tmp_path / "store") if request.param == "folder" else f"memory://{tmp_path.name}/store")


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_results_are_read_as_written_ordered_by_run(store: Store) -> None:
    second, first = make_result("node-2"), make_failed("node-1")
    store.write_result(second)
    store.write_result(first)
    assert store.read_results("campaign-1").results == (first, second)


def test_the_progress_of_reading_files_is_reported(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.write_results([make_result("node-1"), make_result("node-2")])
    (tmp_path / "campaigns/campaign-1/runs/broken").mkdir()
    (tmp_path / "campaigns/campaign-1/runs/broken/result.json").write_text("{")
    progress: list[tuple[int, int]] = []
    store.read_results("campaign-1", lambda done, total: progress.append((done, total)))
    assert progress == [(1, 3), (2, 3), (3, 3)]


def test_the_same_run_written_again_replaces(store: Store) -> None:
    store.write_result(make_failed("node-1"))
    store.write_result(make_result("node-1"))
    assert store.read_results("campaign-1").results == (make_result("node-1"),)


def test_a_campaign_that_could_not_be_read_again_is_not_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artefacts, "MAX_CAMPAIGN_BYTES", 1000)
    with pytest.raises(StoreError, match=r"'campaign-1' has \d+ bytes: 1000 can be read .* fewer nodes or works"):
        store.write_campaign(make_campaign(make_result("node-1")))
    assert not store.has_verdict("campaign-1")


def test_summary_files_are_text_or_bytes_and_their_addresses_are_returned(store: Store) -> None:
    addresses = store.write_summary("campaign-1", {"metrics.csv": "a,ö\n", "plots/step_time.png": b"\x89PNG"})
    assert list(addresses) == ["metrics.csv", "plots/step_time.png"]
    assert UPath(addresses["metrics.csv"]).read_bytes() == "a,ö\n".encode()
    assert UPath(addresses["plots/step_time.png"]).read_bytes() == b"\x89PNG"


def test_campaigns_are_listed_sorted(store: Store) -> None:
    assert store.campaign_ids() == ()
    store.write_result(make_result(campaign_id="beta"))
    store.write_campaign(make_campaign(campaign_id="alpha"))
    assert store.campaign_ids() == ("alpha", "beta")


def test_an_unknown_campaign_has_no_results_and_cannot_be_read(store: Store) -> None:
    assert store.read_results("campaign-9").results == ()
    with pytest.raises(StoreError, match=r"verdict\.json cannot be read: it does not exist"):
        store.read_campaign("campaign-9")


def test_the_layout(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    run_id = make_result().spec.identity.run_id
    store.write_result(make_result())
    store.write_campaign(make_campaign())
    store.write_summary("campaign-1", {"plots/a.png": b""})
    assert files_under(tmp_path) == [
        f"campaigns/campaign-1/runs/{run_id}/result.json",
        "campaigns/campaign-1/summary/plots/a.png",
        "campaigns/campaign-1/summary/verdict.json",
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b'{"schema_version": 1}', b"\xff", b" " * (MAX_RESULT_BYTES + 1)],
    ids=["empty", "truncated", "incomplete", "no UTF-8", "oversized"],
)
def test_a_broken_file_is_reported_and_the_others_are_read(tmp_path: Path, content: bytes) -> None:
    store = open_store(str(tmp_path))
    broken = Path(store.write_result(make_result("node-1")))
    store.write_result(make_result("node-2"))
    broken.write_bytes(content)
    stored = store.read_results("campaign-1")
    assert [result.spec.identity.node for result in stored.results] == ["node-2"]
    assert [file.address for file in stored.broken] == [str(broken)]
    assert stored.broken[0].reason


def test_a_campaign_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    Path(store.write_campaign(make_campaign())).write_text('{"campaign_id": "campaign-1"}')
    with pytest.raises(StoreError, match=r"verdict\.json is not a campaign of this version: suite"):
        store.read_campaign("campaign-1")


def test_a_verdict_with_more_values_than_its_bytes_hold_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    """pydantic takes 90 times the bytes of `[],[],[],`."""
    store = open_store(str(tmp_path))
    Path(store.write_campaign(make_campaign())).write_text('{"params": [' + "[]," * 20_000)
    with pytest.raises(StoreError, match=r"verdict\.json has too many values for its 60012 bytes"):
        store.read_campaign("campaign-1")


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_id_that_is_no_plain_name_is_refused(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="cannot name a folder"):
        store.read_results(name)
    with pytest.raises(StoreError, match="cannot name a folder"):
        store.write_summary(name, {"a.txt": ""})


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../b", "", "a//b", ".hidden", "a\\b", "a b", "a\n"])
def test_a_summary_name_outside_of_the_summary_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="plain relative names"):
        open_store(str(tmp_path)).write_summary("campaign-1", {"good.txt": "x", name: "x"})
    assert files_under(tmp_path) == []


def test_the_result_of_1000_nodes_with_8_gpus_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Each GPU as a pod reports it; 460 nodes, indented, were once more than what is read."""
    store = open_store(str(tmp_path))
    one = make_result(samples_per_s=76_000.0, strategy=Strategy.DDP, nodes=1000, gpus_per_node=8, micro_batch_size=1)
    assert one.context is not None
    gpus = {name: section.gpus * 1000 for name, section in (("context", one.context), ("telemetry", one.telemetry))}
    result = one.model_copy(
        update={name: getattr(one, name).model_copy(update={"gpus": of_all}) for name, of_all in gpus.items()}
        | {"ranks": one.ranks * 1000}
    )
    assert len(result.telemetry.gpus) == len(result.ranks) == 8000

    store.write_result(result)

    identity = result.spec.identity
    assert parse_result(store.read_result_file(identity.campaign_id, identity.run_id)) == result
    too_large = result.model_copy(update={"missing": result.missing | {f"x{i}": "y" * 4000 for i in range(5000)}})
    with pytest.raises(StoreError, match="can be read again"):
        store.write_result(too_large)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EBUSY, "busy or away"),
        (errno.ENOSPC, "the disk is full: free space"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_write_that_fails_says_why_and_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    store = open_store(str(tmp_path))
    store.write_summary("campaign-1", {"metrics.csv": "old"})

    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)  # where a full disk shows itself at the latest
    with pytest.raises(StoreError, match=message) as refused:
        store.write_summary("campaign-1", {"metrics.csv": "new"})
    after_fault("bucket-away", "store-full", cause=str(refused.value))
    assert files_under(tmp_path) == ["campaigns/campaign-1/summary/metrics.csv"]
    assert (tmp_path / "campaigns/campaign-1/summary/metrics.csv").read_text() == "old"


def test_a_store_below_a_file_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        open_store(str(tmp_path / "file")).write_result(make_result())


def test_the_place_is_the_argument_then_the_environment_then_that_of_airflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINBENCH_STORE", raising=False)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    assert open_store().root.path == str(tmp_path / "trainbench/store")
    monkeypatch.setenv("TRAINBENCH_STORE", "/data/store")
    assert open_store().root.path == "/data/store"
    assert open_store("memory://bucket/x").is_local is False


def test_an_unknown_kind_of_store_is_refused() -> None:
    with pytest.raises(StoreError, match="allowed: a folder, s3://"):
        open_store("nonsense://bucket")


def test_a_bucket_without_credentials_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own error is no OSError, and was a traceback of every command and task."""
    pytest.importorskip("s3fs")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    store = open_store("s3://bucket/store")

    words = "Unable to locate credentials: check TRAINBENCH_STORE, its credentials and the network"
    with pytest.raises(StoreError, match=f"s3://bucket/store/campaigns cannot be read: {words}"):
        store.campaign_ids()
    with pytest.raises(StoreError, match=f"cannot be written: {words}"):
        store.write_result(make_result())


def test_airflows_own_paths_are_a_root_too(tmp_path: Path) -> None:
    """Airflow's ObjectStoragePath adds connections; to the store it is one more UPath."""
    path = pytest.importorskip("airflow.sdk").ObjectStoragePath(f"file://{tmp_path}/store")
    store = Store(path)
    address = store.write_result(make_result())
    assert Path(address).is_relative_to(tmp_path)
    assert store.read_results("campaign-1").results == (make_result(),)
