"""The kept part of a pod's log: bounded, its last lines, nothing that a terminal would obey."""

from __future__ import annotations

from bench_image.contract.result_lines import result_lines
from trainbench.pods.pod_log import MAX_LINE, MAX_LOG_BYTES, LogTail, log_file


def test_a_short_log_is_kept_whole() -> None:
    assert LogTail(["step 1", "step 2"]).text == "step 1\nstep 2\n"
    assert LogTail().text == ""


def test_of_a_long_log_the_last_lines_are_kept() -> None:
    """Lines of four bytes with their line break: three of them are 12 bytes, a fourth would be 16."""
    tail = LogTail((f"s {number}" for number in range(6)), most_bytes=12)
    assert tail.text == "... 3 earlier lines left out\ns 3\ns 4\ns 5\n"


def test_the_size_is_bounded_in_bytes_whatever_the_lines_hold() -> None:
    tail = LogTail("é" * 50_000 for _ in range(20))
    assert len(tail.text.encode()) <= MAX_LOG_BYTES + 100
    assert tail.text.startswith("... 17 earlier lines left out\n")  # 3 x (2 x 10,000 + 1) bytes fit, 4 do not
    assert max(map(len, tail.text.splitlines())) == MAX_LINE


def test_no_control_character_and_no_result_gets_into_it() -> None:
    """A lone surrogate, as of a broken UTF-8 sequence, cannot be written to a file."""
    tail = LogTail(["\x1b[31mred\x07", "a\rb\u202ec\ud800", *result_lines('{"schema_version": 1}')])
    assert tail.text == " [31mred\na b c\n"


def test_each_pod_of_a_gang_has_a_log_of_its_own() -> None:
    assert (log_file(None), log_file(1)) == ("pod.log", "rank-1.log")
