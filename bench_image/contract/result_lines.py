"""A result as lines of a log: the one way by which it leaves a pod.

    trainbench-result 1/3 5d41402a eNqtVk1v2zgQ...

Each line has its number, the number of lines, the CRC-32 of the result's compressed text, and a part of that text
(zlib, base64). A line is at most 4,000 bytes, so that a pipe takes it in one piece (PIPE_BUF is 4,096) and no container
runtime cuts it (containerd cuts at 16 KiB).
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable, Iterator

from bench_image.contract.pod_io import MAX_RESULT_BYTES

MARK = "trainbench-result"
PART_CHARS = 3_900
# The compressed text of the largest result is no longer: zlib adds less than 0.1 % to what it cannot compress.
MAX_PARTS = MAX_RESULT_BYTES * 3 // 2 // PART_CHARS
ABSENT = "no result in the log"
_TOO_LARGE = f"the result in the log is larger than the {MAX_RESULT_BYTES:,} bytes allowed"
MAX_NAMED = 5  # missing parts in a message
_LINE = re.compile(
    rf"{MARK} ([1-9]\d{{0,5}})/([1-9]\d{{0,5}}) ([0-9a-f]{{8}}) ([A-Za-z0-9+/=]{{1,{PART_CHARS}}})(?![A-Za-z0-9+/=])"
)


class ResultLinesError(ValueError):
    """The log holds no whole result. The message says what is missing or wrong, and holds nothing of the log."""


def result_lines(text: str) -> Iterator[str]:
    """The lines, without newlines, of a result's text."""
    packed = zlib.compress(text.encode(), 9)
    checksum, encoded = f"{zlib.crc32(packed):08x}", base64.b64encode(packed).decode()
    parts = [encoded[first : first + PART_CHARS] for first in range(0, len(encoded), PART_CHARS)]
    for number, part in enumerate(parts, start=1):
        yield f"{MARK} {number}/{len(parts)} {checksum} {part}"


def is_part(line: str) -> bool:
    """Whether the line is a part of a result, which no log that people read needs."""
    return _LINE.search(line) is not None


class ResultReader:
    """Finds a result in a log that is fed line by line, whatever stands before, between and after its lines.

    Of several results, one after the other, the one that was complete last counts.
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._parts: dict[int, str] = {}
        self._begun: tuple[str, int] | None = None  # its checksum and number of parts
        self._complete: tuple[str, int] | None = None
        self._text = ""
        self._fault = ABSENT
        for line in lines:
            self.add(line)

    def add(self, line: str) -> bool:
        """Take a line of the log; return whether it is a part of a result."""
        match = _LINE.search(line)
        if match is None:
            return False
        number, total, checksum, part = int(match[1]), int(match[2]), match[3], match[4]
        if not number <= total <= MAX_PARTS:
            self._fault = _TOO_LARGE if total > MAX_PARTS else self._fault
            return True
        key = checksum, total
        if key == self._complete:
            return True
        if key != self._begun:
            self._begun, self._parts = key, {}
        self._parts[number] = part
        if len(self._parts) == total:
            encoded = "".join(self._parts[each] for each in range(1, total + 1))
            self._parts = {}  # where it is damaged, all of it must come again
            self._end(key, encoded)
        return True

    @property
    def is_complete(self) -> bool:
        return self._complete is not None

    def text(self) -> str:
        """The result's text. Raises ResultLinesError."""
        if self.is_complete:
            return self._text
        if self._begun and self._parts:
            total = self._begun[1]
            missing = [str(number) for number in range(1, total + 1) if number not in self._parts]
            raise ResultLinesError(_missing(missing, total))
        raise ResultLinesError(self._fault)

    def _end(self, key: tuple[str, int], encoded: str) -> None:
        try:
            packed = base64.b64decode(encoded, validate=True)
            if f"{zlib.crc32(packed):08x}" != key[0]:
                raise ResultLinesError("the result in the log is damaged: its checksum differs")
            stream = zlib.decompressobj()
            unpacked = stream.decompress(packed, MAX_RESULT_BYTES + 1)
            if len(unpacked) > MAX_RESULT_BYTES:
                raise ResultLinesError(_TOO_LARGE)
            if not stream.eof:
                raise ResultLinesError("the result in the log is damaged: its compressed text is cut off")
            self._text, self._complete = unpacked.decode(), key
        except ResultLinesError as error:
            self._fault = str(error)
        except (ValueError, zlib.error) as error:
            self._fault = f"the result in the log is damaged: {error}"


def _missing(numbers: list[str], total: int) -> str:
    if len(numbers) == 1:
        return f"part {numbers[0]} of {total} is missing"
    named = numbers if len(numbers) <= MAX_NAMED + 1 else [*numbers[:MAX_NAMED], f"{len(numbers) - MAX_NAMED} more"]
    return f"parts {', '.join(named[:-1])} and {named[-1]} of {total} are missing"
