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

from bench_image.contract.frozen import ContractError
from bench_image.contract.pod_io import MAX_RESULT_BYTES

MARK = "trainbench-result"
PART_CHARS = 3_900
# Compressed text of the largest result is no longer: zlib adds less than 0.1 % to what it cannot compress.
MAX_PARTS = MAX_RESULT_BYTES * 3 // 2 // PART_CHARS
_LINE = re.compile(
    rf"{MARK} ([1-9]\d{{0,4}})/([1-9]\d{{0,4}}) ([0-9a-f]{{8}}) ([A-Za-z0-9+/=]{{1,{PART_CHARS}}})(?![A-Za-z0-9+/=])"
)


def result_lines(text: str) -> Iterator[str]:
    """The lines, without newlines, of a result's text."""
    packed = zlib.compress(text.encode(), 9)
    checksum, encoded = f"{zlib.crc32(packed):08x}", base64.b64encode(packed).decode()
    parts = [encoded[first : first + PART_CHARS] for first in range(0, len(encoded), PART_CHARS)]
    for number, part in enumerate(parts, start=1):
        yield f"{MARK} {number}/{len(parts)} {checksum} {part}"


class ResultReader:
    """Finds a result in a log that is fed line by line, whatever stands before, between and after its lines.

    Of several results the one whose last missing line came last counts. Holds at most the parts of the result that is
    being read, about 6 MB.
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._of: tuple[str, str] | None = None  # checksum and number of lines of the result that is being read
        self._parts: dict[int, str] = {}
        self._text: str | None = None
        self._fault: str | None = None
        for line in lines:
            self.add(line)

    def add(self, line: str) -> bool:
        """Whether the line is one of a result's, which no log that people read needs."""
        match = _LINE.search(line)
        if match is None:
            return False
        number, total, checksum, part = match.groups()
        if int(number) > int(total) or int(total) > MAX_PARTS:
            return False
        if self._of != (checksum, total):
            self._of, self._parts = (checksum, total), {}
        self._parts[int(number)] = part
        if len(self._parts) == int(total):
            self._end(checksum)
        return True

    @property
    def text(self) -> str:
        """The result's text. Raises ContractError with what is missing or wrong."""
        if self._text is not None:
            return self._text
        if self._fault is not None:
            raise ContractError(self._fault)
        if self._of is None:
            raise ContractError("the log holds no result")
        total = int(self._of[1])
        missing = [number for number in range(1, total + 1) if number not in self._parts]
        named = ", ".join(map(str, missing[:5])) + (" and more" if len(missing) > 5 else "")
        raise ContractError(f"the log holds {total - len(missing)} of the result's {total} lines: missing {named}")

    @property
    def is_complete(self) -> bool:
        return self._text is not None

    def _end(self, checksum: str) -> None:
        try:
            packed = base64.b64decode("".join(self._parts[number] for number in sorted(self._parts)), validate=True)
            if f"{zlib.crc32(packed):08x}" != checksum:
                raise ValueError("their checksum differs")
            stream = zlib.decompressobj()
            unpacked = stream.decompress(packed, MAX_RESULT_BYTES + 1)
            if len(unpacked) > MAX_RESULT_BYTES:
                raise ValueError(f"it is larger than the {MAX_RESULT_BYTES:,} bytes allowed")
            if not stream.eof or stream.unused_data:
                raise ValueError("its compressed text does not end where its lines do")
            self._text, self._fault = unpacked.decode(), None
        except (ValueError, zlib.error) as error:
            self._fault = f"the log's result cannot be read: {error}"
