"""Prints, for each path on standard input, by how many bytes a process grows while it refuses that result, and why.

A fresh process that forks for each: what an earlier document left free would hide what the next one takes. tracemalloc
would not see what pydantic takes beside Python's objects.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from bench_image.contract.frozen import ContractError
from bench_image.contract.parse import parse_result


def status_bytes(name: str) -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


with suppress(ContractError):
    parse_result('{"schema_version": 1}')  # what any first document makes
for path in map(str.strip, sys.stdin):
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    raw = Path(path).read_bytes()
    before, message = status_bytes("VmRSS"), "it is taken"
    try:
        parse_result(raw)
    except ContractError as error:
        message = str(error)
    print(status_bytes("VmHWM") - before, message, flush=True)
    os._exit(0)
