"""Data on disk: what is written, when it is used again, what is said when it cannot be, and who reads which sample."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from bench_image.contract.options import Recipe
from bench_image.contract.work import DiskData
from bench_image.data import page_cache, shards
from bench_image.data.batches import TokenPool, batches
from bench_image.data.shard_layout import DataError, Layout
from bench_image.data.shard_reader import AHEAD, Place, ShardBatches
from bench_image.data.shards import prepare
from tests.builders.image_processes import environment, make_spec


def layout_in(folder: Path, *, samples: int = 10, shards: int | None = 3, **changes: int) -> Layout:
    data = DiskData(folder=str(folder), num_samples=samples, num_shards=shards)
    return Layout.of(data, **{"length": 8, "vocab_size": 100, "seed": 0} | changes)


def written(layout: Layout, local_rank: int = 0, num_local_ranks: int = 1) -> bool:
    return prepare(layout, local_rank=local_rank, num_local_ranks=num_local_ranks)


def tokens_of(layout: Layout) -> np.ndarray:
    """All samples, read by other means than the reader's."""
    parts = [np.fromfile(layout.path(index), layout.stored_dtype) for index in range(layout.num_shards)]
    return np.concatenate(parts).reshape(-1, layout.length)


def batches_of(layout: Layout, **changes: object) -> ShardBatches:
    spec, is_new = make_spec(recipe=Recipe.FULL, **changes), written(layout)
    return ShardBatches(layout, spec, Place(0, spec.placement.world_size), written=is_new, pinned=False, drops=True)


# --- layout -----------------------------------------------------------------------------------------------------------


def test_shards_hold_about_128_megabytes_by_default() -> None:
    """1e6 samples x 512 tokens x 2 bytes = 1.024e9 bytes: 8 times 128e6; one sample more is a ninth shard."""
    for samples, expected in ((1_000_000, 8), (1_000_001, 9), (1, 1)):
        assert layout_in(Path(), samples=samples, shards=None, length=512).num_shards == expected
    assert layout_in(Path(), samples=1_000_000, shards=5, length=512).num_shards == 5


def test_shards_share_the_samples_evenly() -> None:
    """10 samples in 3 shards: 4, 3, 3."""
    layout = layout_in(Path())

    assert [layout.samples_of(shard) for shard in range(3)] == [4, 3, 3]
    assert [layout.place(sample) for sample in (0, 3, 4, 6, 7, 9)] == [(0, 0), (0, 3), (1, 0), (1, 2), (2, 0), (2, 2)]


@pytest.mark.parametrize(("vocab", "dtype"), [(65_536, "uint16"), (65_537, "uint32")])
def test_token_ids_are_as_narrow_as_the_vocabulary_allows(vocab: int, dtype: str) -> None:
    assert layout_in(Path(), vocab_size=vocab).dtype == dtype


def test_more_shards_than_samples_are_refused() -> None:
    with pytest.raises(DataError, match="num_shards 3 for 2 samples"):
        layout_in(Path(), samples=2)


def test_other_parameters_are_another_folder(tmp_path: Path) -> None:
    others: list[dict[str, int]] = [{}, {"samples": 11}, {"shards": 2}, {"length": 9}, {"vocab_size": 99}, {"seed": 1}]
    folders = {layout_in(tmp_path, **changes).folder for changes in others}

    assert len(folders) == len(others)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_what_is_written_is_described_and_drawn_from_the_vocabulary(tmp_path: Path) -> None:
    layout = layout_in(tmp_path, samples=100, vocab_size=7)
    assert written(layout)

    manifest = json.loads((layout.folder / "manifest.json").read_text())
    expected = {"format": "trainbench-tokens", "version": 1, "dtype": "uint16", "sample_length": 8, "vocab_size": 7,
                "num_samples": 100, "seed": 0}  # fmt: skip
    assert expected.items() <= manifest.items()
    for shard in manifest["shards"]:
        content = (layout.folder / shard["file"]).read_bytes()
        assert (len(content), f"{zlib.crc32(content):08x}") == (shard["num_bytes"], shard["crc32"])
    assert sorted(path.name for path in layout.folder.iterdir()) == [
        "manifest.json", "shard_0000.bin", "shard_0001.bin", "shard_0002.bin",
    ]  # fmt: skip
    assert set(tokens_of(layout).flatten()) == set(range(7))


def test_a_shard_is_that_of_its_seed_and_number_however_large_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again, other = (layout_in(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    for layout in (first, again, other):
        written(layout)

    assert np.array_equal(tokens_of(first), tokens_of(again))
    assert not np.array_equal(tokens_of(first), tokens_of(other))
    assert not np.array_equal(tokens_of(first)[:3], tokens_of(first)[4:7])
    monkeypatch.setattr(shards, "BLOCK_BYTES", 32)
    assert np.array_equal(np.concatenate(list(shards.blocks(first, 1))), tokens_of(first)[4:7].flatten())


def times_of(layout: Layout) -> list[int]:
    return [layout.path(index).stat().st_mtime_ns for index in range(layout.num_shards)]


def test_data_that_is_there_is_used_again(tmp_path: Path) -> None:
    layout = layout_in(tmp_path)
    written(layout)
    before = times_of(layout)

    assert not written(layout)
    assert times_of(layout) == before


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: os.truncate(path, 5)])
def test_only_what_is_missing_or_has_another_size_is_made_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    layout = layout_in(tmp_path)
    written(layout)
    before, tokens = times_of(layout), tokens_of(layout)
    damage(layout.path(1))

    assert written(layout)
    assert np.array_equal(tokens_of(layout), tokens)
    assert [old == new for old, new in zip(before, times_of(layout), strict=True)] == [True, False, True]


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("also_missing", [False, True])
def test_a_corrupt_shard_is_named(tmp_path: Path, also_missing: bool) -> None:
    """Also where another one has to be made anyway. Deleted, it is made again."""
    layout = layout_in(tmp_path)
    written(layout)
    flip_a_bit(layout.path(2))
    if also_missing:
        layout.path(0).unlink()

    with pytest.raises(DataError, match=r"shard_0002\.bin is corrupt: .*delete this file"):
        written(layout)
    layout.path(2).unlink()
    written(layout)
    assert not written(layout)


def test_the_ranks_of_a_host_check_all_shards_between_them(tmp_path: Path) -> None:
    layout = layout_in(tmp_path)
    written(layout)
    flip_a_bit(layout.path(1))

    written(layout, local_rank=0, num_local_ranks=2)
    with pytest.raises(DataError, match=r"shard_0001\.bin"):
        written(layout, local_rank=1, num_local_ranks=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not a manifest of this version"), (None, "describes other data than its folder's name")],
)
def test_a_manifest_of_something_else_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    layout = layout_in(tmp_path)
    written(layout)
    path = layout.folder / "manifest.json"
    path.write_text(text or path.read_text().replace('"seed": 0', '"seed": 5'))

    with pytest.raises(DataError, match=message):
        written(layout)


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_too_little_space_is_seen_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards.shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(100, 50, 50))  # type: ignore[attr-defined]
    layout = layout_in(tmp_path)

    with pytest.raises(DataError, match=r"no space left .* takes 0\.00 GB, 0\.00 GB are free .*fewer samples"):
        written(layout)
    assert not list(layout.folder.glob("*shard*"))


def refuse(number: int) -> Callable[..., None]:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return refused


def test_a_disk_that_fills_up_leaves_no_half_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is injected at fsync: no file system is really full, so what the kernel does then is not tested."""
    monkeypatch.setattr("bench_image.data.shards.os.fsync", refuse(errno.ENOSPC))
    layout = layout_in(tmp_path)
    with pytest.raises(DataError, match="no space left"):
        written(layout)
    assert not list(layout.folder.glob("*shard*"))

    monkeypatch.undo()
    assert written(layout)


def test_a_place_that_cannot_hold_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"the data in .*file.* cannot be written"):
        written(layout_in(tmp_path / "file"))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Injected: tests may run as root, whom no permission stops."""
    monkeypatch.setattr(shards.fcntl, "flock", refuse(number))
    with pytest.raises(DataError, match=r"cannot be written or read: .*another folder"):
        written(layout_in(tmp_path))


# --- several writers --------------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from bench_image.contract.work import DiskData
from bench_image.data.shard_layout import Layout
from bench_image.data.shards import prepare
data = DiskData(folder=sys.argv[1], num_samples=200_000, num_shards=8)
layout = Layout.of(data, length=64, vocab_size=100, seed=0)
prepare(layout, local_rank=int(sys.argv[2]), num_local_ranks=2)
assert not prepare(layout, local_rank=int(sys.argv[2]), num_local_ranks=2)
"""


def test_processes_that_write_at_the_same_time_agree(tmp_path: Path) -> None:
    """Two jobs of two ranks each, started together."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(index % 2)],
            env=environment(OMP_NUM_THREADS="1"), stderr=subprocess.PIPE, text=True,
        )
        for index in range(4)
    ]  # fmt: skip
    for writer in writers:
        _, errors = writer.communicate(timeout=1500)
        assert writer.returncode == 0, errors

    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("writes", [True, False])
def test_a_rank_waits_for_the_one_that_writes_and_writes_itself_if_that_ends(tmp_path: Path, writes: bool) -> None:
    layout, other = layout_in(tmp_path / "data"), layout_in(tmp_path / "other")
    written(other)
    layout.folder.mkdir(parents=True)
    done: list[bool] = []
    waiting = threading.Thread(target=lambda: done.append(written(layout, local_rank=1, num_local_ranks=2)))
    with (layout.folder / shards.MANIFEST).open("a") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        if writes:
            for path in other.folder.glob("shard_*"):
                shutil.copy(path, layout.folder)
            before = times_of(layout)
            writer.write((other.folder / shards.MANIFEST).read_text())
    waiting.join(1200)

    assert done == [True]
    assert np.array_equal(tokens_of(layout), tokens_of(other))
    assert not writes or times_of(layout) == before


def test_a_manifest_that_is_half_written_is_read_again_when_it_is_whole(tmp_path: Path) -> None:
    layout = layout_in(tmp_path)
    written(layout)
    path, done = layout.folder / shards.MANIFEST, list[bool]()
    text = path.read_text()
    waiting = threading.Thread(target=lambda: done.append(written(layout)))
    with path.open("w") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.write(text[:50])
        writer.flush()
        waiting.start()
        waiting.join(0.5)
        writer.write(text[50:])
    waiting.join(1200)

    assert done == [True]


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Layout]:
    yield layout_in(tmp_path, samples=10)
    left = [thread for thread in threading.enumerate() if thread.name.startswith("shards")]
    assert left == []


def test_a_pass_reads_every_sample_once_and_begins_anew(data: Layout) -> None:
    """Batches of 4 of 10 samples: 0-3, 4-7, 8-9 and 0-1, 2-5 ...; the shards' borders are at 4 and 7."""
    reader = batches_of(data, micro_batch_size=4)
    read = torch.cat([reader.batch(step, 0) for step in range(5)])
    reader.close()

    assert read.dtype == torch.int64
    assert np.array_equal(read.numpy(), np.concatenate([tokens_of(data)] * 2))


@pytest.mark.parametrize("shape", [(1, 1, 4), (1, 2, 2), (2, 1, 2), (2, 2, 1), (4, 1, 1)])
def test_a_step_trains_on_the_same_samples_for_every_world_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]
) -> None:
    """World x accumulation x micro-batch = 4; no two ranks read the same sample."""
    world, accumulation, size = shape
    strategy = "ddp" if world > 1 else "single"
    spec = make_spec(
        recipe=Recipe.FULL, strategy=strategy, gpus_per_node=world, gradient_accumulation_steps=accumulation,
        micro_batch_size=size, seq_length=8, data=DiskData(folder=str(tmp_path), num_samples=10),
    )  # fmt: skip
    readers = []
    for rank in range(world):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        readers.append(batches(spec, rank, 100, pinned=False))
    expected = tokens_of(layout_in(tmp_path, samples=10, shards=1))
    for step in range(3):
        read = [reader.batch(step, micro_step).numpy() for micro_step in range(accumulation) for reader in readers]
        places = [(step * 4 + place) % 10 for place in range(4)]
        assert np.array_equal(np.concatenate(read), expected[places])
    for reader in readers:
        reader.close()


def test_batches_requested_out_of_order_are_still_served(data: Layout) -> None:
    reader = batches_of(data, micro_batch_size=2)
    third, first, second = (reader.batch(step, 0) for step in (2, 0, 1))
    reader.close()

    assert np.array_equal(torch.cat([first, second, third]).numpy(), tokens_of(data)[:6])


def test_reading_ahead_is_bounded(data: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = batches_of(data, micro_batch_size=1)
    reads: list[int] = []
    original = ShardBatches.read

    def counted(self: ShardBatches, index: int) -> torch.Tensor:
        reads.append(index)
        return original(self, index)

    monkeypatch.setattr(ShardBatches, "read", counted)
    reader.batch(0, 0)
    most = 1 + AHEAD
    deadline = time.monotonic() + 600
    while len(reads) < most and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    reader.close()

    assert reads == list(range(most))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), r"shard_0002\.bin cannot be read"),
        (lambda path: os.truncate(path, 10), r"shard_0002\.bin ends at byte 10"),
    ],
)
def test_a_file_that_goes_away_or_becomes_shorter_is_an_error_in_the_training_loop(
    data: Layout, damage: Callable[[Path], None], message: str
) -> None:
    reader = batches_of(data, micro_batch_size=4)
    damage(data.path(2))

    assert reader.batch(0, 0).shape == (4, 8)
    for _ in range(2):  # and it stays one; samples 4 to 7 are the second shard and the first of the third
        with pytest.raises(DataError, match=message):
            reader.batch(1, 0)
    reader.close()


def test_an_unforeseen_error_of_the_thread_is_raised_too(data: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = batches_of(data, micro_batch_size=4)
    monkeypatch.setattr(ShardBatches, "read", lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        reader.batch(0, 0)
    reader.close()


def test_a_data_set_smaller_than_a_step_is_refused(data: Layout) -> None:
    with pytest.raises(DataError, match="one step takes 12 samples, and the data set has 10"):
        batches_of(data, micro_batch_size=4, gradient_accumulation_steps=3)


# --- the page cache ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which pages are in memory")
def test_written_shards_leave_the_page_cache(tmp_path: Path) -> None:
    """Where the file system has a disk behind it; read once, they are back in memory."""
    layout = layout_in(tmp_path, samples=20_000, length=64)
    written(layout)
    paths = [layout.path(index) for index in range(3)]
    cold = page_cache.resident_pct(paths)
    if cold == 100:
        pytest.skip("a file system in memory")
    tokens_of(layout)

    assert cold == 0
    assert page_cache.resident_pct(paths) == 100
    reader = ShardBatches(layout, make_spec(), Place(0, 1), written=False, pinned=False, drops=True)
    assert "100 % in the page cache at the start" in reader.source
    page_cache.drop(paths[0])
    assert page_cache.resident_pct(paths) == pytest.approx(100 * 2 / 3, abs=0.2)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which pages are in memory")
def test_a_shard_left_behind_leaves_the_page_cache(tmp_path: Path) -> None:
    layout = layout_in(tmp_path, samples=30_000, length=64)
    reader = batches_of(layout, micro_batch_size=9_000)
    if "page cache dropped" not in reader.source:
        pytest.skip("a file system in memory")
    for step in range(2):  # 18,000 samples: the first shard, and 8,000 of the second
        reader.batch(step, 0)
    reader.close()

    assert page_cache.resident_pct([layout.path(0)]) == 0


def test_memory_and_disk_give_batches_of_the_same_size(tmp_path: Path) -> None:
    """An encoder-decoder model reads a source and a target of seq_length each."""
    spec = make_spec(recipe=Recipe.FULL, model="encoder-decoder", seq_length=8)
    disk = spec.changed(work={"data": DiskData(folder=str(tmp_path), num_samples=10)})
    pool, reader = TokenPool(spec, 0, 100, pinned=False), batches(disk, 0, 100, pinned=False)

    assert pool.batch(0, 0).shape == reader.batch(0, 0).shape == (2, 16)
    pool.close()
    reader.close()
