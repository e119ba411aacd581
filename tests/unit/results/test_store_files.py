"""Links and special files in a local store: neither read nor written through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench_image.contract.result import RunResult
from tests.builders.results import make_result
from trainbench.results.artefacts import Store, open_store
from trainbench.results.store_files import StoreError

LINK = "links in a store are not followed"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "airflow.cfg"
    path.write_text("fernet_key = x")
    return path


def result_file(store: Store, result: RunResult) -> Path:
    return Path(store.write_result(result))


def read(store: Store, result: RunResult) -> bytes:
    return store.read_result_file(result.spec.identity.campaign_id, result.spec.identity.run_id)


def test_a_result_that_is_a_link_is_not_read(store: Store, secret: Path) -> None:
    result = make_result()
    path = result_file(store, result)
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(StoreError, match=LINK):
        read(store, result)


def test_a_folder_that_is_a_link_is_not_entered(store: Store, tmp_path: Path) -> None:
    result = make_result()
    folder = result_file(store, result).parent
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=LINK):
        read(store, result)
    with pytest.raises(StoreError, match=LINK):
        store.write_result(result)


def test_one_linked_result_costs_nothing_but_itself(store: Store, secret: Path) -> None:
    path = result_file(store, make_result("node-1"))
    store.write_result(make_result("node-2"))
    path.unlink()
    path.symlink_to(secret)
    stored = store.read_results(store.campaign_ids()[0])
    assert [result.spec.identity.node for result in stored.results] == ["node-2"]
    assert LINK in stored.broken[0].reason


def test_a_fifo_is_refused_at_once(store: Store) -> None:
    result = make_result()
    path = result_file(store, result)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match="no regular file"):
        read(store, result)


def test_a_write_replaces_a_link_and_not_its_target(store: Store, secret: Path) -> None:
    result = make_result()
    path = result_file(store, result)
    path.unlink()
    path.symlink_to(secret)
    store.write_result(result)
    assert secret.read_text() == "fernet_key = x"
    assert not path.is_symlink()
    assert read(store, result)


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to(tmp_path / "disk")
    store = open_store(str(tmp_path / "store"))
    result = make_result()
    store.write_result(result)
    assert read(store, result)


def test_no_draft_stays_and_files_have_the_usual_rights(store: Store) -> None:
    path = result_file(store, make_result())
    umask = os.umask(0)
    os.umask(umask)
    assert [each.name for each in path.parent.iterdir()] == ["result.json"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
