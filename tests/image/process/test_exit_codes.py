"""The file in which torchrun's wrapper leaves the exit codes of the ranks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from bench_image.process.exit_codes import RANK_EXITS_FILE, read_exit_codes, write_exit_codes
from bench_image.process.torchrun import first_exit_codes


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_exit_codes(tmp_path) == {}
    write_exit_codes(tmp_path, {0: -9, 3: 1})
    assert read_exit_codes(tmp_path) == {0: -9, 3: 1}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"x": 1}', b'{"0": null}', b"\xff", b'{"0": ' + b"9" * 4301 + b"}"]
)
def test_a_cut_file_counts_as_none_and_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (tmp_path / RANK_EXITS_FILE).write_bytes(content)
    assert read_exit_codes(tmp_path) == {}
    assert "rank-exits.json is broken" in capsys.readouterr().err


def test_a_rank_that_torchrun_ended_later_is_no_first_failure() -> None:
    failures = {0: (-9, 1_000_030), 1: (-9, 1_000_000), 2: (1, 1_000_000)}
    seen = {rank: SimpleNamespace(exitcode=code, timestamp=at) for rank, (code, at) in failures.items()}

    assert first_exit_codes(seen) == {1: -9, 2: 1}
