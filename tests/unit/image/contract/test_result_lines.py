"""A result's way through a log: found whatever stands around it, never half of one."""

from __future__ import annotations

import base64
import random
import zlib

import pytest

from bench_image.contract.frozen import ContractError
from bench_image.contract.pod_io import MAX_RESULT_BYTES
from bench_image.contract.result_lines import MARK, ResultReader, result_lines

LONG = "".join(random.Random(1).choices("0123456789abcdef", k=30_000))  # compresses to about half: four lines


def test_a_line_is_mark_number_checksum_and_part() -> None:
    packed = zlib.compress(b'{"a":1}', 9)
    assert list(result_lines('{"a":1}')) == [f"{MARK} 1/1 {zlib.crc32(packed):08x} {base64.b64encode(packed).decode()}"]


def test_a_pipe_takes_each_line_in_one_piece() -> None:
    lines = list(result_lines(LONG))
    assert len(lines) > 3
    assert max(len(line) + 1 for line in lines) <= 4096, "PIPE_BUF"


def test_it_is_found_before_between_and_after_other_lines_in_any_order() -> None:
    first, *rest = result_lines(LONG)
    log = ["{}", f"progress 12 %{first}", "Warning: late\r", *(f"2026-11-24T00:00:00Z {line}" for line in rest[::-1])]
    reader = ResultReader([*log, "terminate called", f"{MARK} of nothing"])
    assert reader.text == LONG


def test_lines_of_it_are_told_from_the_log_s_own() -> None:
    (line,) = result_lines("{}")
    reader = ResultReader()
    assert [reader.add(each) for each in ("step 1", line, f"{MARK} 2/1 00000000 AAAA")] == [False, True, False]
    assert reader.is_complete


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [], "the log holds no result"),
        (lambda lines: [lines[0], *lines[2:]], f"the log holds {len(list(result_lines(LONG))) - 1} of the result's"),
        (lambda lines: [line.replace("A", "B", 1) for line in lines], "their checksum differs"),
        (lambda lines: [line[:-9] for line in lines], "cannot be read"),
    ],
    ids=["none", "a line is lost", "a character changed", "lines were cut"],
)
def test_what_is_missing_or_wrong_is_said(damage, message) -> None:
    with pytest.raises(ContractError, match=message):
        _ = ResultReader(damage(list(result_lines(LONG)))).text


def test_the_last_complete_result_counts() -> None:
    """A result that is cut off after a complete one changes nothing."""
    reader = ResultReader([*result_lines("first"), *result_lines("second"), *list(result_lines(LONG))[:2]])
    assert reader.text == "second"


def test_a_result_that_grows_beyond_the_limit_is_refused_before_it_is_unpacked() -> None:
    """5 MB of one letter are 5 kB compressed."""
    reader = ResultReader(result_lines("a" * (MAX_RESULT_BYTES + 1)))
    with pytest.raises(ContractError, match="larger than the 4,000,000 bytes"):
        _ = reader.text
