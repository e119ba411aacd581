"""A result's way through a log: found whatever stands around it, never half of one."""

from __future__ import annotations

import base64
import random
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result_lines import MARK, MAX_PARTS, ResultLinesError, ResultReader, result_lines

ROOT = Path(__file__).parents[4]
LONG = "".join(random.Random(1).choices("0123456789abcdef", k=60_000))  # compresses to about half
PARTS = list(result_lines(LONG))


def test_a_line_is_mark_number_checksum_and_part() -> None:
    packed = zlib.compress(b'{"a":1}', 9)
    assert list(result_lines('{"a":1}')) == [f"{MARK} 1/1 {zlib.crc32(packed):08x} {base64.b64encode(packed).decode()}"]


def test_a_pipe_takes_each_line_in_one_piece() -> None:
    assert len(PARTS) > 9
    assert max(len(line.encode()) + 1 for line in PARTS) <= 4096, "PIPE_BUF"


def test_it_is_found_before_between_and_after_other_lines_in_any_order_and_repeated() -> None:
    first, *rest = PARTS
    log = [
        "{}",
        f"progress 12 %{first}",
        "Warning: late\r",
        *(f"2026-11-24T00:00:00.123456789Z {line}" for line in rest[::-1]),
        *(f"[base] {line}\r" for line in PARTS[:3]),
        "terminate called",
        f"{MARK} of nothing",
    ]
    assert ResultReader(log).text() == LONG


def test_lines_of_it_are_told_from_the_log_s_own() -> None:
    (line,) = result_lines("{}")
    reader = ResultReader()
    assert [reader.add(each) for each in ("step 1", line, line, f"{MARK} 2/1 00000000 AAAA")] == [
        False,
        True,
        True,
        True,
    ]
    assert reader.is_complete


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (["step 1"], "no result in the log"),
        ([*PARTS[:2], *PARTS[3:]], f"part 3 of {len(PARTS)} is missing"),
        ([*PARTS[:2], *PARTS[3:6], *PARTS[7:]], f"parts 3 and 7 of {len(PARTS)} are missing"),
        (PARTS[:1], f"parts 2, 3, 4, 5, 6 and {len(PARTS) - 6} more of {len(PARTS)} are missing"),
        ([line[:-8] for line in PARTS], "the result in the log is damaged: its checksum differs"),
        ([line[:-1] for line in PARTS[-1:]] + PARTS[:-1], "the result in the log is damaged: Incorrect padding"),
        ([f"{MARK} 1/{MAX_PARTS + 1} 00000000 AAAA"], "the result in the log is larger than the 16,000,000 bytes"),
    ],
    ids=["none", "one lost", "two lost", "many lost", "lines were cut", "not base64", "too many lines"],
)
def test_what_is_missing_or_wrong_is_said(log, message) -> None:
    with pytest.raises(ResultLinesError, match=message):
        ResultReader(log).text()


def test_a_text_that_was_cut_before_it_was_numbered_is_no_result() -> None:
    packed = zlib.compress(LONG.encode())[:100]
    with pytest.raises(ResultLinesError, match="its compressed text is cut off"):
        ResultReader([f"{MARK} 1/1 {zlib.crc32(packed):08x} {base64.b64encode(packed).decode()}"]).text()


def test_a_damaged_result_is_read_where_all_of_it_comes_again() -> None:
    assert ResultReader([PARTS[0][:-8], *PARTS[1:], *PARTS]).text() == LONG


def test_the_last_complete_result_counts() -> None:
    """A result that is cut off after a complete one changes nothing."""
    reader = ResultReader([*result_lines("first"), *result_lines("second"), *PARTS[:2]])
    assert reader.text() == "second"


def test_a_result_that_grows_beyond_the_limit_is_refused_before_it_is_unpacked() -> None:
    """1 GB of one letter would be 1 MB compressed; the first 16 MB and a byte tell."""
    with pytest.raises(ResultLinesError, match="larger than the 16,000,000 bytes"):
        ResultReader(result_lines("a" * (MAX_RESULT_BYTES + 1))).text()
    assert ResultReader(result_lines("a" * MAX_RESULT_BYTES)).is_complete


def test_any_python_can_write_the_lines() -> None:
    """As the stand-in pods of the study of nights do, which import no package."""
    code = "from bench_image.contract.result_lines import result_lines; print(*result_lines('{}'))"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.split()[0], done.stderr) == (MARK, "")
